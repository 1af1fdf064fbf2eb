"""Pod classes: the kinds of pods that arrive, and how often each does."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray, column
from cluster.workloads import PodShape


@dataclass(frozen=True, slots=True, order=True)
class PodClass:
    """Properties of a shape that matter for the worth of free resources: memory, labels and taints are left out."""

    cpu_milli: int
    gpus: int
    gpu_milli: int
    gpu_types: tuple[str, ...] = ()

    @property
    def gpu_demand(self) -> float:
        """GPUs that a pod of the class requests in total, fractions included."""
        return self.gpus * self.gpu_milli / 1000


def class_of(shape: PodShape) -> PodClass:
    """Class of a shape. GPU types mean nothing for a pod without GPUs, so they are dropped there."""
    return PodClass(shape.cpu_milli, shape.gpus, shape.gpu_milli, shape.gpu_types if shape.gpus else ())


@dataclass(frozen=True, slots=True, eq=False)
class ClassShares:
    """Expected classes, each with its fraction of the pods."""

    classes: tuple[PodClass, ...]
    share: FloatArray
    """Shape (classes,), adds up to 1 (or is empty)."""
    pods: float = math.inf
    """Number of observed pods that support the fractions; infinite where these are known."""

    @property
    def gpu_demand(self) -> FloatArray:
        """GPUs that one pod of each class requests, shape (classes,)."""
        return np.array([c.gpu_demand for c in self.classes], dtype=np.float64)

    @property
    def mean_gpu_demand(self) -> float:
        """GPUs that the average pod requests; 0 when there are no classes."""
        return float(self.share @ self.gpu_demand)


def shares_from(weights: Iterable[tuple[PodClass, float]], pods: float = math.inf) -> ClassShares:
    """Fractions in proportion to weights (counts, for example). A class that occurs twice is added up.

    pods: number of observations behind the weights; infinite where the fractions are known.
    """
    total: dict[PodClass, float] = {}
    for pod_class, weight in weights:
        total[pod_class] = total.get(pod_class, 0.0) + weight
    # Sorted, so that equal mixes give bit-equal prices whatever the order in which they were counted.
    classes = tuple(sorted(c for c, weight in total.items() if weight > 0))
    share = np.array([total[c] for c in classes], dtype=np.float64)
    return ClassShares(classes, column(share / max(share.sum(), 1e-300), np.float64), pods)


def shares_of(shapes: Iterable[PodShape]) -> ClassShares:
    """Fractions of a known population, for example of a whole trace."""
    return shares_from((class_of(shape), 1.0) for shape in shapes)
