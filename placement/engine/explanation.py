"""Explanation of a placement: cost terms of the chosen node and the runners-up, or the resources that were short."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cluster.arrays import IntArray
from cluster.nodes import Labels, meets, meets_terms, tolerates_all
from cluster.plans import Reason
from cluster.workloads import PLACEMENT_MODE_LABEL, PodShape
from placement.engine.packer import Packer


@dataclass(frozen=True, slots=True)
class Candidate:
    """Node where the pod would fit."""

    node: int
    devices: int
    """Bit mask of the node's devices."""
    cost: float
    terms: Mapping[str, float]
    """Parts of the cost, as the policy names them, and `surcharge` where there is one. Where the pod's daily power
    profile is known, `expected peak of its power domain` is added: a fraction of that domain's budget, with the pod
    there."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Best candidates, best first, or the reason why there is none."""

    candidates: tuple[Candidate, ...]
    """The first is the result of `Packer.choose`."""
    shortage: Reason | None = None


def explain(packer: Packer, shape: PodShape, runners_up: int = 3, owner: str = "") -> Explanation:
    """Explains why a pod of this shape would now go where it goes. Changes nothing.

    owner: the pod's service. Where its power profile prefers some power domains, their nodes come first, whatever they
    cost.
    """
    cost, devices = packer.costs(shape)
    rank = np.arange(len(cost)) if packer.rank is None else packer.rank
    preferred = packer.preferred(shape, owner, cost)
    order = np.lexsort((rank, cost, np.zeros(len(cost)) if preferred is None else ~preferred & (cost < np.inf)))
    best = [int(node) for node in order[: runners_up + 1] if cost[node] < np.inf]
    if not best:
        return Explanation((), shortage(packer, shape))
    surcharge = packer.policy.surcharge(shape, packer.ledger)

    def terms(node: int) -> dict[str, float]:
        parts = dict(packer.policy.terms(shape, packer.ledger, node))
        gpu_type = int(packer.ledger.gpu_type[node])
        if surcharge is not None and gpu_type >= 0:
            parts["surcharge"] = float(surcharge[gpu_type])
        peak_share = None if packer.power is None else packer.power.peak_share(shape, owner, node)
        return parts if peak_share is None else {**parts, EXPECTED_PEAK: peak_share}

    return Explanation(tuple(Candidate(n, int(devices[n]), float(cost[n]), terms(n)) for n in best))


EXPECTED_PEAK = "expected peak of its power domain"

WORDS = {
    "cordoned": "a cordon (or not ready)",
    "gpu_type": "another GPU type",
    "way": "another placement mode (see `pools` in the settings)",
    "selector": "labels that do not match",
    "taint": "a taint that is not tolerated",
    "gpus": "fewer free GPUs than requested",
    "fragments": "enough free GPU in total, but not on enough devices",
    "cpu": "too little free CPU",
    "memory": "too little free memory",
    "power": "free resources, but no power headroom",
}


def shortage(packer: Packer, shape: PodShape) -> Reason:
    """Number of nodes that each obstacle rules out for a pod.

    A node that the pod may not use counts once, under the first of: cordoned, GPU type, placement mode (`way`),
    selector, taint. It counts under `way` when its placement mode alone rules it out. A node that the pod may use
    counts under every resource that it is short of. It counts under power only when nothing else is short. The reason
    is then NoPowerHeadroom: the pod waits for power, not for GPUs.
    """
    barred = np.array([_obstacle(packer, shape, node) for node in range(len(packer.nodes))], dtype=object)
    open_to = np.array([bar is None for bar in barred], dtype=bool)
    ledger = packer.ledger
    counts = {kind: int((barred == kind).sum()) for kind in ("cordoned", "gpu_type", "way", "selector", "taint")}
    left = ledger.gpu_milli.clip(min=0)
    short = (left >= max(shape.gpu_milli, 1)).sum(axis=1) < shape.gpus
    enough_in_all = left.sum(axis=1) >= shape.total_gpu_milli
    counts["gpus"] = int((open_to & short & ~enough_in_all).sum())
    counts["fragments"] = int((open_to & short & enough_in_all).sum())
    counts["cpu"] = int((open_to & (ledger.cpu_milli < shape.cpu_milli)).sum())
    counts["memory"] = int((open_to & (ledger.memory_bytes < shape.memory_bytes)).sum())
    without_headroom = _without_headroom(packer, shape)
    counts["power"] = len(without_headroom)
    figures = {"nodes": float(len(barred)), **{kind: float(count) for kind, count in counts.items() if count}}
    parts = [f"{counts[kind]} with {words}" for kind, words in WORDS.items() if counts[kind]]
    words = f"none of {len(barred)} nodes can take it: {', '.join(parts) or 'no nodes'}"
    if not len(without_headroom):
        return Reason("NoNodeFits", words, figures)
    return _no_headroom(packer, shape, without_headroom, words, figures)


def _without_headroom(packer: Packer, shape: PodShape) -> IntArray:
    """Nodes that have free resources for a pod, but no power headroom."""
    if packer.power is None or not shape.gpus:
        return np.zeros(0, dtype=np.int64)
    cost, _ = packer.costs(shape)
    return np.flatnonzero(packer.feasible(shape) & (cost == np.inf))


def _no_headroom(packer: Packer, shape: PodShape, nodes: IntArray, words: str, figures: dict[str, float]) -> Reason:
    """NoPowerHeadroom for the node that lacks least power, naming the domain that limits it."""
    floors = packer.floors
    assert floors is not None  # noqa: S101 - power floors ruled out these nodes
    missing = {node: floors.need_w(node, shape.gpus) - floors.left_w(node) for node in nodes.tolist()}
    nearest = min(missing, key=lambda node: missing[node])
    need_w, left_w = floors.need_w(nearest, shape.gpus), floors.left_w(nearest)
    words += f"; it needs {need_w:.0f} W to run at its floor, and power domain {floors.tightest(nearest)}"
    words += f" leaves {left_w:.0f} W" if left_w >= 0 else f" is {-left_w:.0f} W short already"
    return Reason("NoPowerHeadroom", words, {**figures, "need_w": need_w, "headroom_w": left_w})


def _obstacle(packer: Packer, shape: PodShape, node: int) -> str | None:
    nodes = packer.nodes
    if not nodes.schedulable[node]:
        return "cordoned"
    gpu_type = int(nodes.gpu_type[node])
    name = packer.gpu_type_names[gpu_type] if gpu_type >= 0 else ""
    if shape.gpus and (shape.gpu_types and name not in shape.gpu_types):
        return "gpu_type"
    if not meets_terms(nodes.labels[node], shape):
        return "way" if _meets_all_but_the_mode(nodes.labels[node], shape) else "selector"
    if not tolerates_all(nodes.taints[node], shape.tolerations):
        return "taint"
    return None


def _meets_all_but_the_mode(labels: Labels, shape: PodShape) -> bool:
    return any(all(r.key == PLACEMENT_MODE_LABEL or meets(labels, r) for r in term) for term in shape.node_terms)
