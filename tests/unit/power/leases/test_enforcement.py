"""Mean draw between two readings: by the energy counter, where that can be trusted."""

import pytest

from power.devices.backend import DeviceReading
from power.leases.holder import (
    Bursting,
    bursting_after,
    is_in_force,
    limits_to_set_w,
    mean_draw_w,
    orders,
    reading_before,
)


def reading(at_s: float, energy_j: float | None, draw_w: float = 650.0) -> DeviceReading:
    return DeviceReading("g", at_s, draw_w=draw_w, limit_w=700.0, energy_j=energy_j)


@pytest.mark.parametrize("for_s", [0.49, 0.5, 1.0])
def test_the_mean_between_two_looks_is_that_of_the_energy_counter_though_a_look_comes_a_little_early(
    for_s: float,
) -> None:
    # 300 W on average, though it draws 650 W now.
    assert mean_draw_w(reading(10.0, 5000.0), reading(10.0 + for_s, 5000.0 + 300.0 * for_s)) == pytest.approx(300.0)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, reading(10.5, 5000.0)),
        (reading(10.0, None), reading(10.5, 5000.0)),
        (reading(10.0, 5000.0), reading(10.5, None)),
        (reading(10.0, 5000.0), reading(10.1, 5000.0)),  # the counter was hardly written in between
        (reading(10.0, 5000.0), reading(10.5, 20.0)),  # it ran back: a driver reload
    ],
)
def test_where_the_counter_tells_nothing_the_device_does(before: DeviceReading | None, now: DeviceReading) -> None:
    assert mean_draw_w(before, now) == 650.0


def test_means_are_taken_over_a_second_however_often_anybody_looks() -> None:
    looks = [(10.0 + 0.5 * n, f"look {n}") for n in range(5)]

    assert reading_before(looks, 12.5, 1.0) == "look 3"
    assert reading_before(looks, 12.49, 1.0) == "look 3"  # a reading that came a little early
    assert reading_before(looks, 12.4, 1.0) == "look 2"
    assert reading_before(looks[:1], 10.5, 1.0) == "look 0"
    assert reading_before([], 10.0, 1.0) is None


def test_a_device_that_was_not_read_is_not_in_force() -> None:
    assert is_in_force({"a": 300.0}, {"a": 300.0})
    assert not is_in_force({"a": 300.0, "b": 300.0}, {"a": 300.0})
    assert not is_in_force({"a": 300.0}, {"a": 302.0})


def test_a_device_new_to_bursts_starts_without_credit_and_earns_it() -> None:
    """Else a restarted agent, or a renewed lease, would give every burst once more."""
    after = bursting_after(Bursting(), {"a": 100.0}, {"a": 300.0}, {"a": 900.0}, for_s=10.0, credit_back_s=300.0)

    assert after.credit_j == {"a": pytest.approx(30.0)}  # 900 J in 300 s
    assert after.now == {"a": False}


def test_a_device_whose_draw_is_unknown_has_spent_its_credit() -> None:
    before = Bursting({"a": 900.0}, {"a": True})

    assert bursting_after(before, {}, {"a": 300.0}, {"a": 900.0}, for_s=1.0) == Bursting({"a": 0.0}, {"a": False})


def test_only_a_device_that_may_burst_is_set_above_its_lease() -> None:
    lease_w, highest_w = {"a": 300.0, "b": 300.0}, {"a": 700.0, "b": 700.0}

    assert limits_to_set_w(lease_w, highest_w, Bursting({}, {"a": True, "b": False})) == {"a": 700.0, "b": 300.0}


def test_a_device_that_was_not_read_is_set_with_those_that_are_lowered() -> None:
    lower, higher = orders({"a": 500.0, "b": 300.0, "c": 600.0}, {"b": 400.0, "c": 200.0}, {"c": 200.0})

    assert [order.uuid for order in lower] == ["a", "b"]
    assert [order.uuid for order in higher] == ["c"]


def test_a_device_on_its_way_to_an_older_request_for_more_is_lowered() -> None:
    """It enforces 200 W and was asked for 400 W; the next lease is of 200 W."""
    lower, higher = orders({"a": 200.0}, {"a": 200.0}, {"a": 400.0})

    assert [order.limit_w for order in lower] == [200.0]
    assert higher == ()
    assert orders({"a": 200.0}, {"a": 150.0}, {"a": 200.0}) == ((), ()), "something else limits it"


def test_a_device_one_watt_above_its_lease_is_lowered_and_a_rounded_limit_is_not() -> None:
    """Caps are whole watts, so that half of one is rounding and one is another cap."""
    assert [each.limit_w for each in orders({"a": 300.0}, {"a": 301.0}, {})[0]] == [300.0]
    assert not is_in_force({"a": 300.0}, {"a": 301.0})
    assert orders({"a": 300.4}, {"a": 300.0}, {}) == ((), ())
    assert orders({"a": 299.6}, {"a": 300.0}, {}) == ((), ())
    assert is_in_force({"a": 299.6}, {"a": 300.0})
