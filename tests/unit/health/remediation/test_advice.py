"""Rules of the advice on checkpoints."""

from dataclasses import replace
from math import sqrt

import pytest

from health.remediation.advice import DAY_S, FAULTS_PER_NODE_S, advice_on, lost_share
from tests.builders.remedies import START_S, job

JOB = replace(job("t/j", [f"n{n}" for n in range(100)]), checkpoint_save_s=10.0, checkpoint_interval_s=1800.0)


def test_a_job_without_a_measured_save_gets_no_advice() -> None:
    assert advice_on(replace(JOB, checkpoint_save_s=0.0), START_S) is None


def test_before_anything_is_seen_nodes_fail_at_the_usual_rate() -> None:
    found = advice_on(JOB, START_S)

    assert found is not None
    assert found.mtbf_s == pytest.approx(1 / (100 * FAULTS_PER_NODE_S))  # 2.4 days
    assert found.advised_s == pytest.approx(sqrt(2 * 10 * found.mtbf_s), rel=0.02)  # Young


def test_a_day_of_many_restarts_asks_for_checkpoints_more_often_and_a_quiet_one_for_fewer() -> None:
    now_s = START_S + DAY_S
    quiet = advice_on(JOB, now_s)
    often = advice_on(replace(JOB, restarted_s=tuple(START_S + 3600.0 * hour for hour in range(1, 13))), now_s)

    assert quiet is not None
    assert often is not None
    # 100 node-days beside 238 of the usual: 3.4 days a stop, of which there were 1 + 12.
    assert often.mtbf_s == pytest.approx(quiet.mtbf_s / 13)
    assert often.advised_s < quiet.advised_s / 3


def test_a_rigid_job_needs_spare_nodes_and_one_that_goes_on_with_fewer_needs_fewer() -> None:
    """100 nodes with 4.2 stops in 1,000 node-days of 133 h each: 2.3 are out in the mean, 9 but for 1 % of the time."""
    rigid = advice_on(replace(JOB, min_available=len(JOB.pods)), START_S)
    fewer = advice_on(replace(JOB, min_available=len(JOB.pods) * 95 // 100), START_S)
    elastic = advice_on(replace(JOB, min_available=len(JOB.pods) // 2), START_S)

    assert [each.spares for each in (rigid, fewer, elastic) if each is not None] == [9, 4, 0]


@pytest.mark.parametrize("factor", [0.3, 0.7, 1.5, 4.0])
def test_no_other_interval_loses_less_than_the_advised_one(factor: float) -> None:
    found = advice_on(JOB, START_S)

    assert found is not None
    assert lost_share(factor * found.advised_s, found.save_s, found.mtbf_s) > found.lost[1]
    assert found.lost[0] == lost_share(1800.0, 10.0, found.mtbf_s)
