"""FGD, fragmentation gradient descent: the node whose expected fragment grows least."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from cluster.arrays import FloatArray, IntArray, column
from cluster.workloads import PodShape
from placement.engine.device_options import StateMemo, options
from placement.engine.ledger import Ledger
from placement.engine.policy import Policy, Rated
from placement.policies.published import whole_points
from placement.prices.classes import ClassShares, PodClass, allowed_types, class_of

TYPICAL_SHARE = 0.95
"""Fraction of the pods that the most popular classes must cover. Source: the FGD simulator's settings."""


def typical_pods(shapes: Iterable[PodShape]) -> ClassShares:
    """Most popular classes of these pods that together cover `TYPICAL_SHARE` of the pods, popularity renormalised.

    CPU-only pods count. Among equally popular classes the larger comes first, so that the result does not depend on the
    order.
    """
    counts = Counter(map(class_of, shapes))
    total, covered = counts.total(), 0
    taken: list[tuple[PodClass, int]] = []

    def size(item: tuple[PodClass, int]) -> tuple[int, int, int, int, str]:
        kind, count = item
        return (count, kind.cpu_milli, kind.gpu_milli, kind.gpus, "|".join(kind.gpu_types))

    for kind, count in sorted(counts.items(), key=size, reverse=True):
        if covered >= TYPICAL_SHARE * total:
            break
        covered += count
        taken.append((kind, count))
    return ClassShares(tuple(kind for kind, _ in taken), column((count / covered for _, count in taken), np.float64))


class Fragmentation:
    """Expected fragment of node states under one mix of pods, cached by state.

    Source: USENIX ATC'23 (FGD), section 4, and its simulator. For a class m of typical pods, the fragment F(m) of a
    node is all its idle GPU when the node cannot take a pod of m at all (CPU short, too few devices with enough left,
    wrong GPU type, or m requests no GPU); else the idle GPU of devices with less left than m requests of one. F is the
    mean over the classes, weighted by popularity: the part of idle GPU that typical pods could not use.
    """

    def __init__(self, mix: ClassShares, gpu_type_names: tuple[str, ...]) -> None:
        asking = [(kind, share) for kind, share in zip(mix.classes, mix.share, strict=True) if kind.gpus]
        kinds = [kind for kind, _ in asking]
        self._share = np.array([share for _, share in asking])
        self._cpu_milli = np.array([kind.cpu_milli for kind in kinds], dtype=np.int64)
        self._gpus = np.array([kind.gpus for kind in kinds], dtype=np.int64)
        self._sizes, self._size_of = np.unique(
            np.array([kind.gpu_milli for kind in kinds], dtype=np.int64), return_inverse=True
        )
        # Type -1, the last row: a node without GPUs takes none of them.
        self._allowed = np.pad(allowed_types(kinds, gpu_type_names).T, ((0, 1), (0, 0)))
        self.memo = StateMemo(self.of_states)

    def of_states(self, gpu_type: IntArray, cpu_milli: IntArray, gpu_milli: IntArray) -> FloatArray:
        """F in thousandths of a GPU, computed. gpu_type, cpu_milli: shape (states,); gpu_milli: (states, width)."""
        gpu_milli = np.maximum(gpu_milli, 0)  # an over-committed device has nothing left
        enough = gpu_milli[:, :, None] >= self._sizes
        devices = enough.sum(axis=1)[:, self._size_of]
        usable_milli = (enough * gpu_milli[:, :, None]).sum(axis=1)[:, self._size_of]
        takes = self._allowed[gpu_type] & (cpu_milli[:, None] >= self._cpu_milli) & (devices >= self._gpus)
        fragment: FloatArray = gpu_milli.sum(axis=1) - (takes * usable_milli * self._share).sum(axis=1)
        return fragment

    def of_nodes(self, ledger: Ledger, nodes: IntArray) -> FloatArray:
        """F of nodes in their present state, in thousandths of a GPU. Shape (nodes,)."""
        return self.memo.of(ledger.gpu_type[nodes], ledger.cpu_milli[nodes], ledger.gpu_milli[nodes])


class Fgd(Policy):
    """Rates a node, and each of its devices for a fraction of a GPU, by the growth of its fragment.

    Source: USENIX ATC'23 (FGD), algorithm 1. The score is the simulator's: the sigmoid of the growth in GPUs, as whole
    points of a hundred.
    """

    name = "fgd"

    def __init__(self, fragment: Fragmentation) -> None:
        self._fragment = fragment

    def rate(self, shape: PodShape, ledger: Ledger, nodes: IntArray) -> Rated:
        ways = options(shape, ledger, nodes)
        before = self._fragment.of_nodes(ledger, nodes)
        growth_milli = ways.values(self._fragment.memo) - before[ways.node]
        return ways.cheapest(-gradient_points(growth_milli))

    def terms(self, shape: PodShape, ledger: Ledger, node: int) -> dict[str, float]:
        here = np.array([node])
        ways = options(shape, ledger, here)
        before = float(self._fragment.of_nodes(ledger, here)[0])
        rated = ways.cheapest(-gradient_points(ways.values(self._fragment.memo) - before))
        return {"fragment_before_gpus": before / 1000.0, "points": -float(rated.cost[0])}


def gradient_points(growth_milli: FloatArray) -> FloatArray:
    """Points out of a hundred: 50 where the fragment does not change, less where it grows."""
    growth = np.round(growth_milli / 1000.0, 9)  # a sum's last digit must not decide the rounding
    return whole_points(1.0 / (1.0 + np.exp(growth)))
