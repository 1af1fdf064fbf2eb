"""Disturbance: what happens to a simulated job from one step on, fault or not."""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from cluster.arrays import FloatArray
from simulator.health.job import Job


class Happening(StrEnum):
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


FAULTS = tuple(Happening)[:10]
NO_FAULTS = tuple(Happening)[10:]


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One disturbance."""

    kind: Happening
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

    def compute_factor(self, job: Job, step: int, random: np.random.Generator) -> FloatArray:
        """Shape (ranks,): passes' time over the normal one in this step."""
        factor = np.ones(job.ranks)
        if self.kind is Happening.UNEVEN_DATA:
            load = np.exp(random.normal(0.0, self.strength, job.data))
            return np.asarray(np.broadcast_to(load[None, :, None], job.shape).ravel())
        if step < self.step or 0 < self.until <= step:
            return factor
        if self.kind in (Happening.SLOW_RANK, Happening.SLOW_NODE, Happening.LONG_REPLICA, *LIMITS):
            factor[list(self.ranks)] += self.strength
        elif self.kind is Happening.ALL_SLOW:
            factor += self.strength
        return factor

    def pause_s(self, job: Job, step: int, random: np.random.Generator) -> tuple[FloatArray, bool]:
        """Shape (ranks,): pause before this step, and whether the job marks its phase."""
        pause = np.zeros(job.ranks)
        due = self.every > 0 and step >= self.step and (step - self.step) % self.every == 0
        if not due:
            return pause, False
        if self.kind is Happening.STALLS:
            pause[random.integers(job.ranks)] = self.for_s * random.uniform(0.3, 1.0)
        else:
            pause[:] = self.for_s * random.uniform(0.9, 1.1, job.ranks)
        return pause, self.kind is not Happening.UNMARKED_CHECKPOINT and self.kind is not Happening.STALLS


LIMITS = (Happening.POWER_CAP, Happening.CGROUP_LIMIT)
STOPS = (
    Happening.HANG_RANK,
    Happening.FROZEN_RANK,
    Happening.HANG_LINK,
    Happening.HANG_NIC,
    Happening.DEAD_RANK,
    Happening.DEAD_NODE,
)
ABSENCES = (Happening.HANG_RANK, Happening.FROZEN_RANK, Happening.DEAD_RANK, Happening.DEAD_NODE)
NETWORK = (Happening.SLOW_NIC, Happening.SLOW_LINK, Happening.HANG_LINK, Happening.HANG_NIC)
