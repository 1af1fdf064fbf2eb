"""Breakers: limits to the harm that remediation does per job, failure domain and cluster.

An open breaker keeps a node from being taken out. Tests, probation and release are never stopped, and a job that has
stopped is still restarted.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain

from health.remediation.costs import SpareSeats
from health.remediation.facts import JobFacts, NodeKey, RemedyPolicy, Situation, domain_subject
from health.remediation.folding import closed, united
from health.remediation.incidents import Incident, IncidentPhase, Remedy

_OUT = (IncidentPhase.ACTING, IncidentPhase.QUARANTINED, IncidentPhase.PROBATION)


def _out(incidents: Iterable[Incident], situation: Situation, among: Collection[str]) -> int:
    """Nodes that are out by our hand, or about to be."""
    tainted = {name for name in among if (node := situation.nodes.get(name)) is not None and node.taint is not None}
    decided = {
        key.name
        for each in incidents
        if each.phase in _OUT and each.remedy is Remedy.QUARANTINE
        for key in each.nodes
        if key.name in among
    }
    return len(tainted | decided)


def open_breaker(
    nodes: Sequence[NodeKey], incidents: Sequence[Incident], situation: Situation, policy: RemedyPolicy
) -> str:
    """Breaker of the cluster or of a domain that forbids taking these nodes out; empty where none does.

    incidents: with what was done lately, and is being decided in this call.
    """
    now_s, total = situation.now_s, len(situation.nodes)
    since_s = now_s - policy.cluster_window_s
    taken = [each for each in incidents if each.remedy is Remedy.QUARANTINE and since_s < each.acted_s < float("inf")]
    recent = len({key for each in taken for key in each.nodes}) + len(nodes)
    if recent > _least_one(policy.cluster_share * total):
        return f"breaker: cluster, {recent} nodes within {policy.cluster_window_s:.0f} s"
    out = _out(incidents, situation, situation.nodes.keys()) + len(nodes)
    if out > _least_one(policy.out_share * total):
        return f"breaker: cluster, {out} of {total} nodes out"
    for domain in sorted({domain for key in nodes for domain in situation.nodes[key.name].domains}):
        members = {name for name, node in situation.nodes.items() if domain in node.domains}
        out = _out(incidents, situation, members) + len(nodes)
        if out > _least_one(policy.domain_share * len(members)):
            return f"breaker: {domain}, {out} of {len(members)} nodes out"
    return ""


def job_breaker(
    job: JobFacts, incidents: Sequence[Incident], now_s: float, policy: RemedyPolicy, *, own_word: bool
) -> str:
    """Breaker of a job that may lose no further node for now; empty where it may.

    own_word: whether only the job's own records accuse the node; then its restarts count as well.
    """
    if own_word and (often := fruitless(job, now_s, policy)) >= policy.restarts:
        return f"breaker: {job.name} restarted {often} times without a checkpoint: its program?"
    lost = {
        key
        for each in incidents
        if each.remedy in (Remedy.QUARANTINE, Remedy.AVOID)
        and now_s - policy.job_window_s < each.acted_s < float("inf")
        and each.acted_for == job.name
        for key in each.nodes
    }
    of_many = 0 if own_word else int(policy.cluster_share * len({pod.node for pod in job.pods}))
    if len(lost) >= (policy.job_quarantines and max(policy.job_quarantines, of_many)):
        return f"breaker: {job.name} lost {len(lost)} nodes within {policy.job_window_s:.0f} s"
    return ""


def fruitless(job: JobFacts, now_s: float, policy: RemedyPolicy) -> int:
    """Restarts of late that no checkpoint has followed; many of them accuse the job's program, not its nodes."""
    first_s = max(now_s - policy.restart_window_s, job.checkpoint_at_s)
    return sum(each > first_s for each in job.restarted_s)


def _least_one(limit: float) -> float:
    return max(1.0, limit)


@dataclass(frozen=True, slots=True)
class Places:
    """Nodes that pods lose, and the spare nodes that are shared out."""

    situation: Situation
    lost: frozenset[str]
    """Nodes that bear our taint, or are about to."""
    leaving: Mapping[str, frozenset[str]]
    """Nodes that each job with a pending restart leaves, by name, in the order in which the restarts were decided."""
    spares: int
    """Spare nodes that no incident speaks against."""

    def seats(self, job: JobFacts, nodes: Iterable[str]) -> SpareSeats:
        """What is left for a restart of the job that leaves these nodes besides those that it leaves already."""
        kept_here = self._kept(job, self.leaving.get(job.name, frozenset()).union(nodes))
        # Spares that the restarts before this one leave; one not decided yet comes last.
        left = self.spares
        for name, nodes in self.leaving.items():
            if name == job.name:
                break
            other = self.situation.jobs[name]
            if not _blocked(other):
                kept = self._kept(other, nodes)
                left -= max(_size(other, kept + left) - kept, 0)
        return SpareSeats(_size(job, kept_here + max(left, 0) + job.borrowable), _blocked(job))

    def _kept(self, job: JobFacts, leaves: Collection[str]) -> int:
        """Pods whose nodes stay theirs."""
        return sum(pod.node != "" and pod.node not in leaves and pod.node not in self.lost for pod in job.pods)


