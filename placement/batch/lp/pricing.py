"""Pricing: the most valuable pods on one node under prices, a bounded knapsack of several resources with a proof.

For each kind k: max Σ_c π_c n_c subject to Σ_c ask_cr n_c ≤ room_kr, n_c ≤ most_ck, n_c whole. The solution is the next
column of column generation, the proven bound the ceiling U_k of `relaxation.py`. Kinds are independent, so they are
priced in parallel: tasks and answers are arrays, which cross process boundaries unchanged.

Sources: Gilmore and Gomory, Operations Research 9 (1961); Desaulniers et al., Column Generation, 2005, chapter 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.workloads import WHOLE_GPU_MILLI
from placement.batch.lp.relaxation import ceilings
from placement.highs_program import Entries, Program, TreeSearch

MOST_NODES = 2_000
"""Nodes of the solver's search for one kind. Two dozen classes need one node nearly always; past the limit the
proven bound is still a bound, only a looser one."""

SAFETY = 1e-7
"""Relative increase of a solver's ceiling: its tolerances may make it too low by less than this."""


@dataclass(frozen=True, slots=True, eq=False)
class PricingTask:
    """Task of one pool: the kinds to price, and the prices."""

    pod_usd: FloatArray
    """π, shape (classes,)."""
    ask: FloatArray
    """Shape (classes, resources)."""
    gpus: IntArray
    """Devices that a pod requests, shape (classes,)."""
    gpu_milli: IntArray
    """Thousandths of each, shape (classes,)."""
    room: FloatArray
    """Shape (kinds, resources)."""
    devices: IntArray
    """Devices of one node, shape (kinds,)."""
    most: IntArray
    """Maximum pods of a class in a pattern, shape (classes, kinds)."""
    usd: FloatArray
    """Price per hour of a node in dollars, shape (kinds,): a pattern worth less is useless."""
    gap: float
    """Relative distance between pattern and ceiling at which the search for a kind stops."""


@dataclass(frozen=True, slots=True, eq=False)
class PricingAnswer:
    """For each kind of the task: a pattern of the highest worth or nearly, and the ceiling."""

    pattern: IntArray
    """Shape (kinds, classes)."""
    ceiling: FloatArray
    """Shape (kinds,)."""


Pricers = Callable[[Sequence[PricingTask]], Sequence[PricingAnswer]]
"""Answers one task per pool, in the order of the tasks: in turn, or each on a worker of its own."""


def price_in_turn(tasks: Sequence[PricingTask]) -> Sequence[PricingAnswer]:
    """Prices all pools in this process."""
    return [price_pool(task) for task in tasks]


def price_pool(task: PricingTask) -> PricingAnswer:
    """Prices every kind of a pool. Twenty-four classes: 5 to 10 ms a kind."""
    kinds = len(task.room)
    patterns = np.zeros((kinds, len(task.pod_usd)), dtype=np.int64)
    ceiling = np.zeros(kinds)
    for k in range(kinds):
        worth = np.flatnonzero((task.most[:, k] > 0) & (task.pod_usd > 0))
        ceiling[k] = ceiling_of_fractions(task, k, worth)
        if ceiling[k] <= task.usd[k]:
            continue
        program = _knapsack(task, k, worth, TreeSearch(MOST_NODES, task.gap))
        if program.solve():
            patterns[k, worth] = np.round(program.values).astype(np.int64)
            fit_into_node(patterns[k], task, k)
        if np.isfinite(program.proven):
            ceiling[k] = min(ceiling[k], -program.proven * (1 + SAFETY) + SAFETY)
    return PricingAnswer(patterns, ceiling)


def ceiling_of_fractions(task: PricingTask, k: int, worth: IntArray) -> float:
    """Worth of the pods on a node if they could be cut: often already less than the node's price."""
    if not len(worth):
        return 0.0
    program = _knapsack(task, k, worth, None)
    usd = np.maximum(-program.row_duals, 0.0) if program.solve() else np.zeros(task.ask.shape[1])
    room, copies = task.room[k : k + 1], task.most[worth][:, k : k + 1]
    return float(ceilings(task.pod_usd[worth], task.ask[worth], room, copies, usd[None])[0])


def _knapsack(task: PricingTask, k: int, worth: IntArray, whole: TreeSearch | None) -> Program:
    pod, resource = np.nonzero(task.ask[worth])
    return Program(
        cost=-task.pod_usd[worth],
        upper=task.most[worth, k].astype(np.float64),
        row_lower=np.full(task.ask.shape[1], -np.inf),
        row_upper=task.room[k],
        entries=Entries(resource, pod, task.ask[worth][pod, resource]),
        whole=whole,
    )


def fit_into_node(pattern: IntArray, task: PricingTask, k: int) -> None:
    """Removes pods from a pattern until an empty node can run it: fractions that fit in sum may not fit by device."""
    while (task.ask.T @ pattern > task.room[k] + 1e-9).any() or not fits_devices(
        pattern, task.gpus, task.gpu_milli, int(task.devices[k])
    ):
        there = np.flatnonzero(pattern)
        # The cheapest goes first; among classes without GPUs that only helps where a tolerance was exceeded.
        shared = there[(task.gpus[there] > 0) & (task.gpu_milli[there] < WHOLE_GPU_MILLI)]
        among = shared if len(shared) and (task.ask.T @ pattern <= task.room[k] + 1e-9).all() else there
        pattern[among[task.pod_usd[among].argmin()]] -= 1


def fits_devices(pattern: IntArray, gpus: IntArray, gpu_milli: IntArray, devices: int) -> bool:
    """Whether dealing finds devices for a pattern on an idle node.

    Whole devices first, then fractions, large before small, each onto the fullest that take it. May return False where
    another way of sharing exists, never True where none does.
    """
    left = [WHOLE_GPU_MILLI] * devices
    shares = np.flatnonzero((pattern > 0) & (gpus > 0))
    for c in sorted(shares.tolist(), key=lambda c: (gpu_milli[c] != WHOLE_GPU_MILLI, -gpus[c], -gpu_milli[c], c)):
        size, wide = int(gpu_milli[c]), int(gpus[c])
        for _ in range(int(pattern[c])):
            able = [d for d in range(devices) if left[d] >= size]
            if len(able) < wide:
                return False
            fullest_first = wide == 1 or size == WHOLE_GPU_MILLI
            able.sort(key=lambda d: left[d] if fullest_first else -left[d])
            for d in able[:wide]:
                left[d] -= size
    return True
