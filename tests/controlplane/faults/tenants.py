"""Scenarios of tenants: what one of them does by mistake or malice, while canaries of another are placed."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any

from controller.api.kinds import OWN_KINDS
from tests.builders.crd_cases import FULL, having, schema_of
from tests.controlplane.faults.canaries import Canaries
from tests.controlplane.faults.scenarios import DELAY_S, Scenario, a_wave, happened, in_the_middle
from tests.controlplane.faults.stage import NotConvergedError, Play
from tests.controlplane.faults.truth import OURS, untrue
from tests.controlplane.faults.workload import PLACEMENT_MODES, Object, placed, service
from tests.controlplane.manifests import GPU, pod
from tests.controlplane.operators import create_all
from tests.controlplane.plain_api import MERGE_PATCH, Answer, PlainApi
from tests.until import comes_true

TENANT = "mallory"
"""A user with the role `edit` in one namespace and no other right."""
TRUE_WITHIN_S = 60.0
"""Time until every status is true once the tenant has stopped, seconds."""
LONG_TEXT = "x" * 250_000
"""Value of an annotation; the API server takes 256 KiB of them on one object."""
MARKS = {"tonnage.dev/node": "n000", "tonnage.dev/devices": "0", "tonnage.dev/epoch": "1"}
SHARE = {"tonnage.dev/gpu-milli": "1000"}


class Tenant:
    """One namespace, and who may edit it."""

    def __init__(self, play: Play) -> None:
        self.play, self.namespace = play, f"{play.namespace}-tenant"
        play.add_namespace(self.namespace)
        admin = play.stage.admin.within(self.namespace)
        admin("create", "rolebinding", "tenant", "--clusterrole=edit", f"--user={TENANT}")
        self.api = PlainApi(play.stage.plane.kubeconfig, TENANT, "system:authenticated")
        play.stack.callback(self.api.close)
        # A role is in force a moment after it was given.
        if not comes_true(lambda: self.api.send("GET", self.pods).is_ok, 30.0):
            raise NotConvergedError("the tenant has no rights")

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def quota(self, hard: Mapping[str, str]) -> None:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "share"},
            "spec": {"hard": dict(hard)},
        }
        self.play.stage.admin.within(self.namespace)("create", "-f", "-", stdin=quota)

    def create(self, obj: Object, path: str = "") -> Answer:
        return self.api.send("POST", path or self.pods, obj)

    def patch(self, path: str, body: Object) -> Answer:
        return self.api.send("PATCH", path, body, content_type=MERGE_PATCH)

    def tries(self, what: str, answer: Answer) -> None:
        """Counts what the API server made of something that no tenant may do."""
        self.play.injected[f"{what}: {'TAKEN' if answer.is_ok else 'refused'}"] += 1
        if answer.is_ok:
            raise AssertionError(f"{what} was let through")


@contextmanager
def beside_canaries(play: Play, operators: int = 1, **settings: Any) -> Iterator[Tenant]:
    """A tenant with a free hand, and canaries of another namespace meanwhile, with a service that shall stay Ready.

    Afterwards every status of both must become true.
    """
    neighbour = f"{play.namespace}-canary"
    tenant, api = Tenant(play), play.api()
    play.start(operators, settings={"interval_s": 1.0, **settings}, delay_s=DELAY_S)
    play.leader()
    if not play.has_canaries:
        yield tenant
        return
    play.add_namespace(neighbour)
    play.stage.admin.within(neighbour)("apply", "-f", "-", stdin=service(neighbour))
    if not comes_true(lambda: not untrue(api, [neighbour]) and _serves(api, neighbour), 60.0):
        raise NotConvergedError(f"the canaries' service is not Ready: {untrue(api, [neighbour])}")
    canaries = Canaries(play.api(), neighbour, play.stage.witness.placed_at_s.get)
    play.canaries = canaries
    with canaries.singing():
        yield tenant
    spaces = [neighbour, tenant.namespace, play.namespace]
    comes_true(lambda: not untrue(api, spaces) and _serves(api, neighbour), TRUE_WITHIN_S, pause_s=0.5)
    play.untrue += untrue(api, spaces)
    if not _serves(api, neighbour):
        play.untrue.append("the canaries' service is not Ready any more")
    for actor in play.actors:
        if actor.process.process.poll() is None:
            failed = actor.process.counted("tonnage_cycles_total").get('tonnage_cycles_total{result="failed"}', 0.0)
            play.untrue += [f"{failed:g} cycles failed"] if failed else []


def _serves(api: PlainApi, namespace: str) -> bool:
    status = api.send("GET", f"{OURS}/namespaces/{namespace}/modelservices/chat").body.get("status", {})
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))


def quiet(play: Play, rounds: int) -> None:
    """Nothing is done to it: what the other figures stand beside."""
    with beside_canaries(play):
        Event().wait(8.0 * rounds)


def tampering(play: Play, rounds: int) -> None:
    """A tenant changes what its own placed pods say of node, devices and shares, by every way there is."""
    with beside_canaries(play) as tenant:
        mine = [_share(f"mine-{n}", tenant.namespace) for n in range(8)]
        for each in mine:
            assert (answer := tenant.create(each)).is_ok, answer.message
        names = [each["metadata"]["name"] for each in mine]
        seen = play.stage.witness
        if not comes_true(lambda: all(f"{tenant.namespace}/{name}" in seen.placed_at_s for name in names), 60.0):
            raise NotConvergedError("the tenant's pods are not placed")
        lies: tuple[Mapping[str, str | None], ...] = (
            {"tonnage.dev/gpu-milli": "1"}, {"tonnage.dev/gpu-milli": None}, {"tonnage.dev/gpu-types": "a100"},
            {"tonnage.dev/devices": "63"}, {"tonnage.dev/devices": None}, {"tonnage.dev/node": "n001"},
            {"tonnage.dev/epoch": "999999"},
        )  # fmt: skip
        for _ in range(rounds):
            for name in names:
                for lie in lies:
                    for sub in ("", "/status"):
                        body = {"metadata": {"annotations": dict(lie)}}
                        tenant.tries("lies of placed pods", tenant.patch(f"{tenant.pods}/{name}{sub}", body))
        Event().wait(4.0)


def _share(name: str, namespace: str, mode: str = "bind") -> Object:
    made = placed(name, namespace, mode, gpus=0)
    made["metadata"]["annotations"] = dict(SHARE)
    return made


def phantoms(play: Play, rounds: int) -> None:
    """Pods that nobody schedules reserve devices by annotations, under a quota of no GPU at all."""
    with beside_canaries(play) as tenant:
        tenant.quota({"requests.nvidia.com/gpu": "0", "tonnage.dev/gpu-milli": "0"})
        gated: Mapping[str, Any] = PLACEMENT_MODES["gate"]
        nobody: Mapping[str, Any] = {"schedulerName": "nobody"}
        forms: Mapping[str, Callable[[str], Object]] = {
            "marks on pods of nobody": lambda name: pod(name, annotations={**MARKS, **SHARE}, **nobody),
            "marks on gated pods": lambda name: pod(name, annotations={**MARKS, **SHARE}, **gated),
            "shares of pods of nobody": lambda name: pod(name, annotations=SHARE, **nobody),
            "whole GPUs past the quota": lambda name: placed(name, tenant.namespace, "bind", gpus=8),
        }
        for number in range(100 * rounds):
            for what, form in forms.items():
                tenant.tries(what, tenant.create(form(f"phantom-{number}")))
        shares = [_share(f"share-{n}", tenant.namespace) for n in range(100 * rounds)]
        create_all(play.stage.plane.kubeconfig, tenant.pods, shares)
        play.injected["shares past the quota"] += len(shares)
        Event().wait(6.0)
        if held := [each.name for each in play.stage.witness.pods(tenant.namespace) if each.node]:
            raise AssertionError(f"{len(held)} pods past the quota of their namespace were placed")


def flood(play: Play, rounds: int) -> None:
    """Pending pods, each of a shape of its own and larger than any other; half ask more than a plan looks at."""
    with beside_canaries(play) as tenant:
        made = [_odd(f"odd-{n}", tenant.namespace, n) for n in range(500 * rounds)]
        create_all(play.stage.plane.kubeconfig, tenant.pods, made)
        play.injected["pods that fit nowhere, each of a shape of its own"] += len(made)
        Event().wait(15.0)


def _odd(name: str, namespace: str, number: int) -> Object:
    terms = [
        {"matchExpressions": [{"key": "disk", "operator": "In", "values": [f"v{number}-{t}-{v}" for v in range(40)]}]}
        for t in range((12, 30)[number % 2])
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    made = pod(name, gpus=9, affinity={"nodeAffinity": required}, schedulerName="tonnage")
    made["metadata"]["namespace"] = namespace
    made["spec"]["containers"][0]["resources"]["requests"] = {"cpu": f"{number + 1}m"}
    return made


def long_annotations(play: Play, rounds: int) -> None:
    """Annotations of 250 kB on pods, gangs and services, changed again and again."""
    with beside_canaries(play) as tenant:
        ours, paths = f"{OURS}/namespaces/{tenant.namespace}", list[str]()
        for number in range(20 * rounds):
            tried = pod(f"types-{number}", annotations={**SHARE, "tonnage.dev/gpu-types": LONG_TEXT},
                        **PLACEMENT_MODES["gate"])  # fmt: skip
            tenant.tries("GPU types of 250 kB", tenant.create(tried))
            for path, obj in _long_objects(tenant.namespace, number, ours):
                assert (answer := tenant.create(obj, path)).is_ok, answer.message
                paths.append(f"{path}/{obj['metadata']['name']}")
        play.injected["objects with an annotation of 250 kB"] += len(paths)
        for path in paths:
            changed = {"metadata": {"annotations": {"example.com/long": LONG_TEXT[::-1][4:]}}}
            assert (answer := tenant.patch(path, changed)).is_ok, answer.message
            play.injected["changes of such an annotation"] += 1
        Event().wait(4.0)


def _long_objects(namespace: str, number: int, ours: str) -> Iterator[tuple[str, Object]]:
    """(path of the collection, object): a pod and a gang, and now and then a service."""
    metadata = {"name": f"long-{number}", "annotations": {"example.com/long": LONG_TEXT}}
    held = placed(metadata["name"], namespace, ("bind", "gate")[number % 2])
    held["metadata"] |= metadata
    yield f"/api/v1/namespaces/{namespace}/pods", held
    gang = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Gang", "spec": {"minMembers": 2}}
    yield f"{ours}/gangs", {**gang, "metadata": metadata}
    if number % 10 == 0:  # each is a plan of its own, which is not what is tried here
        yield f"{ours}/modelservices", small_service(namespace) | {"metadata": metadata}


def nulls(play: Play, rounds: int) -> None:
    """A null in every optional field of every kind, one object each, and in those of a service's template."""
    with beside_canaries(play) as tenant:
        for kind in OWN_KINDS:
            inside = f"/namespaces/{tenant.namespace}" if kind.is_namespaced else ""
            # What belongs to the cluster is written by its administrators, who make mistakes, too.
            api = tenant.api if kind.is_namespaced else play.api()
            made = list(with_nulls(kind.name, tenant.namespace))
            if kind.name == "ModelService":
                made += [_with_template(tenant.namespace, each) for each in templates_with_nulls(play.api())]
            for first in range(0, len(made), AT_ONCE):
                _try_nulls(play, api, f"{OURS}{inside}/{kind.plural}", made[first : first + AT_ONCE], tenant.namespace)
        Event().wait(4.0)


