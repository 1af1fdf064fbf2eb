"""Situations that decide where a pod may run, one rule of kube-scheduler's filters each, with the nodes that it allows.

They restate what its own unit tests of these filters examine; the tier on a real control plane asks it about each.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"
NAMESPACE = "oracle-a"
OTHER_NAMESPACE = "oracle-b"
ENDS_AT = "2026-01-01T00:00:00Z"
"""A pod with this deletionTimestamp is being deleted."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Nodes, pods that run on them, and one that waits."""

    rule: str
    nodes: Sequence[Object]
    pod: Object
    allowed: str
    """Names of the nodes that it may run on, which have one letter each."""
    running: Sequence[Object] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.rule


def node(name: str, *, cordoned: bool = False, taints: Sequence[Object] = (), **labels: str) -> Object:
    """A node with room, and with these labels; `_` in their names stands for `-`."""
    room = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {key.replace("_", "-"): value for key, value in labels.items()}},
        "spec": {**({"unschedulable": True} if cordoned else {}), **({"taints": list(taints)} if taints else {})},
        "status": {"allocatable": room, "capacity": room},
    }


def with_room(of: Object, **amounts: str) -> Object:
    """The node with these amounts; `_` in names stands for `-`, `__` for `.` and `___` for `/`."""
    room = {**of["status"]["allocatable"], **{_resource(name): amount for name, amount in amounts.items()}}
    return {**of, "status": {"allocatable": room, "capacity": room}}


def pod(name: str = "waits", on: str = "", *, namespace: str = NAMESPACE, labels: str = "", **spec: Any) -> Object:
    """A pod, bound to a node where one is named. labels: `app=a tier=x`."""
    made: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(each.split("=") for each in labels.split()),
        },
        "spec": {"containers": [container()], **spec},
    }
    if on:
        made["spec"]["nodeName"] = on
    return made


def container(name: str = "main", *, ports: Sequence[Object] = (), restart: str = "", **requests: str) -> Object:
    """A container with these requests, which are its limits as well where that is needed."""
    asked = {_resource(key): amount for key, amount in requests.items()}
    hard = {key: amount for key, amount in asked.items() if "/" in key or key.startswith("hugepages")}
    made: Object = {"name": name, "image": "example.com/none"}
    if asked:
        made["resources"] = {"requests": asked, **({"limits": hard} if hard else {})}
    if ports:
        made["ports"] = list(ports)
    if restart:
        made["restartPolicy"] = restart
    return made


def _resource(name: str) -> str:
    return name.replace("___", "/").replace("__", ".").replace("_", "-")


def port(number: int, protocol: str = "TCP", address: str = "") -> Object:
    made: Object = {"containerPort": number, "hostPort": number, "protocol": protocol}
    return {**made, "hostIP": address} if address else made


def expression(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def on_nodes(*terms: Sequence[Object], names: Sequence[Object] = ()) -> Object:
    """Affinity to nodes that meet all expressions of one term, or all of `names` about their name."""
    made = [{"matchExpressions": list(term)} for term in terms] + [{"matchFields": [each]} for each in names]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": made}}}


def term(key: str, *expressions: Object, **more: Any) -> Object:
    """A term between pods that selects by these expressions."""
    return {"topologyKey": key, "labelSelector": {"matchExpressions": list(expressions)}, **more}


def near(*terms: Object) -> Object:
    return {"podAffinity": {REQUIRED: list(terms)}}


def apart(*terms: Object) -> Object:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def spread(key: str, *expressions: Object, skew: int = 1, **more: Any) -> Object:
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchExpressions": list(expressions)},
        **more,
    }


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Object:
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def tolerates(key: str = "", value: str = "", effect: str = "", operator: str = "") -> Object:
    written = {"key": key, "value": value, "effect": effect, "operator": operator}
    return {name: text for name, text in written.items() if text}


IS_A = expression("app", "In", "a")
TWO_ZONES = (node("a", zone="1"), node("b", zone="1"), node("c", zone="2"))
FOUR = (
    node("a", zone="1", host="a"),
    node("b", zone="1", host="b"),
    node("x", zone="2", host="x"),
    node("y", zone="2", host="y"),
)


