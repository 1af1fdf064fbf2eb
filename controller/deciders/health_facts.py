"""Facts of health for one cycle, and what remediation made of them, as frames between processes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

import msgspec

from health.remediation.facts import Evidence, Policy, Situation
from health.remediation.incidents import Act, Incident, Intent, JobIntent, NodeIntent, Page

NAME = "health"
"""Key of these frames in `Snapshot.framed` and `Plan.learned`."""


@dataclass(frozen=True, slots=True)
class Rules:
    """One HealthPolicy: its limits, and the nodes that it governs."""

    name: str
    policy: Policy
    nodes: frozenset[str]
    """A node is governed by one policy at most."""
    acts: bool = False
    """False: incidents are opened and priced, nothing is done."""


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """Input of remediation."""

    situation: Situation
    evidence: tuple[Evidence, ...] = ()
    incidents: tuple[Incident, ...] = ()
    recorded: tuple[Act, ...] = ()
    """Decisions that the API server has on record: a restart waits until its own is among them."""
    rules: tuple[Rules, ...] = ()
    pods: Mapping[str, str] = field(default_factory=dict)
    """`namespace/name` of each pod of a job, by UID."""


@dataclass(frozen=True, slots=True)
class HealthOutcome:
    """Output of remediation."""

    incidents: tuple[Incident, ...] = ()
    nodes: tuple[NodeIntent, ...] = ()
    jobs: tuple[JobIntent, ...] = ()
    pages: tuple[Page, ...] = ()

    @classmethod
    def of(cls, incidents: tuple[Incident, ...], intents: tuple[Intent, ...]) -> "HealthOutcome":
        return cls(
            incidents,
            tuple(each for each in intents if isinstance(each, NodeIntent)),
            tuple(each for each in intents if isinstance(each, JobIntent)),
            tuple(each for each in intents if isinstance(each, Page)),
        )


def incarnation_of(uids: Iterable[str]) -> str:
    """Name of the run of a job that consists of these pods; empty without any."""
    known = sorted(uids)
    return sha256(",".join(known).encode()).hexdigest()[:16] if known else ""


def facts_frame(facts: HealthFacts) -> bytes:
    """The facts as bytes: MessagePack, which knows infinities."""
    return msgspec.msgpack.encode(facts)


def facts_from(frame: bytes) -> HealthFacts:
    """Facts in a frame. Raises errors of UNREADABLE."""
    return msgspec.msgpack.decode(frame, type=HealthFacts)


def outcome_frame(outcome: HealthOutcome) -> bytes:
    return msgspec.msgpack.encode(outcome)


def outcome_from(frame: bytes) -> HealthOutcome:
    """Outcome in a frame. Raises errors of UNREADABLE: the brain is not trusted."""
    return msgspec.msgpack.decode(frame, type=HealthOutcome)
