"""Prices: checkpoint interval and size of the spare pool, against values worked out by hand."""

from math import isclose, sqrt

import pytest

from health.remediation.advice import advised_interval_s, lost_share, spares
from tests.rigs.health.sizing import mean_out_s, mtbf_s


def test_the_advised_interval_loses_less_than_half_and_twice_of_it() -> None:
    mtbf = mtbf_s(1250, 4.2e-3 / 86_400)  # 4.2 per 1,000 node-days: 16,457 s
    best = advised_interval_s(5.0, mtbf)
    assert isclose(mtbf, 16_457, rel_tol=1e-3)
    assert isclose(best, sqrt(2 * 5 * mtbf), rel_tol=0.02)  # 405.7 s + 1.7 - 5
    assert lost_share(best, 5.0, mtbf) < min(lost_share(best / 2, 5.0, mtbf), lost_share(best * 2, 5.0, mtbf))


def test_a_checkpoint_that_costs_nothing_is_always_due() -> None:
    assert advised_interval_s(0.0, 1000.0) == 0.0


def test_spares_follow_the_mean_of_a_long_tail_and_not_its_median() -> None:
    # 20 h, 20 h, 20 h and 480 h: the median is 20 h and the mean 135 h; replaced after 100 h it is 40 h.
    repairs = [72_000.0, 72_000.0, 72_000.0, 1_728_000.0]
    assert mean_out_s(repairs, float("inf")) == 486_000.0
    assert mean_out_s(repairs, 360_000.0) == 144_000.0


def test_a_pool_covers_the_quantile_of_poisson() -> None:
    # Mean 3 nodes out: P(at most 6) = 0.9665, P(at most 7) = 0.9881.
    assert spares(3, 1.0, 1.0, miss_share=0.02) == 7
    assert spares(3, 1.0, 1.0, miss_share=0.04) == 6


def test_faults_that_come_together_need_a_larger_pool() -> None:
    assert spares(30, 1.0, 1.0, miss_share=0.01, burst=2.7) > spares(30, 1.0, 1.0, miss_share=0.01)


def test_without_repair_times_the_pool_has_no_size() -> None:
    with pytest.raises(ValueError, match="repair times"):
        mean_out_s([], 1.0)
