"""Steps of a simulated training job: enter and exit of every operation in true time.

Each microbatch goes forward through all stages, then back; tensor groups all-reduce after each pass, neighbours of a
pipeline send and receive, replicas all-reduce gradients at the end. What never happens is at infinity.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.arrays import Array, FloatArray, IntArray
from tests.rigs.health.job import ABSENCES, NETWORK, NUMBERS, STOPS, Disturbance, DisturbanceKind, TrainingJob
from tonnage.records import NO_PEER, Op, Phase, Role, size_class

SEND_S = 0.0001
"""Time in which a send that does not block hands its data over."""
_SPIKE, _SPIKE_SHARE = 6.0, 0.004
"""Rare transfers that take several times as long, as real gloo runs show."""
_STALLED_STEPS = 0.1
_DIRECTIONS = (10, 11)
"""Counters of sends forward and back, beside those of the groups."""
PHASES = {
    DisturbanceKind.CHECKPOINT: Phase.CHECKPOINT,
    DisturbanceKind.EVALUATION: Phase.EVALUATION,
    DisturbanceKind.COMPILATION: Phase.COMPILE,
}


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """All operations that were entered; shape (operations,) each."""

    rank: IntArray
    op: IntArray
    group: IntArray
    seq: IntArray
    peer: IntArray
    step: IntArray
    size: IntArray
    phase: IntArray
    enter_s: FloatArray
    exit_s: FloatArray
    """Infinite where the operation never ended."""
    fault_s: float
    """Instant when the disturbance took effect; NaN before it did."""
    end_s: float


class _Log:
    def __init__(self) -> None:
        self.columns: list[tuple[Array, ...]] = []

    def add(self, ranks: IntArray, op: int, role: int, seq: int, step: int, size: int, enter: Array, exit_: Array,
            peer: IntArray | None = None) -> None:  # fmt: skip
        flat = ranks.ravel()
        fixed = np.broadcast_to(np.array([op, NUMBERS[role], seq, step, size])[:, None], (5, len(flat)))
        peers = np.full(len(flat), NO_PEER) if peer is None else np.broadcast_to(peer, ranks.shape).ravel()
        self.columns.append((flat, fixed, peers, enter.ravel(), exit_.ravel()))


class Steps:
    """Job under way."""

    def __init__(
        self, job: TrainingJob, disturbance: Disturbance, random: np.random.Generator, *, noise: bool = True
    ) -> None:
        self.job, self.disturbance, self.random, self._noise = job, disturbance, random, noise
        self.now = np.zeros(job.shape)
        """Instant until which each rank is busy."""
        self.log = _Log()
        self.fault_s = np.nan
        spread = job.static_noise if noise else 0.0
        self._static = np.exp(random.normal(0.0, spread, job.shape))
        if job.stage_load:
            self._static *= np.array(job.stage_load)[:, None, None]
        self._factors = self._path_factors()
        self._sequences = dict.fromkeys((*NUMBERS.values(), *_DIRECTIONS), 0)
        self.marked: list[tuple[int, int]] = []

    def _path_factors(self) -> dict[str, FloatArray]:
        """Multiples of transfer times on the paths that the disturbance concerns."""
        job, which = self.job, self.disturbance
        pipeline, data, tensor = job.shape
        made = {
            "tensor": np.ones((pipeline, data)),
            "data": np.ones((pipeline, tensor)),
            "forward": np.ones((max(pipeline - 1, 0), data, tensor)),
            "backward": np.ones((max(pipeline - 1, 0), data, tensor)),
        }
        if which.kind not in NETWORK:
            return made
        factor = np.inf if which.kind in STOPS else 1.0 + which.strength
        at = [np.unravel_index(rank, job.shape) for rank in which.ranks]
        if which.kind in (DisturbanceKind.SLOW_LINK, DisturbanceKind.HANG_LINK):
            self._slow_link(made, factor, at)
        else:
            ((stage, replica, shard),) = at
            if job.rings_cross:
                made["data"][stage, shard] = factor
            made["forward"][max(stage - 1, 0) : stage + 1, replica, shard] = factor
            made["backward"][max(stage - 1, 0) : stage + 1, replica, shard] = factor
        return made

    @staticmethod
    def _slow_link(made: dict[str, FloatArray], factor: float, at: list[Any]) -> None:
        (stage, replica, shard), (other_stage, other_replica, _) = at
        if stage != other_stage:
            low = min(int(stage), int(other_stage))
            made["forward"][low, replica, shard] = made["backward"][low, replica, shard] = factor
        elif replica != other_replica:
            made["data"][stage, shard] = factor
        else:
            made["tensor"][stage, replica] = factor

    def run(self, steps: int) -> Timeline:
        """Steps until the end, or a few more once the job stands still."""
        ends = []
        for step in range(steps):
            self.step(step)
            ends.append(float(self.now[np.isfinite(self.now)].max(initial=0.0)))
            if self.disturbance.kind in STOPS and step > self.disturbance.step + 1:
                break
        return self.timeline(max(ends))

    def step(self, step: int) -> None:
        job, which = self.job, self.disturbance
        if step == which.step and which.kind not in STOPS:
            self.fault_s = float(self.now.max())
        pause, marked = which.pause_s(job, step, self.random)
        if pause.any():
            self.now = self.now + pause.reshape(job.shape)
            if marked:
                self.marked.append((step, int(PHASES[which.kind])))
        if job.stall_s and self._noise and self.random.random() < _STALLED_STEPS:
            self.now.flat[self.random.integers(job.ranks)] += job.stall_s * self.random.random()
        factor = self.compute_factor(step).reshape(job.shape)
        struck = int(self.random.integers(job.microbatches)) if step == which.step and which.kind in STOPS else -1
        for microbatch in range(job.microbatches):
            for stage in range(job.pipeline):
                self._pass(step, stage, factor, forward=True, struck=microbatch == struck)
        for _ in range(job.microbatches):
            for stage in reversed(range(job.pipeline)):
                self._pass(step, stage, factor, forward=False, struck=False)
        self._gradients(step)

    def compute_factor(self, step: int) -> FloatArray:
        """Shape (ranks,): passes' time over the normal one in this step."""
        return self.disturbance.compute_factor(self.job, step, self.random)

    def _pass(self, step: int, stage: int, factor: FloatArray, *, forward: bool, struck: bool) -> None:
        job = self.job
        before = stage - 1 if forward else stage + 1
        if 0 <= before < job.pipeline:
            self._send(step, before, stage, forward=forward)
        took = job.pass_s * self._static[stage] * factor[stage] * self._compute_noise(factor[stage].shape)
        begun = self.now[stage].copy()
        self.now[stage] += took
        if struck and self.disturbance.kind in ABSENCES:
            # The ranks concerned never come out of this pass.
            mine = np.isin(self.job.numbers[stage], self.disturbance.ranks)
            if mine.any():
                instant = (
                    begun
                    if self.disturbance.kind is DisturbanceKind.HANG_RANK
                    else begun + took * self.random.uniform(0, 1)
                )
                if np.isnan(self.fault_s):
                    self.fault_s = float(instant[mine].min())
                self.now[stage][mine] = np.inf
        if job.tensor > 1:
            factors = self._factors["tensor"][stage] if self._applies(step) else np.ones(job.data)
            self._collective(step, Role.TENSOR, job.numbers[stage], self.now[stage], 1, job.tensor_s, factors, 1 << 20)

    def _applies(self, step: int) -> bool:
        return step >= self.disturbance.step

    def _send(self, step: int, sender: int, receiver: int, *, forward: bool) -> None:
        job = self.job
        low = min(sender, receiver)
        factors = self._factors["forward" if forward else "backward"][low] if self._applies(step) else 1.0
        entered, waiting = self.now[sender].copy(), self.now[receiver].copy()
        took = job.pipeline_s * (factors * self._transfer_noise(entered.shape) + self._spikes(entered.shape))
        both = np.maximum(entered, waiting) if job.blocking_sends else entered
        arrived = np.maximum(both + took, waiting + SEND_S)
        sent = arrived if job.blocking_sends else np.where(np.isfinite(entered), entered + SEND_S, np.inf)
        self._note_stuck(took, np.maximum(entered, waiting))
        direction = _DIRECTIONS[0 if forward else 1]
        self._sequences[direction] += 1
        seq = 1 + (self._sequences[direction] - 1) // max(job.pipeline - 1, 1)
        size = size_class(1 << 20)
        self.log.add(job.numbers[sender], Op.SEND, Role.PIPELINE, seq, step, size, entered, sent, np.array(receiver))
        self.log.add(
            job.numbers[receiver], Op.RECEIVE, Role.PIPELINE, seq, step, size, waiting, arrived, np.array(sender)
        )
        self.now[sender], self.now[receiver] = sent, arrived

    def _gradients(self, step: int) -> None:
        job = self.job
        if job.data > 1:
            factors = self._factors["data"] if self._applies(step) else np.ones(self._factors["data"].shape)
            ranks, now = job.numbers, self.now
            moved = np.moveaxis(now, 1, 2).reshape(-1, job.data)
            numbers = np.moveaxis(ranks, 1, 2).reshape(-1, job.data)
            self._collective(step, Role.DATA, numbers, moved, 1, job.data_s, factors.ravel(), 1 << 26)
            self.now = np.moveaxis(moved.reshape(job.pipeline, job.tensor, job.data), 2, 1).copy()
        if job.world:
            everyone = self.now.reshape(1, -1)
            self._collective(step, Role.WORLD, job.numbers.reshape(1, -1), everyone, 1, 0.0005, np.ones(1), 4)
            self.now = everyone.reshape(job.shape)

    def _collective(
        self,
        step: int,
        role: Role,
        ranks: IntArray,
        now: FloatArray,
        axis: int,
        base_s: float,
        factors: Array,
        size: int,
    ) -> None:
        """All-reduce of each row of `now`, in place."""
        entered = now.copy()
        last = entered.max(axis=axis, keepdims=True)
        took = base_s * (factors[:, None] * self._transfer_noise((len(now), 1)) + self._spikes((len(now), 1)))
        left = last + took * (1 + 0.02 * self.random.random(now.shape) if self._noise else 1.0)
        self._note_stuck(took, last)
        number = NUMBERS[int(role)]
        self._sequences[number] += 1
        per_step = self.job.pipeline if role is Role.TENSOR else 1
        seq = 1 + (self._sequences[number] - 1) // per_step
        self.log.add(ranks, Op.ALL_REDUCE, role, seq, step, size_class(size), entered, left)
        now[:] = np.where(np.isfinite(entered), left, np.inf)

    def _note_stuck(self, took: FloatArray, begun: FloatArray) -> None:
        stuck = np.isinf(took) & np.isfinite(begun)
        if stuck.any():
            first = float(begun[stuck].min())
            self.fault_s = first if np.isnan(self.fault_s) else min(self.fault_s, first)

    def _compute_noise(self, shape: tuple[int, ...]) -> FloatArray:
        if not self._noise:
            return np.ones(shape)
        return np.asarray(np.exp(self.random.normal(0.0, self.job.compute_noise, shape)))

    def _transfer_noise(self, shape: tuple[int, ...]) -> FloatArray:
        if not self._noise:
            return np.ones(shape)
        return np.asarray(np.exp(self.random.normal(0.0, self.job.transfer_noise, shape)))

    def _spikes(self, shape: tuple[int, ...]) -> FloatArray:
        """Additional time of rare transfers, over the normal one: congestion that has nothing to do with a fault."""
        if not self._noise:
            return np.zeros(shape)
        struck = self.random.random(shape) < _SPIKE_SHARE
        return np.where(struck, self.random.uniform(0.5, _SPIKE - 1, shape), 0.0)

    def timeline(self, end_s: float) -> Timeline:
        columns = self.log.columns
        fixed = np.concatenate([each[1] for each in columns], axis=1)
        enter_s = np.concatenate([each[3] for each in columns])
        kept = np.isfinite(enter_s)
        step = fixed[3]
        rank = np.concatenate([each[0] for each in columns])
        exit_s = np.concatenate([each[4] for each in columns])[kept]
        order = np.lexsort((exit_s, enter_s[kept], rank[kept]))
        chosen = np.flatnonzero(kept)[order]
        phase = np.zeros(len(enter_s), np.int64)
        made = Timeline(
            rank[chosen],
            fixed[0][chosen],
            fixed[1][chosen],
            fixed[2][chosen],
            np.concatenate([each[2] for each in columns])[chosen],
            step[chosen],
            fixed[4][chosen],
            phase[chosen],
            enter_s[chosen],
            exit_s[order],
            self.fault_s,
            end_s,
        )
        self._mark(made)
        return made

    def _mark(self, made: Timeline) -> None:
        """The first operation of each rank after a marked pause carries its phase."""
        first = np.flatnonzero(np.diff(made.rank * 1_000_000 + made.step, prepend=-1))
        for step, phase in self.marked:
            at = first[made.step[first] == step]
            made.phase[at] = phase


def step_length_s(job: TrainingJob, disturbance: Disturbance) -> float:
    """Length of a step without noise under a disturbance that has begun."""
    steps = Steps(job, disturbance, np.random.default_rng(0), noise=False)
    ends = []
    for step in range(disturbance.step, disturbance.step + 3):
        steps.step(step)
        ends.append(float(steps.now.max()))
    return ends[-1] - ends[-2]
