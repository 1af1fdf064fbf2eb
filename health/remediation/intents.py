"""Intents: what should be done now. Carrying one out twice has the effect of carrying it out once."""

from dataclasses import dataclass
from enum import StrEnum

from health.remediation.evidence import NodeKey


class NodeDo(StrEnum):
    """What happens to a node."""

    TAINT = "taint"
    """NoSchedule, with the incident's id and generation; pods stay."""
    TEST = "test"
    """Run the node's own test; a pass is reported as `NodeFacts.tested_s`."""
    PROBATION = "probation"
    """Replace the taint by one that work of low value tolerates."""
    UNTAINT = "untaint"
    """Remove the taint of this incident and generation, and nothing else."""


class JobDo(StrEnum):
    """What happens to a job."""

    TOLERATE = "tolerate"
    MOVE_AT_CHECKPOINT = "move at next checkpoint"
    """Ask for a checkpoint or wait for the next; restart the gang after it without the nodes in `avoid`."""
    EVICT_NOW = "evict now"
    """Restart the whole gang now without the nodes in `avoid`."""
    RESTART_IN_PLACE = "restart in place"
    """Restart the gang's processes on the nodes that it has."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One thing that could be done for a job, and its price."""

    do: JobDo
    gpu_hours: float
    """Expected loss; infinite where it cannot be done."""
    note: str = ""
    """Why it costs that, or why it cannot be done."""


@dataclass(frozen=True, slots=True)
class NodeIntent:
    do: NodeDo
    node: NodeKey
    """Only this object: nothing is done where the name has another UID by then."""
    incident: str
    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class JobIntent:
    do: JobDo
    job: str
    incarnation: str
    """Only this run: nothing is done where the job has been restarted by then."""
    incident: str
    generation: int
    reason: str
    avoid: tuple[NodeKey, ...] = ()
    pods: int = 0
    """Pods to restart with, at least the job's `min_available`; 0 for as many as before."""
    until_s: float = float("inf")
    """TOLERATE: when it is decided again. MOVE_AT_CHECKPOINT: when waiting costs more than the work since the last."""
    alternatives: tuple[Alternative, ...] = ()
    """All of them, cheapest first."""


@dataclass(frozen=True, slots=True)
class Page:
    """A person is needed: nothing more is done, and why."""

    incident: str
    generation: int
    reason: str
    probe: str = ""
    """Probe that would decide."""


Intent = NodeIntent | JobIntent | Page
