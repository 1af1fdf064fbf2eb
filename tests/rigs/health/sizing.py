"""Sizing of a fleet against faults: how often a job fails, and how long a node is out."""

from collections.abc import Sequence
from math import inf


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
