"""Rules of matching, windows and wait-for graphs."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cluster.arrays import FloatArray
from health.analysis.excess import TIERS, Pulse, baseline_from, noise_of, standing
from health.analysis.last_words import Stacks
from health.analysis.matching import Finished, Matcher
from health.records.frames import RECORD
from health.records.layout import Layout, layout_from
from health.verdicts.slow_ranks import slow_ranks
from health.verdicts.stopped import on_hang
from health.verdicts.verdict import Cause, JobVerdict, Part
from tests.rigs.health.job import TrainingJob
from tonnage.records import Kind, Op


def layout_of(job: TrainingJob) -> Layout:
    return layout_from(job.introductions(), node=job.node, nic=job.nic)


PAIR = TrainingJob(tensor=1, data=2, pipeline=1, gpus_per_node=1, world=False)


def finished(*rows: tuple[int, int, float, float]) -> Finished:
    """Rows (rank, seq, enter, exit) on path 0."""
    rank, seq = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    none = np.zeros(len(rows), np.int64)
    times = np.array([row[2:] for row in rows], dtype=np.float64)
    return Finished(none, seq, rank, rank, none, times[:, 0], times[:, 1])


def test_an_operation_counts_once_all_its_members_have_reported() -> None:
    matcher = Matcher(layout_of(PAIR))

    first = matcher.match(finished((0, 1, 0.0, 3.0), (0, 2, 4.0, 5.0)))
    second = matcher.match(finished((1, 1, 2.0, 3.0)))

    assert first.transfer_s.tolist() == []
    assert second.transfer_s.tolist() == [1.0]  # the last to arrive waited for nobody: 3 - 2


@given(st.permutations(range(6)), st.integers(1, 6))
def test_operations_match_in_any_order_of_arrival(order: list[int], cut: int) -> None:
    rows = [(rank, seq, float(seq), seq + 0.5 + rank) for seq in (1, 2, 3) for rank in (0, 1)]
    shuffled = [rows[at] for at in order]
    matcher = Matcher(layout_of(PAIR))

    found = [matcher.match(finished(*part)) for part in (shuffled[:cut], shuffled[cut:]) if part]

    assert sorted(np.concatenate([each.transfer_s for each in found]).tolist()) == [0.5, 0.5, 0.5]


SENDS = TrainingJob(tensor=1, data=1, pipeline=2, gpus_per_node=1, world=False)


def sent(matcher: Matcher, layout: Layout, seq: int, sender: int, took_s: float, ahead_s: float) -> float:
    """Measured time of a send that took so long, after its receiver had waited for 2 s. ahead_s: clock of rank 1."""
    path = layout.pair_paths(np.array([sender]), np.array([1 - sender])).repeat(2)
    rank, index = np.array([sender, 1 - sender]), np.array([0, 1])
    enter_s = np.array([10.0, 8.0]) + ahead_s * rank
    exit_s = np.array([10.0, 10.0 + took_s]) + ahead_s * rank
    number, none = np.array([seq, seq]), np.zeros(2, np.int64)
    (transfer_s,) = matcher.match(Finished(path, number, index, rank, none, enter_s, exit_s)).transfer_s.tolist()
    return float(transfer_s)


@given(st.floats(-0.5, 0.5), st.floats(0.001, 0.2), st.floats(0.001, 0.2))
def test_sends_both_ways_tell_the_clocks_of_a_pair_apart(ahead_s: float, on_s: float, back_s: float) -> None:
    layout = layout_of(SENDS)
    matcher = Matcher(layout)

    before_s = [sent(matcher, layout, 1, sender, took, ahead_s) for sender, took in ((0, on_s), (1, back_s))]
    matcher.align()
    after_s = [sent(matcher, layout, 2, sender, took, ahead_s) for sender, took in ((0, on_s), (1, back_s))]

    # A clock's lead is added to one way and taken from the other; aligned, both show their mean.
    assert before_s == pytest.approx([on_s + ahead_s, back_s - ahead_s])
    assert after_s == pytest.approx([(on_s + back_s) / 2] * 2)


def test_sends_that_contradict_each_other_align_no_clocks() -> None:
    layout = layout_of(SENDS)
    matcher = Matcher(layout)

    sent(matcher, layout, 1, 0, 0.1, ahead_s=0.0)
    sent(matcher, layout, 1, 1, 0.1, ahead_s=0.4)  # stepped in between: it arrives 0.3 s before it was sent
    matcher.align()

    assert sent(matcher, layout, 2, 0, 0.1, ahead_s=0.0) == pytest.approx(0.1)


def test_noise_alone_stands_out_in_no_window() -> None:
    random = np.random.default_rng(5)
    excess = random.normal(0.0, 0.03, (28, 5_000))
    noise = noise_of(random.normal(0.0, 0.03, (24, 5_000)))

    assert not any(standing(excess[-tier.steps :], noise, tier, 24).out.any() for tier in TIERS)


def test_a_single_stall_stands_out_in_no_window() -> None:
    excess = np.zeros((28, 3))
    excess[-2, 1] = 40.0

    assert not any(standing(excess[-tier.steps :], np.full(3, 0.01), tier, 24).out.any() for tier in TIERS)


def test_short_windows_find_strong_faults_after_few_steps_and_long_ones_weak_faults() -> None:
    strong, weak = np.zeros((28, 2)), np.zeros((28, 2))
    strong[-4:, 0], weak[:, 0] = 0.3, 0.08
    noise = np.full(2, 0.01)

    assert standing(strong, noise, TIERS[0], 24).out.tolist() == [True, False]
    assert standing(weak, noise, TIERS[0], 24).out.tolist() == [False, False]
    assert standing(weak, noise, TIERS[2], 24).out.tolist() == [True, False]


UNEVEN = TrainingJob(tensor=2, data=4, pipeline=4, gpus_per_node=8, world=False)


def slow_by(added_s: FloatArray) -> list[int]:
    """Ranks found slow in steps of 10 s with this computing time on top of 7 s; shape (steps, ranks)."""
    layout, ranks = layout_of(UNEVEN), UNEVEN.ranks
    noise = np.random.default_rng(3).normal(0.0, 0.05, (24, ranks))
    baseline = baseline_from(7.0 + noise, np.zeros((24, len(layout.span_path))), 10.0, layout)
    found, _ = slow_ranks(7.0 + added_s, baseline, np.ones(ranks), layout, TIERS)
    return found.tolist()


def test_a_rank_that_stalls_once_while_its_replica_is_uneven_is_not_slow() -> None:
    replica = UNEVEN.numbers[:, 1].ravel()
    added_s = np.zeros((5, UNEVEN.ranks))
    added_s[:, replica] = np.array([5.0, 2.0, 1.0, 5.0, 1.0])[:, None]  # median 2: less than 0.6 of the rank's own
    added_s[4, replica[3]] += 5.0  # medians: 5 of this rank, 2 of the others

    assert slow_by(added_s) == []


def test_a_rank_that_is_slower_than_its_uneven_replica_in_each_step_is_slow() -> None:
    replica = UNEVEN.numbers[:, 1].ravel()
    added_s = np.zeros((5, UNEVEN.ranks))
    added_s[:, replica] = np.array([2.0, 0.0, 1.0, 2.0, 0.0])[:, None]
    added_s[:, replica[3]] += 3.0

    assert slow_by(added_s) == [int(replica[3])]


def waiting_for_rank_1(seq: int, for_s: float) -> JobVerdict | None:
    """What is found when rank 0 of two waits in its group's operation and rank 1, whose heart beats, does not come."""
    layout = layout_of(PAIR)
    pulse = Pulse(layout)
    rows = np.zeros(3, RECORD)
    rows["kind"] = [Kind.BEAT, Kind.IN_FLIGHT, Kind.BEAT]
    rows["seq"][1], rows["for_ns"] = seq, for_s * 1e9
    rank, none = np.array([0, 0, 1]), np.zeros(3, np.int64)
    pulse.beat(rows, rank, none, rank, np.array([0, seq, 0]), 500.0)
    return on_hang(pulse, layout, (), 500.0, Stacks(), causes=True)


