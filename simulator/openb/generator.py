"""Generated fleets of any size with the statistics of the openb cluster, for use without the trace.

Source: the published production trace of a heterogeneous GPU cluster (alibaba/clusterdata, cluster-trace-gpu-v2023;
USENIX ATC'23 "Beware of Fragmentation"). The composition of the fleet is exact. The fractions of pods were counted in
the four published pod lists and rounded to thousandths; rare sizes (together 2-4 % of a kind) are left out. CPU is
rounded to tenths of a core, memory to GiB. tests/unit/simulator/openb/test_generator.py compares the generator with
these tables and, where the public data is available, the tables with the trace.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

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


NODE_KINDS = (
    NodeKind("G2", 549, 96, 384, 8),
    NodeKind("T4", 387, 104, 512, 2),
    NodeKind("P100", 107, 16, 120, 2),
    NodeKind("G3", 39, 128, 768, 8),
    NodeKind("V100M16", 28, 32, 128, 4),
    NodeKind("P100", 22, 64, 256, 2),
    NodeKind("V100M32", 21, 96, 768, 8),
    NodeKind("V100M16", 19, 8, 32, 1),
    NodeKind("T4", 17, 96, 384, 4),
    NodeKind("V100M32", 9, 48, 368, 4),
    NodeKind("V100M16", 7, 64, 256, 8),
    NodeKind("P100", 3, 8, 60, 1),
    NodeKind("P100", 2, 8, 60, 2),
    NodeKind("A10", 2, 128, 1024, 1),
    NodeKind("V100M16", 1, 82, 336, 8),
)
"""1,213 nodes, 6,212 GPUs, 107,018 cores. G2 and G3 are the publisher's substitutes for product names."""


@dataclass(frozen=True, slots=True)
class PodSize:
    """One size of the pods of one kind."""

    weight: int
    """About thousandths of the pods of its kind."""
    cpu_cores: float
    memory_gib: int
    gpu_milli: int = 1000
    """Thousandths of each GPU that it requests; without meaning for a pod that requests none."""


POD_SIZES: Mapping[PodKind, tuple[PodSize, ...]] = {
    "cpu": (
        PodSize(335, 12.5, 56),
        PodSize(261, 32, 48),
        PodSize(150, 8, 30),
        PodSize(110, 15.4, 50),
        PodSize(87, 16.5, 50),
        PodSize(20, 16, 31),
        PodSize(20, 8, 15),
        PodSize(17, 11.4, 56),
    ),
    "fraction": (
        PodSize(340, 3.2, 5, 810),
        PodSize(126, 11.9, 46, 470),
        PodSize(117, 8, 30, 470),
        PodSize(77, 11.9, 46, 650),
        PodSize(36, 4, 22, 320),
        PodSize(27, 4, 30, 230),
        PodSize(25, 4, 15, 320),
        PodSize(24, 3.2, 5, 590),
        PodSize(23, 8, 30, 320),
        PodSize(23, 4.2, 10, 550),
        PodSize(21, 6, 12, 460),
        PodSize(20, 4, 15, 160),
        PodSize(18, 6, 6, 460),
        PodSize(16, 4, 22, 220),
        PodSize(15, 4.2, 10, 370),
        PodSize(14, 4, 30, 320),
        PodSize(12, 8, 30, 230),
        PodSize(10, 4.2, 10, 810),
        PodSize(9, 4, 15, 220),
        PodSize(9, 4, 18, 110),
        PodSize(8, 1, 2, 320),
        PodSize(7, 4, 22, 480),
        PodSize(6, 6, 22, 160),
        PodSize(5, 8, 30, 650),
    ),
    "whole-1": (
        PodSize(219, 11.3, 48),
        PodSize(137, 11.4, 47),
        PodSize(120, 3.2, 5),
        PodSize(65, 18.7, 63),
        PodSize(50, 9.8, 41),
        PodSize(40, 12, 24),
        PodSize(40, 15.7, 57),
        PodSize(39, 11.9, 46),
        PodSize(38, 4, 26),
        PodSize(37, 12, 16),
        PodSize(30, 11.5, 76),
        PodSize(28, 16, 32),
        PodSize(27, 8, 16),
        PodSize(24, 14.2, 57),
        PodSize(24, 8, 32),
        PodSize(21, 24.2, 91),
        PodSize(15, 15.4, 72),
        PodSize(12, 16, 64),
        PodSize(10, 1, 6),
        PodSize(8, 16.4, 123),
        PodSize(6, 6, 30),
    ),
    "whole-2": (
        PodSize(500, 16.2, 65),
        PodSize(200, 6, 64),
        PodSize(200, 30.2, 157),
        PodSize(100, 17.4, 42),
    ),
    "whole-4": (
        PodSize(600, 32.2, 129),
        PodSize(200, 32, 128),
        PodSize(200, 60.2, 313),
    ),
    "whole-8": (
        PodSize(410, 88, 320),
        PodSize(410, 64.2, 257),
        PodSize(70, 120, 720),
        PodSize(65, 64, 256),
        PodSize(45, 120.2, 625),
    ),
}

GPU_MODELS_ASKED: Mapping[PodKind, tuple[tuple[int, tuple[str, ...]], ...]] = {
    "cpu": (),
    "fraction": (
        (193, ("T4",)),
        (90, ("P100",)),
        (4, ("G2", "P100", "T4", "V100M16", "V100M32")),
    ),
    "whole-1": (
        (178, ("T4",)),
        (82, ("G2",)),
        (41, ("V100M16", "V100M32")),
        (26, ("P100", "V100M16", "V100M32")),
        (20, ("G3",)),
        (9, ("P100", "T4", "V100M16", "V100M32")),
        (8, ("G2", "P100", "T4", "V100M16", "V100M32")),
        (6, ("A10", "G2", "T4", "V100M16", "V100M32")),
        (5, ("V100M32",)),
        (2, ("A10", "T4")),
    ),
    "whole-2": (
        (187, ("V100M16", "V100M32")),
        (125, ("V100M32",)),
        (125, ("T4", "V100M16", "V100M32")),
    ),
    "whole-4": (
        (333, ("V100M16", "V100M32")),
        (267, ("G2",)),
    ),
    "whole-8": (
        (136, ("G2",)),
        (136, ("G3",)),
    ),
}
"""Thousandths of a kind's pods that accept only these models (pod list gpuspec33); the others accept any model."""


@dataclass(frozen=True, slots=True)
class PodMix:
    """Mix of arriving pods: fractions of the kinds, and whether part of the pods requires GPU models."""

    shares: Mapping[PodKind, float]
    """Thousandths of all pods, about."""
    asks_models: bool = False


MIXES: Mapping[str, PodMix] = {
    "default": PodMix(
        {"cpu": 133.5, "fraction": 377.6, "whole-1": 479.8, "whole-2": 2, "whole-4": 1.8, "whole-8": 5.4}
    ),
    "gpuspec33": PodMix(
        {"cpu": 133.5, "fraction": 377.6, "whole-1": 479.8, "whole-2": 2, "whole-4": 1.8, "whole-8": 5.4},
        asks_models=True,
    ),
    "multigpu20": PodMix(
        {"cpu": 130.7, "fraction": 369.8, "whole-1": 469.8, "whole-2": 6.5, "whole-4": 6.2, "whole-8": 16.9}
    ),
    "gpushare100": PodMix({"cpu": 133.5, "fraction": 866.5}),
}
"""The four published pod lists. A third of the GPU pods of gpuspec33 requires certain models. In multigpu20, 20 % of
the GPUs are requested in twos, fours and eights. In gpushare100 every GPU pod requests a fraction of one GPU."""


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
