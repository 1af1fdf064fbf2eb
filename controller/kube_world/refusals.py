"""Refusals: nodes whose kubelet refused pods that Tonnage placed there, and for how long they take no new ones.

A device that died while it is still allocatable, or a device plugin that restarts, makes the kubelet refuse every pod;
what is lost is one pod for each placement, until somebody looks.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from cluster.nodes import HeldBack
from controller.api import core_v1, labels, notation, structs
from controller.kube.cache import Resource
from controller.kube_world.reservations import Reservations
from controller.snapshot.nodes import GPU_RESOURCES

FIRST_S, LONGEST_S = 60.0, 3600.0
"""Pause after a first refusal, and the longest; each further one doubles it. Chosen: a plugin restarts within a minute,
and a node with a dead device costs a pod an hour."""
CAUSES = frozenset({"UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory", "OutOfpods",
                    *(f"OutOf{resource}" for resource in GPU_RESOURCES)})  # fmt: skip
"""Reasons that are the node's: its devices, or what it has free. Others are the pod's own fault, such as a forbidden
sysctl, and would let a tenant close nodes."""


class _Annotations(structs.Slim, rename=None, frozen=True):
    node: str = msgspec.field(default="", name=labels.CHOSEN_NODE_ANNOTATION)


class _RefusedMeta(structs.Meta, frozen=True):
    creation_timestamp: str | None = None
    annotations: _Annotations = _Annotations()


class _RefusedSpec(structs.Slim, frozen=True):
    node_name: str = ""
    containers: tuple[structs.Container, ...] = ()
    init_containers: tuple[structs.Container, ...] = ()
    resources: structs.Resources = structs.Resources()


class _RefusedStatus(structs.Slim, frozen=True):
    reason: str = ""
    start_time: str | None = None


class FailedPod(structs.Slim, frozen=True):
    """v1 Pod that failed, as far as it tells of its node."""

    metadata: _RefusedMeta
    spec: _RefusedSpec = _RefusedSpec()
    status: _RefusedStatus = _RefusedStatus()


FAILED_PODS = Resource("failed", core_v1.POD.path, FailedPod, selectors={"fieldSelector": "status.phase=Failed"})


@dataclass(frozen=True, slots=True)
class PodRefusal:
    node: str
    reason: str
    at_s: float
    """Seconds since the epoch."""


def refusal_of(pod: FailedPod) -> PodRefusal | None:
    """The refusal of a pod that Tonnage placed where it was refused; None for any other that failed."""
    meta, node, reason = pod.metadata, pod.spec.node_name, pod.status.reason
    if not node or meta.annotations.node != node or reason not in CAUSES:
        return None
    try:
        return PodRefusal(node, reason, notation.instant(pod.status.start_time or meta.creation_timestamp))
    except ValueError:
        return None


@dataclass(slots=True)
class Refusals:
    """Refusals of the last hours: read from failed pods, so that the next leader finds most of them, and kept, because
    some owners delete such pods at once."""

    _by_pod: dict[str, PodRefusal] = field(default_factory=dict)
    """By the pod's uid."""

    def take(self, changed: Mapping[str, FailedPod | None], reservations: Reservations) -> None:
        """reservations: which pods Tonnage placed, whatever their annotations say."""
        for pod in changed.values():
            if pod is None or (refusal := refusal_of(pod)) is None:
                continue
            if reservations.is_placed_here(pod.metadata.uid):
                self._by_pod[pod.metadata.uid] = refusal

    def held_back(self, at_s: float) -> tuple[HeldBack, ...]:
        """Nodes that take no new pods at this instant."""
        # Twice the longest pause: that long a node must take pods again for its refusals to be forgotten.
        recent = {uid: each for uid, each in self._by_pod.items() if at_s - each.at_s < 2 * LONGEST_S}
        self._by_pod = recent
        return held_back(recent.values(), at_s)


def held_back(refusals: Iterable[PodRefusal], at_s: float) -> tuple[HeldBack, ...]:
    """Nodes held back at an instant after these refusals.

    A refusal begins a pause twice as long as the last, if it comes before the node took pods for as long as that
    lasted. Those within a pause are of pods that were on their way.
    """
    by_node: defaultdict[str, list[PodRefusal]] = defaultdict(list)
    for each in refusals:
        if each.at_s <= at_s:
            by_node[each.node].append(each)
    found = []
    for node, mine in sorted(by_node.items()):
        pause_s, until_s = 0.0, -math.inf
        ordered = sorted(mine, key=lambda refusal: refusal.at_s)
        for refusal in ordered:
            if refusal.at_s < until_s:
                continue
            goes_on = refusal.at_s < until_s + pause_s
            pause_s = min(LONGEST_S, 2 * pause_s) if goes_on else FIRST_S
            until_s = refusal.at_s + pause_s
        if at_s < until_s:
            found.append(HeldBack(node, until_s, len(ordered), ordered[-1].reason))
    return tuple(found)
