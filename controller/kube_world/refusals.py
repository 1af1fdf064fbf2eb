"""Refusals: where kube-scheduler or a kubelet refused pods that Tonnage placed, and how long such pods go elsewhere.

A plan cannot know all that they know. Without a memory it would choose the same node again and again, and each time a
pod is lost, or evicted for nothing.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from cluster.nodes import HeldBack
from cluster.snapshot import Snapshot
from cluster.workloads import OFF_SPOT, OWN_NODE, Beside, PodShape, Requirement
from controller.api import core_v1, notation, structs
from controller.kube.cache import Resource
from controller.kube.cluster_view import SeenRefusal
from controller.objects.accelerators import is_device

FIRST_S, LONGEST_S = 60.0, 3600.0
"""Pause after a first refusal, and the longest; each further one doubles it. Chosen: a plugin restarts within a minute,
and a node with a dead device costs a pod an hour."""
OWN_FAULT = frozenset({"AppArmor", "DeadlineExceeded", "PodFeatureUnsupported", "SysctlForbidden"})
"""Reasons of kubelets that are the pod's own on every node; another pod of its shape may lack what causes them."""
DEVICE_TROUBLE = "UnexpectedAdmissionError"
"""Reason when a device plugin does not hand out devices: a device died, or the plugin restarts."""
PLAIN = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources of a pod whose DEVICE_TROUBLE can only be that of the node's GPUs."""
MOST_OF_NAMESPACE, MOST = 500, 4_000
"""Refusals that are remembered, of one namespace and in all. A shape may have 50 kB: they take 200 MB at the very most,
and less than 10 MB with shapes of the usual size."""
LONGEST_WORDS = 400
"""Characters of another's words that are repeated; kube-scheduler's have about 200, more with many kinds of reasons."""


class _FailedStatus(structs.PodStatus, frozen=True):
    reason: str = ""
    message: str = ""


class FailedPod(structs.Pod, frozen=True):
    """v1 Pod that failed."""

    status: _FailedStatus = _FailedStatus()


FAILED_PODS = Resource("failed", core_v1.POD.path, FailedPod, selectors={"fieldSelector": "status.phase=Failed"})


def refusal_of(pod: FailedPod, shape_of: Callable[[structs.Pod], PodShape]) -> SeenRefusal | None:
    """The refusal of a pod that Tonnage placed where its kubelet did not admit it; None for any other that failed.

    A pod that was admitted has a status of each container. Of its node for everybody is only trouble with GPUs, when it
    asked for nothing else that might be lacking: no tenant closes a node for others with pods of his own making.
    """
    meta, node, status = pod.metadata, pod.spec.node_name, pod.status
    if not node or meta.annotations.node != node or not status.reason or status.reason in OWN_FAULT:
        return None
    if status.container_statuses or status.init_container_statuses:
        return None
    try:
        at_s = notation.instant(status.start_time or meta.creation_timestamp)
    except ValueError:
        return None
    asked, devices = _asked(pod.spec), set(filter(is_device, _asked(pod.spec)))
    return SeenRefusal(
        uid=meta.uid,
        namespace=meta.namespace,
        shape=unplaced_shape(shape_of(pod)),
        node=node,
        words=said("its kubelet", f"{status.reason}: {status.message}" if status.message else status.reason),
        at_s=at_s,
        reason=status.reason,
        is_of_node=status.reason == DEVICE_TROUBLE and bool(devices) and asked - devices <= PLAIN,
    )


def _asked(spec: structs.PodSpec) -> set[str]:
    asked = (spec.resources, *(each.resources for each in (*spec.containers, *spec.init_containers)))
    return {name for each in asked for name in (*each.requests, *each.limits)}


def said(who: str, words: str) -> str:
    """Another's words as one line of bounded length."""
    line = " ".join("".join(each if each.isprintable() else " " for each in words[: 4 * LONGEST_WORDS]).split())
    return f"{who} says: {line if len(line) <= LONGEST_WORDS else line[: LONGEST_WORDS - 1] + '…'}"


def unplaced_shape(shape: PodShape) -> PodShape:
    """The shape as other pods of its kind have it: without the node that it was tied to, the capacity type that Tonnage
    chose, and what changes with other objects: its volumes, and which rules of others count it."""

    def is_own(requirement: Requirement) -> bool:
        return OWN_NODE not in requirement.values and requirement not in OFF_SPOT

    terms = tuple(tuple(filter(is_own, term)) for term in shape.node_terms)
    beside = Beside(rules=shape.beside.rules, ports=shape.beside.ports)
    return replace(shape, node_terms=terms if all(terms) else (), beside=beside, refused_on=())


@dataclass(slots=True)
class _Pause:
    """Pause after refusals of one kind. A refusal begins one twice as long as the last, if it comes before the node was
    open for as long as that lasted. Those within a pause are of pods that were on their way."""

    pause_s: float = 0.0
    until_s: float = -math.inf
    refusals: int = 0
    words: str = ""
    reason: str = ""

    def lengthen(self, refusal: SeenRefusal, at_s: float) -> None:
        self.refusals, self.words, self.reason = self.refusals + 1, refusal.words, refusal.reason
        if at_s < self.until_s:
            return
        goes_on = at_s < self.until_s + self.pause_s
        self.pause_s = min(LONGEST_S, 2 * self.pause_s) if goes_on else FIRST_S
        self.until_s = at_s + self.pause_s

    def is_forgotten(self, at_s: float) -> bool:
        return at_s >= self.until_s + self.pause_s


