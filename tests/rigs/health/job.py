"""Simulated training job: its shape, what its steps cost, and what disturbs it from one step on."""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from cluster.arrays import Array, FloatArray, IntArray
from health.records.frames import HEADER, RECORD, Records
from tonnage import records
from tonnage.records import Kind, Role

NUMBERS = {int(Role.TENSOR): 0, int(Role.DATA): 1, int(Role.PIPELINE): 2, int(Role.WORLD): 3}


def introductions(rank: IntArray, rows: Array) -> Records:
    return Records(rows, rank, np.zeros(0, HEADER))


def members(groups: list[tuple[int, int, IntArray]], number: dict[int, int]) -> tuple[IntArray, Array]:
    """MEMBER records of groups (key, role, ranks); number: the ranks' own number of the groups of each role."""
    ranks = np.concatenate([ranks for _, _, ranks in groups])
    rows = np.zeros(len(ranks), RECORD)
    sizes = [len(ranks) for _, _, ranks in groups]
    rows["kind"] = Kind.MEMBER
    rows["at_ns"] = np.repeat([key for key, _, _ in groups], sizes)
    rows["op"] = np.repeat([role for _, role, _ in groups], sizes)
    rows["group"] = np.repeat([number[role] for _, role, _ in groups], sizes)
    rows["step"] = np.repeat(sizes, sizes)
    rows["seq"] = np.concatenate([np.arange(size) for size in sizes])
    return ranks.astype(np.int64), rows


