"""Pools of nodes, and the placers that carry out their placement modes: `gate`, `bind` and `dra`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.actions import Bind
from cluster.errors import ActionError
from controller.kube.cluster_view import SeenPod
from controller.kube.sender import Stamp, Write
from controller.placers import bind, dra, gate
from controller.placers.claims import Allocate, no_claims


class Placer(Protocol):
    """Code that carries out one placement mode. Implementations are modules."""

    def waits_for_it(self, pod: SeenPod) -> bool:
        """Whether this pod is on no node and requests this placement mode."""
        ...

    def writes(
        self, pod: SeenPod, action: Bind, labels: Mapping[str, str], stamp: Stamp, allocate: Allocate
    ) -> list[Write]:
        """The writes that place a pod, in order; the last one gives it its node.

        labels: of the node. Raises ActionError when the pod cannot be placed in this mode.
        """
        ...


PLACERS: Mapping[str, Placer] = {"bind": bind, "dra": dra, "gate": gate}


@dataclass(frozen=True, slots=True)
class Pool:
    """Set of nodes with one placement mode."""

    placer: str
    """Placement mode, a key of PLACERS."""
    selector: Mapping[str, str]
    """Labels that its nodes carry; empty: every node."""
    shares: bool = False
    """For mode gate: whether shares of a device may be placed there."""

    def has(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.selector.items())


DEFAULT_POOLS = (Pool("gate", {}),)
"""Mode `gate` on all nodes: on a shared cluster kube-scheduler decides about ports, volumes and all that Tonnage does
not see."""


def pool_mode(pools: Sequence[Pool], labels: Mapping[str, str]) -> str | None:
    """Placement mode of a node with these labels, from the first pool that matches; None when the node is in no
    pool."""
    return next((pool.placer for pool in pools if pool.has(labels)), None)


def takes_shares(pools: Sequence[Pool], labels: Mapping[str, str]) -> bool:
    """Whether shares of a device may be placed on a node with these labels: kube-scheduler does not see them."""
    pool = next((pool for pool in pools if pool.has(labels)), None)
    return pool is not None and (pool.shares or pool.placer != "gate")


def requested_mode(pod: SeenPod) -> str | None:
    """Placement mode that a pod requests; None when Tonnage is not to place it, or not now."""
    return next((name for name, placer in PLACERS.items() if placer.waits_for_it(pod)), None)


def placing_writes(
    pod: SeenPod,
    action: Bind,
    labels: Mapping[str, str],
    pools: Sequence[Pool],
    stamp: Stamp,
    allocate: Allocate = no_claims,
) -> list[Write]:
    """The writes that place a pod, in order. Raises ActionError when its placement mode and the pool's differ."""
    requested, offered = requested_mode(pod), pool_mode(pools, labels)
    what = f"placing {pod.name} on {action.node}"
    if requested is None:
        raise ActionError(f"{what}: it is not for Tonnage to place (other gates, another scheduler, or terminating)")
    if offered is None:
        raise ActionError(f"{what}: the node is in no pool; add one to `pools` in the settings")
    if requested != offered:
        raise ActionError(f"{what}: it waits for {requested!r} and the node's pool has placer {offered!r}")
    return PLACERS[requested].writes(pod, action, labels, stamp, allocate)
