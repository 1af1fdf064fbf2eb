import numpy as np
import pytest

from autoscaler.series import LONGEST_S, SeriesBuffer

MINUTE_S = 60.0


def filled(values: list[float], capacity: int = 200) -> SeriesBuffer:
    buffer = SeriesBuffer(MINUTE_S, capacity)
    for n, value in enumerate(values):
        buffer.add(n * MINUTE_S, value)
    return buffer


def test_what_was_not_measured_is_a_gap_and_never_zero() -> None:
    buffer = filled([5.0, float("nan"), 7.0])
    buffer.add(5 * MINUTE_S, 8.0)
    np.testing.assert_array_equal(buffer.whole().values, [5, np.nan, 7, np.nan, np.nan, 8])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_what_is_no_load_is_no_news(value: float) -> None:
    buffer = filled([5.0])
    assert buffer.add(MINUTE_S, value) is None
    assert buffer.observed_at_s == 0.0


def test_of_two_samples_in_one_slot_the_first_counts() -> None:
    buffer = filled([5.0, 6.0])
    assert buffer.add(61.0, 60.0) is None
    assert buffer.whole().values.tolist() == [5.0, 6.0]


def test_a_sample_after_a_failed_one_in_the_same_slot_counts() -> None:
    buffer = filled([5.0, float("nan")])
    assert buffer.add(65.0, 6.0) == 1
    assert buffer.whole().values.tolist() == [5.0, 6.0]


def test_a_sample_out_of_order_fills_its_gap_and_is_not_the_newest() -> None:
    buffer = filled([5.0, float("nan"), 7.0])
    assert buffer.add(MINUTE_S, 6.0) is None
    assert buffer.whole().values.tolist() == [5.0, 6.0, 7.0]
    assert buffer.observed_at_s == 120.0


def test_slots_are_counted_from_the_first_sample_so_that_jitter_does_no_harm() -> None:
    buffer = SeriesBuffer(MINUTE_S)
    for at_s, value in ((29.0, 1.0), (91.0, 2.0), (148.0, 3.0), (210.0, 4.0)):
        buffer.add(at_s, value)
    assert buffer.whole().values.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_only_the_last_samples_are_kept() -> None:
    series = filled([float(n) for n in range(1, 26)], capacity=10).whole()
    assert series.values.tolist() == [float(n) for n in range(16, 26)]
    assert series.start_s == 15 * MINUTE_S


def test_a_gap_longer_than_the_memory_empties_it() -> None:
    buffer = filled([1.0, 2.0, 3.0], capacity=10)
    buffer.add(1000 * MINUTE_S, 9.0)
    assert np.isnan(buffer.whole().values[:-1]).all()
    assert buffer.whole().values[-1] == 9.0


def test_zeros_in_a_busy_series_are_an_outage_of_the_collector() -> None:
    buffer = filled([100.0 + n % 7 for n in range(60)])
    assert buffer.add(60 * MINUTE_S, 0.0) is None
    assert buffer.add(61 * MINUTE_S, 0.0) is None
    assert buffer.observed_at_s == 59 * MINUTE_S
    assert buffer.add(62 * MINUTE_S, 99.0) == 62


def test_zeros_that_last_are_a_load_of_zero() -> None:
    buffer = filled([100.0] * 60)
    lasting = int(LONGEST_S / MINUTE_S)
    taken = [buffer.add((60 + n) * MINUTE_S, 0.0) is not None for n in range(lasting + 2)]
    assert taken == [False] * lasting + [True, True]


def test_zeros_of_a_sparse_series_are_load() -> None:
    buffer = filled([float(n % 3) for n in range(60)])
    assert buffer.add(60 * MINUTE_S, 0.0) == 60


def test_zeros_after_little_history_are_load() -> None:
    assert filled([100.0] * 10).add(10 * MINUTE_S, 0.0) == 10


def test_a_buffer_made_of_a_series_goes_on_where_it_ends() -> None:
    series = filled([5.0, float("nan"), 7.0]).whole()
    buffer = SeriesBuffer.of(series, capacity=3)
    assert buffer.observed_at_s == 120.0
    buffer.add(240.0, 9.0)
    np.testing.assert_array_equal(buffer.whole().values, [7, np.nan, 9])
    assert buffer.whole().start_s == 120.0
