"""Arrivals and departures of pods, from which a policy learns the mix of classes and the turnover."""

from collections import Counter

import numpy as np

from cluster.arrays import FloatArray
from placement.prices.classes import ClassShares, PodClass, shares_from

HALF_LIFE_PODS = 20_000
"""Arrivals after which an observation counts half. Chosen: a fraction of 1 % is then known to a fifteenth of its value
(square root of 1 in 0.01 * 20,000 / ln 2 pods)."""

WINDOW_PODS = 512
"""Arrivals that are compared with all earlier ones, and after which the turnover moves. Chosen: enough to distinguish a
new mix from chance, few enough to follow it within a twentieth of an openb fleet's turnover."""

SURPRISE = 5.0
"""Standard deviations of the test statistic above which the window is another mix. Chosen: at five, a steady mix of
openb raises no alarm in 300,000 arrivals."""

LEAST_COUNT = 8
"""Count below which classes are compared as one, over both samples together: the test's statistic needs it."""

FORGOTTEN_PODS = 0.01
"""Faded count below which a class is dropped, so that memory stays bounded."""


class ArrivalMix:
    """Fractions of pod classes learned from arrivals, window by window.

    At the end of a window all earlier counts fade a little. When the window differs from them by more than chance
    explains, they are dropped instead. Pods that arrived together are in one window, however many they are: they have
    no order, and the one in which a table lists them would look like a change of the mix.
    """

    def __init__(self) -> None:
        self._before: dict[PodClass, float] = {}
        self._window: Counter[PodClass] = Counter()
        self._window_pods = 0
        self.pods = 0
        """Arrivals until now."""
        self.turns = 0
        """Number of detected changes of the mix."""

    def start_from(self, *classes: PodClass) -> None:
        """Takes pods that are there at the start for a first sample of those that will come."""
        self._before = {c: float(count) for c, count in Counter(classes).items()}

    def arrived(self, *classes: PodClass) -> None:
        """Counts pods that were to be placed, one class each, whether or not they found a place."""
        self._window.update(classes)
        self._window_pods += len(classes)
        self.pods += len(classes)
        if self._window_pods < WINDOW_PODS:
            return
        if self._before and surprise(self._before, self._window) > SURPRISE:
            self._before = {}
            self.turns += 1
        faded = {c: weight * 2 ** (-self._window_pods / HALF_LIFE_PODS) for c, weight in self._before.items()}
        for pod_class, count in self._window.items():
            faded[pod_class] = faded.get(pod_class, 0.0) + count
        self._before = {c: weight for c, weight in faded.items() if weight > FORGOTTEN_PODS}
        self._window, self._window_pods = Counter(), 0

    def shares(self) -> ClassShares:
        """Arrivals as fractions with the number of pods that support them; empty when no pod has arrived."""
        weights = [*self._before.items(), *self._window.items()]
        return shares_from(weights, pods=sum(weight for _, weight in weights))


def surprise(before: dict[PodClass, float], window: Counter[PodClass]) -> float:
    """Standard deviations by which two samples of classes differ more than two samples of one mix do.

    The two-sample chi-square statistic, less its mean (bins - 1), over its standard deviation sqrt(2 (bins - 1)).
    """
    classes = before.keys() | window.keys()
    counts = np.array([(before.get(c, 0.0), window.get(c, 0)) for c in classes], dtype=np.float64)
    often = counts.sum(axis=1) >= LEAST_COUNT
    binned: FloatArray = np.vstack([counts[often], counts[~often].sum(axis=0)])
    binned = binned[binned.sum(axis=1) > 0]
    free = len(binned) - 1
    if free < 1:
        return 0.0
    ratio = np.sqrt(binned[:, 1].sum() / binned[:, 0].sum())
    statistic = ((binned[:, 0] * ratio - binned[:, 1] / ratio) ** 2 / binned.sum(axis=1)).sum()
    return float((statistic - free) / np.sqrt(2 * free))


class Turnover:
    """Departures of pods that ran per arrival, smoothed window by window."""

    def __init__(self) -> None:
        self.share = 0.0
        """0: no pod leaves, as in a fleet that fills up; 1: as many leave as arrive."""
        self._arrivals = 0
        self._departures = 0

    def arrived(self, pods: int = 1) -> None:
        """Counts pods that were to be placed, whether or not they found a place."""
        self._arrivals += pods
        if self._arrivals >= WINDOW_PODS:
            self.share = (self.share + min(1.0, self._departures / self._arrivals)) / 2
            self._arrivals = self._departures = 0

    def departed(self, pods: int = 1) -> None:
        """Counts pods that ran and ended."""
        self._departures += pods
