"""Relevance of evidence: what is stale, of another run, of a replaced node, or of somebody else's node is ignored."""

from health.remediation.evidence import Evidence, NodeKey, Source
from health.remediation.facts import JobFacts, Situation
from health.remediation.policy import Policy

AHEAD_S = 5.0
"""Most that evidence may be ahead of the controller's clock; a forged instant would outlive every closing."""


def is_relevant(evidence: Evidence, situation: Situation, policy: Policy) -> bool:
    """Whether evidence may change an incident."""
    now_s = situation.now_s
    if not now_s - policy.stale_s <= evidence.at_s <= now_s + AHEAD_S or evidence.since_s > evidence.at_s:
        return False
    if not all(_is_present(key, situation) for key in evidence.nodes):
        return False
    job = situation.jobs.get(evidence.job)
    if evidence.source is Source.JOB:
        hears = situation.heard_share >= policy.heard_share
        return hears and job is not None and _is_of_this_run(evidence, job)
    return bool(evidence.nodes)


def _is_present(key: NodeKey, situation: Situation) -> bool:
    node = situation.nodes.get(key.name)
    return node is not None and node.key == key


def _is_of_this_run(evidence: Evidence, job: JobFacts) -> bool:
    """A job testifies about its own pods and the nodes under them, while they live."""
    pods = {pod.uid: pod for pod in job.pods}
    blamed = [pods[uid] for uid in evidence.pods if uid in pods]
    under = {pod.node for pod in blamed}
    return (
        evidence.incarnation == job.incarnation
        and evidence.at_s >= job.started_s
        and len(blamed) == len(evidence.pods)
        and all(evidence.at_s >= pod.created_s for pod in blamed)
        and all(key.name in under for key in evidence.nodes)
    )