def test_a_rank_that_is_late_to_a_groups_first_operations_hangs_no_job_yet() -> None:
    assert waiting_for_rank_1(seq=2, for_s=90.0) is None
    for found in (waiting_for_rank_1(seq=2, for_s=121.0), waiting_for_rank_1(seq=100, for_s=4.0)):
        assert found is not None
        assert (found.part, found.ranks) == (Part.RANK, (1,))


@pytest.mark.parametrize(
    ("mine", "theirs", "cause"),
    [
        ((Op.ALL_REDUCE, 161), (Op.BROADCAST, 161), Cause.OPERATIONS),
        ((Op.ALL_REDUCE, 161), (Op.ALL_REDUCE, 77), Cause.SIZES),
        ((Op.ALL_REDUCE, 161), (Op.ALL_REDUCE, 161), None),
        ((Op.ALL_TO_ALL, 161), (Op.ALL_TO_ALL, 77), None),  # what each rank sends may differ
        ((Op.SEND, 161), (Op.RECEIVE, 161), None),  # two ends of one operation
    ],
)
def test_calls_that_differ_under_one_number_are_no_hang_of_their_group(
    mine: tuple[Op, int], theirs: tuple[Op, int], cause: Cause | None
) -> None:
    layout = layout_of(PAIR)
    pulse = Pulse(layout)
    rows = np.zeros(4, RECORD)
    rows["kind"] = (Kind.BEAT, Kind.IN_FLIGHT) * 2
    rows["op"], rows["size"] = (0, mine[0], 0, theirs[0]), (0, mine[1], 0, theirs[1])
    rows["for_ns"] = 20_000_000_000
    rank, none = np.array([0, 0, 1, 1]), np.zeros(4, np.int64)
    pulse.entered[:] = 1000
    pulse.beat(rows, rank, none, rank, np.full(4, 1001), 480.0)
    found = on_hang(pulse, layout, (), 480.5, Stacks(), causes=True)

    assert found is not None
    assert found.cause is cause
