"""Advice to jobs: how often to save, by what saves take and how often they stop; how many spare nodes they need."""

from dataclasses import dataclass
from math import ceil, exp, lgamma, log, sqrt

from health.remediation.facts import JobFacts

DAY_S = 86_400.0
FAULTS_PER_NODE_S = 4.2e-3 / DAY_S
"""Stops of nodes before any is seen: 4.2 in 1,000 node-days. Source: StepFun trace, 584 of 400 nodes in 348.8 days."""

CLUSTER = 1.7
"""Mean faults that come together, within an hour. Source: the same."""
MEAN_OUT_S = 133 * 3600.0
"""Mean time that a node is out. Source: the same, where the median is 20 h: one repair in a hundred takes weeks."""
MISS_SHARE = 0.01
"""Part of the time in which all spare nodes may be in use. Chosen."""


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


def spares(nodes: int, faults_per_node_s: float, mean_out_s: float, *, miss_share: float, burst: float = 1.0) -> int:
    """Least number of spare nodes that are all in use at most `miss_share` of the time.

    Nodes out at once are Poisson with mean nodes * rate * mean_out_s whatever the shape of repair times (M/G/∞), and
    wider by the factor `burst` of variance over mean where faults come together (a negative binomial).
    """
    mean = nodes * faults_per_node_s * mean_out_s
    if mean <= 0:
        return 0
    covered, count = 0.0, -1
    limit = ceil(mean * burst * 20 + 100)
    while covered < 1 - miss_share and count < limit:
        count += 1
        covered += exp(_log_share(count, mean, burst))
    return count


def _log_share(count: int, mean: float, burst: float) -> float:
    """Logarithm of the probability of `count` nodes out."""
    if burst <= 1.0:
        return count * log(mean) - mean - lgamma(count + 1)
    size = mean / (burst - 1)
    return (
        lgamma(count + size) - lgamma(size) - lgamma(count + 1) - size * log(burst) + count * log((burst - 1) / burst)
    )


@dataclass(frozen=True, slots=True)
class CheckpointAdvice:
    """What one job's checkpoints cost, and what they would as advised."""

    job: str
    save_s: float
    interval_s: float
    mtbf_s: float
    advised_s: float
    """Work between two checkpoints that loses least."""
    spares: int
    """Free nodes with which it has as many as it needs but for MISS_SHARE of the time."""

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
    can_lose = nodes * max(len(job.pods) - job.min_available, 0) // max(len(job.pods), 1)
    spare = spares(nodes, 1 / (mtbf_s * nodes), MEAN_OUT_S, miss_share=MISS_SHARE, burst=CLUSTER)
    return CheckpointAdvice(
        job.name, job.checkpoint_save_s, job.checkpoint_interval_s, mtbf_s, advised_s, max(spare - can_lose, 0)
    )
