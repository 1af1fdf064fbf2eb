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
CBC_WORK_PER_NODE = 10.0
"""Charge per node of CBC, which does not report its iterations: for all nodes of its limit. Chosen."""


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


@dataclass(frozen=True, slots=True)
class Terms:
    """Settings of a search."""

    gap: float = 0.0
    """Relative distance from the bound that is good enough."""
    solver: str | None = None
    """See `solve`."""


def solve(
    model: pulp.LpProblem,
    *,
    most_nodes: int | None = None,
    limit_s: float = math.inf,
    gap: float = 0.0,
    solver: str | None = None,
    fractions: bool = False,
) -> Solved:
    """Minimises the model, with at most `most_nodes` nodes of the tree search.

    The same model and the same number of nodes have the same outcome, unless `limit_s` seconds pass before: the outcome
    then names time as the limit.

    gap: relative distance from the proven bound at which to stop. solver: `HiGHS` or `CBC`; None takes HiGHS where it
    can be imported. One thread: results repeat, and a planner does not compete with its neighbours for cores.
    fractions: let whole-number variables take fractions; the result is then only a bound.
    """
    if limit_s <= 0:
        return Solved("unknown", -math.inf, "none", cut_short="time")
    if solver == "HiGHS" or (solver is None and pulp.HiGHS().available()):
        return _by_highs(model, most_nodes, limit_s, gap, fractions)
    return _by_cbc(model, most_nodes, limit_s, gap, fractions)


def spent(
    problem: pulp.LpProblem, budget: Budget, terms: Terms, *, most_nodes: int | None = None, fractions: bool = False
) -> Solved:
    """Outcome of a solve, whose work is charged to the budget."""
    solved = solve(
        problem, most_nodes=most_nodes, limit_s=budget.left_s, gap=terms.gap, solver=terms.solver, fractions=fractions
    )
    budget.spend(solved.work, solved.cut_short)
    return solved


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


def _by_highs(model: pulp.LpProblem, most_nodes: int | None, limit_s: float, gap: float, fractions: bool) -> Solved:
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
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible) or not _holds(model, fractions):
        return Solved("unknown", bound, "HiGHS", work, cut)
    return Solved("optimal" if proven else "feasible", bound, "HiGHS", work, cut)


def cbc(**options: Any) -> pulp.COIN_CMD:
    """The CBC that is part of PuLP."""
    return pulp.COIN_CMD(path=pulp.PULP_CBC_CMD.pulp_cbc_path, **options)


def _by_cbc(model: pulp.LpProblem, most_nodes: int | None, limit_s: float, gap: float, fractions: bool) -> Solved:
    """Solves with CBC.

    It reports its bound only in its log, so an unproven solution carries the bound of the relaxation.
    """
    options: dict[str, Any] = {"msg": False, "threads": 1, "options": ["randomSeed 1", "randomCbcSeed 1"]}
    options |= {"timeLimit": limit_s} if math.isfinite(limit_s) else {}
    model.solve(cbc(mip=False, **options))
    took_s = model.solutionTime
    work = WORK_PER_NONZERO * sum(len(constraint) for constraint in model.constraints())
    relaxed = pulp.value(model.objective) if model.status == pulp.LpStatusOptimal else -math.inf
    if not fractions:
        model.solve(cbc(gapRel=gap, maxNodes=most_nodes, **options))
        took_s = model.solutionTime
        work += CBC_WORK_PER_NODE * (most_nodes or 0)
    is_over = took_s >= limit_s
    # CBC also calls a model infeasible that it had no time to look at.
    if model.status == pulp.LpStatusInfeasible and not is_over:
        return Solved("infeasible", math.inf, "CBC", work)
    proven = model.sol_status == pulp.LpSolutionOptimal
    # CBC's own reason does not reach PuLP's status: a solve that took all of the time was ended by it.
    cut: CutShort = "" if proven else "time" if is_over else "work"
    # CBC returns the relaxation's values when it found no whole-number solution: only sol_status shows it.
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible) or not _holds(model, fractions):
        return Solved("unknown", relaxed, "CBC", work, cut)
    bound = pulp.value(model.objective) if proven and gap == 0 else relaxed
    return Solved("optimal" if proven else "feasible", bound, "CBC", work, cut)


def _holds(model: pulp.LpProblem, fractions: bool) -> bool:
    """Whether the values exist, are whole where they must be, and meet the model's own constraints."""
    if any(variable.varValue is None for variable in model.variables()):
        return False
    return fractions or bool(model.valid(1e-5))
