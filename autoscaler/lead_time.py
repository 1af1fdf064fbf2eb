"""Observed starts of replicas and the distribution of their lead time.

A start that is still pending is censored: it takes at least its age. Leaving it out would make a fleet that starts ever
more slowly look fast, as only quick starts are finished. The estimate is that of Kaplan and Meier (1958), with the
assumption that stands in before there are enough starts as a few observations of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster.autoscaling import LeadTime


@dataclass(frozen=True, slots=True)
class LeadTimeModel:
    """How a lead time is estimated."""

    assumed_s: tuple[float, ...] = (60.0, 90.0, 120.0, 180.0, 300.0)
    """Lead times that are assumed before any start was observed, seconds, with equal probability: a container whose
    image is there to a large model loaded over the network (llm-d issue 1433: 52 to 110 s; aibrix issue 1418)."""
    assumed_weight: float = 5.0
    """Number of observed starts that the assumption counts for. Chosen: after 50 it has less than a tenth."""
    most: int = 200
    """Most starts that count; older ones are forgotten."""
    points: int = 20
    """Points of the distribution."""


MODEL = LeadTimeModel()


def lead_time_of(took_s: Sequence[float], pending_s: Sequence[float], model: LeadTimeModel = MODEL) -> LeadTime:
    """Distribution of the lead time, from seconds that finished starts took and the ages of pending ones."""
    latest = np.asarray(took_s, dtype=np.float64)[-model.most :]
    oldest_pending = np.sort(np.asarray(pending_s, dtype=np.float64))[-model.most :]
    assumed = np.asarray(model.assumed_s, dtype=np.float64)
    times = np.concatenate([latest, assumed, oldest_pending])
    weights = np.concatenate(
        [
            np.ones(len(latest)),
            np.full(len(assumed), model.assumed_weight / len(assumed)),
            np.ones(len(oldest_pending)),
        ]
    )
    finished = np.arange(len(times)) < len(latest) + len(assumed)
    # Kaplan-Meier estimate: probability to take longer than each instant, which rise; censored ones come last.
    order = np.lexsort((~finished, times))
    times, weights, finished = times[order], weights[order], finished[order]
    at_risk = weights[::-1].cumsum()[::-1]
    survival = np.cumprod(np.where(finished, 1 - weights / at_risk, 1.0))
    # Midpoint quantiles; what is left beyond the last finished start lies at the oldest observation.
    probabilities = (np.arange(model.points) + 0.5) / model.points
    reached = np.searchsorted(1 - survival, probabilities - 1e-12)
    return LeadTime(tuple(times[np.minimum(reached, len(times) - 1)].tolist()), len(latest))