def places(incidents: Iterable[Incident], situation: Situation, spares: int) -> Places:
    """The account that the state of all incidents asks for."""
    lost = {name for name, node in situation.nodes.items() if node.taint is not None}
    leaving: dict[str, frozenset[str]] = {}
    for each in sorted(incidents, key=lambda one: (one.acted_s, one.since_s, one.id)):
        names = {key.name for key in each.nodes}
        if each.remedy is Remedy.QUARANTINE and each.phase in (IncidentPhase.ACTING, IncidentPhase.QUARANTINED):
            lost |= names
        if each.remedy in (Remedy.QUARANTINE, Remedy.AVOID) and each.phase is IncidentPhase.ACTING:
            for run in each.runs:
                job = situation.jobs.get(run.job)
                if job is not None and job.incarnation == run.incarnation:
                    leaving[run.job] = leaving.get(run.job, frozenset()) | names
    return Places(situation, frozenset(lost), leaving, spares)


def _size(job: JobFacts, found: int) -> int:
    """Pods that the job can run with on so many places; 0 where these are fewer than it needs."""
    return min(len(job.pods), found) if found >= job.min_available else 0


def _blocked(job: JobFacts) -> str:
    if job.disruptions_allowed is not None and job.disruptions_allowed < len(job.pods):
        return f"DrainBlocked: a disruption budget allows {job.disruptions_allowed} of {len(job.pods)} pods"
    return ""


_BEFORE_REPAIR = (IncidentPhase.SUSPECTED, IncidentPhase.ACTING, IncidentPhase.QUARANTINED)


def merged(incidents: Mapping[str, Incident], situation: Situation, policy: RemedyPolicy) -> dict[str, Incident]:
    """Incidents, with suspects that appeared together in one failure domain merged into one of the domain.

    The merged ones close, so that their taints go: a bad switch is no reason to distrust its nodes one by one.
    """
    after = dict(incidents)
    sizes = Counter(chain.from_iterable(node.domains for node in situation.nodes.values()))
    # Domains that tell nodes apart, the smallest first: one that holds all nodes names nothing.
    telling = [domain for domain, size in sizes.items() if 1 < size < len(situation.nodes)]
    for domain in sorted(telling, key=lambda domain: (sizes[domain], domain)):
        members = {name for name, node in situation.nodes.items() if domain in node.domains}
        found = [
            each
            for each in after.values()
            if each.phase in _BEFORE_REPAIR and each.nodes and not each.domain and not each.program_error
            if all(key.name in members for key in each.nodes)
        ]
        known = after.get(domain_subject(domain))
        together = _together(found, known, policy)
        if together:
            first = replace(
                together[0],
                id=domain_subject(domain),
                generation=known.generation + 1 if known is not None else 1,
                phase=IncidentPhase.SUSPECTED,
                domain=domain,
                remedy=Remedy.NONE,
                acted_s=float("inf"),
                phase_since_s=situation.now_s,
                closed_s=known.closed_s if known is not None else float("-inf"),
                strikes=known.strikes if known is not None else 0,
                waits_for="",
            )
            after[domain_subject(domain)] = reduce(
                united, together, known if known is not None and known.is_open else first
            )
            for each in together:
                after[each.id] = closed(each, situation.now_s, f"part of {domain_subject(domain)}")
    return after


def _together(found: list[Incident], known: Incident | None, policy: RemedyPolicy) -> list[Incident]:
    """Suspects that belong to one fault: close in time to the open domain incident, or enough of them to each other."""
    if known is not None and known.is_open:
        window = (known.since_s - policy.domain_window_s, known.seen_s + policy.domain_window_s)
        return [each for each in found if window[0] <= each.since_s <= window[1]]
    best: list[Incident] = []
    for first in found:
        near = [each for each in found if 0 <= each.since_s - first.since_s <= policy.domain_window_s]
        nodes = {key for each in near for key in each.nodes}
        if len(near) >= policy.domain_suspects <= len(nodes) and len(near) > len(best):
            best = near
    return best
