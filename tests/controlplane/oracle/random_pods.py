"""Random pods: each field that a filter of kube-scheduler reads is a kind of constraint of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

Object = dict[str, Any]

NAMESPACES = ("oracle-a", "oracle-b", "oracle-c")
ZONE, RACK, HOSTNAME = "topology.kubernetes.io/zone", "example.com/rack", "kubernetes.io/hostname"
DOMAINS = (ZONE, RACK, HOSTNAME)
SEAT = "example.com/seat"
"""Resource of which a node has one where a pod is to be nominated."""
PREEMPTING = "preempting"
"""Name of the scheduler for pods that may stop others; it shares the nominations of the default one."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What pods may name."""

    nodes: tuple[str, ...]
    claims: Mapping[str, Mapping[str, Sequence[str]]]
    """Volume claims by the way in which they bind, then by namespace."""


@dataclass(frozen=True, slots=True)
class RandomPod:
    """A pod as it is created, with what only its status can say."""

    object: Object
    kinds: tuple[str, ...]
    """Kinds of constraints that it uses."""
    status: Object = field(default_factory=dict)
    """Patch of its status after its creation."""
    nominated_to: str = ""
    """Node that kube-scheduler will nominate for it."""
    is_ending: bool = False
    """Whether it is deleted after its creation, and still there while its containers stop."""

    @property
    def name(self) -> str:
        meta = self.object["metadata"]
        return f"{meta['namespace']}/{meta['name']}"


def pending_pod(chance: Random, name: str, around: Surroundings) -> RandomPod:
    """A pod that waits and uses one to three kinds of constraints."""
    pod = _pod(chance, name)
    weights = [WEIGHTS.get(kind, 1.0) for kind in KINDS]
    chosen = dict.fromkeys(chance.choices(tuple(KINDS), weights, k=chance.choice((1, 1, 1, 2, 2, 3))))
    said = [kind for kind in chosen if _use(kind, chance, pod, around)]
    if chance.random() < 0.12:
        pod["spec"]["priorityClassName"] = chance.choice(("low", "high", "polite"))
        said += ["preemptionPolicy Never"] if pod["spec"]["priorityClassName"] == "polite" else []
    return RandomPod(pod, tuple(said) or ("none",))


def running_pod(chance: Random, name: str, node: str, around: Surroundings) -> RandomPod:
    """A pod that is bound to the node, whether or not a filter would have let it."""
    pod = _pod(chance, name)
    used = [
        kind
        for kind, share in {
            "pod anti-affinity": 0.06,
            "host ports": 0.08,
            "extended resources": 0.1,
            "GPUs": 0.08,
            "huge pages": 0.07,
            "ephemeral storage": 0.1,
            "init containers": 0.08,
            "sidecars": 0.08,
            "overhead": 0.06,
            "pod-level resources": 0.06,
            "ReadWriteOncePod": 0.06,
            "bound volumes": 0.1,
            "limited volumes": 0.15,
            "disks in the pod": 0.05,
        }.items()
        if chance.random() < share and _use(kind, chance, pod, around)
    ]
    pod["spec"]["nodeName"] = node
    status: Object = {"phase": "Running"}
    kinds = [f"running: {kind}" for kind in used if kind in ("pod anti-affinity", "host ports")]
    is_ending = False
    match chance.choices(("plain", "resized", "ended", "ending"), (80, 8, 5, 7))[0]:
        case "resized":
            status |= _resized(chance, pod)
            kinds.append("running: resized in place")
        case "ended":
            status["phase"] = chance.choice(("Succeeded", "Failed"))
            kinds.append("running: ended")
        case "ending":
            is_ending = True
            kinds.append("running: terminating")
    return RandomPod(pod, tuple(kinds), status, is_ending=is_ending)


def nominated_pod(chance: Random, name: str, around: Surroundings, node: str) -> tuple[RandomPod, RandomPod]:
    """A pod that waits and has a node nominated, and the one that it stops there, which takes its time to end."""
    victim, pod = _pod(chance, f"{name}-victim"), _pod(chance, name)
    victim["spec"] |= {"nodeName": node, "priorityClassName": "low"}
    _request(_main(victim), SEAT, "1", limited=True)
    for kind in ("host ports", "cpu and memory", "pod anti-affinity"):
        if chance.random() < 0.4:
            _use(kind, chance, pod, around)
    _request(_main(pod), SEAT, "1", limited=True)
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    _affinity(pod, "nodeAffinity")[REQUIRED] = {"nodeSelectorTerms": [term]}
    pod["spec"] |= {
        "priorityClassName": "high",
        "schedulerName": PREEMPTING,
        "tolerations": [{"operator": "Exists"}],
    }
    return RandomPod(victim, (), {"phase": "Running"}), RandomPod(pod, ("running: nominated",), nominated_to=node)


