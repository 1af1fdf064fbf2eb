"""Services with idle nights: their loads, and the idle timer beside the decision."""

import numpy as np
import pytest

from benchmarks.scaling import BESIDE, idle_summary
from simulator.scaling.replay import ReplaySettings, replay, scenario_of
from simulator.scaling.rival_rules import Recommendation
from simulator.scaling.study import TonnageScaling
from tests.builders.scalers import scaler
from tests.rigs.scaling.idle import NIGHTS, IdleTimer, idle_trace


@pytest.mark.parametrize("nights", NIGHTS)
def test_a_service_is_used_in_office_hours_and_rarely_outside(nights: str) -> None:
    load = idle_trace(nights, seed=3, days=7).values.reshape(7, 24, 60)

    assert load[:5, 9:17].mean() > 1.5
    outside = np.concatenate([load[:5, :8].ravel(), load[5:].ravel()])
    assert (outside > 0).mean() == pytest.approx(NIGHTS[nights], rel=0.1, abs=1e-9)
    assert outside.max() <= 0.1


def test_the_timer_stops_the_last_replica_after_its_time_without_load_and_starts_one_at_once() -> None:
    timer = IdleTimer(cooldown_s=300.0)

    def replicas(load: float, at_s: float, wanted: int = 1) -> Recommendation:
        return timer(scaler(wanted, load=load), at_s)

    assert replicas(0.5, 0.0).replicas == 1
    assert replicas(0.0, 299.0).replicas == 1
    assert replicas(0.0, 300.0).replicas == 0
    assert replicas(0.1, 360.0, wanted=0).replicas == 1


def test_a_service_without_load_keeps_no_replica_where_none_is_required() -> None:
    scenario = scenario_of(idle_trace("silent", seed=3, days=2), 1, 1, replica_load=1.0)

    runs = [
        replay(scenario, TonnageScaling(), 120.0, lambda _: None, ReplaySettings(min_replicas=fewest))
        for fewest in (0, 1)
    ]

    # From 20:00 on, two hours after the last load.
    assert [int(run.wanted[20 * 60 :].max()) for run in runs] == [0, 1]


def test_the_table_compares_with_the_service_that_keeps_one_replica() -> None:
    known = {"trace": "silent nights", "lead_min": 2.0, "replica_hours_per_day": 1.0, "missed_hours_per_day": 0.0}
    records = [{**known, "policy": name, "cost_per_day": cost} for name, cost in (("tonnage", 3.0), (BESIDE, 4.0))]

    assert [row["over"] for row in idle_summary(records)] == [0.75, 1.0]