AT_ONCE = 8
"""Objects with nulls at a time: how many services there are is not what is tried."""


def _try_nulls(play: Play, api: PlainApi, path: str, objects: list[Object], namespace: str) -> None:
    """Creates these, waits until what is said of them is true, and deletes them."""
    for number, obj in enumerate(objects):
        obj["metadata"]["name"] = f"null-{number}"
        play.injected["nulls taken" if api.send("POST", path, obj).is_ok else "nulls refused"] += 1
    admin = play.api()
    comes_true(lambda: not untrue(admin, [namespace]), TRUE_WITHIN_S, pause_s=0.5)
    play.untrue += untrue(admin, [namespace])
    for number in range(len(objects)):
        api.send("DELETE", f"{path}/null-{number}")


def _with_template(namespace: str, template: Object) -> Object:
    made = small_service(namespace)
    made["spec"]["template"] = template
    return made


def with_nulls(kind: str, namespace: str) -> Iterator[Object]:
    """Full objects of a kind, each with a null in one optional field of its spec."""
    full = {**FULL[kind], "metadata": {"name": "full"}}
    full.pop("status", None)
    if kind == "ModelService":
        full = small_service(namespace) | {"spec": {**FULL[kind]["spec"], **small_service(namespace)["spec"]}}
    full["metadata"].pop("namespace", None)
    for path in optional_fields(schema_of(kind)["properties"]["spec"], "spec", full["spec"]):
        yield having(full, path, None)


