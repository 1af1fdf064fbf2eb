"""Expected cost of each number of replicas, over the predictive distribution of the load and that of the lead time.

Sets         n = 0 … N replicas; leads l of equal probability (order → ready)
Data         c replicas wanted now; p price of a replica and hour; κ miss cost; X(l) load after l, in replicas
             θ = (start + switch) / spread, δ = (stop + switch) / spread: costs of a start and a stop (Weighing)
Objective    min over n of p × [n + κ × miss(n) + θ × (n - c)+ + δ × (c - n)+]
             miss(n) = Σ over i ≥ n of m(i), the expected load on the i-th replica while it is missing:
             i ≥ c (not ordered yet): a(i) = mean over l of E[clip(X(l) - i, 0, 1)]: an order changes nothing sooner
             i < c (would be stopped): mean of the same over the time until the mean lead, as it is not back sooner;
             at least a(i) × (1 - δ) / (1 + θ), so that nothing is stopped that would be ordered again at once
m falls with i, so the cost is convex in n. With one lead and θ = δ = 0 it is the newsvendor: n at the quantile
κ / (1 + κ), since the last one costs 1 and saves κ × its load (Arrow, Harris and Marschak 1951). The two stages, a
predictive distribution and then a decision on all of it, are those of HARMONY (arXiv 2408.01000).
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cluster import arrays, autoscaling, demand

_MOST = 20_000
"""Most replicas that are weighed; no target has more."""
LEAD_POINTS = 8
"""Most lead times that are weighed one by one; more are grouped. Bounds the work."""
KEEP_POINTS = 6
"""Instants until the mean lead at which the need for present replicas is looked at."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """Parameters of the objective that are no part of a policy."""

    spread_s: float = 600.0
    """Time over which the costs of starts and stops are spread: what a new replica is expected to serve at least."""
    start_s: float = 800.0
    """Cost of a start beside that of the policy, in seconds of a replica's price: it is billed from its order, and what
    started it may be over when it is ready. Chosen with `stop_s` on m-large and m-small at a lead of 5 minutes, checked
    on other traces and leads (docs/autoscaler.md)."""
    stop_s: float = 180.0
    """Cost of a stop beside that of the policy: it is often followed by a start."""


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Expected cost by number of replicas."""

    per_hour: arrays.FloatArray
    """Shape (candidates,): dollars per hour of 0, 1, 2, ... replicas."""
    served: arrays.FloatArray
    """Shape (candidates,): probability that the load after the lead time is within their capacity."""

    @property
    def cheapest(self) -> int:
        return int(self.per_hour.argmin())


def cost_curve(
    scaler: autoscaling.Scaler, forecast: demand.Forecast, current: int, at_s: float, weighing: Weighing
) -> CostCurve:
    """Expected cost of every number of replicas that could be the cheapest, and one beyond."""
    after, leads_s = _leads(scaler.lead_time.points_s)
    values, weights = widened_points(forecast, leads_s + max(0.0, at_s - forecast.made_at_s))
    values = values / scaler.replica_load
    # The candidates: from 0 to one more than the highest load needs, and than is wanted or allowed.
    highest = int(min(np.ceil(values[:, -1].max()), max(scaler.max_replicas, current)))
    most = min(max(highest, current, scaler.min_replicas), _MOST) + 1
    ready, served = _loads(values[:after], weights, most)
    until_back, _ = _loads(values[after:], weights, most)
    start, stop = start_cost(scaler, weighing), (scaler.objective.switch_s + weighing.stop_s) / weighing.spread_s
    stopped = np.maximum(until_back, ready * max(0.0, 1 - stop) / (1 + start))
    missing = np.where(np.arange(most + 1) < current, stopped, ready)
    missing[most] = ready[most]  # of all beyond the candidates, which are never stopped
    replicas: arrays.FloatArray = np.arange(most + 1, dtype=np.float64)
    change = replicas - current
    miss = missing[::-1].cumsum()[::-1]
    costs = replicas + scaler.objective.miss_cost * miss + np.where(change > 0, start * change, -stop * change)
    return CostCurve(np.asarray(scaler.objective.price_per_hour * costs), served)


@lru_cache(maxsize=4096)
def _leads(points_s: tuple[float, ...]) -> tuple[int, arrays.FloatArray]:
    """Leads that are looked at, seconds, and how many of them are lead times: those come first, then the instants at
    which the need for present replicas is looked at. The lead times of a target change with its starts alone."""
    leads_s = np.asarray(points_s, dtype=np.float64)
    if len(leads_s) > LEAD_POINTS:  # points of equal probability: means of neighbours
        edges = np.linspace(0.0, len(leads_s), LEAD_POINTS + 1)
        sums = np.concatenate([[0.0], leads_s.cumsum()])
        leads_s = np.asarray(np.diff(np.interp(edges, np.arange(len(sums)), sums)) / np.diff(edges))
    soon_s = np.linspace(0.0, leads_s.mean(), KEEP_POINTS + 1)[1:]
    return len(leads_s), np.concatenate([leads_s, soon_s])


def _loads(
    values: arrays.FloatArray, weights: arrays.FloatArray, most: int
) -> tuple[arrays.FloatArray, arrays.FloatArray]:
    """Load X of the mixture of several distributions of equal weight, by replica.

    First E[clip(X - i, 0, 1)] for each i below `most`, and E[(X - most)+] as the last one; then P(X ≤ n) for each n up
    to `most`. values: shape (leads, points), not negative; weights: of the points.
    """
    loads = values.ravel()
    chance = np.tile(weights, len(values)) / len(values)
    whole = np.minimum(loads, most).astype(np.int64)
    at = np.bincount(whole, chance, most + 1)
    begun = np.bincount(whole, chance * (loads - whole), most + 1)
    beyond = np.append(at[::-1].cumsum()[-2::-1], 0.0)  # P(X ≥ i + 1)
    full = np.bincount(np.minimum(np.ceil(loads), most + 1).astype(np.int64), chance, most + 2)
    return begun + beyond, np.minimum(full.cumsum()[: most + 1], 1.0)


def start_cost(scaler: autoscaling.Scaler, weighing: Weighing) -> float:
    """Cost of a start in the price of a replica and hour: θ of the objective."""
    return (scaler.objective.switch_s + weighing.start_s) / weighing.spread_s


def widened_points(
    forecast: demand.Forecast, leads_s: arrays.FloatArray
) -> tuple[arrays.FloatArray, arrays.FloatArray]:
    """Points of the forecast at these leads; beyond its last lead they spread from the median.

    The spread grows with the square root of the lead, as that of a random walk, and at most doubles: a forecast that
    is not renewed becomes more cautious, and never asks for a fleet.
    """
    values, weights = forecast.points_at_leads(leads_s)
    factor = np.sqrt(np.clip(leads_s / max(forecast.leads_s[-1], 1.0), 1.0, 4.0))[:, None]
    if (factor > 1.0).any():
        median = values[:, np.searchsorted(weights.cumsum(), 0.5)][:, None]
        values = np.maximum(median + (values - median) * factor, 0.0)
    return values, weights
