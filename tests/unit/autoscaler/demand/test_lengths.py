import numpy as np
import pytest
from hypothesis import given, strategies as st

from autoscaler.demand.lengths import (
    MOST_EDGES,
    BadLengthsError,
    Lengths,
    demand_from,
    lengths_from,
    on_grid,
    shares_of,
)
from cluster.demand import LengthGrid


def _lengths(**counts: float) -> Lengths:
    return Lengths(tuple(int(edge[1:]) for edge in counts), np.array(list(counts.values())))


def test_cumulative_buckets_become_requests_in_each() -> None:
    lengths = lengths_from({"10.0": 5, "1.0": 2, "100.0": 5, "+Inf": 6})

    # 2 up to 1, 3 more up to 10, none up to 100, and one longer than that.
    assert lengths.edges == (1, 10, 100, 200)
    assert lengths.counts.tolist() == [2, 3, 0, 1]


def test_empty_buckets_at_the_end_are_left_out() -> None:
    assert lengths_from({"1": 2, "10": 5, "100": 5, "1000": 5, "+Inf": 5}).edges == (1, 10)


def test_a_bucket_never_has_fewer_requests_than_none() -> None:
    # Increases are extrapolated bucket by bucket: 4.98 requests up to 10 tokens, 4.97 up to 100.
    assert lengths_from({"10": 4.98, "100": 4.97, "+Inf": 5.0}).counts.min() >= 0


@pytest.mark.parametrize(
    "buckets",
    [
        {},
        {"+Inf": 3},
        {"10": 3},
        {"ten": 3, "+Inf": 3},
        {"10": float("nan"), "+Inf": 3},
        {"10": -1, "+Inf": 3},
        {**{str(n + 1): 1.0 for n in range(MOST_EDGES + 1)}, "+Inf": 1.0},
    ],
    ids=["empty", "infinite", "unbounded", "words", "nan", "negative", "many"],
)
def test_what_is_no_histogram_is_refused(buckets: dict[str, float]) -> None:
    with pytest.raises(BadLengthsError):
        lengths_from(buckets)


def test_shares_are_those_of_both_histograms() -> None:
    shares = shares_of(_lengths(e100=30, e200=10), _lengths(e50=20, e80=20))

    assert shares is not None
    grid, share = shares
    assert grid == LengthGrid((100, 200), (50, 80))
    assert share.tolist() == [[0.375, 0.375], [0.125, 0.125]]


def test_a_few_requests_are_no_distribution() -> None:
    assert shares_of(_lengths(e100=29), _lengths(e50=1000)) is None


def test_lengths_are_spread_evenly_within_a_bucket() -> None:
    grid = LengthGrid((100,), (10,))

    moved = on_grid(grid, np.array([[1.0]]), LengthGrid((25, 75, 200), (10,)))

    assert moved.tolist() == [[0.25], [0.5], [0.25]]


def test_requests_beyond_the_profile_join_its_longest_bucket() -> None:
    grid = LengthGrid((100, 900), (10,))

    assert on_grid(grid, np.array([[0.5], [0.5]]), LengthGrid((100, 300), (10,))).tolist() == [[0.5], [0.5]]


edges = st.lists(st.integers(1, 100_000), min_size=1, max_size=12, unique=True).map(sorted).map(tuple)


@given(edges, edges, edges, edges, st.integers(0, 2**32 - 1))
def test_no_request_is_lost_on_the_way_to_another_grid(
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    to_inputs: tuple[int, ...],
    to_outputs: tuple[int, ...],
    seed: int,
) -> None:
    share = np.random.default_rng(seed).random((len(inputs), len(outputs)))
    share /= share.sum()

    demand = demand_from(2.0, LengthGrid(inputs, outputs), share, LengthGrid(to_inputs, to_outputs))

    assert demand.share.shape == (len(to_inputs), len(to_outputs))
    assert demand.share.min() >= 0
    assert demand.share.sum() == pytest.approx(1)


@given(edges, edges)
def test_on_its_own_grid_nothing_moves(inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
    share = np.full((len(inputs), len(outputs)), 1 / len(inputs) / len(outputs))
    grid = LengthGrid(inputs, outputs)

    assert on_grid(grid, share, grid) == pytest.approx(share)