def _nodes_and_names() -> Iterator[Situation]:
    plain = (node("a"), node("b"))
    disks = (node("a", disk="ssd"), node("b", disk="hdd"), node("c"))
    sizes = (node("a", size="4"), node("b", size="16"), node("c", size="large"), node("d"))
    yield Situation("a pod that asks for nothing may run anywhere", plain, pod(), "ab")
    yield Situation("a selector wants every label", disks, pod(nodeSelector={"disk": "ssd"}), "a")
    yield Situation("a selector for a label of no node", disks, pod(nodeSelector={"none": "x"}), "")
    for operator, values, allowed in (
        ("In", ("ssd",), "a"),
        ("In", ("ssd", "hdd"), "ab"),
        ("NotIn", ("ssd",), "bc"),
        ("Exists", (), "ab"),
        ("DoesNotExist", (), "c"),
    ):
        rule = f"{operator} {' '.join(values)}".strip()
        yield Situation(
            f"an affinity to nodes: {rule}",
            disks,
            pod(affinity=on_nodes([expression("disk", operator, *values)])),
            allowed,
        )
    yield Situation("Gt compares integers", sizes, pod(affinity=on_nodes([expression("size", "Gt", "4")])), "b")
    yield Situation("Lt compares integers", sizes, pod(affinity=on_nodes([expression("size", "Lt", "16")])), "a")
    both = [expression("disk", "Exists"), expression("disk", "NotIn", "hdd")]
    yield Situation("all expressions of a term hold", disks, pod(affinity=on_nodes(both)), "a")
    either = on_nodes([expression("disk", "In", "hdd")], [expression("disk", "DoesNotExist")])
    yield Situation("one of the terms is enough", disks, pod(affinity=either), "bc")
    selected = pod(nodeSelector={"disk": "ssd"}, affinity=on_nodes([expression("disk", "Exists")]))
    yield Situation("selector and affinity both hold", disks, selected, "a")
    contrary = pod(nodeSelector={"disk": "ssd"}, affinity=on_nodes([expression("disk", "In", "hdd")]))
    yield Situation("selector and affinity contradict each other", disks, contrary, "")
    by_name = on_nodes(names=[expression("metadata.name", "In", "b")])
    yield Situation("a node by its name", disks, pod(affinity=by_name), "b")
    not_by_name = on_nodes(names=[expression("metadata.name", "NotIn", "b")])
    yield Situation("all nodes but one, by its name", disks, pod(affinity=not_by_name), "ac")
    missing = on_nodes(names=[expression("metadata.name", "In", "z")])
    yield Situation("a name that no node has", disks, pod(affinity=missing), "")
    name_and_label = {
        "nodeAffinity": {
            REQUIRED: {
                "nodeSelectorTerms": [
                    {
                        "matchFields": [expression("metadata.name", "In", "b")],
                        "matchExpressions": [expression("disk", "In", "ssd")],
                    }
                ]
            }
        }
    }
    yield Situation("name and label of one term both hold", disks, pod(affinity=name_and_label), "")
    twins = [node(name) for name in "ab"]
    for each in twins:
        each["metadata"]["labels"][HOSTNAME] = "a"
    yield Situation("nodes with the same hostname are both meant", twins, pod(nodeSelector={HOSTNAME: "a"}), "ab")


