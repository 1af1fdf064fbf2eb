"""Rules of verdicts on jobs with several faults, slow from the first step, or with an expert that many tokens go to."""

from dataclasses import replace

import numpy as np
import pytest

from health.analysis.excess import baseline_from
from health.analysis.matching import StepSums
from health.records.layout import Layout
from health.stream import Analyser, Options
from health.verdicts.slow_ranks import blamed, slow_ranks
from health.verdicts.verdict import Cause, JobVerdict, Part
from tests.rigs.health.joint_faults import HOT, JointKind, joint_case
from tests.unit.health.test_features import TIERS, UNEVEN, layout_of


def judged(kind: JointKind, seed: int, options: Options | None = None) -> list[JobVerdict]:
    drawn = joint_case(kind, seed)
    analyser, found = Analyser(drawn.layout, options), []
    for now_s, frames in drawn.transcript.ticks():
        analyser.take(frames, now_s)
        found += analyser.judge(now_s)
    return found


@pytest.mark.parametrize("kind", [JointKind.FIRST_STEP, JointKind.TWO_RANKS, JointKind.RANK_AND_NIC])
def test_each_of_several_faults_is_named_and_so_is_one_from_the_first_step(kind: JointKind) -> None:
    truth = joint_case(kind, 4).truth
    blames = [(each.part, each.ranks) for each in judged(kind, 4) if each.blames]

    assert all(any(each in blames for each in names) for names in truth)
    assert all(any(each in names for names in truth) for each in blames)


@pytest.mark.parametrize("kind", HOT)
def test_an_expert_that_many_tokens_go_to_is_data_and_a_slow_rank_beside_it_is_none(kind: JointKind) -> None:
    found = judged(kind, 3)

    assert {each.ranks for each in found if each.blames} == ({(5,)} if kind is JointKind.HOT_AND_SLOW else set())
    assert Cause.DATA_IMBALANCE in {each.cause for each in found}


def test_without_the_bytes_that_a_rank_takes_its_expert_would_be_its_fault() -> None:
    assert [each for each in judged(JointKind.HOT_STAYS, 3, Options(loads=False)) if each.blames]


def on_table(slow: list[int], layout: Layout | None = None) -> list[JobVerdict]:
    """Verdicts on ranks that compute 10 s instead of 7 in steps of 12 s, from the first on."""
    layout = layout or layout_of(UNEVEN)
    compute_s = 7.0 + np.random.default_rng(3).normal(0.0, 0.02, (28, layout.ranks))
    compute_s[:, slow] += 3.0
    baseline = baseline_from(compute_s, np.zeros((28, len(layout.span_path))), 12.0, layout)
    full = np.ones(layout.ranks)
    ranks, found = slow_ranks(compute_s, baseline, full, layout, TIERS)
    return list(blamed(ranks, found, layout, 0.0, 0.0, causes=True, behind=baseline.behind)) if found else []


def test_a_rank_that_was_slow_from_the_first_step_is_compared_with_its_peers() -> None:
    (verdict,) = on_table([5])

    assert (verdict.part, verdict.ranks) == (Part.RANK, (5,))
    assert "its peers from the first step on" in verdict.evidence[0]


@pytest.mark.parametrize("firsts", [[0], [0, 8], [8, 24]])
def test_the_first_ranks_of_a_job_and_of_its_nodes_may_have_work_of_their_own(firsts: list[int]) -> None:
    (verdict,) = on_table(firsts)

    assert verdict.abstains
    assert "matrix product" in verdict.probe


def test_stages_that_are_not_told_leave_nobody_to_compare_with() -> None:
    layout = layout_of(UNEVEN)

    assert on_table([5], replace(layout, stage=np.zeros_like(layout.stage))) == []


def test_ranks_in_other_groups_are_no_peers() -> None:
    layout = layout_of(UNEVEN)
    of_four = layout.peers[:4]

    assert len(set(layout.peers.tolist())) == UNEVEN.pipeline
    assert len(set(of_four.tolist())) == 1
    more = replace(layout, group_of=np.column_stack([layout.group_of, np.full(layout.ranks, -1)]))
    more.group_of[0, -1] = 0  # one more group than its peers have
    assert more.peers[0] not in more.peers[1:]


def test_steps_without_uneven_operations_have_no_load() -> None:
    sums = StepSums(2, np.zeros(1, np.int64))
    rank, step = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    sums.add_compute(rank, step, np.full(4, 2.0), np.zeros(4))
    assert sums.load(0, 1).tolist() == [[1.0, 1.0], [1.0, 1.0]]

    sums.add_taken(np.array([0, 1, 1]), np.array([1, 1, 1]), np.zeros(3, np.int64), np.array([9, 9, 9]))
    # 2 and 4 bytes: the median is 3, so that rank 1 has 4/3 of it, and rank 0 counts as usual.
    assert sums.load(0, 1).tolist() == [[1.0, 1.0], [1.0, pytest.approx(4 / 3)]]
    assert sums.compute_s(1, 1).tolist() == [[2.0, pytest.approx(1.5)]]
