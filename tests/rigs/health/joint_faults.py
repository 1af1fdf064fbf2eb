"""Jobs with two faults at once, a rank that is slow from its first step, or an expert that many tokens go to."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from cluster.arrays import FloatArray
from health.records.frames import Records
from health.records.layout import Layout, layout_from
from health.verdicts.verdict import Part
from tests.rigs.health.cases import drawn_job
from tests.rigs.health.job import NUMBERS, Disturbance, DisturbanceKind, TrainingJob, introductions, members
from tests.rigs.health.recorder_frames import Transcript, arriving_frames, clocks_of
from tests.rigs.health.training_steps import Steps, step_length_s
from tonnage import records
from tonnage.records import NO_PEER, Op, Role, size_class

NEVER = 1_000_000
BEGINS = 50
"""Step from which what does not stand from the first is there."""
RANKS = 32
_EXPERT = 4
"""A rank's own number of the group of experts, beside those of NUMBERS."""
_EXPERT_BYTES = 1 << 24


class JointKind(StrEnum):
    """What is the matter with a job."""

    FIRST_STEP = "slow from the first step"
    TWO_RANKS = "two slow ranks, of 50 and 20 %"
    RANK_AND_NIC = "slow rank, and slow NIC elsewhere"
    HOT_MOVES = "hot expert that moves"
    HOT_STAYS = "hot expert that stays"
    HOT_FIRST = "hot expert from the first step"
    HOT_AND_SLOW = "hot expert, and slow rank elsewhere"


HOT = (JointKind.HOT_MOVES, JointKind.HOT_STAYS, JointKind.HOT_FIRST, JointKind.HOT_AND_SLOW)


@dataclass(frozen=True, slots=True, eq=False)
class JointCase:
    """A job, the parts at fault (each may be named in several ways), and its frames."""

    kind: JointKind
    truth: Sequence[Sequence[tuple[Part, tuple[int, ...]]]]
    layout: Layout
    transcript: Transcript


class _JointSteps(Steps):
    """Steps under several disturbances, with tokens that go to experts and back where there are such."""

    def __init__(
        self, job: TrainingJob, faults: Sequence[Disturbance], hot: JointKind | None, random: np.random.Generator
    ) -> None:
        super().__init__(job, faults[0], random)
        self._faults, self._hot = faults, hot
        self._sequences[_EXPERT] = 0
        for each in faults[1:]:
            self.disturbance = each
            for path, factor in self._path_factors().items():
                self._factors[path] = self._factors[path] * factor
        self.disturbance = faults[0]
        self._more = random.choice([1.0, 3.0])

    def compute_factor(self, step: int) -> FloatArray:
        made = [each.compute_factor(self.job, step, self.random) for each in self._faults]
        return np.asarray(np.prod(made, axis=0))

    def step(self, step: int) -> None:
        if self._hot is not None:
            load = np.exp(self.random.normal(0, 0.08, self.job.ranks))
            if step >= BEGINS or self._hot is JointKind.HOT_FIRST:
                moved = step // 20 * 7 if self._hot is JointKind.HOT_MOVES else 9
                load[moved % self.job.ranks] *= 1 + self._more
            self._exchange(step, load)
            took = 0.3 * self.job.pass_s * load * np.exp(self.random.normal(0, 0.01, self.job.ranks))
            self.now = self.now + took.reshape(self.job.shape)
            self._exchange(step, load)
        super().step(step)

    def _exchange(self, step: int, load: FloatArray) -> None:
        """An all-to-all of all ranks, which takes as long as the rank with the most tokens."""
        entered, ranks = self.now.ravel(), self.job.ranks
        took = 0.2 * self.job.data_s * load.max() * np.exp(self.random.normal(0, 0.05))
        left = np.full(ranks, entered.max() + took)
        self._sequences[_EXPERT] += 1
        numbers = [int(Op.ALL_TO_ALL), _EXPERT, self._sequences[_EXPERT], step]
        sizes = [size_class(int(each * _EXPERT_BYTES)) for each in load]
        fixed = np.stack([*(np.full(ranks, each) for each in numbers), np.array(sizes)])
        self.log.columns.append((np.arange(ranks), fixed, np.full(ranks, NO_PEER), entered.copy(), left))
        self.now = left.reshape(self.job.shape).copy()


def _with_experts(made: Records, ranks: int) -> Records:
    group = (records.group_key("EXPERT", (ranks, 1)), int(Role.EXPERT), np.arange(ranks))
    rank, rows = members([group], {**NUMBERS, int(Role.EXPERT): _EXPERT})
    return introductions(np.concatenate([made.rank, rank]), np.concatenate([made.rows, rows]))


def joint_case(kind: JointKind, seed: int) -> JointCase:
    """The case of a seed: a job of 32 ranks, a slow one of them at 5 and another part at 20."""
    random = np.random.default_rng([seed, 23])
    job = replace(drawn_job(RANKS, DisturbanceKind.SLOW_NIC, random), stall_s=0.0)
    at = 0 if kind is JointKind.FIRST_STEP else NEVER if kind in HOT and kind is not JointKind.HOT_AND_SLOW else BEGINS
    healthy_s = step_length_s(job, Disturbance(DisturbanceKind.NONE, 0))
    # Excess of computing as long as the whole step, as a share of the computing.
    of_step = healthy_s / (2 * job.microbatches * job.pass_s)
    more = float(random.choice([0.35, 0.6, 1.35])) if kind is JointKind.FIRST_STEP else 0.5 * of_step
    faults = [Disturbance(DisturbanceKind.SLOW_RANK, at, (5,), more)]
    slow: list[list[tuple[Part, tuple[int, ...]]]] = [[(Part.RANK, (5,))]] if at < NEVER else []
    if kind is JointKind.TWO_RANKS:
        faults.append(Disturbance(DisturbanceKind.SLOW_RANK, at, (20,), 0.2 * of_step))
        slow.append([(Part.RANK, (20,))])
    elif kind is JointKind.RANK_AND_NIC:
        faults.append(Disturbance(DisturbanceKind.SLOW_NIC, at, (20,), 6.0))
        *_, shard = np.unravel_index(20, job.shape)
        rings = [tuple(job.numbers[stage, :, shard].tolist()) for stage in range(job.pipeline)]
        slow.append([(Part.NIC, (20,)), *((Part.GROUP, ring) for ring in rings if 20 in ring)])
    timeline = _JointSteps(job, faults, kind if kind in HOT else None, random).run(120)
    clocks = clocks_of(job.ranks, random, timeline.end_s, steps=False)
    made = arriving_frames(job, faults[0], timeline, clocks, random, timeline.end_s)
    shown = _with_experts(made.introductions, job.ranks) if kind in HOT else made.introductions
    return JointCase(kind, slow, layout_from(shown, node=job.node, nic=job.nic), made)