def _taints() -> Iterator[Situation]:
    def one(rule: str, put: Object, allowed: str, *given: Object) -> Situation:
        nodes = (node("a"), node("b", taints=[put]))
        return Situation(f"taint: {rule}", nodes, pod(tolerations=list(given)), allowed)

    yes = taint("gpu", "yes")
    yield one("nobody tolerates it", yes, "a")
    yield one("Equal with key, value and effect", yes, "ab", tolerates("gpu", "yes", "NoSchedule", "Equal"))
    yield one("Equal is the default", yes, "ab", tolerates("gpu", "yes"))
    yield one("another value", yes, "a", tolerates("gpu", "no"))
    yield one("another key", yes, "a", tolerates("cpu", "yes"))
    yield one("another effect", yes, "a", tolerates("gpu", "yes", "NoExecute"))
    yield one("Exists heeds no value", yes, "ab", tolerates("gpu", operator="Exists"))
    yield one("Exists without a key tolerates all", yes, "ab", tolerates(operator="Exists"))
    yield one("all of one effect only", yes, "a", tolerates(operator="Exists", effect="NoExecute"))
    yield one("NoExecute keeps new pods away", taint("gpu", "yes", "NoExecute"), "a")
    yield one("PreferNoSchedule does not", taint("gpu", "yes", "PreferNoSchedule"), "ab")
    yield one("an empty value equals an empty one", taint("gpu"), "ab", tolerates("gpu"))
    two = (node("a"), node("b", taints=[yes, taint("old", "", "NoExecute")]))
    yield Situation("taint: each of two must be tolerated", two, pod(tolerations=[tolerates("gpu", "yes")]), "a")
    every = pod(tolerations=[tolerates("gpu", "yes"), tolerates("old", operator="Exists")])
    yield Situation("taint: each of two is tolerated", two, every, "ab")
    cordoned = (node("a"), node("b", cordoned=True))
    cordon = "node.kubernetes.io/unschedulable"
    yield Situation("a cordoned node takes no pod", cordoned, pod(), "a")
    yield Situation(
        "but one that tolerates cordons", cordoned, pod(tolerations=[tolerates(cordon, operator="Exists")]), "ab"
    )
    yield Situation("or everything", cordoned, pod(tolerations=[tolerates(operator="Exists")]), "ab")
    wrong = pod(tolerations=[tolerates(cordon, effect="NoExecute", operator="Exists")])
    yield Situation("a cordon has the effect NoSchedule", cordoned, wrong, "a")


def _resources() -> Iterator[Situation]:
    small = (with_room(node("a"), cpu="2", memory="4Gi"), with_room(node("b"), cpu="4", memory="8Gi"))

    def asks(rule: str, allowed: str, *running: Object, nodes: Sequence[Object] = small, **spec: Any) -> Situation:
        return Situation(f"resources: {rule}", nodes, pod(**spec), allowed, running)

    def busy(on: str, **requests: Any) -> Object:
        return pod(f"busy-{on}", on, containers=[container(**requests)])

    yield asks("as much as there is", "ab", containers=[container(cpu="2", memory="4Gi")])
    yield asks("a thousandth too much", "b", containers=[container(cpu="2001m")])
    yield asks("memory alone decides", "b", containers=[container(memory="5Gi")])
    yield asks("what runs is taken off", "b", busy("a", cpu="1500m"), containers=[container(cpu="1")])
    yield asks("containers add up", "b", containers=[container(cpu="2"), container("two", cpu="1")])
    yield asks("containers without requests ask for nothing", "ab", busy("a", cpu="2"), containers=[container()])
    init = [container("init", cpu="3")]
    yield asks("the largest init container counts", "b", initContainers=init, containers=[container(cpu="1")])
    inits = [container("one", cpu="2"), container("two", cpu="2")]
    yield asks("init containers run one by one", "ab", initContainers=inits, containers=[container(cpu="1")])
    side = [container("side", cpu="1500m", restart="Always")]
    yield asks("sidecars run beside", "b", initContainers=side, containers=[container(cpu="1")])
    late = [*side, container("init", cpu="1")]
    yield asks("an init container runs beside earlier sidecars", "b", initContainers=late, containers=[container()])
    early = [container("init", cpu="2"), *side]
    yield asks("but not beside later ones", "ab", initContainers=early, containers=[container()])
    whole = {"requests": {"cpu": "3"}}
    yield asks("the pod's own request replaces the sum", "b", resources=whole, containers=[container(cpu="1")])
    full = (with_room(node("a"), pods="1"), with_room(node("b"), pods="2"))
    yield asks("a node takes so many pods", "b", busy("a", cpu="1m"), nodes=full)
    cards = (with_room(node("a"), example__com___card="2"), node("b"))
    card = [container(example__com___card="2")]
    yield asks("an extended resource is where it is offered", "a", nodes=cards, containers=card)
    held = busy("a", example__com___card="1")
    yield asks("and is held by what runs", "", held, nodes=cards, containers=card)
    none = (with_room(node("a"), example__com___card="0"), node("b"))
    yield asks("none of it offered", "", nodes=none, containers=[container(example__com___card="1")])
    pages = (with_room(node("a"), hugepages_2Mi="512Mi"), node("b"))
    paged = [container(cpu="1", hugepages_2Mi="256Mi")]
    yield asks("huge pages of a size", "a", nodes=pages, containers=paged)
    other = [container(cpu="1", hugepages_1Gi="1Gi")]
    yield asks("huge pages of another size", "", nodes=pages, containers=other)
    disk = (with_room(node("a"), ephemeral_storage="5Gi"), node("b"))
    yield asks("ephemeral storage", "b", nodes=disk, containers=[container(ephemeral_storage="6Gi")])
    stored = [container("init", ephemeral_storage="6Gi")]
    yield asks("ephemeral storage of init containers", "b", nodes=disk, initContainers=stored, containers=[container()])


