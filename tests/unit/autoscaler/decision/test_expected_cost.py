"""Expected cost of each number of replicas, beside the sums over the points of the forecast that it stands for."""

import sys
from types import FrameType

import numpy as np
import pytest

from autoscaler.decision.decide import decide
from autoscaler.decision.expected_cost import Weighing, cost_curve
from cluster.autoscaling import LeadTime, Scaler, ScalingObjective
from tests.builders.scalers import NOW_S, forecast_of, scaler

LEADS_S = tuple(np.linspace(100.0, 600.0, 20).tolist())
MISS_COST = ScalingObjective().miss_cost
NO_SWITCHING = Weighing(start_s=0.0, stop_s=0.0)


def test_the_cost_of_a_number_is_its_price_and_that_of_the_load_that_it_misses_at_every_point() -> None:
    known = forecast_of(3.0)
    values, weights = known.points(300.0)

    curve = cost_curve(scaler(2, lead_time=LeadTime((300.0,))), known, 2, NOW_S, NO_SWITCHING)

    for number, (cost, served) in enumerate(zip(curve.per_hour, curve.served, strict=True)):
        assert cost == pytest.approx(number + MISS_COST * (np.maximum(values - number, 0.0) @ weights))
        assert served == pytest.approx(weights[values <= number].sum())


def test_what_no_candidate_serves_is_missed_by_the_last_one_too() -> None:
    """At most one replica is allowed: two are weighed, and loads of up to 14 are possible."""
    known = forecast_of(3.0)
    values, weights = known.points(300.0)

    curve = cost_curve(scaler(1, max_replicas=1, lead_time=LeadTime((300.0,))), known, 1, NOW_S, NO_SWITCHING)

    assert len(curve.per_hour) == 3
    assert curve.per_hour[2] == pytest.approx(2 + MISS_COST * (np.maximum(values - 2, 0.0) @ weights))


def test_a_load_that_is_known_exactly_is_served_by_as_many_replicas() -> None:
    known = forecast_of(3.0, (1.0,) * 6)

    curve = cost_curve(scaler(3, lead_time=LeadTime((300.0,))), known, 3, NOW_S, NO_SWITCHING)

    assert curve.cheapest == 3
    assert (curve.served[2], curve.served[3]) == (pytest.approx(0.0, abs=0.02), 1.0)


def calls(load: float) -> int:
    """Calls of Python and C functions in one decision about this load, after one that remembers what can be.

    The least of three: what is collected meanwhile may call as well.
    """
    one = scaler(int(load), load=load, max_replicas=10_000, forecast=forecast_of(load), lead_time=LeadTime(LEADS_S))
    return min(_calls_of(one) for _ in range(4))


def _calls_of(one: Scaler) -> int:
    counted = 0

    def count(_frame: FrameType, event: str, _what: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    decide(one, NOW_S)
    sys.setprofile(before)
    return counted


def test_a_decision_about_thousands_of_replicas_takes_as_many_calls_as_one_about_twenty() -> None:
    """About 200 calls, 0.5 ms: 500 services take a quarter of a second. Time is not measured, as it is others', too."""
    assert calls(2000.0) == calls(20.0) < 400
