"""Rules of verdicts, on simulated jobs of 8 to 64 ranks."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from health.analysis.last_words import Lost
from health.stream import REPEAT_S, Analyser
from health.verdicts.stopped import on_death
from health.verdicts.verdict import SLOW, Cause, Fact, FactKind, Part, Syndrome
from tests.rigs.health.cases import Case, case, queued_ahead, timed_on_device
from tests.rigs.health.job import NO_FAULTS, STOPS, DisturbanceKind
from tests.unit.health.jobs import blames, drawn, judged
from tonnage.records import Times

SEEDS = (11, 28)


@pytest.mark.parametrize("kind", [kind for kind in STOPS if kind is not DisturbanceKind.DEAD_RANK])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_hang_is_named_within_five_seconds(kind: DisturbanceKind, seed: int) -> None:
    stopped = drawn(kind, seed)
    assert stopped.truth is not None

    (verdict,) = blames(stopped)

    assert verdict.syndrome is stopped.truth.syndrome
    assert (verdict.part, verdict.ranks) in stopped.truth.parts
    assert 0 < verdict.at_s - stopped.truth.fault_s <= 5.0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dead_process_is_named_within_a_second(seed: int) -> None:
    dead = drawn(DisturbanceKind.DEAD_RANK, seed)
    assert dead.truth is not None

    (verdict,) = blames(dead)

    assert (verdict.syndrome, verdict.ranks) == (Syndrome.DEAD_PROCESS, dead.disturbance.ranks)
    assert verdict.at_s - dead.truth.fault_s <= 1.0


@pytest.mark.parametrize("kind", NO_FAULTS)
def test_what_is_no_fault_blames_nothing(kind: DisturbanceKind) -> None:
    assert blames(drawn(kind, 11)) == []


CAUSES = {
    DisturbanceKind.CHECKPOINT: Cause.CHECKPOINT,
    DisturbanceKind.EVALUATION: Cause.EVALUATION,
    DisturbanceKind.COMPILATION: Cause.COMPILATION,
    DisturbanceKind.UNEVEN_DATA: Cause.DATA_IMBALANCE,
    DisturbanceKind.STAGE_LOAD: Cause.STAGE_IMBALANCE,
    DisturbanceKind.ALL_SLOW: Cause.ALL_SLOW,
    DisturbanceKind.POWER_CAP: Cause.POWER_CAP,
    DisturbanceKind.CGROUP_LIMIT: Cause.THROTTLED,
}


@pytest.mark.parametrize("kind", CAUSES)
def test_a_cause_that_is_no_fault_is_named(kind: DisturbanceKind) -> None:
    assert CAUSES[kind] in {verdict.cause for verdict in judged(drawn(kind, 3))}


def test_a_rank_under_our_own_power_cap_is_blamed_only_where_the_cap_is_unknown() -> None:
    capped = drawn(DisturbanceKind.POWER_CAP, 9, ranks=32)

    assert blames(capped) == []
    assert blames(capped, facts=()) != []


def test_what_a_cap_does_not_explain_is_still_a_fault() -> None:
    slow = strong(DisturbanceKind.SLOW_RANK)
    (rank,) = slow.disturbance.ranks
    slightly = Fact(FactKind.POWER_CAP, rank, 0.0, speed_share=0.97)

    assert [verdict.ranks for verdict in blames(slow, facts=(slightly,))] == [(rank,)]


STRONG = {
    DisturbanceKind.SLOW_RANK: 3,
    DisturbanceKind.SLOW_NODE: 4,
    DisturbanceKind.SLOW_NIC: 3,
    DisturbanceKind.SLOW_LINK: 6,
}
"""Seeds of cases of 16 ranks in which the step is more than 30 % longer."""


def strong(kind: DisturbanceKind) -> Case:
    found = drawn(kind, STRONG[kind])
    assert found.share > 0.3
    return found


@pytest.mark.parametrize(
    "kind", [DisturbanceKind.SLOW_RANK, DisturbanceKind.SLOW_NODE, DisturbanceKind.SLOW_NIC, DisturbanceKind.SLOW_LINK]
)
def test_a_strong_slow_down_is_named_within_ten_steps_or_five_seconds(kind: DisturbanceKind) -> None:
    slow = strong(kind)
    assert slow.truth is not None

    verdict = judged(slow)[0]

    if not verdict.abstains:
        assert (verdict.syndrome, (verdict.part, verdict.ranks) in slow.truth.parts) == (slow.truth.syndrome, True)
    assert verdict.at_s - slow.truth.fault_s <= max(5.0, 10 * slow.step_s * (1 + slow.share)) + 0.5


def test_a_path_that_a_stepped_clock_makes_negative_clears_no_nic() -> None:
    """The ring of a slow NIC is seen first; the clock of one of its ranks was set back just before."""
    blamed = blames(case(8024))

    assert [(verdict.part, verdict.ranks) for verdict in blamed] == [(Part.NIC, (5,))]


def test_signs_on_healthy_hardware_blame_nothing() -> None:
    clean = drawn(DisturbanceKind.NONE, 2)
    signs = tuple(Fact(kind, 3, 1.0) for kind in (FactKind.XID, FactKind.NIC_ERRORS, FactKind.RETRANSMISSIONS))

    assert blames(clean, facts=signs) == []


def test_the_same_frames_give_the_same_verdicts() -> None:
    stopped = drawn(DisturbanceKind.HANG_LINK, 8)

    assert judged(stopped) == judged(stopped)


def test_frames_that_come_twice_change_no_verdict() -> None:
    slow = strong(DisturbanceKind.SLOW_RANK)
    analyser = Analyser(slow.layout)
    found = []
    for now_s, frames in slow.transcript.ticks():
        analyser.take(frames, now_s)
        analyser.take(frames, now_s)
        found += [verdict for verdict in analyser.judge(now_s) if verdict.blames]

    assert {verdict.ranks for verdict in found} <= {slow.disturbance.ranks}


def test_an_analyser_that_hears_nothing_blames_nothing() -> None:
    clean = drawn(DisturbanceKind.NONE, 5)
    analyser = Analyser(clean.layout)
    found = []
    for now_s, frames in clean.transcript.ticks():
        if now_s < 8.0:
            analyser.take(frames, now_s)
        found += [verdict for verdict in analyser.judge(now_s) if verdict.blames]

    assert found == []


def test_a_job_without_a_second_path_leaves_nic_or_link_open_and_asks_for_a_probe() -> None:
    undecidable = drawn(DisturbanceKind.SLOW_LINK, 6, ranks=8)
    assert (undecidable.job.pipeline, undecidable.job.data, undecidable.job.tensor) == (1, 2, 4)

    abstained = [verdict for verdict in judged(undecidable) if verdict.abstains]

    assert blames(undecidable) == []
    assert abstained[0].ranks == undecidable.disturbance.ranks
    assert "pair probes" in abstained[0].probe


def test_a_verdict_states_its_evidence_and_how_sure_it_is() -> None:
    (verdict,) = blames(drawn(DisturbanceKind.HANG_RANK, 6))

    assert verdict.evidence
    assert 0 < verdict.confidence < 1


def test_a_blamed_part_needs_no_other_rank_in_it() -> None:
    stopped = drawn(DisturbanceKind.HANG_NIC, 6)
    (verdict,) = blames(stopped)

    assert verdict.part is Part.NIC
    assert np.all(stopped.layout.nic[list(verdict.ranks)] == stopped.layout.nic[stopped.disturbance.ranks[0]])


def test_a_case_is_the_same_for_the_same_seed() -> None:
    one, other = drawn(DisturbanceKind.SLOW_NIC, 3), drawn(DisturbanceKind.SLOW_NIC, 3)

    assert one.transcript.rows.tobytes() == other.transcript.rows.tobytes()
    assert replace(one.disturbance) == other.disturbance


def test_a_slow_down_that_lasts_is_named_again_and_again() -> None:
    """The analyser's clock runs twelve times as fast as the records'."""
    found = drawn(DisturbanceKind.SLOW_RANK, 2)
    analyser = Analyser(found.layout)
    blamed = []
    for now_s, frames in found.transcript.ticks():
        analyser.take(frames, 12 * now_s)
        blamed += [verdict for verdict in analyser.judge(12 * now_s) if verdict.blames]
    assert len(blamed) > 1
    assert all(after.at_s - before.at_s >= REPEAT_S for before, after in pairwise(blamed))


def test_an_exception_of_the_program_is_told_from_a_gpu_error() -> None:
    layout = drawn(DisturbanceKind.DEAD_RANK, 0).layout
    lost = Lost((3,), 10.0, 1, own_error=True)
    assert on_death(lost, layout, (), 11.0).program_error
    assert not on_death(lost, layout, (Fact(FactKind.XID, 3, 9.5),), 11.0).program_error


SLOW_KINDS = [kind for kind in DisturbanceKind if kind not in (*STOPS, *NO_FAULTS, DisturbanceKind.DEAD_RANK)]


@pytest.mark.parametrize("kind", SLOW_KINDS)
@pytest.mark.parametrize("ahead", [0.05, 0.2, 0.5])
def test_a_host_that_queues_ahead_of_its_device_blames_nobody_for_slowness_and_says_what_it_lacks(
    kind: DisturbanceKind, ahead: float
) -> None:
    """Enters tell when operations were queued, up to half a step before: how long steps take is all that is left."""
    found = drawn(kind, 11)
    queued = judged(queued_ahead(found, ahead))

    assert [verdict for verdict in queued if verdict.blames and verdict.syndrome in SLOW] == []
    if found.truth is not None:
        assert Cause.NO_DEVICE_TIME in {verdict.cause for verdict in queued}


@pytest.mark.parametrize("kind", SLOW_KINDS)
def test_with_the_devices_times_slow_parts_are_named_as_where_hosts_wait(kind: DisturbanceKind) -> None:
    found = drawn(kind, 11)
    timed = judged(timed_on_device(found))

    slow = [verdict for verdict in timed if verdict.blames and verdict.syndrome in SLOW]
    assert {each.subject for each in slow} == {each.subject for each in judged(found) if each.syndrome in SLOW}
    assert {each.signals for each in slow} == {"times on the device"}


def test_a_host_that_queues_ahead_of_its_device_still_tells_hangs() -> None:
    found = drawn(DisturbanceKind.HANG_RANK, 11)

    (verdict,) = blames(replace(found, layout=replace(found.layout, times=Times.QUEUED)))

    assert (verdict.syndrome, verdict.signals) == (Syndrome.OTHER_HANG, "calls and heartbeats")