def _ports() -> Iterator[Situation]:
    two = (node("a"), node("b"))

    def taken(rule: str, allowed: str, wanted: Sequence[Object], *there: Object) -> Situation:
        running = (pod("runs", "a", containers=[container(ports=there)]),) if there else ()
        return Situation(f"host ports: {rule}", two, pod(containers=[container(ports=wanted)]), allowed, running)

    yield taken("none is taken", "ab", [port(80)])
    yield taken("the same is taken", "b", [port(80)], port(80))
    yield taken("another is taken", "ab", [port(80)], port(81))
    yield taken("another protocol is another port", "ab", [port(80, "UDP")], port(80))
    yield taken("two addresses of one port", "ab", [port(80, address="127.0.0.1")], port(80, address="127.0.0.2"))
    yield taken("the same address", "b", [port(80, address="127.0.0.1")], port(80, address="127.0.0.1"))
    yield taken("all addresses beside one", "b", [port(80)], port(80, address="127.0.0.1"))
    yield taken("one address beside all", "b", [port(80, address="127.0.0.1")], port(80, address="0.0.0.0"))  # noqa: S104
    yield taken("one of several is taken", "b", [port(80), port(81)], port(81, "TCP"))
    yield taken("a port of a container alone", "ab", [{"containerPort": 80}], port(80))
    side = pod(
        "runs", "a", containers=[container()], initContainers=[container("s", ports=[port(80)], restart="Always")]
    )
    yield Situation("host ports: a sidecar takes one", two, pod(containers=[container(ports=[port(80)])]), "b", (side,))
    init = pod("runs", "a", containers=[container()], initContainers=[container("i", ports=[port(80)])])
    yield Situation(
        "host ports: an init container takes none", two, pod(containers=[container(ports=[port(80)])]), "ab", (init,)
    )
    net = pod("runs", "a", hostNetwork=True, containers=[container(ports=[{"containerPort": 80}])])
    yield Situation(
        "host ports: a pod on the host's network takes its ports",
        two,
        pod(containers=[container(ports=[port(80)])]),
        "b",
        (net,),
    )