def places(stage: IntArray, replica: IntArray) -> tuple[IntArray, Array]:
    rows = np.zeros(len(stage), RECORD)
    rows["kind"], rows["seq"], rows["at_ns"], rows["step"] = Kind.PLACE, stage, replica, len(stage)
    return np.arange(len(stage), dtype=np.int64), rows


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """Job of tensor * data * pipeline ranks; ranks count tensor first, then data, then pipeline."""

    tensor: int
    data: int
    pipeline: int
    gpus_per_node: int
    microbatches: int = 2
    pass_s: float = 0.05
    """Computing time of a forward or backward pass of one microbatch."""
    tensor_s: float = 0.001
    """Transfer time of one all-reduce within a tensor group."""
    pipeline_s: float = 0.002
    data_s: float = 0.03
    world: bool = True
    """Whether each step ends with a small all-reduce over all ranks."""
    blocking_sends: bool = False
    """Whether a send ends with its receive, as NCCL's does, instead of at once."""
    compute_noise: float = 0.015
    """Standard deviation of a pass's logarithm."""
    transfer_noise: float = 0.1
    static_noise: float = 0.01
    """Standard deviation between ranks that stays."""
    stall_s: float = 0.0
    """Longest of the stalls of single ranks that are normal for this job, one in ten steps."""
    stage_load: tuple[float, ...] = ()
    """Computing time of each stage over the others'."""

    @property
    def ranks(self) -> int:
        return self.tensor * self.data * self.pipeline

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.pipeline, self.data, self.tensor)

    @property
    def numbers(self) -> IntArray:
        """Ranks in the shape (pipeline, data, tensor)."""
        return np.arange(self.ranks).reshape(self.shape)

    @property
    def node(self) -> IntArray:
        return np.asarray(np.arange(self.ranks) // self.gpus_per_node)

    @property
    def rings_cross(self) -> bool:
        """Whether data-parallel groups are on several nodes."""
        return self.data * self.tensor > self.gpus_per_node

    @property
    def nic(self) -> IntArray:
        """One NIC per GPU."""
        return np.arange(self.ranks)

    def introductions(self) -> Records:
        numbers = self.numbers
        replica = np.broadcast_to(np.arange(self.data)[None, :, None], self.shape).ravel()
        stage = np.broadcast_to(np.arange(self.pipeline)[:, None, None], self.shape).ravel()
        groups: list[tuple[int, int, IntArray]] = []
        for role, axis, used in (
            (Role.TENSOR, 2, self.tensor > 1),
            (Role.DATA, 1, self.data > 1),
            (Role.PIPELINE, 0, self.pipeline > 1),
        ):
            if used:
                for ranks in np.moveaxis(numbers, axis, -1).reshape(-1, self.shape[axis]):
                    groups.append((records.group_key(role.name, ranks.tolist()), int(role), ranks))  # noqa: PERF401
        if self.world:
            groups.append((records.group_key("WORLD", (self.ranks,)), int(Role.WORLD), numbers.ravel()))
        rank, rows = members(groups, NUMBERS)
        placed, place_rows = places(stage, replica)
        return introductions(np.concatenate([rank, placed]), np.concatenate([rows, place_rows]))


class DisturbanceKind(StrEnum):
    """Kind of a disturbance: faults first, then what is no fault."""

    SLOW_RANK = "slow rank"
    SLOW_NODE = "slow node"
    SLOW_NIC = "slow NIC"
    SLOW_LINK = "slow link"
    HANG_RANK = "hang of a rank"
    FROZEN_RANK = "frozen rank"
    HANG_LINK = "hang of a link"
    HANG_NIC = "hang of a NIC"
    DEAD_RANK = "dead rank"
    DEAD_NODE = "dead node"
    NONE = "none"
    STALLS = "stalls"
    CHECKPOINT = "checkpoint"
    UNMARKED_CHECKPOINT = "unmarked checkpoint"
    EVALUATION = "evaluation"
    COMPILATION = "compilation"
    UNEVEN_DATA = "uneven data"
    LONG_REPLICA = "one replica with longer data"
    STAGE_LOAD = "stage imbalance"
    ALL_SLOW = "all ranks slow"
    POWER_CAP = "own power cap"
    CGROUP_LIMIT = "own cgroup limit"


FAULTS = tuple(DisturbanceKind)[:10]
NO_FAULTS = tuple(DisturbanceKind)[10:]


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One disturbance."""

    kind: DisturbanceKind
    step: int
    """Step at whose beginning it starts."""
    ranks: tuple[int, ...] = ()
    """Ranks that it concerns: one, the two ends of a link, a node's, a replica's, those capped."""
    strength: float = 0.0
    """Excess of each pass as a share of it, or of the transfers over the path as a multiple."""
    for_s: float = 0.0
    """Length of one stall, checkpoint, evaluation or compilation."""
    every: int = 0
    """Steps between two of them."""
    until: int = 0
    """Step from which slow computing is over; 0: it lasts."""
    parameters: dict[str, float] = field(default_factory=dict)

    def compute_factor(self, job: TrainingJob, step: int, random: np.random.Generator) -> FloatArray:
        """Shape (ranks,): passes' time over the normal one in this step."""
        factor = np.ones(job.ranks)
        if self.kind is DisturbanceKind.UNEVEN_DATA:
            load = np.exp(random.normal(0.0, self.strength, job.data))
            return np.asarray(np.broadcast_to(load[None, :, None], job.shape).ravel())
        if step < self.step or 0 < self.until <= step:
            return factor
        if self.kind in (DisturbanceKind.SLOW_RANK, DisturbanceKind.SLOW_NODE, DisturbanceKind.LONG_REPLICA, *LIMITS):
            factor[list(self.ranks)] += self.strength
        elif self.kind is DisturbanceKind.ALL_SLOW:
            factor += self.strength
        return factor

    def pause_s(self, job: TrainingJob, step: int, random: np.random.Generator) -> tuple[FloatArray, bool]:
        """Shape (ranks,): pause before this step, and whether the job marks its phase."""
        pause = np.zeros(job.ranks)
        due = self.every > 0 and step >= self.step and (step - self.step) % self.every == 0
        if not due:
            return pause, False
        if self.kind is DisturbanceKind.STALLS:
            pause[random.integers(job.ranks)] = self.for_s * random.uniform(0.3, 1.0)
        else:
            pause[:] = self.for_s * random.uniform(0.9, 1.1, job.ranks)
        return pause, self.kind is not DisturbanceKind.UNMARKED_CHECKPOINT and self.kind is not DisturbanceKind.STALLS


LIMITS = (DisturbanceKind.POWER_CAP, DisturbanceKind.CGROUP_LIMIT)
STOPS = (
    DisturbanceKind.HANG_RANK,
    DisturbanceKind.FROZEN_RANK,
    DisturbanceKind.HANG_LINK,
    DisturbanceKind.HANG_NIC,
    DisturbanceKind.DEAD_RANK,
    DisturbanceKind.DEAD_NODE,
)
ABSENCES = (
    DisturbanceKind.HANG_RANK,
    DisturbanceKind.FROZEN_RANK,
    DisturbanceKind.DEAD_RANK,
    DisturbanceKind.DEAD_NODE,
)
NETWORK = (DisturbanceKind.SLOW_NIC, DisturbanceKind.SLOW_LINK, DisturbanceKind.HANG_LINK, DisturbanceKind.HANG_NIC)
