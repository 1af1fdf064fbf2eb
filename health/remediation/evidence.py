"""Evidence: a verdict about ranks, translated to pods and nodes, with where it comes from."""

from dataclasses import dataclass
from enum import StrEnum

from health.verdicts.verdict import Cause, Part, Syndrome


class Source(StrEnum):
    """Origin of evidence: a job may forge its own, nobody else's."""

    JOB = "job"
    """Records of the job's own processes."""
    NODE = "node"
    """Devices, kernel and host, read by the node agent."""
    NEIGHBOUR = "neighbour"
    """Another detector's condition or taint, such as node-problem-detector's."""


@dataclass(frozen=True, slots=True)
class NodeKey:
    """One node object: a replacement under the same name has another UID."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observation. It may arrive twice, late, out of order, or never; `at_s` alone orders it."""

    job: str
    """`namespace/name` of the job that it was seen in; empty for evidence from a node without a job."""
    incarnation: str
    """The job's run that it was seen in: it dies with that run, where the job's records are its only source."""
    syndrome: Syndrome
    part: Part
    nodes: tuple[NodeKey, ...]
    """Nodes of the blamed ranks; both ends of a link, all members of a group."""
    pods: tuple[str, ...]
    """UIDs of the pods of the blamed ranks."""
    since_s: float
    """When the disturbance began."""
    at_s: float
    """When it was last seen. Both in seconds since the epoch, the controller's clock."""
    confidence: float
    """0..1, as in Verdict."""
    source: Source = Source.JOB
    slow_share: float = 0.0
    """Share of the job's speed that is lost, 0..1; 0 for a job that has stopped."""
    program_error: bool = False
    """An exception of the program came first: restarting the same nodes is enough."""
    cause: Cause | None = None
    """Explanation that is no fault."""
    probe: str = ""
    """Probe that would decide."""
    shown: tuple[str, ...] = ()
    """What the verdict rests on, for people."""
    over: bool = False
    """The disturbance has ended by itself, as of `at_s`."""
