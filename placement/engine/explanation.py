"""Explanation of a placement: cost terms of the best nodes, or what was short; and how many more pods would fit."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cluster import arrays, neighbours, plans, power_floors, workloads
from cluster.nodes import eligible_nodes
from cluster.snapshot import Snapshot
from placement.engine.ledger import Ledger
from placement.engine.packer import Packer


@dataclass(frozen=True, slots=True)
class Candidate:
    """Node where the pod would fit."""

    node: int
    devices: int
    """Bit mask of the node's devices."""
    cost: float
    terms: Mapping[str, float]
    """Parts of the cost, as the policy names them, and `surcharge` and `idle_node` where there is one."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Best candidates, best first, or the reason why there is none."""

    candidates: tuple[Candidate, ...]
    """The first is the result of `Packer.choose`."""
    shortage: plans.Reason | None = None


def explain(packer: Packer, shape: workloads.PodShape, runners_up: int = 3) -> Explanation:
    """Explains why a pod of this shape would now go where it goes. Changes nothing.

    The candidates are in the order in which `Packer.choose` would take them, were the better ones gone; none is one
    where the pod has no room.
    """
    cost, devices = packer.costs(shape)
    rank = np.arange(len(cost)) if packer.rank is None else packer.rank
    order = np.lexsort((rank, cost))
    best = [int(node) for node in order[: runners_up + 1] if cost[node] < np.inf]
    if not best:
        return Explanation((), shortage(packer, shape))
    surcharge = packer.policy.surcharge(shape, packer.ledger)

    def terms(node: int) -> dict[str, float]:
        parts = dict(packer.policy.terms(shape, packer.ledger, node))
        gpu_type = int(packer.ledger.gpu_type[node])
        if surcharge is not None and gpu_type >= 0:
            parts["surcharge"] = float(surcharge[gpu_type])
        if packer.idle is not None:
            parts["idle_node"] = float(packer.idle.costs(shape)[node])
        return parts

    return Explanation(tuple(Candidate(n, int(devices[n]), float(cost[n]), terms(n)) for n in best))


