"""Benchmark of shared uplinks: its figures are those that are worked out by hand, and the same again."""

import numpy as np
import pytest

from benchmarks.traffic import figures_of, played, traffic_churn
from tests.rigs.traffic import Arrivals, fleet_of


def test_two_gangs_that_must_span_leaves_are_counted_while_both_run() -> None:
    # Three gangs of 24 nodes with 8 GPUs; leaves have 16 nodes, so each sits in two. The measurement is from 0 to 2,
    # the last event before the last arrival: one runs until 1, then two.
    rng = np.random.default_rng(0)
    fleet = fleet_of(rng, gangs=0, near=0.0, held=0.0).snapshot
    coming = Arrivals(np.array([0.0, 1.0, 3.0]), np.array([2.0, 9.0, 9.0]), np.full(3, 24), np.full(3, 8))

    figures = figures_of(played(fleet, coming))

    assert figures["spanning_gangs"] == pytest.approx((1 * 1 + 2 * 1) / 2)
    # Both last parts fit into one leaf, the tightest, while both run: 2 of 2 + 4 uplinks, in one time unit each.
    assert figures["shared_uplinks_share"] == pytest.approx(2 / 6)
    assert figures["busiest_uplink"] == pytest.approx((8 + 16) / 2)


def test_a_seed_gives_the_same_figures_again() -> None:
    (one,), (other,) = (traffic_churn(seeds=(3,), gangs=30, loads=(0.8,)) for _ in range(2))

    assert one == other
    assert float(str(one["started"])) > 10
