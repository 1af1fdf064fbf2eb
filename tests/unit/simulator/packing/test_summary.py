"""Summaries bring replays of several seeds onto common points."""

import numpy as np
import pytest

from simulator.packing.policy_comparison import QUANTILES, Spread, summarise
from simulator.packing.replay import Curve, Replay
from simulator.sweep.runner import PolicyRun


def replay(policy: str, seed: int, arrived: list[float], allocated: list[float], **rest: object) -> Replay:
    columns = [np.array(arrived), np.array(allocated), *(np.array(arrived) for _ in range(4))]
    return Replay(policy, seed, Curve(*columns), np.array([0.001, 0.003]), **rest)  # type: ignore[arg-type]


DONE = (
    (PolicyRun("t", "fgd", 1), replay("fgd", 1, [1.2, 2.4, 3.0], [1.0, 2.0, 2.5], shortages={"CPU": 2})),
    (PolicyRun("t", "tonnage", 1), replay("tonnage", 1, [1.2, 2.4, 3.0], [1.2, 2.4, 3.0])),
    (PolicyRun("t", "fgd", 2), replay("fgd", 2, [1.0, 2.0, 2.7], [0.8, 1.8, 2.7], shortages={"memory": 4})),
)


def test_seeds_of_a_policy_come_together_in_the_order_of_the_sweep() -> None:
    assert [(s.policy, s.seeds) for s in summarise(DONE, priced=True)] == [("fgd", (1, 2)), ("tonnage", (1,))]


def test_a_point_takes_the_first_sample_that_reached_it() -> None:
    fgd, _ = summarise(DONE, priced=True)

    # Seed 1 reaches 1 % at sample 1.2 and 2 % at 2.4; seed 2 ends at 2.7, which is forgiven as 3.
    assert fgd.arrived_pct.tolist() == [1, 2, 3]
    assert fgd.allocation_pct.tolist() == [[1.0, 2.0, 2.5], [0.8, 1.8, 2.7]]
    assert fgd.at(fgd.allocation_pct, 2).tolist() == [2.0, 1.8]
    assert np.isnan(fgd.at(fgd.allocation_pct, 0.5)).all()


def test_a_reason_that_one_seed_lacks_counts_as_none() -> None:
    fgd, tonnage = summarise(DONE, priced=True)

    assert {why: counts.tolist() for why, counts in fgd.unplaced.items()} == {"CPU": [2, 0], "memory": [0, 4]}
    assert fgd.unplaced_pods.tolist() == [2, 4]
    assert tonnage.unplaced_pods.tolist() == [0]


def test_decision_times_are_milliseconds_by_quantile() -> None:
    fgd, _ = summarise(DONE, priced=True)

    assert fgd.decision_mean_ms == pytest.approx([2, 2])
    assert fgd.decision_ms.shape == (2, len(QUANTILES))
    assert fgd.quantile_ms(0.5) == pytest.approx([2, 2])  # halfway between the two decisions of 1 and 3 ms
    assert fgd.quantile_ms(1.0) == pytest.approx([3, 3])


def test_without_prices_dollars_are_unknown_rather_than_zero() -> None:
    fgd, _ = summarise(DONE, priced=False)

    assert np.isnan(fgd.allocated_per_hour).all()
    assert np.isnan(fgd.stranded_per_hour).all()


def test_one_seed_has_no_deviation() -> None:
    assert Spread.of(np.array([1.0, 3.0])) == Spread(2.0, pytest.approx(2**0.5))
    assert np.isnan(Spread.of(np.array([1.0])).sd)
