"""Expected cost of each number of replicas, over the predictive distribution of the load and that of the lead time.

Sets         n = 0 … N replicas; leads l of equal probability (order → ready)
Data         c replicas wanted now; p price of a replica and hour; κ miss cost; X(l) load after l, in replicas
             θ = (mean lead + switch) / spread: a start is billed from its order, before it serves
             δ = switch / spread (keep and spread: Weighing)
Objective    min over n of p × [n + κ × miss(n) + θ × (n - c)+ + δ × (c - n)+]
             miss(n) = Σ over i ≥ n of m(i), the expected load on the i-th replica while it is missing:
             i ≥ c (not ordered yet): mean over l of E[clip(X(l) - i, 0, 1)], as an order changes nothing sooner
             i < c (would be stopped): the same over the time until mean lead + keep, as it could not be back sooner,
             or that after a start, if higher
m falls with i, so the cost is convex in n. With one lead and θ = δ = 0 it is the newsvendor: n at the quantile
κ / (1 + κ) where the price of one more, 1, counts against κ + 1 (Arrow, Harris and Marschak 1951). The two stages, a
predictive distribution and then a decision on all of it, are those of HARMONY (arXiv 2408.01000).
"""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray
from cluster.autoscaling import Scaler
from cluster.forecast import Forecast

_MOST = 20_000
"""Most replicas that are weighed; no target has more."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """Parameters of the objective that are no part of a policy; `benchmarks.scaling --ablate` measures each."""

    spread_s: float = 600.0
    """Time over which the cost of a start or stop is spread: the shortest time that a new replica is expected to
    serve. Chosen: 300 to 1200 s give the same J within 1 % (docs/autoscaler.md)."""
    keep_s: float | None = 300.0
    """Time after the lead until which the need for present replicas is looked at. Chosen likewise. None: it is judged
    after the lead alone, as if a stopped replica could be back at once."""
    starts_cost: bool = True
    """Whether the time from order to ready is counted as the cost of a start."""
    lead_points: int = 8
    """Most lead times that are weighed one by one; more are grouped. Bounds the work."""
    keep_points: int = 6
    """Leads at which the need for present replicas is looked at."""
    floor: bool = True
    """Whether the load offered now is always served."""


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Expected cost by number of replicas."""

    per_hour: FloatArray
    """Shape (candidates,): dollars per hour of 0, 1, 2, ... replicas."""
    served: FloatArray
    """Shape (candidates,): probability that the load after the lead time is within their capacity."""

    @property
    def cheapest(self) -> int:
        return int(self.per_hour.argmin())


def cost_curve(scaler: Scaler, forecast: Forecast, current: int, at_s: float, weighing: Weighing) -> CostCurve:
    """Expected cost of every number of replicas that could be the cheapest, and one beyond."""
    leads_s = _grouped(np.asarray(scaler.lead_time.points_s, dtype=np.float64), weighing.lead_points)
    lead_s = float(leads_s.mean())
    soon_s = leads_s
    if weighing.keep_s is not None:
        soon_s = np.linspace(0.0, lead_s + weighing.keep_s, weighing.keep_points + 1)[1:]
    age_s = max(0.0, at_s - forecast.made_at_s)
    values, weights = widened_points(forecast, np.concatenate([leads_s, soon_s]) + age_s)
    values = values / scaler.replica_load
    replicas: FloatArray = np.arange(_candidates(values, scaler, current), dtype=np.float64)
    ready, chances = _mixed(values[: len(leads_s)], weights)
    excess = _excess(ready, chances, replicas)
    until_back = _missing(_excess(*_mixed(values[len(leads_s) :], weights), replicas))
    missing = np.where(replicas[:-1] < current, np.maximum(until_back, _missing(excess)), _missing(excess))
    miss = np.append(missing[::-1].cumsum()[::-1], 0.0) + excess[-1]
    costs = replicas + scaler.objective.miss_cost * miss + _switching(scaler, replicas - current, lead_s, weighing)
    return CostCurve(np.asarray(scaler.objective.price_per_hour * costs), _served(ready, chances, replicas))


def _switching(scaler: Scaler, change: FloatArray, lead_s: float, weighing: Weighing) -> FloatArray:
    """Cost of each change of the replicas, in replicas."""
    switch_s = scaler.objective.switch_s
    start_s = switch_s + (lead_s if weighing.starts_cost else 0.0)
    return np.asarray(np.where(change > 0, start_s * change, -switch_s * change) / weighing.spread_s)


def _mixed(values: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Points of the mixture of several distributions of equal weight, values rising. values: shape (leads, points)."""
    order = np.argsort(values, axis=None, kind="stable")
    return values.ravel()[order], (np.tile(weights, len(values)) / len(values))[order]


def _missing(excess: FloatArray) -> FloatArray:
    """Expected load on each replica, from the expected excess over each number of them."""
    return np.asarray(-np.diff(excess))


def widened_points(forecast: Forecast, leads_s: FloatArray) -> tuple[FloatArray, FloatArray]:
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


def _grouped(points_s: FloatArray, most: int) -> FloatArray:
    """At most so many points of equal probability: means of neighbours."""
    if len(points_s) <= most:
        return points_s
    edges = np.linspace(0.0, len(points_s), most + 1)
    sums = np.concatenate([[0.0], points_s.cumsum()])
    return np.asarray(np.diff(np.interp(edges, np.arange(len(sums)), sums)) / np.diff(edges))


def _candidates(values: FloatArray, scaler: Scaler, current: int) -> int:
    """Number of candidates: from 0 to one more than the highest load needs, and than is wanted or allowed."""
    highest = int(min(np.ceil(values[:, -1].max()), max(scaler.max_replicas, current)))
    return min(max(highest, current, scaler.min_replicas), _MOST) + 2


def _excess(values: FloatArray, weights: FloatArray, capacity: FloatArray) -> FloatArray:
    """E[(X - capacity)+] for each capacity. values: rising, with their probabilities; capacity: rising."""
    above = np.searchsorted(values, capacity, side="right")
    mass = np.append(weights[::-1].cumsum()[::-1], 0.0)
    moment = np.append((weights * values)[::-1].cumsum()[::-1], 0.0)
    return np.asarray(np.maximum(moment[above] - capacity * mass[above], 0.0))


def _served(values: FloatArray, weights: FloatArray, capacity: FloatArray) -> FloatArray:
    """P(X ≤ capacity) for each capacity."""
    below = np.append(0.0, weights.cumsum())
    return np.asarray(np.minimum(below[np.searchsorted(values, capacity, side="right")], 1.0))