def optional_fields(schema: Mapping[str, Any], path: str, value: Any) -> Iterator[str]:
    """Paths of all fields that a schema does not require, where an object has what holds them."""
    if isinstance(value, dict) and "properties" in schema:
        for name, field in schema["properties"].items():
            here = f"{path}.{name}"
            if name not in schema.get("required", ()):
                yield here
            if name in value:
                yield from optional_fields(field, here, value[name])
    elif value and (held := schema.get("items") or schema.get("additionalProperties")):
        inner = value[0] if isinstance(value, list) else next(iter(value.values()))
        yield from optional_fields(held, f"{path}[]", inner)


def templates_with_nulls(api: PlainApi) -> Iterator[Object]:
    """Pod templates with a null in each field that Kubernetes has for a pod and for a container."""
    parts = api.send("GET", "/openapi/v3/api/v1").body["components"]["schemas"]
    fields = {name: parts[f"io.k8s.api.core.v1.{name}"]["properties"] for name in ("PodSpec", "Container")}
    pod_nulls = dict.fromkeys(fields["PodSpec"])
    container = dict.fromkeys(fields["Container"]) | {"name": "server", "image": "example.com/none"}
    yield {"metadata": None, "spec": {**pod_nulls, "containers": [container]}}
    term = {"matchExpressions": None, "matchFields": None}
    for required in (None, {"nodeSelectorTerms": None}, {"nodeSelectorTerms": [term]}, {"nodeSelectorTerms": [None]}):
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}, "podAffinity": None}
        yield {
            "metadata": {"labels": None, "annotations": None},
            "spec": {"containers": [container], "affinity": affinity},
        }
    yield {"spec": {"containers": [None]}}


