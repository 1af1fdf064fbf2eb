"""Turnover: departures per arrival. Fleets that fill up and fleets that churn pack differently."""

from collections import Counter

from cluster.workloads import PodShape

WINDOW_PODS = 512
"""Arrivals over which departures are counted before the estimate moves."""


class Turnover:
    """Departures per arrival, smoothed, from the three calls that a policy gets.

    A pod that is moved, or placed only as a test, is removed and put back without arriving again. Such returns are
    subtracted from the removals.
    """

    def __init__(self) -> None:
        self.share = 0.0
        """0: no pod leaves, as in a fleet that fills up; 1: as many leave as arrive."""
        self._awaited: Counter[PodShape] = Counter()
        self._arrivals = 0
        self._gone = 0

    def arrived(self, shape: PodShape) -> None:
        self._awaited[shape] += 1
        self._arrivals += 1
        if self._arrivals == WINDOW_PODS:
            self.share = (self.share + min(1.0, self._gone / WINDOW_PODS)) / 2
            # A pod that waited for long was dropped, or is one of many alike: remembering one of each shape is enough.
            self._awaited = Counter([shape for shape, count in self._awaited.items() if count > 0])
            self._arrivals = self._gone = 0

    def placed(self, shape: PodShape) -> None:
        if self._awaited[shape] > 0:
            self._awaited[shape] -= 1
        elif self._gone:
            self._gone -= 1

    def removed(self) -> None:
        self._gone += 1
