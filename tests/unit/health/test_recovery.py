"""Recovery: a slow rank that is as fast as before is told of once, and one that stays slow is not."""

import numpy as np
import pytest

from health.records.layout import layout_from
from health.stream import QUIET_S, Analyser
from health.verdicts.verdict import Cause, JobVerdict, Part, Syndrome
from tests.rigs.health.job import Disturbance, DisturbanceKind, TrainingJob
from tests.rigs.health.recorder_frames import arriving_frames, clocks_of
from tests.rigs.health.training_steps import Steps

JOB = TrainingJob(tensor=2, data=4, pipeline=2, gpus_per_node=4, pass_s=0.03, data_s=0.02)
SLOW_FROM, STEPS = 50, 220


def played(until: int) -> tuple[list[JobVerdict], list[tuple[float, JobVerdict]]]:
    """What is blamed, and what has ended when, in a job whose rank 3 is slow from step 50 to this one."""
    random = np.random.default_rng(5)
    slow = Disturbance(DisturbanceKind.SLOW_RANK, SLOW_FROM, (3,), strength=0.5, until=until)
    timeline = Steps(JOB, slow, random).run(STEPS)
    clocks = clocks_of(JOB.ranks, random, timeline.end_s, steps=False)
    made = arriving_frames(JOB, slow, timeline, clocks, random, timeline.end_s)
    analyser = Analyser(layout_from(made.introductions, node=JOB.node, nic=JOB.nic))
    blamed: list[JobVerdict] = []
    ended: list[tuple[float, JobVerdict]] = []
    for now_s, frames in made.ticks():
        analyser.take(frames, now_s)
        blamed += [verdict for verdict in analyser.judge(now_s) if verdict.blames]
        ended += [(now_s, verdict) for verdict in analyser.ended(now_s)]
    return blamed, ended


def test_a_slow_rank_that_is_as_fast_as_before_is_told_of_once() -> None:
    blamed, ended = played(until=90)

    ((at_s, over),) = ended
    assert (over.syndrome, over.part, over.ranks) == (Syndrome.OTHER_SLOW, Part.RANK, (3,))
    assert at_s >= blamed[0].at_s + 10.0


@pytest.mark.parametrize("until", [0, STEPS - 20])
def test_a_rank_that_stays_slow_or_was_so_until_now_has_not_recovered(until: int) -> None:
    blamed, ended = played(until)

    assert {verdict.ranks for verdict in blamed} == {(3,)}
    assert ended == []


def test_what_is_no_longer_heard_of_is_forgotten() -> None:
    """Under power caps that move other ranks are capped at each step: of 10,000 that is a third of a megabyte."""
    analyser, steps = Analyser(layout_from(JOB.introductions(), node=JOB.node, nic=JOB.nic)), 1000
    for step in range(steps):
        now_s, capped, analyser._judged_step = float(step), (step, step + 1), step
        verdict = JobVerdict(now_s, Syndrome.NONE, Part.NOTHING, capped, now_s, 0.9, (), Cause.POWER_CAP)
        assert analyser._has_settled(verdict, step)
        assert analyser._is_news(verdict, now_s)
        assert not analyser._is_news(verdict, now_s)
        analyser.judge(now_s)

    assert len(analyser._heard_s) <= QUIET_S + 1
    assert len(analyser._suspected) <= 3
    assert analyser._repeated_s.keys() <= analyser._heard_s.keys()
