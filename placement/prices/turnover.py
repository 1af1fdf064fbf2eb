"""Turnover: departures per arrival. Fleets that fill up and fleets that churn pack differently."""

WINDOW_PODS = 512
"""Arrivals over which departures are counted before the estimate moves."""


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
