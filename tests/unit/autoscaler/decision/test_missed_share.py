"""The multiplier of a missed share: what raises it, what lowers it, and where it comes to rest."""

from dataclasses import replace

import pytest

from autoscaler.decision.missed_share import LEAST, MOST, SETTLED_S, first, missed_after
from cluster.autoscaling import MissedShare, Replicas
from tests.builders.scalers import scaler

TARGET = 0.005


def known(miss_cost: float = 40.0) -> MissedShare:
    return MissedShare(TARGET, miss_cost, miss_cost, load=10.0, for_s=SETTLED_S)


def after(missed: MissedShare, load: float, at_s: float, ready: int = 10) -> MissedShare:
    found = missed_after(
        replace(
            scaler(),
            missed=missed,
            load=load,
            observed_at_s=at_s,
            replica_load=1.0,
            replicas=Replicas(ready, ready),
        )
    )
    assert found is not None
    return found


def test_missed_load_raises_the_miss_cost_and_a_day_without_any_lowers_it_by_half() -> None:
    """exp(-0.1 × 0.005 × 1440) = 0.487."""
    quiet = known()
    for minute in range(1, 1441):
        quiet = after(quiet, 9.0, 60.0 * minute)

    assert quiet.multiplier == pytest.approx(0.487 * 40.0, rel=0.01)
    assert quiet.share == 0.0
    assert after(quiet, 12.0, 60.0 * 1441).multiplier > quiet.multiplier


def test_the_miss_cost_is_the_mean_multiplier_so_that_a_burst_moves_it_little() -> None:
    """A minute of three times the load on a tenth of the replicas raises the multiplier by e^(0.1 × 2.9), 33 %, and its
    mean over a day by 1.33^(1 / 1440)."""
    found = after(known(), 30.0, 60.0, ready=1)
    assert found.multiplier == pytest.approx(1.33 * 40.0, rel=0.01)
    assert found.miss_cost == pytest.approx(1.0002 * 40.0, rel=1e-4)


def test_the_miss_cost_stays_where_just_the_target_is_missed() -> None:
    """One minute in twenty of load 11 on ten replicas misses 1 of 11 × 20: 0.45 % of the load."""
    found = replace(known(), target=1 / (19 * 10 + 11))
    for minute in range(1, 8001):
        found = after(found, 11.0 if minute % 20 == 0 else 10.0, 60.0 * minute)

    assert found.multiplier == pytest.approx(40.0, rel=0.05)
    assert found.share == pytest.approx(found.target, rel=0.1)


def test_the_same_sample_counts_once_and_an_outage_as_little_as_five_minutes() -> None:
    found = after(known(), 9.0, 60.0)
    assert after(found, 9.0, 60.0) == found
    assert after(found, 9.0, 86_400.0).multiplier == pytest.approx(after(found, 9.0, 360.0).multiplier)


def test_the_miss_cost_is_bounded_whatever_is_missed() -> None:
    found = known()
    for minute in range(1, 300):
        found = after(found, 1e6, 60.0 * minute, ready=0)
    assert found.multiplier == MOST


def test_the_miss_cost_falls_to_its_least_where_nothing_is_missed_for_long() -> None:
    found = known()
    for quarter in range(1, 4000):
        found = after(found, 9.0, 300.0 * quarter)
    assert found.multiplier == pytest.approx(LEAST / TARGET)


def test_a_policy_that_begins_learns_twice_as_fast() -> None:
    """exp(-0.1 × 0.005 × 5) = 0.9975, and its square."""
    settled, new = after(known(), 9.0, 300.0), after(replace(known(), for_s=0.0), 9.0, 300.0)
    assert 1 - new.multiplier / 40.0 == pytest.approx(2 * (1 - settled.multiplier / 40.0), rel=0.01)


def test_what_is_served_counts_where_replicas_are_not_alike() -> None:
    held = replace(scaler(), missed=known(), load=9.0, observed_at_s=60.0, replica_load=1.0, replicas=Replicas(10, 9))
    found, other = missed_after(replace(held, ready_load=9.0)), missed_after(replace(held, ready_load=8.0))
    assert found is not None
    assert other is not None
    assert other.multiplier > known().multiplier > found.multiplier


def test_a_smaller_share_begins_with_a_larger_miss_cost() -> None:
    assert first(0.001, 0.0).miss_cost > first(0.01, 0.0).miss_cost
