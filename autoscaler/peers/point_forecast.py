"""Rules on one number of the forecast: the planner's point forecast, and the newsvendor's quantile."""

import math
from dataclasses import dataclass

from autoscaler.peers.recommendation import Recommendation
from cluster.autoscaling import Scaler


@dataclass(frozen=True, slots=True)
class PointForecast:
    """Predicted load over profiled capacity, the rule of NVIDIA Dynamo's planner.

    Source: ai-dynamo/dynamo, planner: replicas = ceil(predicted requests × length / capacity × correction), predicted
    by a constant, ARIMA, Kalman or Prophet. Here the prediction is the median of the same forecast that we decide on.
    """

    target: float = 0.8
    """Fraction of a replica's load that is aimed at: the correction, 25 % headroom unless tuned."""

    def __call__(self, scaler: Scaler, at_s: float) -> Recommendation:
        return _at_quantile(scaler, at_s, 0.5, self.target)


@dataclass(frozen=True, slots=True)
class Newsvendor:
    """The simplest rule on a distribution: n at the quantile κ / (1 + κ) of the load after the mean lead."""

    target: float = 1.0
    miss_cost: float = 99.0

    def __call__(self, scaler: Scaler, at_s: float) -> Recommendation:
        return _at_quantile(scaler, at_s, self.miss_cost / (1 + self.miss_cost), self.target)


def _at_quantile(scaler: Scaler, at_s: float, level: float, target: float) -> Recommendation:
    current = scaler.replicas.wanted if scaler.replicas is not None else 0
    if scaler.forecast is None:
        return Recommendation.plain(current)
    points_s = scaler.lead_time.points_s
    lead_s = sum(points_s) / len(points_s) + max(0.0, at_s - scaler.forecast.made_at_s)
    load = scaler.forecast.quantile(level, lead_s)
    wanted = math.ceil(load / (scaler.replica_load * target) - 1e-9)
    return Recommendation.plain(min(max(wanted, scaler.min_replicas), scaler.max_replicas))