def _pod(chance: Random, name: str) -> Object:
    labels = {"app": chance.choice("abc"), "tier": chance.choice("xy"), "version": chance.choice(("v1", "v2"))}
    labels = {key: value for key, value in labels.items() if chance.random() < 0.85}
    container: Object = {"name": "main", "image": "example.com/none"}
    if chance.random() < 0.8:
        requests = {"cpu": chance.choice(("50m", "250m", "1"))}
        requests |= {"memory": chance.choice(("64Mi", "1Gi"))} if chance.random() < 0.6 else {}
        container["resources"] = {"requests": requests}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": chance.choice(NAMESPACES), "labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 600},
    }


def _use(kind: str, chance: Random, pod: Object, around: Surroundings) -> bool:
    """Makes the pod use a kind of constraint; whether it does."""
    return KINDS[kind](chance, pod, around) is not False


def _main(pod: Object) -> Object:
    found: Object = pod["spec"]["containers"][0]
    return found


def _request(container: Object, name: str, amount: str, *, limited: bool = False) -> None:
    resources = container.setdefault("resources", {})
    resources.setdefault("requests", {})[name] = amount
    if limited:
        resources.setdefault("limits", {})[name] = amount


def _affinity(pod: Object, kind: str) -> Object:
    found: Object = pod["spec"].setdefault("affinity", {}).setdefault(kind, {})
    return found


REQUIRED, PREFERRED = (f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred"))


# --- Nodes -----------------------------------------------------------------------------------------------------------


def _node_selector(chance: Random, pod: Object, _: Surroundings) -> None:
    labels = {ZONE: f"z{chance.randrange(3)}", "disk": "ssd", RACK: f"r{chance.randrange(4)}"}
    key = chance.choice((ZONE, "disk", "disk", RACK))
    pod["spec"]["nodeSelector"] = {key: labels[key]}


def _expression(chance: Random) -> Object:
    key, values = chance.choice(
        ((ZONE, ("z0", "z1", "z2")), (RACK, ("r0", "r1", "r2", "r3")), ("disk", ("ssd", "hdd")))
    )
    match chance.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")):
        case "In" | "NotIn" as operator:
            most = max(1, len(values) - 1)
            return {"key": key, "operator": operator, "values": chance.sample(values, chance.randint(1, most))}
        case "Exists":
            return {"key": key, "operator": "Exists"}
        case "DoesNotExist":
            return {"key": chance.choice((key, "absent")), "operator": "DoesNotExist"}
        case operator:
            return {"key": "generation", "operator": operator, "values": [chance.choice(("0", "2", "3"))]}


def _node_affinity(chance: Random, pod: Object, _: Surroundings) -> None:
    terms = _affinity(pod, "nodeAffinity").setdefault(REQUIRED, {}).setdefault("nodeSelectorTerms", [])
    for _number in range(chance.choice((1, 1, 2))):
        terms.append({"matchExpressions": [_expression(chance) for _each in range(chance.choice((1, 1, 2)))]})


def _match_fields(chance: Random, pod: Object, around: Surroundings) -> None:
    terms = _affinity(pod, "nodeAffinity").setdefault(REQUIRED, {}).setdefault("nodeSelectorTerms", [])
    for _number in range(chance.choice((1, 2, 3, 4))):
        node = chance.choice((*around.nodes, "no-such-node"))
        operator = chance.choice(("In", "NotIn"))
        term = {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [node]}]}
        terms.append(term if chance.random() < 0.7 else {**term, "matchExpressions": [_expression(chance)]})


def _tolerations(chance: Random, pod: Object, _: Surroundings) -> None:
    tolerations = pod["spec"].setdefault("tolerations", [])
    for _number in range(chance.choice((1, 2, 3))):
        effect = chance.choice(({}, {"effect": "NoSchedule"}, {"effect": "NoExecute"}))
        key = chance.choice(("dedicated", "maintenance", "gpu"))
        how = chance.choice(
            (
                {"key": key, "operator": "Exists"},
                {"key": key, "operator": "Equal", "value": chance.choice(("yes", "no"))},
                {"key": key, "value": chance.choice(("yes", ""))},
                {"operator": "Exists"},
            )
        )
        tolerations.append({**how, **effect})


