"""Expected cost of each number of replicas, beside the sums over the points of the forecast that it stands for."""

import numpy as np
import pytest

from autoscaler.decision.expected_cost import Weighing, cost_curve
from cluster.autoscaling import LeadTime
from tests.builders.scalers import NOW_S, forecast_of, scaler

NO_SWITCHING = Weighing(start_s=0.0, stop_s=0.0, returns=False)


def test_the_cost_of_a_number_is_its_price_and_that_of_the_load_that_it_misses_at_every_point() -> None:
    known = forecast_of(3.0)
    values, weights = known.points(300.0)

    curve = cost_curve(scaler(2, lead_time=LeadTime((300.0,))), known, 2, NOW_S, NO_SWITCHING)

    for number, (cost, served) in enumerate(zip(curve.per_hour, curve.served, strict=True)):
        assert cost == pytest.approx(number + 99.0 * (np.maximum(values - number, 0.0) @ weights))
        assert served == pytest.approx(weights[values <= number].sum())


def test_what_no_candidate_serves_is_missed_by_the_last_one_too() -> None:
    """At most one replica is allowed: two are weighed, and loads of up to 14 are possible."""
    known = forecast_of(3.0)
    values, weights = known.points(300.0)

    curve = cost_curve(scaler(1, max_replicas=1, lead_time=LeadTime((300.0,))), known, 1, NOW_S, NO_SWITCHING)

    assert len(curve.per_hour) == 3
    assert curve.per_hour[2] == pytest.approx(2 + 99.0 * (np.maximum(values - 2, 0.0) @ weights))


def test_a_load_that_is_known_exactly_is_served_by_as_many_replicas() -> None:
    known = forecast_of(3.0, (1.0,) * 6)

    curve = cost_curve(scaler(3, lead_time=LeadTime((300.0,))), known, 3, NOW_S, NO_SWITCHING)

    assert curve.cheapest == 3
    assert (curve.served[2], curve.served[3]) == (pytest.approx(0.0, abs=0.02), 1.0)