@dataclass(slots=True)
class Refusals:
    """Refusals of the last hours: of nodes for everybody, and of nodes for pods of one shape and namespace.

    A namespace's pods close nodes for its own pods alone. The next leader finds most of them on pods that failed or
    still wait; of those that were evicted it learns anew.
    """

    is_empty: bool = True
    """Whether none was ever taken."""
    _of_nodes: dict[str, _Pause] = field(default_factory=dict)
    _of_shapes: OrderedDict[tuple[str, PodShape, str], _Pause] = field(default_factory=OrderedDict)
    """By namespace, shape and node; the one refused last is the last."""
    _in_namespace: dict[str, dict[PodShape, dict[str, _Pause]]] = field(default_factory=dict)
    """The same, for looking up."""
    _counted: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """Uids of the last pods whose refusals were counted."""

    def take(self, refusals: Iterable[SeenRefusal], now_s: float) -> None:
        """Adds refusals; one that was added before changes nothing. A clock that is ahead counts as now."""
        self.is_empty = False
        for each in sorted(refusals, key=lambda refusal: refusal.at_s):
            pause = self._of_nodes.setdefault(each.node, _Pause()) if each.is_of_node else self._of_shape(each)
            if each.uid not in self._counted:
                self._counted[each.uid] = None
                pause.lengthen(each, min(each.at_s, now_s))
            if each.stands:
                pause.until_s, pause.words = max(pause.until_s, now_s + FIRST_S), each.words
        while len(self._counted) > MOST:
            self._counted.popitem(last=False)
        for node in [node for node, pause in self._of_nodes.items() if pause.is_forgotten(now_s)]:
            del self._of_nodes[node]
        for key in [key for key, pause in self._of_shapes.items() if pause.is_forgotten(now_s)]:
            self._forget(key)

    def _of_shape(self, refusal: SeenRefusal) -> _Pause:
        key = refusal.namespace, refusal.shape, refusal.node
        if key not in self._of_shapes:
            mine = [each for each in self._of_shapes if each[0] == refusal.namespace]
            if len(mine) >= MOST_OF_NAMESPACE or len(self._of_shapes) >= MOST:
                self._forget(mine[0] if len(mine) >= MOST_OF_NAMESPACE else next(iter(self._of_shapes)))
            of_shape = self._in_namespace.setdefault(refusal.namespace, {}).setdefault(refusal.shape, {})
            self._of_shapes[key] = of_shape[refusal.node] = _Pause()
        self._of_shapes.move_to_end(key)
        return self._of_shapes[key]

    def _forget(self, key: tuple[str, PodShape, str]) -> None:
        namespace, shape, node = key
        of_namespace = self._in_namespace[namespace]
        del self._of_shapes[key], of_namespace[shape][node]
        if not of_namespace[shape]:
            del of_namespace[shape]
        if not of_namespace:
            del self._in_namespace[namespace]

    def held_back(self, at_s: float) -> tuple[HeldBack, ...]:
        """Nodes that take no new pods of anybody at this instant."""
        return tuple(
            HeldBack(node, pause.until_s, pause.refusals, pause.reason)
            for node, pause in sorted(self._of_nodes.items())
            if at_s < pause.until_s
        )

    def applied(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot in which pending pods of refused shapes know the nodes that refused them, and in which words."""
        if not self._in_namespace:
            return snapshot
        pods, refused, told = snapshot.pods, dict[str, str](), dict[int, PodShape]()
        known: dict[tuple[str, int], tuple[PodShape, str]] = {}
        for row in pods.pending.tolist():
            name, own = pods.names[row], int(pods.shape[row])
            namespace = name.partition("/")[0]
            if namespace not in self._in_namespace:
                continue
            if (namespace, own) not in known:
                shape = pods.shapes[own]
                pauses = self._in_namespace[namespace].get(unplaced_shape(shape), {})
                nodes = {node: pause for node, pause in pauses.items() if snapshot.at_s < pause.until_s}
                words = _told(nodes) if nodes else ""
                known[namespace, own] = replace(shape, refused_on=tuple(sorted(nodes))) if nodes else shape, words
            shape, words = known[namespace, own]
            if words:
                told[row] = shape
                gang = int(pods.gang[row])
                refused[f"Gang/{snapshot.gangs[gang].name}" if gang >= 0 else f"Pod/{name}"] = words
        return replace(snapshot, pods=pods.reshaped(told), refused=refused)


def _told(pauses: Mapping[str, _Pause]) -> str:
    """The last refusal in its words, and the number of others."""
    node = max(pauses, key=lambda node: (pauses[node].until_s, node))
    more = f", and {len(pauses) - 1} other nodes refused it" if len(pauses) > 1 else ""
    return f"of {node} {pauses[node].words}{more}"
