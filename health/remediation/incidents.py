"""Incident: what is remembered about one suspect, in the status of a FaultIncident."""

from dataclasses import dataclass
from enum import StrEnum

from health.remediation.facts import NodeKey, Origin
from health.verdicts.verdict import Part, Syndrome


class IncidentPhase(StrEnum):
    """Where an incident stands."""

    SUSPECTED = "Suspected"
    """Seen; tolerated, or waiting for a probe, a breaker, a budget or another owner (`waits_for`)."""
    ACTING = "Acting"
    """Decided: its node is tainted and its job restarted, whichever is still to be done."""
    QUARANTINED = "Quarantined"
    """The node is tainted and free of the job; its test decides."""
    PROBATION = "Probation"
    PAGED = "Paged"
    """A person is asked; nothing is done."""
    CLOSED = "Closed"


class Remedy(StrEnum):
    """What was decided."""

    NONE = ""
    QUARANTINE = "quarantine"
    """Taint the node, restart the job elsewhere."""
    AVOID = "avoid"
    """Restart the job elsewhere; the node stays open to others."""
    IN_PLACE = "in place"
    """Restart the job where it is: a program's fault, or too little against the node."""


STOPS = (Syndrome.COMMUNICATION_HANG, Syndrome.OTHER_HANG, Syndrome.DEAD_PROCESS)


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """One run of one job: what a restart ends."""

    job: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Act:
    """What was decided about one incident, and when: the part of its record that a restart waits for."""

    incident: str
    generation: int
    remedy: Remedy
    acted_s: float


@dataclass(frozen=True, slots=True)
class Incident:
    """State of one suspect: a node object, a job, a link or group of one job, or a failure domain.

    Everything in it is a maximum, a minimum or a union over evidence, so that order and repetition leave no trace.
    """

    id: str
    """Name of its FaultIncident, from its subject alone: the same suspect has the same incident after a crash."""
    generation: int
    """Rises when a closed incident opens again."""
    phase: IncidentPhase
    runs: tuple[Run, ...]
    """Runs that it disturbs, sorted; each is done with when its job has another run."""
    nodes: tuple[NodeKey, ...]
    syndrome: Syndrome
    part: Part
    sources: tuple[Origin, ...]
    since_s: float
    """Earliest beginning."""
    seen_s: float
    """Latest evidence."""
    confidence: float
    slow_share: float = 0.0
    program_error: bool = False
    domain: str = ""
    """Failure domain, where the suspect is one."""
    after_job: bool = False
    """Whether all evidence leaves the job on the nodes alone."""
    remedy: Remedy = Remedy.NONE
    at_checkpoint: bool = False
    """Whether the job is restarted after its next checkpoint, not at once."""
    pods: int = 0
    """Pods to restart with; 0 for as many as before."""
    acted_s: float = float("inf")
    """When the remedy was decided."""
    acted_for: str = ""
    """Job on whose behalf it was."""
    phase_since_s: float = 0.0
    closed_s: float = float("-inf")
    """When it was last closed: older evidence is ignored."""
    strikes: int = 0
    """Times that something was done about it, in place or by quarantine."""
    waits_for: str = ""
    """What keeps it from acting, for people: `another owner: nvsentinel`, `DrainBlocked: ...`, `breaker: ...`."""
    probe: str = ""
    shown: tuple[str, ...] = ()

    @property
    def stops(self) -> bool:
        """Whether its jobs make no progress at all."""
        return self.syndrome in STOPS

    @property
    def act(self) -> Act | None:
        """What was decided and is still to be done."""
        return Act(self.id, self.generation, self.remedy, self.acted_s) if self.phase is IncidentPhase.ACTING else None

    @property
    def is_open(self) -> bool:
        return self.phase is not IncidentPhase.CLOSED


class NodeDo(StrEnum):
    """What happens to a node."""

    TAINT = "taint"
    """NoSchedule, with the incident's id and generation; pods stay."""
    PROBATION = "probation"
    """Replace the taint by one that work of low value tolerates."""
    UNTAINT = "untaint"
    """Remove the taint of this incident and generation, and nothing else."""


class JobDo(StrEnum):
    """What happens to a job."""

    TOLERATE = "tolerate"
    MOVE_AT_CHECKPOINT = "move at next checkpoint"
    """Wait for the next checkpoint; then the gang is restarted without the nodes in `avoid`."""
    EVICT_NOW = "evict now"
    """Restart the gang now without the nodes in `avoid`, or go on without the pods on them."""
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
    """Pods to go on with, at least the job's `min_available`: those on other nodes stay; 0 for as many as before."""
    until_s: float = float("inf")
    """TOLERATE: when it is decided again. MOVE_AT_CHECKPOINT: when waiting costs more than the work since the last."""
    alternatives: tuple[Alternative, ...] = ()
    """All of them, cheapest first."""