def _cordon(chance: Random, pod: Object, _: Surroundings) -> None:
    key, effect = (
        "node.kubernetes.io/unschedulable",
        chance.choice(({}, {"effect": "NoSchedule"}, {"effect": "NoExecute"})),
    )
    pod["spec"].setdefault("tolerations", []).append({"key": key, "operator": "Exists", **effect})


def _preferences(chance: Random, pod: Object, _: Surroundings) -> None:
    """Soft rules, which refuse nothing."""
    term = {"weight": 5, "preference": {"matchExpressions": [_expression(chance)]}}
    _affinity(pod, "nodeAffinity")[PREFERRED] = [term]
    near = {"weight": 9, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "a"}}}}
    _affinity(pod, "podAntiAffinity")[PREFERRED] = [near]
    spread = {"maxSkew": 1, "topologyKey": "example.com/absent", "whenUnsatisfiable": "ScheduleAnyway"}
    pod["spec"].setdefault("topologySpreadConstraints", []).append({**spread, "labelSelector": {}})


# --- Resources -------------------------------------------------------------------------------------------------------


def _cpu_and_memory(chance: Random, pod: Object, _: Surroundings) -> bool:
    if "resources" in pod["spec"]:  # what it asks as a whole would be too little
        return False
    _request(_main(pod), "cpu", chance.choice(("1500m", "3", "7", "0.5")))
    _request(_main(pod), "memory", chance.choice(("3Gi", "14Gi", "30G", "1500M")))
    if chance.random() < 0.3:
        second = {"name": "second", "image": "example.com/none"}
        pod["spec"]["containers"].append(second)
        _request(second, "cpu", "1")
    return True


def _extended(chance: Random, pod: Object, _: Surroundings) -> None:
    name, amounts = chance.choice(
        (("example.com/fpga", ("1", "2")), ("rdma/hca", ("1", "2")), ("habana.ai/gaudi", ("1", "4")))
    )
    _request(_main(pod), name, chance.choice(amounts), limited=True)


def _gpus(chance: Random, pod: Object, _: Surroundings) -> None:
    _request(_main(pod), "nvidia.com/gpu", chance.choice(("1", "2", "4")), limited=True)


def _huge_pages(chance: Random, pod: Object, _: Surroundings) -> None:
    _request(_main(pod), "cpu", "100m")
    _request(_main(pod), "hugepages-2Mi", chance.choice(("128Mi", "256Mi", "512Mi")), limited=True)
    if chance.random() < 0.15:
        _request(_main(pod), "hugepages-1Gi", "1Gi", limited=True)


def _ephemeral_storage(chance: Random, pod: Object, _: Surroundings) -> None:
    _request(_main(pod), "ephemeral-storage", chance.choice(("2Gi", "9Gi", "20Gi", "35G")))


def _init_containers(chance: Random, pod: Object, _: Surroundings) -> bool:
    if "resources" in pod["spec"]:  # what it asks as a whole would be too little
        return False
    made = {"name": f"init-{len(pod['spec'].get('initContainers', ()))}", "image": "example.com/none"}
    _request(made, "cpu", chance.choice(("2", "5", "7")))
    if chance.random() < 0.3:
        _request(made, "example.com/fpga", "1", limited=True)
    pod["spec"].setdefault("initContainers", []).append(made)
    return True


def _sidecars(chance: Random, pod: Object, around: Surroundings) -> bool:
    if "resources" in pod["spec"]:  # what it asks as a whole would be too little
        return False
    number = len(pod["spec"].get("initContainers", ()))
    made: Object = {"name": f"side-{number}", "image": "example.com/none", "restartPolicy": "Always"}
    _request(made, "cpu", chance.choice(("500m", "2", "3")))
    if chance.random() < 0.25:
        made["ports"] = [_port(chance)]
    pod["spec"].setdefault("initContainers", []).append(made)
    if chance.random() < 0.4:
        _init_containers(chance, pod, around)
    return True


def _overhead(chance: Random, pod: Object, _: Surroundings) -> None:
    pod["spec"]["runtimeClassName"] = chance.choice(("sandboxed", "virtual"))


def _pod_level(chance: Random, pod: Object, _: Surroundings) -> bool:
    spec = pod["spec"]
    asked = _main(pod).get("resources", {}).get("requests", {})
    is_small = asked.get("cpu") in (None, "50m", "250m", "1") and asked.get("memory") in (None, "64Mi", "1Gi")
    if len(spec["containers"]) > 1 or "initContainers" in spec or not is_small:  # the sum must not exceed the whole
        return False
    requests = {"cpu": chance.choice(("5", "7")), "memory": chance.choice(("15G", "31G"))}
    spec["resources"] = {chance.choice(("requests", "limits")): requests}
    return True


