"""Breakers: limits to the harm that remediation does per job, failure domain and cluster.

An open breaker keeps a node from being taken out. Tests, probation and release are never stopped, and a job that has
stopped is still restarted.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from health.remediation.evidence import NodeKey
from health.remediation.facts import JobFacts, Situation
from health.remediation.incidents import Incident, Phase, Remedy
from health.remediation.policy import Policy

_OUT = (Phase.ACTING, Phase.QUARANTINED, Phase.PROBATION)


@dataclass(frozen=True, slots=True)
class Harm:
    """What has been done lately, and is being decided in this call."""

    incidents: tuple[Incident, ...]

    def taken_since(self, since_s: float, among: Collection[str] | None = None) -> int:
        """Nodes taken out since an instant."""
        taken = {
            key
            for each in self.incidents
            if each.remedy is Remedy.QUARANTINE and since_s < each.acted_s < float("inf")
            for key in each.nodes
            if among is None or key.name in among
        }
        return len(taken)

    def out(self, situation: Situation, among: Collection[str]) -> int:
        """Nodes that are out by our hand, or about to be."""
        tainted = {name for name in among if (node := situation.nodes.get(name)) is not None and node.taint is not None}
        decided = {
            key.name
            for each in self.incidents
            if each.phase in _OUT and each.remedy is Remedy.QUARANTINE
            for key in each.nodes
            if key.name in among
        }
        return len(tainted | decided)


def open_breaker(nodes: Sequence[NodeKey], harm: Harm, situation: Situation, policy: Policy) -> str:
    """Breaker of the cluster or of a domain that forbids taking these nodes out; empty where none does."""
    now_s, total = situation.now_s, len(situation.nodes)
    recent = harm.taken_since(now_s - policy.cluster_window_s) + len(nodes)
    if recent > _least_one(policy.cluster_share * total):
        return f"breaker: cluster, {recent} nodes within {policy.cluster_window_s:.0f} s"
    out = harm.out(situation, situation.nodes.keys()) + len(nodes)
    if out > _least_one(policy.out_share * total):
        return f"breaker: cluster, {out} of {total} nodes out"
    for domain in sorted({domain for key in nodes for domain in situation.nodes[key.name].domains}):
        members = {name for name, node in situation.nodes.items() if domain in node.domains}
        out = harm.out(situation, members) + len(nodes)
        if out > _least_one(policy.domain_share * len(members)):
            return f"breaker: {domain}, {out} of {len(members)} nodes out"
    return ""


def job_breaker(job: JobFacts, harm: Harm, now_s: float, policy: Policy, *, own_word: bool) -> str:
    """Breaker of a job that may lose no further node for now; empty where it may.

    own_word: whether only the job's own records accuse the node; then its restarts count as well.
    """
    if own_word and (often := fruitless(job, now_s, policy)) >= policy.restarts:
        return f"breaker: {job.name} restarted {often} times without a checkpoint: its program?"
    lost = {
        key
        for each in harm.incidents
        if each.remedy in (Remedy.QUARANTINE, Remedy.AVOID)
        and now_s - policy.job_window_s < each.acted_s < float("inf")
        and each.acted_for == job.name
        for key in each.nodes
    }
    if len(lost) >= policy.job_quarantines:
        return f"breaker: {job.name} lost {len(lost)} nodes within {policy.job_window_s:.0f} s"
    return ""


def fruitless(job: JobFacts, now_s: float, policy: Policy) -> int:
    """Restarts of late that no checkpoint has followed; many of them accuse the job's program, not its nodes."""
    first_s = max(now_s - policy.restart_window_s, job.checkpoint_at_s)
    return sum(each > first_s for each in job.restarted_s)


def _least_one(limit: float) -> float:
    return max(1.0, limit)
