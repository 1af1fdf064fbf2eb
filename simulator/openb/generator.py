"""Generated fleets of any size with the statistics of the openb cluster (statistics.yaml), for use without the trace.

Source: the published production trace of a heterogeneous GPU cluster (alibaba/clusterdata, cluster-trace-gpu-v2023;
USENIX ATC'23 "Beware of Fragmentation"). The composition of the fleet is exact, that of the pods to thousandths.
tests/unit/simulator/openb/test_generator.py compares the generator with the tables and, where the public data is
available, the tables with the trace.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from cluster import arrays, errors, snapshot, workloads
from simulator.openb.trace_reader import snapshot_of

PodKind = Literal["cpu", "fraction", "whole-1", "whole-2", "whole-4", "whole-8"]


@dataclass(frozen=True, slots=True)
class NodeKind:
    """One kind of server, and its number in the published fleet."""

    model: str
    count: int
    cpu_cores: int
    memory_gib: int
    gpus: int


@dataclass(frozen=True, slots=True)
class PodSize:
    """One size of the pods of one kind."""

    weight: int
    """About thousandths of the pods of its kind."""
    cpu_cores: float
    memory_gib: int
    gpu_milli: int = 1000
    """Thousandths of each GPU that it requests; without meaning for a pod that requests none."""


@dataclass(frozen=True, slots=True)
class PodMix:
    """Mix of arriving pods: fractions of the kinds, and whether part of the pods requires GPU models."""

    shares: Mapping[PodKind, float]
    """Thousandths of all pods, about."""
    asks_models: bool = False


_COUNTED: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("statistics.yaml").read_text(encoding="utf-8"))
"""What the fields mean stands in the file."""
NODE_KINDS = tuple(NodeKind(*row) for row in _COUNTED["nodes"])
POD_SIZES: Mapping[PodKind, tuple[PodSize, ...]] = {
    kind: tuple(PodSize(*row) for row in rows) for kind, rows in _COUNTED["sizes"].items()
}
GPU_MODELS_ASKED: Mapping[PodKind, tuple[tuple[int, tuple[str, ...]], ...]] = {
    kind: tuple((weight, tuple(models)) for weight, models in rows) for kind, rows in _COUNTED["models"].items()
}
"""Thousandths of a kind's pods that accept only these models; the others accept any model."""
MIXES: Mapping[str, PodMix] = {name: PodMix(**mix) for name, mix in _COUNTED["mixes"].items()}
"""The four published pod lists."""
GIB = 2**30

GPUS_OF: dict[PodKind, int] = {"cpu": 0, "fraction": 1, "whole-1": 1, "whole-2": 2, "whole-4": 4, "whole-8": 8}

PUBLISHED_DEMAND_SHARE = 0.98
"""Requested fraction of the fleet: the default pod list of openb requests 6,086.8 of 6,212 GPUs."""


@dataclass(frozen=True, slots=True)
class Generated:
    """Fleet and the pods that arrive at it, both in a seeded random order."""

    nodes: tuple[NodeKind, ...]
    """Kind of each node."""
    pods: tuple[workloads.PodShape, ...]

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)


def generate(nodes: int, *, mix: str = "default", seed: int = 0) -> Generated:
    """Fleet of `nodes` nodes, and pods that request as much of its GPUs in the mean as the published ones do.

    Each node kind and pod class appears as often as its fraction requires, give or take one; the seed decides the order
    and the direction of rounding. 1,213 nodes are the published fleet exactly.
    Raises ConfigError for zero nodes or for an unknown mix.
    """
    mistakes = []
    if nodes < 1:
        mistakes.append(errors.Mistake("generated fleet, nodes", f"{nodes} nodes are not a fleet", "give at least 1"))
    if mix not in MIXES:
        mistakes.append(
            errors.Mistake("generated fleet, mix", f"no mix is called {mix!r}", f"choose from {', '.join(MIXES)}")
        )
    if mistakes:
        raise errors.ConfigError(tuple(mistakes))
    rng = np.random.default_rng(seed)
    kinds = _drawn([kind.count for kind in NODE_KINDS], nodes, rng)
    fleet = tuple(NODE_KINDS[row] for row in kinds)
    classes = pod_classes(MIXES[mix], models={node.model for node in fleet})
    weights = [weight for weight, _ in classes]
    mean_milli = sum(weight * shape.total_gpu_milli for weight, shape in classes) / sum(weights)
    capacity_milli = sum(node.gpus for node in fleet) * workloads.WHOLE_GPU_MILLI
    count = max(1, round(PUBLISHED_DEMAND_SHARE * capacity_milli / mean_milli))
    return Generated(fleet, tuple(classes[row][1] for row in _drawn(weights, count, rng)))


def pod_classes(mix: PodMix, models: Iterable[str]) -> list[tuple[float, workloads.PodShape]]:
    """Every class of pods in a mix with its weight, for a fleet of these GPU models.

    The models that a pod requires do not depend on its size (in the trace they hardly do). Models that the fleet lacks
    are removed from the lists, and a pod whose list becomes empty accepts any.
    """
    present = set(models)
    return [
        (
            share * size.weight / sum(size.weight for size in POD_SIZES[kind]) * model_share,
            workloads.PodShape(
                cpu_milli=round(size.cpu_cores * 1000),
                memory_bytes=size.memory_gib * GIB,
                gpus=GPUS_OF[kind],
                gpu_milli=size.gpu_milli if GPUS_OF[kind] else 0,
                gpu_types=accepted,
            ),
        )
        for kind, share in mix.shares.items()
        for size in POD_SIZES[kind]
        for model_share, accepted in _models_asked(kind, present, wanted=mix.asks_models)
    ]


def _models_asked(kind: PodKind, present: set[str], *, wanted: bool) -> Iterator[tuple[float, tuple[str, ...]]]:
    """Fractions of a kind's pods by the models they accept, () for any; they add up to 1."""
    free = 1.0
    for weight, models in GPU_MODELS_ASKED[kind] if wanted else ():
        if left := tuple(model for model in models if model in present):
            free -= weight / 1000
            yield weight / 1000, left
    yield free, ()


def _drawn(weights: Sequence[float], count: int, rng: np.random.Generator) -> arrays.IntArray:
    """`count` rows in random order, each as often as its weight requires, give or take one: systematic sampling.

    With independent draws, an 8-GPU class of half a percent would come and go with the seed on a small fleet.
    """
    edges = np.cumsum(weights) / np.sum(weights)
    points = (np.arange(count) + rng.random()) / count
    rows = np.minimum(np.searchsorted(edges, points, side="right"), len(weights) - 1)
    return rng.permutation(rows).astype(np.int64)


def trace_of(made: Generated, prices: Mapping[str, float]) -> snapshot.Snapshot:
    """Generated fleet with every pod pending, in the form of `openb.read_trace` for a trace.

    prices: dollars per GPU and hour by model; a model without a price costs 0.
    """
    nodes = [
        (node_name(n), node.cpu_cores * 1000, node.memory_gib * GIB, node.gpus, node.model)
        for n, node in enumerate(made.nodes)
    ]
    return snapshot_of(nodes, [(pod_name(n), pod) for n, pod in enumerate(made.pods)], prices)


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def pod_name(number: int) -> str:
    return f"pod-{number:06d}"
