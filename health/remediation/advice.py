"""Advice on checkpoints: how often a job should save, by what its saves take and how often it stops."""

from dataclasses import dataclass
from math import sqrt

from health.remediation.facts import JobFacts

DAY_S = 86_400.0
FAULTS_PER_NODE_S = 4.2e-3 / DAY_S
"""Stops of nodes before any is seen: 4.2 in 1,000 node-days. Source: StepFun trace, 584 of 400 nodes in 348.8 days."""


def advised_interval_s(save_s: float, mtbf_s: float) -> float:
    """Work between two checkpoints that loses least, seconds.

    save_s: stall of the job per checkpoint. mtbf_s: mean time between the job's failures.
    Source: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006),
    eq. 37, whose first term is Young's sqrt(2 * save * mtbf).
    """
    if save_s <= 0.0:
        return 0.0
    if save_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = save_s / (2 * mtbf_s)
    return sqrt(2 * save_s * mtbf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - save_s


def lost_share(interval_s: float, save_s: float, mtbf_s: float) -> float:
    """Share of a job's time that goes into checkpoints and into work done again, to first order; 1 at most."""
    return min(save_s / (interval_s + save_s) + (interval_s + save_s) / 2 / mtbf_s, 1.0)


@dataclass(frozen=True, slots=True)
class CheckpointAdvice:
    """What one job's checkpoints cost, and what they would as advised."""

    job: str
    save_s: float
    interval_s: float
    mtbf_s: float
    advised_s: float
    """Work between two checkpoints that loses least."""

    @property
    def lost(self) -> tuple[float, float]:
        """Share of the job's time that is lost as it is, and as advised."""
        now, advised = (lost_share(each, self.save_s, self.mtbf_s) for each in (self.interval_s, self.advised_s))
        return now, advised


def advice_on(job: JobFacts, now_s: float) -> CheckpointAdvice | None:
    """Advice for a job whose saves were measured.

    Its restarts of the last day count against the nodes that it was on, beside one stop at the usual rate.
    """
    if job.checkpoint_save_s <= 0.0:
        return None
    nodes = len({pod.node for pod in job.pods if pod.node}) or 1
    watched_s = min(now_s - min((job.started_s, *job.restarted_s)), DAY_S)
    mtbf_s = (1 / FAULTS_PER_NODE_S + nodes * watched_s) / (1 + len(job.restarted_s)) / nodes
    advised_s = advised_interval_s(job.checkpoint_save_s, mtbf_s)
    return CheckpointAdvice(job.name, job.checkpoint_save_s, job.checkpoint_interval_s, mtbf_s, advised_s)
