"""Simulated replicas of one target: ordered, pending for their lead time, ready, stopped."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cluster.autoscaling import Replicas


@dataclass(frozen=True, slots=True)
class Leads:
    """Lead times of a replay: each start draws one of these with equal probability, seconds."""

    points_s: tuple[float, ...]

    @classmethod
    def lognormal(cls, median_s: float, spread: float, points: int = 50) -> "Leads":
        """Midpoint quantiles of a lognormal distribution. spread: standard deviation of the logarithm."""
        levels = (np.arange(points) + 0.5) / points
        normal = np.sort(np.random.default_rng(0).normal(size=20_001))
        return cls(tuple((median_s * np.exp(spread * np.quantile(normal, levels))).tolist()))

    @property
    def mean_s(self) -> float:
        return sum(self.points_s) / len(self.points_s)

    def drawn(self, seed: int) -> Callable[[], float]:
        """Source of lead times, the same for the same seed."""
        chance = np.random.default_rng(seed)
        return lambda: self.points_s[int(chance.integers(len(self.points_s)))]


class Fleet:
    """Replicas over time. A scale-down stops the latest orders first, then ready replicas, as a Deployment does."""

    def __init__(self, ready: int, lead_s: Callable[[], float]) -> None:
        self._lead_s = lead_s
        self._ready = ready
        self._pending: list[tuple[float, float]] = []

    @property
    def wanted(self) -> int:
        return self._ready + len(self._pending)

    @property
    def ready(self) -> int:
        return self._ready

    def replicas(self) -> Replicas:
        return Replicas(self.wanted, self._ready, tuple(ordered for ordered, _ in self._pending))

    def reach(self, at_s: float) -> list[float]:
        """Let those become ready whose time has come; the result is the time that each took."""
        came = [(ordered, due) for ordered, due in self._pending if due <= at_s + 1e-6]
        self._pending = [each for each in self._pending if each[1] > at_s + 1e-6]
        self._ready += len(came)
        return [due - ordered for ordered, due in came]

    def scale(self, replicas: int, at_s: float) -> None:
        for _ in range(replicas - self.wanted):
            self._pending.append((at_s, at_s + self._lead_s()))
        surplus = self.wanted - replicas
        if surplus > 0:
            kept = max(0, len(self._pending) - surplus)
            self._ready -= surplus - (len(self._pending) - kept)
            del self._pending[kept:]
