"""FGD, fragmentation gradient descent: the node whose expected fragment grows least."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from placement.engine.ledger import Ledger
from placement.engine.policy import Policy, Rated
from placement.policies.device_candidates import options
from placement.policies.fragmentation import Fragmentation, class_of, typical_pods
from placement.policies.score_scale import whole_points


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


class LearningFgd(Fgd):
    """FGD over past arrivals: it counts the classes again whenever the number of arrivals has doubled."""

    def __init__(self, gpu_type_names: tuple[str, ...], present: Iterable[PodShape] = ()) -> None:
        """present: pods that are there at the start."""
        self._gpu_type_names = gpu_type_names
        self._arrived = Counter(map(class_of, present))
        self._pods = self._arrived.total()
        super().__init__(self._learned())

    def arrived(self, *shapes: PodShape) -> None:
        before = self._pods
        self._pods += len(shapes)
        self._arrived.update(map(class_of, shapes))
        if self._pods.bit_length() > before.bit_length():  # at 1, 2, 4, 8 ... pods
            self._learn()

    def fleet_changed(self, fleet: Snapshot) -> None:
        if fleet.gpu_type_names != self._gpu_type_names:
            self._gpu_type_names = fleet.gpu_type_names
            self._learn()

    def _learn(self) -> None:
        self._fragment = self._learned()
        self.version += 1

    def _learned(self) -> Fragmentation:
        return Fragmentation(typical_pods(self._arrived.elements()), self._gpu_type_names)


def gradient_points(growth_milli: FloatArray) -> FloatArray:
    """Points out of a hundred: 50 where the fragment does not change, less where it grows."""
    growth = np.round(growth_milli / 1000.0, 9)  # a sum's last digit must not decide the rounding
    return whole_points(1.0 / (1.0 + np.exp(growth)))