WORDS = {
    "cordoned": "a cordon (or not ready)",
    "gpu_type": "another GPU type",
    "way": "another placement mode, or no shares (see `pools` in the settings)",
    "selector": "labels that do not match",
    "taint": "a taint that is not tolerated",
    "refused": "a refusal by kube-scheduler or the kubelet",
    "gpus": "fewer free GPUs than requested",
    "fragments": "enough free GPU in total, but not on enough devices",
    "cpu": "too little free CPU",
    "memory": "too little free memory",
    "power": "free resources, but no power headroom",
    workloads.PODS: "as many pods as its kubelet admits",
    **neighbours.REFUSALS,
}
LACKS = "too little free "
"""Words before the name of any other resource; its key among the obstacles is its name."""


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Nodes that a pod is limited to by its gang."""

    nodes: arrays.BoolArray
    """Shape (nodes,)."""
    words: str
    """Description of a node outside: `outside rack=r1`."""


@dataclass(frozen=True, slots=True, eq=False)
class Obstacles:
    """Nodes where a pod cannot start now, by obstacle, in the order of WORDS after `within`.

    A node that the pod may not use counts once, under the first of: within (outside its scope), cordoned, GPU type,
    placement mode (`way`), selector, taint, refused. It counts under `way` when its placement mode alone rules it
    out. A node that the pod may use counts under every resource that it is short of and every rule between pods, and
    under power only when nothing else is short.
    """

    nodes: Mapping[str, arrays.BoolArray]
    scope: Scope | None

    @property
    def figures(self) -> dict[str, float]:
        """Number of nodes in all, and by obstacle."""
        count = {kind: float(mask.sum()) for kind, mask in self.nodes.items() if mask.any()}
        return {"nodes": float(len(self.nodes["cordoned"])), **count}

    @property
    def words(self) -> str:
        """Enumeration of the obstacles with their numbers of nodes; empty where there are none."""
        figures = self.figures
        known = {**WORDS, **{name: LACKS + name for name in self.nodes if name not in WORDS and name != "within"}}
        parts = [f"{figures[kind]:.0f} with {words}" for kind, words in known.items() if kind in figures]
        if self.scope is not None and "within" in figures:
            parts.insert(0, f"{figures['within']:.0f} {self.scope.words}")
        return ", ".join(parts)


def obstacles(packer: Packer, shape: workloads.PodShape, scope: Scope | None = None) -> Obstacles:
    """Obstacles of a pod of this shape on every node, as resources are now."""
    # 4,000 nodes: 1 ms.
    checks, ledger = packer.filter, packer.ledger
    modes = (workloads.PLACEMENT_MODE_LABEL, workloads.SHARES_LABEL)
    any_mode = tuple(tuple(r for r in term if r.key not in modes) for term in shape.node_terms)
    allowed = np.ones(len(packer.nodes), dtype=np.bool_)
    found: dict[str, arrays.BoolArray] = {}

    def ruled_out(kind: str, passes: arrays.BoolArray) -> None:
        nonlocal allowed
        found[kind] = allowed & ~passes
        allowed = allowed & passes

    if scope is not None:
        ruled_out("within", scope.nodes)
    for kind, passes in checks.filters(shape):
        if kind == "selector" and any_mode != shape.node_terms:
            ruled_out("way", passes | ~checks.matches.meets_terms(any_mode))
        ruled_out(kind, passes)
    left = ledger.gpu_milli.clip(min=0)
    few = (left >= max(shape.gpu_milli, 1)).sum(axis=1) < shape.gpus
    enough_in_all = left.sum(axis=1) >= shape.total_gpu_milli
    found["gpus"] = allowed & few & ~enough_in_all
    found["fragments"] = allowed & few & enough_in_all
    found |= {name: allowed & (amounts < asked) for name, asked, amounts in ledger.free.asked(shape)}
    if packer.neighbours is not None:
        found |= {kind: allowed & mask for kind, mask in packer.neighbours.refusals(shape).items()}
    found["power"] = np.zeros(len(packer.nodes), dtype=np.bool_)
    if packer.power is not None and shape.gpus:
        found["power"] = allowed & packer.feasible(shape) & (packer.costs(shape)[0] == np.inf)
    return Obstacles(found, scope)


def shortage(packer: Packer, shape: workloads.PodShape, scope: Scope | None = None) -> plans.Reason:
    """Reason why a pod fits nowhere, with the number of nodes that each obstacle rules out.

    The reason is NoPowerHeadroom where power is short on some node and nothing else is: the pod waits for power, not
    for GPUs. It then names the node that lacks least power, and the domain that limits it.
    """
    found = obstacles(packer, shape, scope)
    words = f"none of {len(packer.nodes)} nodes can take it: {found.words or 'no nodes'}"
    without_headroom = np.flatnonzero(found.nodes["power"]).tolist()
    floors = packer.floors
    if floors is None or not without_headroom:
        return plans.Reason("NoNodeFits", words, found.figures)
    nearest = min(without_headroom, key=lambda node: floors.need_w(node, shape.gpus) - floors.left_w(node))
    need_w, left_w = floors.need_w(nearest, shape.gpus), floors.left_w(nearest)
    words += f"; it needs {need_w:.0f} W to run at its floor, and power domain {floors.tightest(nearest)}"
    words += f" leaves {left_w:.0f} W" if left_w >= 0 else f" is {-left_w:.0f} W short already"
    return plans.Reason("NoPowerHeadroom", words, {**found.figures, "need_w": need_w, "headroom_w": left_w})


def copies_now(packer: Packer, shape: workloads.PodShape) -> arrays.IntArray:
    """Number of pods of one shape that each node has resources for now; 0 where none can start. Shape (nodes,).

    An upper bound where power is limited.
    """
    return np.where(packer.costs(shape)[0] < np.inf, packer.ledger.free.copies(shape), 0)


Scarce = Literal["stock", "health", "power"]


@dataclass(frozen=True, slots=True)
class Room:
    """Number of further pods that fit now."""

    pods: int
    scarce: Scarce
    """What there is too little of for more. health: nodes that accept no pods would hold more. power: headroom."""


def room_for(snapshot: Snapshot, shape: workloads.PodShape, most: int) -> Room:
    """Room for at most so many further pods of a shape, as packing would find it with nothing else waiting.

    Pods that wait for a node are not counted: which of them comes first is for packing to decide.
    """
    ledger = Ledger.of(snapshot)
    open_nodes = eligible_nodes(shape, snapshot.nodes, snapshot.gpu_type_names)
    free = int(ledger.free.copies(shape)[open_nodes].sum())
    powered = min(most, free)
    # A full fleet, where every cycle asks again, needs no floors: they take 0.2 s for 20,000 nodes.
    floors = power_floors.PowerFloors.of(snapshot) if shape.gpus and powered else None
    for placed in range(powered):
        if floors is None:
            break
        able = np.flatnonzero(open_nodes & ledger.free.fits(shape) & floors.allows(shape.gpus))
        if not len(able):
            powered = placed
            break
        node = int(able[0])
        ledger.take(shape, node, np.flatnonzero(ledger.gpu_milli[node] >= shape.gpu_milli)[: shape.gpus].tolist())
        floors.follow((node,), power_floors.held_devices(ledger.gpu_milli[[node]], ledger.gpus[[node]]))
    if powered >= most:
        return Room(most, "stock")
    if powered < free:
        return Room(powered, "power")
    trusted = replace(snapshot.nodes, schedulable=np.ones(len(snapshot.nodes), dtype=np.bool_))
    closed = eligible_nodes(shape, trusted, snapshot.gpu_type_names) & ~open_nodes
    return Room(free, "health" if ledger.free.copies(shape)[closed].any() else "stock")
