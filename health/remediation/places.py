"""Account of places: what is left for each restart of a job, so that no two restarts count on one node.

A restart that was decided earlier takes its places first. Nodes that are tainted, or that the same plan taints, are
places for no pod.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from health.remediation.costs import Seats
from health.remediation.facts import JobFacts, Situation
from health.remediation.incidents import Incident, Phase, Remedy


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

    def seats(self, job: JobFacts, nodes: Iterable[str]) -> Seats:
        """What is left for a restart of the job that leaves these nodes besides those that it leaves already."""
        blocked = _blocked(job)
        kept = self._kept(job, self.leaving.get(job.name, frozenset()).union(nodes))
        return Seats(_size(job, kept + self._left_for(job)), blocked)

    def _left_for(self, job: JobFacts) -> int:
        """Spares that the restarts before this one leave; one not decided yet comes last."""
        left = self.spares
        for name, nodes in self.leaving.items():
            if name == job.name:
                break
            other = self.situation.jobs[name]
            if not _blocked(other):
                kept = self._kept(other, nodes)
                left -= max(_size(other, kept + left) - kept, 0)
        return left

    def _kept(self, job: JobFacts, leaves: Collection[str]) -> int:
        """Pods whose nodes stay theirs."""
        return sum(pod.node != "" and pod.node not in leaves and pod.node not in self.lost for pod in job.pods)


def places(incidents: Iterable[Incident], situation: Situation, spares: int) -> Places:
    """The account that the state of all incidents asks for."""
    lost = {name for name, node in situation.nodes.items() if node.taint is not None}
    leaving: dict[str, frozenset[str]] = {}
    for each in sorted(incidents, key=lambda one: (one.acted_s, one.since_s, one.id)):
        names = {key.name for key in each.nodes}
        if each.remedy is Remedy.QUARANTINE and each.phase in (Phase.ACTING, Phase.QUARANTINED):
            lost |= names
        if each.remedy in (Remedy.QUARANTINE, Remedy.AVOID) and each.phase is Phase.ACTING:
            for run in each.runs:
                job = situation.jobs.get(run.job)
                if job is not None and job.incarnation == run.incarnation:
                    leaving[run.job] = leaving.get(run.job, frozenset()) | names
    return Places(situation, frozenset(lost), leaving, spares)


def _size(job: JobFacts, found: int) -> int:
    """Pods that the job can run with on so many places; 0 where none of its sizes fits."""
    sizes = [size for size in (len(job.pods), *job.elastic_pods) if job.min_available <= size <= found]
    return max(sizes, default=0)


def _blocked(job: JobFacts) -> str:
    if job.disruptions_allowed is not None and job.disruptions_allowed < len(job.pods):
        return f"DrainBlocked: a disruption budget allows {job.disruptions_allowed} of {len(job.pods)} pods"
    return ""
