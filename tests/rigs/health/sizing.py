"""Sizing of a fleet against faults: how often a job fails, how many spare nodes, and how long a node is out."""

from collections.abc import Sequence
from math import ceil, exp, inf, lgamma, log


def mtbf_s(nodes: int, faults_per_node_s: float) -> float:
    """Mean time between failures of a job on so many nodes, seconds."""
    return inf if nodes * faults_per_node_s == 0 else 1 / (nodes * faults_per_node_s)


def mean_out_s(repairs_s: Sequence[float], replaced_after_s: float) -> float:
    """Mean time that a node is out: repairs are as long as before, and a node is replaced after so long at most.

    The mean, not the median: in the StepFun trace it is 133 h against 20 h, since one repair in a hundred takes weeks.
    """
    if not repairs_s:
        raise ValueError("sizing spares: no repair times are known; give at least one")
    return sum(min(each, replaced_after_s) for each in repairs_s) / len(repairs_s)


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
