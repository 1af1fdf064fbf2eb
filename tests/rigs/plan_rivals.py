"""Baseline planners for a batch: best-fit decreasing pod by pod, and a solver on the direct model.

They ignore gangs and single devices (fractions of GPUs need only fit in sum), so their plans may be cheaper than any
feasible plan."""

from dataclasses import dataclass

import numpy as np
import pulp

from cluster.arrays import FloatArray
from placement.batch.problem import Batch
from placement.mix.pulp_solver import solve


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a baseline."""

    usd_per_hour: float | None
    """Cost of the plan; None when it found none within its time limit."""
    status: str


def best_fit_decreasing(batch: Batch) -> Outcome:
    """Plan the largest pods first, each on the used node that it leaves tightest, else on the cheapest idle one."""
    room = _room(batch)
    size = (batch.ask / batch.kind_room.mean(axis=0)).max(axis=1)
    runs = np.zeros(len(room), dtype=np.bool_)
    usd = 0.0
    for c in np.argsort(-size, kind="stable").tolist():
        for _ in range(int(batch.pods[c])):
            fits = batch.eligible[c] & (room >= batch.ask[c] - 1e-9).all(axis=1)
            if not fits.any():
                usd += float(batch.left_out_usd[c])
                continue
            left = np.where(fits & runs, (room / batch.kind_room.mean(axis=0)).sum(axis=1), np.inf)
            node = int(left.argmin())
            if not runs[node] or not fits[node]:
                node = int(np.where(fits, batch.node_usd, np.inf).argmin())
                runs[node] = True
                usd += float(batch.node_usd[node])
            room[node] -= batch.ask[c]
    return Outcome(usd, "feasible")


def direct_model(batch: Batch, solver: str, limit_s: float) -> Outcome:
    """Integer model: number of pods per class and node, binary variables for used nodes; the product's objective."""
    model = pulp.LpProblem("batch", pulp.LpMinimize)
    room, nodes = _room(batch), np.flatnonzero(batch.kind >= 0)
    runs = {n: model.add_variable(f"run_{n}", 0, 1, pulp.LpInteger) for n in nodes.tolist()}
    pods = {
        (c, n): model.add_variable(f"pods_{c}_{n}", 0, int(batch.kind_copies[c, batch.kind[n]]), pulp.LpInteger)
        for n in runs
        for c in range(len(batch.shapes))
        if batch.kind_copies[c, batch.kind[n]]
    }
    left = [model.add_variable(f"left_{c}", 0, int(batch.pods[c]), pulp.LpInteger) for c in range(len(batch.shapes))]
    model += pulp.lpSum(float(batch.node_usd[n]) * run for n, run in runs.items()) + pulp.lpSum(
        float(batch.left_out_usd[c]) * each for c, each in enumerate(left)
    )
    for c, each in enumerate(left):
        model += pulp.lpSum(pods[c, n] for n in runs if (c, n) in pods) + each == int(batch.pods[c])
    for n, run in runs.items():
        for r in range(batch.ask.shape[1]):
            used = pulp.lpSum(
                float(batch.ask[c, r]) * pods[c, n]
                for c in range(len(batch.shapes))
                if (c, n) in pods and batch.ask[c, r]
            )
            model += used <= float(room[n, r]) * run
    if solver == "HiGHS":
        solved = solve(model, limit_s=limit_s, gap=1e-4)
        return Outcome(float(pulp.value(model.objective)) if solved.has_answer else None, solved.status)
    model.solve(pulp.COIN_CMD(pulp.PULP_CBC_CMD.pulp_cbc_path, msg=False, threads=1, gapRel=1e-4, timeLimit=limit_s))
    # CBC reports "optimal" even when it stopped at the time limit; sol_status distinguishes the two.
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return Outcome(None, "unknown")
    proven = model.sol_status == pulp.LpSolutionOptimal
    return Outcome(float(pulp.value(model.objective)), "optimal" if proven else "feasible")


def _room(batch: Batch) -> FloatArray:
    """Free resources of idle nodes, zero for others. Shape (nodes, resources)."""
    room = np.zeros((len(batch.kind), batch.ask.shape[1]))
    idle = batch.kind >= 0
    room[idle] = batch.kind_room[batch.kind[idle]]
    return room