def small_service(namespace: str) -> Object:
    """A service of one or two instances."""
    made = service(namespace)
    made["spec"]["demand"]["requestsPerSecond"] = 0.5
    return made


def scaled_to_zero(play: Play, rounds: int) -> None:
    """A service is scaled to nothing and back, and its Deployments are deleted; its status says what is so."""
    with beside_canaries(play) as tenant:
        path = f"{OURS}/namespaces/{tenant.namespace}/modelservices"
        api = play.api()
        assert (answer := tenant.create(service(tenant.namespace), path)).is_ok, answer.message
        for _ in range(rounds):
            for rate, what in ((30.0, "services scaled up"), (0.0, "services scaled to zero")):
                demand = {"spec": {"demand": {"requestsPerSecond": rate}}}
                assert (answer := tenant.patch(f"{path}/chat", demand)).is_ok, answer.message
                play.injected[what] += 1
                is_up = rate > 0

                def follows(is_up: bool = is_up) -> bool:
                    status = tenant.api.send("GET", f"{path}/chat").body.get("status", {})
                    return not untrue(api, [tenant.namespace]) and (status.get("wantedInstances", 0) > 0) == is_up

                if not comes_true(follows, TRUE_WITHIN_S):
                    play.untrue += [*untrue(api, [tenant.namespace]), f"the service does not follow {rate} requests/s"]
            apps = f"/apis/apps/v1/namespaces/{tenant.namespace}/deployments"
            for each in tenant.api.send("GET", apps).body["items"]:
                tenant.api.send("DELETE", f"{apps}/{each['metadata']['name']}")
                play.injected["Deployments deleted"] += 1


def nodes_changed(play: Play, rounds: int) -> None:
    """Nodes are moved to another pool by their labels, and tainted, in the middle of binding."""
    with beside_canaries(play):
        api = play.api()
        for number in range(rounds):
            open_nodes = [each for each in play.stage.nodes if each["metadata"]["labels"]["corner"] == "open"]
            picked = [each["metadata"]["name"] for each in play.chance.sample(open_nodes, 8)]
            pools = {each["metadata"]["name"]: each["metadata"]["labels"]["pool"] for each in open_nodes}
            done = in_the_middle(play, play.leader(), partial(_set_nodes, play, api, picked, {}, TAINTS))
            play.create(a_wave(play, number))
            happened(done)
            play.injected["nodes relabelled"] += 4
            play.injected["nodes tainted"] += 4
            play.settle()
            play.clear()
            _set_nodes(play, api, picked, pools, None)


TAINTS = [{"key": "example.com/away", "effect": "NoSchedule"}]