def _near() -> Iterator[Situation]:
    a_runs = pod("runs", "a", labels="app=a")

    def ask(
        rule: str, allowed: str, *terms: Object, running: Sequence[Object] = (a_runs,), labels: str = ""
    ) -> Situation:
        return Situation(f"affinity: {rule}", TWO_ZONES, pod(labels=labels, affinity=near(*terms)), allowed, running)

    yield ask("In selects a pod of the zone", "ab", term("zone", expression("app", "In", "a", "z")))
    yield ask("NotIn selects a pod with another value", "ab", term("zone", expression("app", "NotIn", "z")))
    yield ask("NotIn selects a pod without the label", "ab", term("zone", expression("none", "NotIn", "z")))
    yield ask("Exists", "ab", term("zone", expression("app", "Exists")))
    yield ask(
        "DoesNotExist selects itself alone, which is the first", "abc", term("zone", expression("app", "DoesNotExist"))
    )
    yield ask("expressions of a term hold together", "", term("zone", IS_A, expression("tier", "Exists")))
    yield ask("a selector of other pods", "", term("zone", expression("app", "In", "z")))
    yield ask(
        "pods of another namespace do not count",
        "",
        term("zone", IS_A),
        running=[pod("r", "a", namespace=OTHER_NAMESPACE, labels="app=a")],
    )
    named = term("zone", IS_A, namespaces=[OTHER_NAMESPACE])
    yield ask("but of a named one", "ab", named, running=[pod("r", "a", namespace=OTHER_NAMESPACE, labels="app=a")])
    yield ask("and then its own does not", "", named)
    everywhere = term("zone", IS_A, namespaceSelector={})
    yield ask("all namespaces", "ab", everywhere, running=[pod("r", "a", namespace=OTHER_NAMESPACE, labels="app=a")])
    red = term("zone", IS_A, namespaceSelector={"matchLabels": {"team": "red"}})
    elsewhere = (pod("r", "a", namespace=OTHER_NAMESPACE, labels="app=a"),)
    teams = {OTHER_NAMESPACE: {"team": "red"}}
    waits = pod(affinity=near(red))
    yield Situation("affinity: namespaces by their labels", TWO_ZONES, waits, "ab", elsewhere, teams)
    yield Situation(
        "affinity: namespaces of other labels", TWO_ZONES, waits, "", elsewhere, {OTHER_NAMESPACE: {"team": "blue"}}
    )
    both = [a_runs, pod("second", "c", labels="app=b")]
    yield ask("all terms hold", "", term("zone", IS_A), term("zone", expression("app", "In", "b")), running=both)
    twice = [pod("runs", "a", labels="app=a tier=x")]
    yield ask(
        "all terms hold of one pod",
        "ab",
        term("zone", IS_A),
        term("zone", expression("tier", "In", "x")),
        running=twice,
    )
    yield ask("a label that no node has", "", term("none", IS_A))
    yield ask("the first of a kind may start", "abc", term("zone", IS_A), running=(), labels="app=a")
    yield ask("but only where the label is", "", term("none", IS_A), running=(), labels="app=a")
    yield ask("the second goes to the first", "ab", term("zone", IS_A), labels="app=a")
    terms = term("zone", IS_A), term("zone", expression("tier", "In", "x"))
    yield ask("the first of a kind by two terms, one of which another pod meets", "abc", *terms, labels="app=a tier=x")
    yield ask("a pod that does not select itself waits", "", term("zone", IS_A), running=(), labels="app=b")
    ended = {**a_runs, "status": {"phase": "Succeeded"}}
    yield ask("a pod that ended does not count", "", term("zone", IS_A), running=[ended])
    by_key = term("zone", IS_A, matchLabelKeys=["version"])
    yield ask("of its own version", "ab", by_key, running=[pod("r", "a", labels="app=a version=1")], labels="version=1")
    yield ask(
        "not of another version", "", by_key, running=[pod("r", "a", labels="app=a version=2")], labels="version=1"
    )
    not_by_key = term("zone", IS_A, mismatchLabelKeys=["version"])
    yield ask(
        "of another version", "ab", not_by_key, running=[pod("r", "a", labels="app=a version=2")], labels="version=1"
    )
    yield ask(
        "not of its own version", "", not_by_key, running=[pod("r", "a", labels="app=a version=1")], labels="version=1"
    )
    nothing = {"topologyKey": "zone"}
    yield ask("no selector selects no pod", "", nothing)
    yield ask("an empty selector selects every pod", "ab", {"topologyKey": "zone", "labelSelector": {}})


