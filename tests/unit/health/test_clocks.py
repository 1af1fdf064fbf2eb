"""Rules of clock alignment: true to causality, with a bound that holds."""

import numpy as np
from hypothesis import given, strategies as st

from health.clocks import Bounds, Clocks, refitted, started


def ring_of_bounds(offset_s: np.ndarray, latency_s: np.ndarray) -> Bounds:
    """Neighbours exchange messages both ways; each bound is loose by its own latency."""
    ranks = len(offset_s)
    here, there = np.arange(ranks), (np.arange(ranks) + 1) % ranks
    earlier, later = np.concatenate([here, there]), np.concatenate([there, here])
    # an uncorrected clock shows offset_s later than it is: later's exit minus earlier's enter
    return Bounds(earlier, later, latency_s + offset_s[later] - offset_s[earlier])


def aligned_offsets(clocks: Clocks, offset_s: np.ndarray) -> np.ndarray:
    """Errors against rank 0's clock after the correction."""
    return offset_s + clocks.offset_s - (offset_s[0] + clocks.offset_s[0])


@given(st.integers(2, 12), st.integers(0, 10_000))
def test_every_clocks_error_is_within_its_stated_bound(ranks: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    offset_s = random.uniform(-0.05, 0.05, ranks)
    bounds = ring_of_bounds(offset_s, random.uniform(1e-5, 1e-2, 2 * ranks))

    clocks = refitted(started(np.zeros(ranks)), bounds, np.zeros(ranks), 5.0)

    assert clocks.fits == 1
    assert np.all(np.abs(aligned_offsets(clocks, offset_s)) <= clocks.bound_s + 1e-9)


def test_bounds_that_contradict_each_other_are_dropped_and_counted() -> None:
    stepped = Bounds(np.array([0, 1]), np.array([1, 0]), np.array([0.01, -0.05]))
    before = started(np.zeros(2))

    after = refitted(before, stepped, np.zeros(2), 5.0)

    assert (after.resets, after.fits) == (1, 0)
    assert np.array_equal(after.offset_s, before.offset_s)


def test_a_rank_that_no_operation_reaches_has_no_bound() -> None:
    bounds = Bounds(np.array([0, 1]), np.array([1, 0]), np.array([0.01, 0.01]))

    clocks = refitted(started(np.zeros(3)), bounds, np.zeros(3), 5.0)

    assert np.isfinite(clocks.bound_s).tolist() == [True, True, False]


def test_drift_is_followed() -> None:
    drift = np.array([0.0, 20e-6, -20e-6])
    clocks = started(np.zeros(3))

    for window in range(1, 13):
        middle_s = np.full(3, window * 5.0)
        shown_s = clocks.aligned(np.arange(3), middle_s * (1 + drift)) - middle_s
        clocks = refitted(clocks, ring_of_bounds(shown_s, np.full(6, 1e-4)), middle_s * (1 + drift), 5.0)

    later_s = np.full(3, 65.0)  # a window later, without a new fit: 20 ppm would be 100 microseconds
    error_s = clocks.aligned(np.arange(3), later_s * (1 + drift)) - later_s
    assert np.abs(error_s - error_s[0]).max() < 20e-6


def test_the_bound_grows_with_the_age_of_the_fit() -> None:
    clocks = refitted(started(np.zeros(2)), ring_of_bounds(np.zeros(2), np.full(4, 1e-3)), np.zeros(2), 5.0)

    assert np.all(clocks.error_s(10.0) > clocks.error_s(0.0))
