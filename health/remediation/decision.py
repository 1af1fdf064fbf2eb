"""Remediation: from incidents, new evidence and the situation to intents and the next state of the incidents."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from health.remediation import domains, folding, levels
from health.remediation.breakers import Harm
from health.remediation.evidence import Evidence
from health.remediation.facts import Situation
from health.remediation.incidents import Act, Incident, Run
from health.remediation.intents import Intent, JobDo, JobIntent
from health.remediation.lifecycle import Around, advanced, avoided, by_id, is_forgotten
from health.remediation.places import places
from health.remediation.policy import Policy
from health.remediation.relevance import is_relevant

ROUNDS = 8
"""Most passes over all incidents: what a later one decides can change an earlier one's answer, and a decision stands
only when a further pass changes nothing. Two passes are the rule."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, and what to remember."""

    incidents: tuple[Incident, ...]
    """All of them, sorted by id; those not listed may be deleted."""
    intents: tuple[Intent, ...]
    """What is still to be done, by level: an intent is repeated until the situation shows its effect."""

    def due(self, recorded: Collection[Act]) -> tuple[Intent, ...]:
        """Intents that may be carried out now: a restart waits until every decision behind it is on record.

        recorded: what a successor would read. A restart leaves no trace of its own that says why and which nodes the
        job left, so that it is written down ahead; a taint is a record itself, and waits for nothing.
        """
        return tuple(each for each in self.intents if not isinstance(each, JobIntent) or self._is_due(each, recorded))

    def _is_due(self, intent: JobIntent, recorded: Collection[Act]) -> bool:
        run = Run(intent.job, intent.incarnation)
        behind = (each.act for each in self.incidents if run in each.runs)
        return intent.do is JobDo.TOLERATE or all(act is None or act in recorded for act in behind)


def decide(
    situation: Situation, incidents: Sequence[Incident], evidence: Sequence[Evidence], policy: Policy
) -> Decision:
    """Next state of all incidents, and what is to be done now.

    incidents: as last written, or older: a lost write is rebuilt from evidence and from taints.
    evidence: any of the last while, in any order, repeated or not; what is stale, of another run of the job, of pods
    or nodes that are gone, or of nodes that the job does not run on, is ignored.
    """
    heard = [each for each in evidence if is_relevant(each, situation, policy)]
    after = by_id(tuple(incidents))
    for _ in range(ROUNDS):
        before = after
        suspected = domains.merged(folding.folded(_with_lost(before, situation), heard, situation), situation, policy)
        after = _advanced(suspected, situation, policy)
        if after == before:
            break
    tainted = {node.taint.incident for node in situation.nodes.values() if node.taint is not None}
    kept = tuple(
        each
        for _, each in sorted(after.items())
        if each.id in tainted or not is_forgotten(each, situation.now_s, policy)
    )
    return Decision(kept, tuple(levels.intents(kept, _around(kept, situation, policy))))


def _with_lost(incidents: Mapping[str, Incident], situation: Situation) -> dict[str, Incident]:
    """Incidents, with what a lost write has left in taints alone."""
    known = dict(incidents)
    for node in situation.nodes.values():
        if node.taint is not None:
            id_ = node.taint.incident
            known[id_] = folding.with_taint(known.get(id_), node, node.taint)
    return known


def _advanced(incidents: dict[str, Incident], situation: Situation, policy: Policy) -> dict[str, Incident]:
    """Oldest suspicion first, each seeing what those before it have decided."""
    after = dict(incidents)
    for each in sorted((one for one in after.values() if one.is_open), key=lambda one: (one.since_s, one.id)):
        after[each.id] = advanced(each, _around(tuple(after.values()), situation, policy))
    return after


def _around(incidents: tuple[Incident, ...], situation: Situation, policy: Policy) -> Around:
    spares = _free_spares(incidents, situation, policy)
    return Around(situation, policy, Harm(incidents), places(incidents, situation, spares))


def _free_spares(incidents: tuple[Incident, ...], situation: Situation, policy: Policy) -> int:
    """Spare nodes that no incident speaks against."""
    left = {key.name for key in avoided(incidents, situation.now_s, policy)}
    suspected = left | {key.name for each in incidents if each.is_open for key in each.nodes}
    return sum(
        name not in suspected and name in situation.nodes and situation.nodes[name].taint is None
        for name in situation.spares
    )
