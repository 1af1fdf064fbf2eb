"""Remediation: from incidents, new evidence and the situation to intents and the next state of the incidents."""

from collections.abc import Sequence
from dataclasses import dataclass

from health.remediation import domains, folding, levels
from health.remediation.breakers import Harm
from health.remediation.evidence import Evidence
from health.remediation.facts import Situation
from health.remediation.incidents import Incident, Phase, Remedy
from health.remediation.intents import Intent
from health.remediation.lifecycle import Around, advanced, avoided, by_id, is_forgotten, live_jobs
from health.remediation.policy import Policy
from health.remediation.relevance import is_relevant


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
    known = _with_lost(by_id(tuple(incidents)), situation)
    heard = [each for each in evidence if is_relevant(each, situation, policy)]
    suspected = domains.merged(folding.folded(known, heard, situation), situation, policy)
    after = _advanced(suspected, situation, policy)
    tainted = {node.taint.incident for node in situation.nodes.values() if node.taint is not None}
    kept = tuple(
        each
        for _, each in sorted(after.items())
        if each.id in tainted or not is_forgotten(each, situation.now_s, policy)
    )
    around = _around(kept, situation, policy, spares_left=_free_spares(kept, situation, policy))
    return Decision(kept, tuple(levels.intents(kept, around)))


def _with_lost(known: dict[str, Incident], situation: Situation) -> dict[str, Incident]:
    """Incidents, with what a lost write has left in taints alone."""
    for node in situation.nodes.values():
        if node.taint is not None:
            id_ = node.taint.incident
            known[id_] = folding.with_taint(known.get(id_), node, node.taint)
    return known


def _advanced(incidents: dict[str, Incident], situation: Situation, policy: Policy) -> dict[str, Incident]:
    """Oldest suspicion first, each seeing what those before it have decided."""
    after = dict(incidents)
    for each in sorted((one for one in after.values() if one.is_open), key=lambda one: (one.since_s, one.id)):
        free = _free_spares(tuple(after.values()), situation, policy) - _promised(after, situation)
        after[each.id] = advanced(each, _around(tuple(after.values()), situation, policy, spares_left=max(free, 0)))
    return after


def _around(incidents: tuple[Incident, ...], situation: Situation, policy: Policy, *, spares_left: int) -> Around:
    return Around(situation, policy, Harm(incidents), spares_left)


def _free_spares(incidents: tuple[Incident, ...], situation: Situation, policy: Policy) -> int:
    """Spare nodes that no incident speaks against."""
    left = {key.name for key in avoided(incidents, situation.now_s, policy)}
    suspected = left | {key.name for each in incidents if each.is_open for key in each.nodes}
    return sum(
        name not in suspected and name in situation.nodes and situation.nodes[name].taint is None
        for name in situation.spares
    )


def _promised(incidents: dict[str, Incident], situation: Situation) -> int:
    """Spares that restarts still to come count on."""
    nodes = {
        key
        for each in incidents.values()
        if each.phase is Phase.ACTING and each.remedy in (Remedy.QUARANTINE, Remedy.AVOID)
        if live_jobs(each, situation)
        for key in each.nodes
    }
    return len(nodes)