def _resized(chance: Random, pod: Object) -> Object:
    """Status of a pod whose containers hold more or less than their spec says."""
    statuses = []
    for container in pod["spec"]["containers"]:
        held = {"cpu": chance.choice(("100m", "3", "6")), "memory": chance.choice(("64Mi", "8Gi"))}
        status = {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "resources": {"requests": held},
        }
        if chance.random() < 0.6:
            status["allocatedResources"] = {**held, "cpu": chance.choice(("100m", "2", "5"))}
        statuses.append(status)
    found: Object = {"containerStatuses": statuses}
    if chance.random() < 0.3:
        reason = chance.choice(("Infeasible", "Deferred"))
        found["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return found


# --- Ports and other pods --------------------------------------------------------------------------------------------


def _port(chance: Random) -> Object:
    port = chance.choice((8080, 8081))
    made: Object = {"containerPort": port, "hostPort": port}
    if chance.random() < 0.5:
        made["protocol"] = chance.choice(("TCP", "UDP", "SCTP"))
    if chance.random() < 0.5:
        made["hostIP"] = chance.choice(("127.0.0.1", "10.0.0.1", "0.0.0.0"))  # noqa: S104 - all addresses, as a pod may ask
    return made


def _host_ports(chance: Random, pod: Object, _: Surroundings) -> None:
    _main(pod)["ports"] = [_port(chance)]
    if chance.random() < 0.2:
        pod["spec"]["hostNetwork"] = True
        _main(pod)["ports"] = [{"containerPort": chance.choice((8080, 8081))}]


def _selector(chance: Random) -> Object | None:
    """A selector of pods, with every operator; None selects none."""
    values = {"app": ("a", "b", "c"), "tier": ("x", "y")}
    key = chance.choice(tuple(values))
    match chance.choice(("labels", "labels", "In", "NotIn", "Exists", "DoesNotExist", "all", "none")):
        case "labels":
            return {"matchLabels": {key: chance.choice(values[key])}}
        case "In" | "NotIn" as operator:
            some = chance.sample(values[key], chance.randint(1, len(values[key]) - 1))
            return {"matchExpressions": [{"key": key, "operator": operator, "values": some}]}
        case "Exists" | "DoesNotExist" as operator:
            return {"matchExpressions": [{"key": key, "operator": operator}]}
        case "all":
            return {}
    return None


def _term(chance: Random) -> Object:
    """A term between pods."""
    made: Object = {"topologyKey": chance.choice(DOMAINS)}
    selector = _selector(chance)
    if selector is not None:
        made["labelSelector"] = selector
        if chance.random() < 0.2:
            made[chance.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["version"]
    match chance.choice(("own", "own", "named", "all", "labels", "both")):
        case "named":
            made["namespaces"] = chance.sample(NAMESPACES, chance.choice((1, 2)))
        case "all":
            made["namespaceSelector"] = {}
        case "labels":
            made["namespaceSelector"] = {"matchLabels": {"team": "red"}}
        case "both":
            made["namespaces"] = [chance.choice(NAMESPACES)]
            # Not NotIn and DoesNotExist: kube-scheduler 1.36.3 takes them to match every namespace, since
            # mergeAffinityTermNamespacesIfNotEmpty clears the selector of a copy. Tonnage reads them as documented.
            expression: Object = {"key": "team", "operator": chance.choice(("In", "Exists"))}
            expression |= {"values": ["red"]} if expression["operator"] == "In" else {}
            made["namespaceSelector"] = {"matchExpressions": [expression]}
    return made


def _pod_affinity(chance: Random, pod: Object, _: Surroundings) -> None:
    terms = [_term(chance) for _number in range(chance.choice((1, 1, 1, 2)))]
    _affinity(pod, "podAffinity")[REQUIRED] = terms


def _pod_anti_affinity(chance: Random, pod: Object, _: Surroundings) -> None:
    terms = [_term(chance) for _number in range(chance.choice((1, 1, 2)))]
    _affinity(pod, "podAntiAffinity")[REQUIRED] = terms


def _spread(chance: Random, pod: Object, _: Surroundings) -> None:
    constraints = pod["spec"].setdefault("topologySpreadConstraints", [])
    for key in chance.sample(DOMAINS, chance.choice((1, 1, 2))):
        made: Object = {
            "topologyKey": key,
            "maxSkew": chance.choice((1, 1, 2, 3)),
            "whenUnsatisfiable": "DoNotSchedule",
        }
        selector = _selector(chance)
        if selector is not None:
            made["labelSelector"] = selector
            if chance.random() < 0.2:
                made["matchLabelKeys"] = ["version"]
        if chance.random() < 0.25:
            made["minDomains"] = chance.randint(1, 6)
        if chance.random() < 0.4:
            made["nodeAffinityPolicy"] = chance.choice(("Honor", "Ignore"))
        if chance.random() < 0.4:
            made["nodeTaintsPolicy"] = chance.choice(("Honor", "Ignore"))
        constraints.append(made)


# --- Volumes ---------------------------------------------------------------------------------------------------------


def _claims(how: str) -> Callable[[Random, Object, Surroundings], bool]:
    """Use of a claim that binds in this way."""

    def use(chance: Random, pod: Object, around: Surroundings) -> bool:
        names = around.claims.get(how, {}).get(pod["metadata"]["namespace"], ())
        if not names:
            return False
        _add_volume(pod, {"persistentVolumeClaim": {"claimName": chance.choice(names)}})
        return True

    return use


def _missing_claim(_: Random, pod: Object, __: Surroundings) -> None:
    _add_volume(pod, {"persistentVolumeClaim": {"claimName": "no-such-claim"}})


def _ephemeral_claim(_: Random, pod: Object, __: Surroundings) -> None:
    """A claim that a controller would make; none does, as when it has not come to it yet."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    _add_volume(pod, {"ephemeral": {"volumeClaimTemplate": {"spec": spec}}})


def _disks(chance: Random, pod: Object, _: Surroundings) -> None:
    """A disk that is named in the pod itself."""
    number, read_only = chance.randrange(2), chance.random() < 0.3
    source = chance.choice(
        (
            {"gcePersistentDisk": {"pdName": f"disk-{number}", "readOnly": read_only}},
            {"awsElasticBlockStore": {"volumeID": f"vol-{number}", "readOnly": read_only}},
            {
                "iscsi": {
                    "targetPortal": "10.0.0.9",
                    "iqn": f"iqn.2001-04.example:{number}",
                    "lun": 0,
                    "readOnly": read_only,
                }
            },
            {"rbd": {"monitors": ["10.0.0.8"], "image": f"image-{number}", "readOnly": read_only}},
        )
    )
    _add_volume(pod, source)


def _harmless_volumes(_: Random, pod: Object, __: Surroundings) -> None:
    sources: tuple[Object, ...] = (
        {"emptyDir": {}},
        {"configMap": {"name": "none"}},
        {"hostPath": {"path": "/mnt/disks"}},
    )
    for source in sources:
        _add_volume(pod, source)


def _add_volume(pod: Object, source: Object) -> None:
    volumes = pod["spec"].setdefault("volumes", [])
    volumes.append({"name": f"v{len(volumes)}", **source})


# --- Gates -----------------------------------------------------------------------------------------------------------


def _foreign_gate(_: Random, pod: Object, __: Surroundings) -> None:
    pod["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]


KINDS: Mapping[str, Callable[[Random, Object, Surroundings], bool | None]] = {
    "node selector": _node_selector,
    "node affinity": _node_affinity,
    "node affinity, matchFields": _match_fields,
    "tolerations": _tolerations,
    "toleration of cordons": _cordon,
    "soft constraints": _preferences,
    "cpu and memory": _cpu_and_memory,
    "extended resources": _extended,
    "GPUs": _gpus,
    "huge pages": _huge_pages,
    "ephemeral storage": _ephemeral_storage,
    "init containers": _init_containers,
    "sidecars": _sidecars,
    "overhead": _overhead,
    "pod-level resources": _pod_level,
    "host ports": _host_ports,
    "pod affinity": _pod_affinity,
    "pod anti-affinity": _pod_anti_affinity,
    "topology spread": _spread,
    "bound volumes": _claims("bound"),
    "volumes to be bound": _claims("static"),
    "volumes to be made": _claims("made"),
    "immediate volumes": _claims("immediate"),
    "ReadWriteOncePod": _claims("alone"),
    "limited volumes": _claims("limited"),
    "claims that cannot bind": _claims("broken"),
    "missing claim": _missing_claim,
    "ephemeral claim": _ephemeral_claim,
    "disks in the pod": _disks,
    "other volumes": _harmless_volumes,
    "foreign gate": _foreign_gate,
}
"""Kinds of constraints of a pod."""
WEIGHTS = {
    "foreign gate": 0.25,
    "claims that cannot bind": 0.25,
    "missing claim": 0.25,
    "ephemeral claim": 0.25,
    "immediate volumes": 0.25,
    "ReadWriteOncePod": 0.5,
    "disks in the pod": 0.1,
}
"""How often a kind is used beside the others, 1 for each: less where it mostly refuses every node, or is out of use."""
