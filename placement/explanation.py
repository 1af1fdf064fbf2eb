"""Why here, and why nowhere: the terms of the chosen node and the runners-up, or what was short on how many nodes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cluster.nodes import Labels, meets, meets_terms, tolerates_all
from cluster.plans import Reason
from cluster.workloads import WAY_LABEL, PodShape
from placement.packer import Packer


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node where the pod would fit."""

    node: int
    devices: int
    """Bit mask."""
    cost: float
    terms: Mapping[str, float]
    """The parts of the cost, as the policy names them; `surcharge` where there is one."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The best candidates, best first; or, where there is none, the reason."""

    candidates: tuple[Candidate, ...]
    """The first is what `Packer.choose` answers."""
    shortage: Reason | None = None


def explain(packer: Packer, shape: PodShape, runners_up: int = 3) -> Explanation:
    """Why a pod of this shape would go where it would go now. Changes nothing."""
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
        return parts

    return Explanation(tuple(Candidate(n, int(devices[n]), float(cost[n]), terms(n)) for n in best))


WORDS = {
    "cordoned": "a cordon (or not ready)",
    "gpu_type": "another GPU type",
    "way": "pods placed in another way (see `pools` in the settings)",
    "selector": "labels that do not match",
    "taint": "a taint that is not tolerated",
    "gpus": "fewer free GPUs than asked",
    "fragments": "enough free GPU in all, but not on enough devices",
    "cpu": "too little free CPU",
    "memory": "too little free memory",
}


def shortage(packer: Packer, shape: PodShape) -> Reason:
    """On how many nodes what was in the way of a pod.

    A node that the pod may not use counts once, under the first of: cordoned, GPU type, way, selector, taint. A node
    that it may use counts under everything that it is short of. One that only its way bars counts under that.
    """
    barred = np.array([_bar(packer, shape, node) for node in range(len(packer.nodes))], dtype=object)
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
    figures = {"nodes": float(len(barred)), **{kind: float(count) for kind, count in counts.items() if count}}
    parts = [f"{counts[kind]} with {words}" for kind, words in WORDS.items() if counts[kind]]
    return Reason("NoNodeFits", f"none of {len(barred)} nodes can take it: {', '.join(parts) or 'no nodes'}", figures)


def _bar(packer: Packer, shape: PodShape, node: int) -> str | None:
    nodes = packer.nodes
    if not nodes.schedulable[node]:
        return "cordoned"
    gpu_type = int(nodes.gpu_type[node])
    name = packer.gpu_type_names[gpu_type] if gpu_type >= 0 else ""
    if shape.gpus and (shape.gpu_types and name not in shape.gpu_types):
        return "gpu_type"
    if not meets_terms(nodes.labels[node], shape):
        return "way" if _meets_all_but_the_way(nodes.labels[node], shape) else "selector"
    if not tolerates_all(nodes.taints[node], shape.tolerations):
        return "taint"
    return None


def _meets_all_but_the_way(labels: Labels, shape: PodShape) -> bool:
    return any(all(r.key == WAY_LABEL or meets(labels, r) for r in term) for term in shape.node_terms)
