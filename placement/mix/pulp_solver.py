"""Solver port: runs a PuLP model with a limit on its work, and reports what is proven about the result."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import pulp

from cluster.plans import CutShort
from placement.budget import Budget

Status = Literal["optimal", "feasible", "infeasible", "unknown"]

WORK_PER_NONZERO = 0.5
"""Work of reading and presolving a model, in simplex iterations per coefficient. Measured: with it a unit of work
takes 30 to 120 µs on a core of 2026, for models of 80 to 4,300 coefficients (`python -m benchmarks.mix`)."""


@dataclass(frozen=True, slots=True)
class Solved:
    """Outcome of one solve (minimisation). The model's variables hold the values of an optimal or feasible solution.

    `optimal` means: within the requested gap.
    """

    status: Status
    bound: float
    """Proven lower bound on the objective; -inf when nothing is proven, inf when the model is infeasible."""
    solver: str
    work: float = 0.0
    """Work of the solve, in simplex iterations: the same on every machine."""
    cut_short: CutShort = ""
    """Limit that ended the search before the solution was optimal, or before infeasibility was proven."""

    @property
    def has_answer(self) -> bool:
        return self.status in ("optimal", "feasible")


class _HighsByNodes(pulp.HiGHS):  # type: ignore[misc] # PuLP has no annotations
    """PuLP's HiGHS, where the search may stop at a number of nodes: PuLP 3.3 fails on the status of that case."""

    def findSolutionValues(self, lp: pulp.LpProblem) -> tuple[int, int]:  # noqa: N802 - PuLP's name
        try:
            status, sol_status = super().findSolutionValues(lp)
        except KeyError:  # the values exist by then
            if math.isfinite(lp.solverModel.getInfo().objective_function_value):
                return pulp.LpStatusOptimal, pulp.LpSolutionIntegerFeasible
            return pulp.LpStatusNotSolved, pulp.LpSolutionNoSolutionFound
        return status, sol_status


def solve(
    model: pulp.LpProblem,
    *,
    most_nodes: int | None = None,
    limit_s: float = math.inf,
    gap: float = 0.0,
    fractions: bool = False,
) -> Solved:
    """Minimises the model by HiGHS, with at most `most_nodes` nodes of the tree search.

    The same model and the same number of nodes have the same outcome, unless `limit_s` seconds pass before: the outcome
    then names time as the limit.

    gap: relative distance from the proven bound at which to stop. One thread: results repeat, and a planner does not
    compete with its neighbours for cores. fractions: let whole-number variables take fractions; the result is then only
    a bound.
    """
    if limit_s <= 0:
        return Solved("unknown", -math.inf, "none", cut_short="time")
    # A restart of the tree search discards work that a short deadline does not pay back: without it the longest of 18
    # solves with 12 types and 2,000 slices took 0.22 s of processor time instead of 0.33 s.
    options: dict[str, Any] = {"gapRel": gap, "threads": 1, "random_seed": 0, "mip_allow_restart": False}
    options |= {"mip_max_nodes": most_nodes} if most_nodes is not None else {}
    options |= {"timeLimit": limit_s} if math.isfinite(limit_s) else {}
    model.solve(_HighsByNodes(mip=not fractions, msg=False, **options))
    highs: Any = model.solverModel
    info, ended = highs.getInfo(), highs.modelStatusToString(highs.getModelStatus())
    work = max(0, info.simplex_iteration_count) + WORK_PER_NONZERO * highs.getNumNz()
    if model.status == pulp.LpStatusInfeasible:
        return Solved("infeasible", math.inf, "HiGHS", work)
    proven = ended == "Optimal"
    cut: CutShort = "" if proven else "time" if ended == "Time limit reached" else "work"
    continuous = info.objective_function_value if proven else -math.inf
    bound = info.mip_dual_bound if model.isMIP() and not fractions else continuous
    # Whether the values exist, are whole where they must be, and meet the model's own constraints.
    is_found = model.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible) and all(
        variable.varValue is not None for variable in model.variables()
    )
    if not is_found or not (fractions or model.valid(1e-5)):
        return Solved("unknown", bound, "HiGHS", work, cut)
    return Solved("optimal" if proven else "feasible", bound, "HiGHS", work, cut)


def spent(
    problem: pulp.LpProblem,
    budget: Budget,
    *,
    most_nodes: int | None = None,
    gap: float = 0.0,
    fractions: bool = False,
) -> Solved:
    """Outcome of a solve, whose work is charged to the budget."""
    solved = solve(problem, most_nodes=most_nodes, limit_s=budget.left_s, gap=gap, fractions=fractions)
    budget.spend(solved.work, solved.cut_short)
    return solved
