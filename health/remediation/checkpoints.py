"""Checkpoint interval: advice from the stall per checkpoint and the time between failures."""

from math import inf, sqrt


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


def mtbf_s(nodes: int, faults_per_node_s: float) -> float:
    """Mean time between failures of a job on so many nodes, seconds."""
    return inf if nodes * faults_per_node_s == 0 else 1 / (nodes * faults_per_node_s)


def lost_share(interval_s: float, save_s: float, mtbf_s: float) -> float:
    """Share of a job's time that goes into checkpoints and into work done again, to first order."""
    return save_s / (interval_s + save_s) + (interval_s + save_s) / 2 / mtbf_s
