"""Bounds of what a policy can do: the peak at all times, and perfect foresight."""

from dataclasses import dataclass

import numpy as np

from autoscaler.peers.recommendation import Recommendation
from cluster.arrays import FloatArray, IntArray
from cluster.autoscaling import Scaler


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same replicas at all times, such as those of the highest load seen so far."""

    replicas: int

    def __call__(self, _scaler: Scaler, _at_s: float) -> Recommendation:
        return Recommendation.plain(self.replicas)


def oracle_replicas(load: FloatArray, lead_steps: int) -> IntArray:
    """Fewest replicas to want at each step so that no load is ever missed, knowing all of it.

    load: shape (steps,), in replicas. What a step needs must be wanted since `lead_steps` before, so each step wants
    the highest need of itself and the next `lead_steps`: below that nothing is served in time, and above it nothing is
    gained. It is the cheapest policy without a miss.
    """
    need = np.ceil(load - 1e-9).astype(np.int64)
    wanted = need.copy()
    for ahead in range(1, min(lead_steps, len(need) - 1) + 1):
        wanted[:-ahead] = np.maximum(wanted[:-ahead], need[ahead:])
    return wanted
