"""Generated fleets of any size with the statistics of the openb cluster, for use without the trace."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cluster.arrays import IntArray, Names, column
from cluster.errors import ConfigError, Mistake
from cluster.nodes import NodeTable
from cluster.snapshot import PENDING, PodTable, Snapshot
from cluster.workloads import WHOLE_GPU_MILLI, GpuType, PodShape
from simulator.openb.fleet_statistics import (
    GPU_MODELS_ASKED,
    MIXES,
    NODE_KINDS,
    POD_SIZES,
    Mix,
    NodeKind,
    PodKind,
    PodSize,
)

GIB = 2**30
MIB = 2**20

GPUS_OF: dict[PodKind, int] = {"cpu": 0, "fraction": 1, "whole-1": 1, "whole-2": 2, "whole-4": 4, "whole-8": 8}

PUBLISHED_DEMAND_SHARE = 0.98
"""Requested fraction of the fleet: the default pod list of openb requests 6,086.8 of 6,212 GPUs."""


@dataclass(frozen=True, slots=True)
class Generated:
    """Fleet and the pods that arrive at it, both in a seeded random order."""

    nodes: tuple[NodeKind, ...]
    """Kind of each node."""
    pods: tuple[PodShape, ...]

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)


def generate(
    nodes: int, *, mix: str = "default", seed: int = 0, demand_share: float = PUBLISHED_DEMAND_SHARE
) -> Generated:
    """Fleet of `nodes` nodes, and pods that request `demand_share` of its GPUs in the mean.

    Each node kind and pod class appears as often as its fraction requires, give or take one; the seed decides the order
    and the direction of rounding. 1,213 nodes are the published fleet exactly.
    Raises ConfigError for zero nodes, for no demand or for an unknown mix.
    """
    _check(nodes, mix, demand_share)
    rng = np.random.default_rng(seed)
    kinds = _drawn([kind.count for kind in NODE_KINDS], nodes, rng)
    fleet = tuple(NODE_KINDS[row] for row in kinds)
    classes = pod_classes(MIXES[mix], models={node.model for node in fleet})
    weights = [weight for weight, _ in classes]
    mean_milli = sum(weight * shape.total_gpu_milli for weight, shape in classes) / sum(weights)
    capacity_milli = sum(node.gpus for node in fleet) * WHOLE_GPU_MILLI
    count = max(1, round(demand_share * capacity_milli / mean_milli))
    return Generated(fleet, tuple(classes[row][1] for row in _drawn(weights, count, rng)))


def _check(nodes: int, mix: str, demand_share: float) -> None:
    mistakes = []
    if nodes < 1:
        mistakes.append(Mistake("generated fleet, nodes", f"{nodes} nodes are not a fleet", "give at least 1"))
    if mix not in MIXES:
        mistakes.append(Mistake("generated fleet, mix", f"no mix is called {mix!r}", f"choose from {', '.join(MIXES)}"))
    if not 0 < demand_share < float("inf"):
        mistakes.append(
            Mistake("generated fleet, demand", f"{demand_share} is no fraction of the GPUs", "give e.g. 0.98")
        )
    if mistakes:
        raise ConfigError(tuple(mistakes))


def pod_classes(mix: Mix, models: Iterable[str]) -> list[tuple[float, PodShape]]:
    """Every class of pods in a mix with its weight, for a fleet of these GPU models.

    The models that a pod requires do not depend on its size (in the trace they hardly do). Models that the fleet lacks
    are removed from the lists, and a pod whose list becomes empty accepts any.
    """
    present = set(models)
    return [
        (share * size.weight / _total(kind) * model_share, _shape(kind, size, accepted))
        for kind, share in mix.shares.items()
        for size in POD_SIZES[kind]
        for model_share, accepted in _models_asked(kind, present, wanted=mix.asks_models)
    ]


def _total(kind: PodKind) -> int:
    return sum(size.weight for size in POD_SIZES[kind])


def _models_asked(kind: PodKind, present: set[str], *, wanted: bool) -> Iterator[tuple[float, tuple[str, ...]]]:
    """Fractions of a kind's pods by the models they accept, () for any; they add up to 1."""
    free = 1.0
    for weight, models in GPU_MODELS_ASKED[kind] if wanted else ():
        if left := tuple(model for model in models if model in present):
            free -= weight / 1000
            yield weight / 1000, left
    yield free, ()