def _apart() -> Iterator[Situation]:
    a_runs = pod("runs", "a", labels="app=a")

    def ask(
        rule: str, allowed: str, *terms: Object, running: Sequence[Object] = (a_runs,), labels: str = ""
    ) -> Situation:
        return Situation(
            f"anti-affinity: {rule}", TWO_ZONES, pod(labels=labels, affinity=apart(*terms)), allowed, running
        )

    yield ask("no pod of the zone", "c", term("zone", IS_A))
    yield ask(
        "any of the terms is enough",
        "",
        term("zone", IS_A),
        term("zone", expression("app", "In", "b")),
        running=[a_runs, pod("second", "c", labels="app=b")],
    )
    yield ask("a node without the label", "abc", term("none", IS_A))
    yield ask(
        "pods of another namespace do not count",
        "abc",
        term("zone", IS_A),
        running=[pod("r", "a", namespace=OTHER_NAMESPACE, labels="app=a")],
    )
    yield ask("pods that it does not select", "abc", term("zone", expression("app", "In", "b")))
    yield ask("itself does not count", "abc", term("zone", IS_A), running=(), labels="app=a")
    of_other = pod("runs", "a", labels="app=b", affinity=apart(term("zone", IS_A)))

    def symmetric(rule: str, allowed: str, runs: Object, labels: str, nodes: Sequence[Object] = TWO_ZONES) -> Situation:
        return Situation(f"anti-affinity of a pod that runs: {rule}", nodes, pod(labels=labels), allowed, (runs,))

    yield symmetric("it keeps away what it selects", "c", of_other, "app=a")
    yield symmetric("and nothing else", "abc", of_other, "app=b")
    negative = pod("runs", "a", labels="app=b", affinity=apart(term("zone", expression("app", "NotIn", "a", "b"))))
    yield symmetric("NotIn lets in what it names", "abc", negative, "app=a")
    yield symmetric("NotIn keeps away all else", "c", negative, "")
    two_terms = pod(
        "runs", "a", affinity=apart(term("zone", expression("x", "Exists")), term("zone", expression("y", "Exists")))
    )
    yield symmetric("each of its terms keeps away", "c", two_terms, "y=1")
    other = pod("runs", "a", namespace=OTHER_NAMESPACE, affinity=apart(term("zone", IS_A)))
    yield symmetric("in its own namespace", "abc", other, "app=a")
    everywhere = pod("runs", "a", namespace=OTHER_NAMESPACE, affinity=apart(term("zone", IS_A, namespaceSelector={})))
    yield symmetric("in all that it names", "c", everywhere, "app=a")
    unlabelled = pod("runs", "d", affinity=apart(term("zone", IS_A)))
    yield symmetric("on a node without the label", "abcd", unlabelled, "app=a", (*TWO_ZONES, node("d")))
    gone = {**of_other, "metadata": {**of_other["metadata"], "deletionTimestamp": ENDS_AT}}
    yield symmetric("also while it ends", "c", gone, "app=a")
    near_and_apart = {**near(term("zone", IS_A)), **apart(term("host", IS_A))}
    hosts = (node("a", zone="1", host="a"), node("b", zone="1", host="b"), node("c", zone="2", host="c"))
    yield Situation("near in the zone and apart on the host", hosts, pod(affinity=near_and_apart), "b", (a_runs,))


