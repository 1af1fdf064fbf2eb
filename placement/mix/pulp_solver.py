"""The solver port: runs a PuLP model by a deadline and says what is proven about its answer."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import pulp

Status = Literal["optimal", "feasible", "infeasible", "unknown"]


@dataclass(frozen=True, slots=True)
class Solved:
    """Outcome of one solve (minimisation). The values of an optimal or feasible answer stand in the model's variables.

    `optimal` means: within the gap that was asked for.
    """

    status: Status
    bound: float
    """Proven lower bound on the objective; -inf when nothing is proven, inf when the model is infeasible."""
    solver: str

    @property
    def has_answer(self) -> bool:
        return self.status in ("optimal", "feasible")


def solve(
    model: pulp.LpProblem, *, limit_s: float, gap: float = 0.0, solver: str | None = None, fractions: bool = False
) -> Solved:
    """Minimise, for at most about `limit_s` seconds.

    gap: relative distance from the proven bound at which to stop. solver: `HiGHS` or `CBC`; None takes HiGHS where
    it can be imported. One thread: answers repeat, and a planner does not fight its neighbours for cores.
    fractions: let whole-number variables take fractions; the answer is then only a bound.
    """
    if limit_s <= 0:
        return Solved("unknown", -math.inf, "none")
    if solver == "HiGHS" or (solver is None and pulp.HiGHS().available()):
        return _by_highs(model, limit_s, gap, fractions)
    return _by_cbc(model, limit_s, gap, fractions)


def _by_highs(model: pulp.LpProblem, limit_s: float, gap: float, fractions: bool) -> Solved:
    # A restart of the tree search throws work away that a short deadline does not pay back: without it the longest
    # of 18 solves with 12 types and 2,000 slices took 0.22 s of processor time instead of 0.33 s.
    options = {"timeLimit": limit_s, "gapRel": gap, "threads": 1, "mip_allow_restart": False}
    model.solve(pulp.HiGHS(mip=not fractions, msg=False, **options))
    if model.status == pulp.LpStatusInfeasible:
        return Solved("infeasible", math.inf, "HiGHS")
    info: Any = model.solverModel.getInfo()
    proven = model.solverModel.modelStatusToString(model.solverModel.getModelStatus()) == "Optimal"
    continuous = info.objective_function_value if proven else -math.inf
    bound = info.mip_dual_bound if model.isMIP() and not fractions else continuous
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible) or not _holds(model, fractions):
        return Solved("unknown", bound, "HiGHS")
    return Solved("optimal" if proven else "feasible", bound, "HiGHS")


def cbc(**options: Any) -> pulp.COIN_CMD:
    """The CBC that comes with PuLP."""
    return pulp.COIN_CMD(path=pulp.PULP_CBC_CMD.pulp_cbc_path, **options)


def _by_cbc(model: pulp.LpProblem, limit_s: float, gap: float, fractions: bool) -> Solved:
    """CBC tells its bound only in its log, so an answer that it did not prove carries the bound of the relaxation."""
    model.solve(cbc(mip=False, msg=False, timeLimit=limit_s, threads=1))
    relaxed = pulp.value(model.objective) if model.status == pulp.LpStatusOptimal else -math.inf
    if not fractions:
        model.solve(cbc(msg=False, timeLimit=limit_s, gapRel=gap, threads=1))
    if model.status == pulp.LpStatusInfeasible:
        return Solved("infeasible", math.inf, "CBC")
    # CBC hands back the relaxation's values when it found no whole-number answer: only sol_status tells.
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible) or not _holds(model, fractions):
        return Solved("unknown", relaxed, "CBC")
    proven = model.sol_status == pulp.LpSolutionOptimal
    bound = pulp.value(model.objective) if proven and gap == 0 else relaxed
    return Solved("optimal" if proven else "feasible", bound, "CBC")


def _holds(model: pulp.LpProblem, fractions: bool) -> bool:
    """Whether the values are there, whole where they must be, and keep the model's own constraints."""
    if any(variable.varValue is None for variable in model.variables()):
        return False
    return fractions or bool(model.valid(1e-5))
