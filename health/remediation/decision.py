"""Remediation: from incidents, new evidence and the situation to intents and the next state of the incidents."""

from collections.abc import Sequence
from dataclasses import dataclass

from health.remediation.evidence import Evidence
from health.remediation.facts import Situation
from health.remediation.incidents import Incident
from health.remediation.intents import Intent
from health.remediation.policy import Policy


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, and what to remember. Neither has to be written before the other."""

    incidents: tuple[Incident, ...]
    """All of them, sorted by id; those not listed may be deleted."""
    intents: tuple[Intent, ...]
    """What is still to be done, by level: an intent is repeated until the situation shows its effect."""


def decide(
    situation: Situation, incidents: Sequence[Incident], evidence: Sequence[Evidence], policy: Policy
) -> Decision:
    """Next state of all incidents, and what is to be done now.

    incidents: as last written, or older: a lost write is rebuilt from evidence and from taints.
    evidence: any of the last while, in any order, repeated or not; what is stale, of another run of the job, of pods
    or nodes that are gone, or of nodes that the job does not run on, is ignored.
    """
    raise NotImplementedError