def _set_nodes(play: Play, api: PlainApi, names: list[str], pools: Mapping[str, str], taints: object) -> None:
    """The first half gets the label of its pool, or of none that Tonnage has; the other half gets taints."""
    half = len(names) // 2
    for name in names[:half]:
        labels = {"pool": pools.get(name, "reserved")}
        play.patch(api, f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})
    for name in names[half:]:
        play.patch(api, f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})


LIARS, OFFERED = 4, 12
"""Nodes whose kubelet has 8 devices while they offer so many, as with devices that died while they are allocatable."""


def kubelet_refusals(play: Play, rounds: int) -> None:
    """Kubelets refuse pods for devices that their nodes still offer; the owner makes new ones, which go elsewhere."""
    with beside_canaries(play) as tenant:
        admin = play.stage.admin
        names = [each["metadata"]["name"] for each in play.stage.nodes if _is_in(each, "bind")][:LIARS]
        _offer(play, names, OFFERED)
        try:
            for number in range(rounds):
                replicas = LIARS * OFFERED
                for name in names:
                    admin("label", "node", name, f"round-{number}=liar", "--overwrite")
                others = [each["metadata"]["name"] for each in play.stage.nodes if _is_in(each, "bind")][
                    LIARS : 2 * LIARS
                ]
                for name in others:
                    admin("label", "node", name, f"round-{number}=honest", "--overwrite")
                assert (answer := tenant.create(_owned(f"owned-{number}", number, replicas),
                        f"/apis/apps/v1/namespaces/{tenant.namespace}/replicasets")).is_ok, answer.message  # fmt: skip
                label = f"owned-{number}"

                def run(label: str = label, replicas: int = replicas) -> bool:
                    mine = play.stage.witness.pods(tenant.namespace)
                    return (
                        sum(e.phase == "Running" and e.name.startswith(f"{tenant.namespace}/{label}") for e in mine)
                        == replicas
                    )

                if not comes_true(run, 60.0):
                    raise NotConvergedError(f"not all {replicas} replicas run")
            refused = {each for each in play.stage.witness.ledger.failed if each.startswith(f"{tenant.namespace}/")}
            play.injected["pods refused by kubelets"] += len(refused)
            most = LIARS * (OFFERED - 8)
            if not 0 < len(refused) <= most:
                raise AssertionError(f"{len(refused)} pods were refused; nodes that are held back lose {most} at most")
            # Which devices a kubelet chose is not known, and those past the eighth are none.
            admin.within(tenant.namespace)("delete", "replicasets,pods", "--all")
        finally:
            _offer(play, names, 8)


def _owned(name: str, number: int, replicas: int) -> Object:
    where = {"key": f"round-{number}", "operator": "Exists"}
    required = {"nodeSelectorTerms": [{"matchExpressions": [where]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    spec = pod(name, gpus=1, schedulerName="tonnage", affinity=affinity, terminationGracePeriodSeconds=0)["spec"]
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


def _is_in(node: Object, pool: str) -> bool:
    labels = node["metadata"]["labels"]
    return bool(labels["pool"] == pool and labels["corner"] == "open")


def _offer(play: Play, names: list[str], gpus: int) -> None:
    status = {"status": {"allocatable": {GPU: str(gpus)}, "capacity": {GPU: str(gpus)}}}
    for name in names:
        play.stage.admin("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps(status))


def one_settings_file(play: Play, rounds: int) -> None:
    """Two operators are started from one settings file, with one identity in it: one of them leads at any time."""
    with beside_canaries(play, operators=2, identity="of-one-file"):

        def look() -> None:
            play.injected["looks at who leads"] += 1
            if sum(actor.leads for actor in play.actors) > 1:
                play.untrue.append("two lead at one time")

        with play.meanwhile(look, 0.1):
            for number in range(rounds):
                play.create(a_wave(play, number))
                play.settle()
                play.clear()
            Event().wait(4.0)


TENANTS: Mapping[str, tuple[Scenario, int]] = {
    "quiet": (quiet, 3),
    "tampering": (tampering, 3),
    "phantoms": (phantoms, 4),
    "flood": (flood, 3),
    "long-annotations": (long_annotations, 3),
    "nulls": (nulls, 1),
    "scaled-to-zero": (scaled_to_zero, 3),
    "nodes-changed": (nodes_changed, 5),
    "kubelet-refusals": (kubelet_refusals, 1),
    "one-settings-file": (one_settings_file, 5),
}
"""With the rounds of the long form. `quiet` is what the waits of the canaries in the others stand beside."""
