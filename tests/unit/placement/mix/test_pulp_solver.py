"""The solver port: what each outcome means."""

import math

import numpy as np
import pulp
import pytest

from placement.mix.pulp_solver import Solved, solve


def knapsack(*, at_least: float, at_most: int | None = None) -> tuple[pulp.LpProblem, pulp.LpVariable]:
    """min 3·x with 2·x ≥ at_least, x whole and at most `at_most`."""
    problem = pulp.LpProblem("few", pulp.LpMinimize)
    x = problem.add_variable("x", 0, at_most, pulp.LpInteger)
    problem += 3 * x
    problem += 2 * x >= at_least
    return problem, x


def test_a_proven_optimum_has_its_objective_as_bound() -> None:
    problem, x = knapsack(at_least=5)

    solved = solve(problem, limit_s=10)

    # x ≥ 2.5, so 3; the objective is 9.
    assert solved.status == "optimal"
    assert solved.bound == pytest.approx(9.0)
    assert x.value() == pytest.approx(3)
    assert solved.solver == "HiGHS"


def test_fractions_give_a_bound_only() -> None:
    problem, x = knapsack(at_least=5)

    solved = solve(problem, limit_s=10, fractions=True)

    assert solved.bound == pytest.approx(7.5)
    assert x.value() == pytest.approx(2.5)


def test_what_cannot_be_is_proven_infeasible() -> None:
    problem, _ = knapsack(at_least=5, at_most=2)

    solved = solve(problem, limit_s=10)

    assert solved.status == "infeasible"
    assert solved.bound == math.inf
    assert not solved.has_answer


def test_without_time_nothing_is_known() -> None:
    problem, _ = knapsack(at_least=5)

    solved = solve(problem, limit_s=0)

    assert solved.status == "unknown"
    assert solved.bound == -math.inf


def cover(seed: int) -> pulp.LpProblem:
    """Sixty choices of zero or one under ten limits: hundreds of nodes to the optimum."""
    chance = np.random.default_rng(seed)
    problem = pulp.LpProblem("cover", pulp.LpMinimize)
    chosen = [problem.add_variable(f"x{i}", 0, 1, pulp.LpInteger) for i in range(60)]
    problem += -pulp.lpSum(int(chance.integers(10, 101)) * each for each in chosen)
    for _ in range(10):
        weights = chance.integers(5, 101, 60).tolist()
        problem += pulp.lpSum(w * each for w, each in zip(weights, chosen, strict=True)) <= sum(weights) // 3
    return problem


def test_a_search_stops_at_its_nodes_with_what_it_has_and_says_so() -> None:
    problem = cover(1)

    solved = solve(problem, most_nodes=5)

    assert solved.status == "feasible"
    assert solved.cut_short == "work"
    assert solved.bound <= -1595.0 <= pulp.value(problem.objective)  # -1595 is the optimum


def test_the_same_model_and_nodes_have_the_same_outcome() -> None:
    def outcome() -> tuple[Solved, list[float]]:
        problem = cover(1)
        return solve(problem, most_nodes=20), [each.value() for each in problem.variables()]

    assert outcome() == outcome()


def test_no_node_at_all_is_no_answer() -> None:
    solved = solve(cover(1), most_nodes=0)

    assert (solved.status, solved.cut_short) == ("unknown", "work")


def test_time_that_ends_a_search_is_told_from_work() -> None:
    assert solve(cover(1), limit_s=0.005).cut_short == "time"


def test_work_is_counted_and_grows_with_nodes() -> None:
    few, many = solve(cover(1), most_nodes=2), solve(cover(1), most_nodes=200)

    assert 0 < few.work < many.work
