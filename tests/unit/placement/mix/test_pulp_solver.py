"""The solver port: what each outcome means, with either solver."""

import math

import pulp
import pytest

from placement.mix.pulp_solver import solve

SOLVERS = pytest.mark.parametrize("solver", ["HiGHS", "CBC"])


def knapsack(*, at_least: float, at_most: int | None = None) -> tuple[pulp.LpProblem, pulp.LpVariable]:
    """min 3·x with 2·x ≥ at_least, x whole and at most `at_most`."""
    problem = pulp.LpProblem("few", pulp.LpMinimize)
    x = problem.add_variable("x", 0, at_most, pulp.LpInteger)
    problem += 3 * x
    problem += 2 * x >= at_least
    return problem, x


@SOLVERS
def test_a_proven_optimum_has_its_objective_as_bound(solver: str) -> None:
    problem, x = knapsack(at_least=5)

    solved = solve(problem, limit_s=10, solver=solver)

    # x ≥ 2.5, so 3; the objective is 9.
    assert solved.status == "optimal"
    assert solved.bound == pytest.approx(9.0)
    assert x.value() == pytest.approx(3)
    assert solved.solver == solver


@SOLVERS
def test_fractions_give_a_bound_only(solver: str) -> None:
    problem, x = knapsack(at_least=5)

    solved = solve(problem, limit_s=10, solver=solver, fractions=True)

    assert solved.bound == pytest.approx(7.5)
    assert x.value() == pytest.approx(2.5)


@SOLVERS
def test_what_cannot_be_is_proven_infeasible(solver: str) -> None:
    problem, _ = knapsack(at_least=5, at_most=2)

    solved = solve(problem, limit_s=10, solver=solver)

    assert solved.status == "infeasible"
    assert solved.bound == math.inf
    assert not solved.has_answer


def test_without_time_nothing_is_known() -> None:
    problem, _ = knapsack(at_least=5)

    solved = solve(problem, limit_s=0)

    assert solved.status == "unknown"
    assert solved.bound == -math.inf


def test_highs_is_taken_where_it_is_there() -> None:
    problem, _ = knapsack(at_least=5)

    assert solve(problem, limit_s=10).solver == "HiGHS"
