"""Incident: what is remembered about one suspect, in the status of a FaultIncident."""

from dataclasses import dataclass
from enum import StrEnum

from health.remediation.evidence import NodeKey, Source
from health.verdicts.verdict import Part, Syndrome


class Phase(StrEnum):
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
    MOVE = "move"
    """Taint the node, restart the job elsewhere after its next checkpoint."""
    IN_PLACE = "in place"


@dataclass(frozen=True, slots=True)
class Incident:
    """State of one suspect: a node object, a job, a link or group of one job, or a failure domain.

    Everything in it is a maximum, a minimum or a union over evidence, so that order and repetition leave no trace.
    """

    id: str
    """Name of its FaultIncident, from its subject alone: the same suspect has the same incident after a crash."""
    generation: int
    """Rises when a closed incident opens again."""
    phase: Phase
    job: str
    incarnation: str
    """The job's run that is to be restarted; done when the job has another."""
    nodes: tuple[NodeKey, ...]
    syndrome: Syndrome
    part: Part
    sources: tuple[Source, ...]
    since_s: float
    """Earliest beginning."""
    seen_s: float
    """Latest evidence."""
    confidence: float
    slow_share: float = 0.0
    program_error: bool = False
    domain: str = ""
    """Failure domain, where the suspect is one."""
    remedy: Remedy = Remedy.NONE
    pods: int = 0
    """Pods to restart with; 0 for as many as before."""
    acted_s: float = float("inf")
    """When the remedy was decided."""
    phase_since_s: float = 0.0
    closed_s: float = float("-inf")
    """When it was last closed: older evidence is ignored."""
    strikes: int = 0
    """Times its node was taken out."""
    waits_for: str = ""
    """What keeps it from acting, for people: `another owner: nvsentinel`, `DrainBlocked: ...`, `breaker: ...`."""
    probe: str = ""
    shown: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        return self.phase is not Phase.CLOSED