def _shape(kind: PodKind, size: PodSize, models: tuple[str, ...]) -> PodShape:
    return PodShape(
        cpu_milli=round(size.cpu_cores * 1000),
        memory_bytes=size.memory_gib * GIB,
        gpus=GPUS_OF[kind],
        gpu_milli=size.gpu_milli if GPUS_OF[kind] else 0,
        gpu_types=models,
    )


def _drawn(weights: Sequence[float], count: int, rng: np.random.Generator) -> IntArray:
    """`count` rows in random order, each as often as its weight requires, give or take one: systematic sampling.

    With independent draws, an 8-GPU class of half a percent would come and go with the seed on a small fleet.
    """
    edges = np.cumsum(weights) / np.sum(weights)
    points = (np.arange(count) + rng.random()) / count
    rows = np.minimum(np.searchsorted(edges, points, side="right"), len(weights) - 1)
    return rng.permutation(rows).astype(np.int64)


def trace_of(made: Generated, prices: Mapping[str, float]) -> Snapshot:
    """Generated fleet with every pod pending, in the form of `openb.read_trace` for a trace.

    prices: dollars per GPU and hour by model; a model without a price costs 0.
    """
    models = sorted({node.model for node in made.nodes})
    shapes = {shape: index for index, shape in enumerate(dict.fromkeys(made.pods))}
    count = len(made.pods)
    return Snapshot(
        at_s=0.0,
        gpu_types=tuple(GpuType(model, 0, prices.get(model, 0.0)) for model in models),
        nodes=NodeTable(
            names=Names(node_name(n) for n in range(len(made.nodes))),
            cpu_milli=column((node.cpu_cores * 1000 for node in made.nodes), np.int64),
            memory_bytes=column((node.memory_gib * GIB for node in made.nodes), np.int64),
            gpus=column((node.gpus for node in made.nodes), np.int64),
            gpu_type=column((models.index(node.model) for node in made.nodes), np.int64),
            schedulable=column(np.ones(len(made.nodes)), np.bool_),
            labels=({},) * len(made.nodes),
            taints=((),) * len(made.nodes),
        ),
        pods=PodTable(
            names=Names(f"trace/{pod_name(n)}" for n in range(count)),
            shape=column((shapes[pod] for pod in made.pods), np.int64),
            shapes=tuple(shapes),
            node=column(np.full(count, PENDING), np.int64),
            devices=column(np.zeros(count), np.int64),
            priority=column(np.zeros(count), np.int64),
            gang=column(np.full(count, -1), np.int64),
            owner=("",) * count,
            movable=column(np.ones(count), np.bool_),
        ),
    )


def write_openb_csv(made: Generated, nodes_csv: Path, pods_csv: Path) -> None:
    """Writes the generated fleet as a node list and a pod list in the format of the published trace."""
    with nodes_csv.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("sn", "cpu_milli", "memory_mib", "gpu", "model"))
        rows.writerows(
            (node_name(n), node.cpu_cores * 1000, node.memory_gib * 1024, node.gpus, node.model)
            for n, node in enumerate(made.nodes)
        )
    with pods_csv.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"))
        rows.writerows(
            (pod_name(n), pod.cpu_milli, pod.memory_bytes // MIB, pod.gpus, pod.gpu_milli, "|".join(pod.gpu_types))
            for n, pod in enumerate(made.pods)
        )


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def pod_name(number: int) -> str:
    return f"pod-{number:06d}"