def _spread() -> Iterator[Situation]:
    def at(*places: str, labels: str = "app=a") -> list[Object]:
        return [pod(f"r{number}", place, labels=labels) for number, place in enumerate(places)]

    def ask(
        rule: str,
        allowed: str,
        constraints: Sequence[Object],
        running: Sequence[Object],
        nodes: Sequence[Object] = FOUR,
        labels: str = "app=a",
        **spec: Any,
    ) -> Situation:
        waits = pod(labels=labels, topologySpreadConstraints=list(constraints), **spec)
        return Situation(f"spread: {rule}", nodes, waits, allowed, running)

    zone, host = spread("zone", IS_A), spread("host", IS_A)
    yield ask("nothing runs yet", "abxy", [zone], [])
    yield ask("one more in the fuller zone is too many", "xy", [zone], at("a"))
    yield ask("as many in both", "abxy", [zone], at("a", "x"))
    yield ask("a skew of two", "abxy", [spread("zone", IS_A, skew=2)], at("a"))
    yield ask("a skew of two is used up", "xy", [spread("zone", IS_A, skew=2)], at("a", "b"))
    yield ask("hosts", "bxy", [host], at("a"))
    yield ask("hosts, three used", "y", [host], at("a", "b", "x"))
    yield ask("both constraints hold", "xy", [zone, host], at("a"))
    yield ask("both constraints, the host decides", "y", [zone, host], at("a", "b", "x"))
    yield ask("no node meets both", "", [zone, host], at("a", "a", "b", "x", "x", "x", "x"))
    yield ask("pods that it does not select", "abxy", [zone], at("a", labels="app=b"))
    yield ask("pods of another namespace", "abxy", [zone], [pod("r", "a", namespace=OTHER_NAMESPACE, labels="app=a")])
    yield ask("a pod that does not select itself may join the level", "abxy", [zone], at("a"), labels="app=b")
    yield ask("but not what is above it", "xy", [zone], at("a", "a"), labels="app=b")
    ending = [{**each, "metadata": {**each["metadata"], "deletionTimestamp": ENDS_AT}} for each in at("a")]
    yield ask("pods that end do not count", "abxy", [zone], ending)
    unlabelled = (*FOUR, node("z", host="z"))
    yield ask("a node without the label takes none", "abxy", [zone], [], unlabelled)
    yield ask("pods on a node without the label do not count", "abxy", [zone], at("z", "z"), unlabelled)
    yield ask("a host without a zone does not lower the level", "by", [zone, host], at("a", "x"), unlabelled)
    yield ask("with more domains than there are, the level is 0", "xy", [spread("zone", IS_A, minDomains=3)], at("a"))
    yield ask(
        "with more domains than there are, and pods in all", "", [spread("zone", IS_A, minDomains=3)], at("a", "x")
    )
    yield ask("with as many domains as there are", "abxy", [spread("zone", IS_A, minDomains=2)], at("a", "x"))
    fast = (node("a", zone="1", disk="ssd"), node("x", zone="2", disk="ssd"), node("z", zone="3"))
    yield ask(
        "a domain that the selector excludes does not count",
        "ax",
        [zone],
        at("a", "x"),
        fast,
        nodeSelector={"disk": "ssd"},
    )
    ignoring = spread("zone", IS_A, nodeAffinityPolicy="Ignore")
    yield ask("unless the selector is ignored", "", [ignoring], at("a", "x"), fast, nodeSelector={"disk": "ssd"})
    tainted = (node("a", zone="1"), node("x", zone="2"), node("z", zone="3", taints=[taint("gpu")]))
    yield ask("a tainted domain counts", "", [zone], at("a", "x"), tainted)
    honoring = spread("zone", IS_A, nodeTaintsPolicy="Honor")
    yield ask("unless taints are honored", "ax", [honoring], at("a", "x"), tainted)
    yield ask(
        "or the pod tolerates it and goes there",
        "z",
        [honoring],
        at("a", "x"),
        tainted,
        tolerations=[tolerates("gpu", operator="Exists")],
    )
    cordoned = (node("a", zone="1"), node("x", zone="2", cordoned=True))
    yield ask("a cordoned domain counts", "", [zone], at("a"), cordoned)
    yield ask(
        "an empty selector counts no pod",
        "abxy",
        [{**zone, "labelSelector": {}}],
        at("a", labels="app=b"),
    )
    none = {key: value for key, value in zone.items() if key != "labelSelector"}
    yield ask("no selector counts no pod", "abxy", [none], at("a"))
    versions = [pod("r0", "a", labels="app=a version=1"), pod("r1", "x", labels="app=a version=2")]
    by_key = spread("zone", IS_A, matchLabelKeys=["version"])
    yield ask("of its own version", "xy", [by_key], versions, labels="app=a version=1")
    soft = {**zone, "whenUnsatisfiable": "ScheduleAnyway"}
    yield ask("a soft one refuses nothing", "abxy", [soft], at("a", "a"))


SITUATIONS = (
    *_nodes_and_names(),
    *_taints(),
    *_resources(),
    *_ports(),
    *_near(),
    *_apart(),
    *_spread(),
)
