"""Mean draw between two readings: by the energy counter, where that can be trusted."""

import pytest

from power.devices.backend import DeviceReading
from power.leases.enforcement import mean_draw_w, reading_before


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
