"""How a pod is put onto a node of a Kubernetes cluster: one border, several ways behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.actions import Bind
from cluster.errors import ActionError
from controller.kube.cluster_view import SeenPod
from controller.kube.stamp import Stamp
from controller.kube.write import Write
from controller.placers import bind, dra, gate
from controller.placers.claims import Allocate, no_claims


class Placer(Protocol):
    """One way of placing. Implementations are modules."""

    def waits_for_it(self, pod: SeenPod) -> bool:
        """Whether this pod is not on a node and asks to be placed in this way."""
        ...

    def writes(
        self, pod: SeenPod, action: Bind, labels: Mapping[str, str], stamp: Stamp, allocate: Allocate
    ) -> list[Write]:
        """The writes that place it, in their order; the last one gives it its node. Raises ActionError when it cannot
        be placed so.

        labels: those of the node.
        """
        ...


PLACERS: Mapping[str, Placer] = {"bind": bind, "dra": dra, "gate": gate}


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that share a way of placing."""

    placer: str
    """A key of PLACERS."""
    selector: Mapping[str, str]
    """Labels of its nodes; empty: every node."""

    def has(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.selector.items())


DEFAULT_POOLS = (Pool("gate", {}),)
"""On a shared cluster kube-scheduler has the last word about ports, volumes and all that Tonnage does not see."""


def placer_name(pools: Sequence[Pool], labels: Mapping[str, str]) -> str | None:
    """The way of placing on a node with these labels: that of the first pool that has it."""
    return next((pool.placer for pool in pools if pool.has(labels)), None)


def asked_placer(pod: SeenPod) -> str | None:
    """The way in which a pod asks to be placed by Tonnage; None when it is not Tonnage's to place (now)."""
    return next((name for name, placer in PLACERS.items() if placer.waits_for_it(pod)), None)


def placing_writes(
    pod: SeenPod,
    action: Bind,
    labels: Mapping[str, str],
    pools: Sequence[Pool],
    stamp: Stamp,
    allocate: Allocate = no_claims,
) -> list[Write]:
    """The writes that place a pod, in their order. Raises ActionError when its way and that of the pool differ."""
    asked, offered = asked_placer(pod), placer_name(pools, labels)
    what = f"placing {pod.name} on {action.node}"
    if asked is None:
        raise ActionError(f"{what}: it is not Tonnage's to place (other gates, another scheduler, or ending)")
    if offered is None:
        raise ActionError(f"{what}: the node is in no pool; add one to `pools` in the settings")
    if asked != offered:
        raise ActionError(f"{what}: it waits for {asked!r} and the node's pool is placed by {offered!r}")
    return PLACERS[asked].writes(pod, action, labels, stamp, allocate)
