"""The rival that kills by pressure: how it reads the kernel's file, and when it is due."""

import math

import pytest

from tests.rigs.sandboxes.runs import Pressure, PressureRule, PressureWatch, pressure_of

RULE = PressureRule(full_share=0.6, for_s=30.0, window_s=10.0, rest_s=15.0)


def due_s(watch: PressureWatch, share: float, until_s: int = 120, begin_s: int = 0) -> list[int]:
    """Seconds at which it is due where all wait for such a share of each second."""
    return [now_s for now_s in range(begin_s, until_s) if watch.is_due(now_s, Pressure(share * now_s, share * now_s))]


def test_the_kernels_file_is_read_by_its_totals() -> None:
    text = (
        "some avg10=12.50 avg60=3.10 avg300=0.70 total=2500000\nfull avg10=4.00 avg60=1.00 avg300=0.20 total=1250000\n"
    )
    assert pressure_of(text) == Pressure(2.5, 1.25)


def test_the_average_rises_as_the_kernels_does() -> None:
    watch = PressureWatch(RULE)
    due_s(watch, 1.0, until_s=11)
    # After one time constant of full pressure: 1 - 1/e.
    assert watch.average == pytest.approx(1 - math.exp(-1))


def test_pressure_is_due_once_it_lasts_and_then_only_after_a_rest() -> None:
    # Full pressure passes 0.6 after -10 ln 0.4 = 9.2 s: at second 10. Due 30 s later, and every 15 s from there.
    assert due_s(PressureWatch(RULE), 1.0, until_s=80) == [40, 55, 70]


def test_pressure_below_the_limit_is_never_due() -> None:
    assert due_s(PressureWatch(RULE), 0.59) == []


def test_pressure_that_falls_in_between_begins_anew() -> None:
    watch = PressureWatch(RULE)
    due_s(watch, 1.0, until_s=30)
    calm = Pressure(29.0, 29.0)
    assert not any(watch.is_due(now_s, calm) for now_s in range(30, 45))
    assert watch.average < RULE.full_share
    assert not watch.is_due(45.0, Pressure(30.0, 30.0))
