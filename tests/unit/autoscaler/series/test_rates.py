import pytest

from autoscaler.series.rates import CounterSample, rate_between


def test_a_rate_is_the_increase_per_second() -> None:
    assert rate_between(CounterSample(0.0, 100.0), CounterSample(60.0, 700.0), 120.0) == 10.0


def test_a_counter_that_restarts_rose_from_zero() -> None:
    assert rate_between(CounterSample(0.0, 9000.0), CounterSample(60.0, 300.0), 120.0) == 5.0


@pytest.mark.parametrize("at_s", [0.0, -10.0, 121.0])
def test_a_duplicate_one_out_of_order_and_one_after_a_gap_give_no_rate(at_s: float) -> None:
    assert rate_between(CounterSample(0.0, 100.0), CounterSample(at_s, 700.0), 120.0) is None


def test_a_first_reading_and_one_that_is_no_number_give_no_rate() -> None:
    assert rate_between(None, CounterSample(60.0, 700.0), 120.0) is None
    assert rate_between(CounterSample(0.0, 1.0), CounterSample(60.0, float("nan")), 120.0) is None
