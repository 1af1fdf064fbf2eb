"""Packing quality of a cluster, computed only from its Node and Pod objects."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.arrays import column
from cluster.workloads import WHOLE_GPU_MILLI
from controller.api.notation import quantity
from placement.policies.fgd import Fragmentation
from placement.prices.classes import ClassShares, class_of
from tests.builders.whole_gpu_pods import GPU, usual_shapes

PRODUCT = "nvidia.com/gpu.product"
DEVICES = "tonnage.dev/devices"
GIB = 2**30
NEXT_LARGE = (8, 64_000, 256 * GIB)
"""(GPUs, thousandths of a core, bytes) of a large pod that should fit next: 8 GPUs, with the CPU and memory of the
smallest such pods in the published trace."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Figures of a packed cluster."""

    bound: int
    gpus: int
    gpus_asked: int
    """GPUs requested by bound pods."""
    next_large: int
    """Number of further 8-GPU pods that would fit."""
    stranded_gpus: float
    """Expected number of idle GPUs that typical pods cannot use: the measure of USENIX ATC'23 (FGD)."""
    over_committed: tuple[str, ...]
    """Over-committed nodes, and devices allocated twice."""

    @property
    def allocated_share(self) -> float:
        return self.gpus_asked / self.gpus


Object = Mapping[str, Any]


def packed(nodes: Iterable[Object], pods: Iterable[Object]) -> Packed:
    """Packing quality for pods of whole GPUs."""
    free = {node["metadata"]["name"]: _allocatable(node) for node in nodes}
    products = {node["metadata"]["name"]: node["metadata"]["labels"].get(PRODUCT, "") for node in nodes}
    gpus = sum(has[0] for has in free.values())
    given: defaultdict[str, Counter[str]] = defaultdict(Counter)
    bound = asked = 0
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if not node:
            continue
        wants = _asks(pod)
        bound, asked = bound + 1, asked + wants[0]
        free[node] = [has - want for has, want in zip(free[node], wants, strict=True)]
        given[node].update(
            number for number in pod["metadata"].get("annotations", {}).get(DEVICES, "").split(",") if number
        )
    over = [node for node, left in free.items() if min(left) < 0]
    over += [f"{node} device {n}" for node, numbers in given.items() for n, count in numbers.items() if count > 1]
    next_large = sum(min(left // want for left, want in zip(has, NEXT_LARGE, strict=True)) for has in free.values())
    stranded = _stranded([products[name] for name in free], list(free.values()))
    return Packed(bound, gpus, asked, max(next_large, 0), stranded, tuple(over))


def _stranded(products: Sequence[str], free: Sequence[Sequence[int]]) -> float:
    shares = usual_shapes()
    total = sum(share for share, _ in shares)
    share = column((s / total for s, _ in shares), np.float64)
    mix = ClassShares(tuple(class_of(shape) for _, shape in shares), share)
    names = tuple(sorted(set(products)))
    width = max((left[0] for left in free), default=0)
    idle = np.array([[WHOLE_GPU_MILLI * (device < left[0]) for device in range(width)] for left in free])
    kind = np.array([names.index(product) for product in products])
    cpu = np.array([left[1] for left in free])
    return float(Fragmentation(mix, names).of_states(kind, cpu, idle).sum()) / WHOLE_GPU_MILLI


def _allocatable(node: Object) -> list[int]:
    return _amounts(node["status"]["allocatable"])


def _asks(pod: Object) -> list[int]:
    """Requests of a pod's only container."""
    return _amounts(pod["spec"]["containers"][0]["resources"].get("requests", {}))


def _amounts(written: Mapping[str, str]) -> list[int]:
    """(GPUs, thousandths of a core, bytes)."""
    return [
        int(quantity(written.get(GPU, "0"))),
        int(quantity(written.get("cpu", "0")) * 1000),
        int(quantity(written.get("memory", "0"))),
    ]
