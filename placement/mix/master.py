"""Master problem of services that share a stock: one choice of instances for each, together within the stock.

Sets        k: needs; j: choices of k; g: offers of k
Data        cost_kj: objective of the choice; count_kjg: its instances; the stock, as in `placement.mix.milp`
Variables   z_kj in {0, 1}: choice j is taken; out_k in {0, 1}: k is not served; y_kg: instances
Constraints Σ_j z_kj + out_k = 1;   y_kg = Σ_j count_kjg·z_kj;   y within the stock
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pulp

from cluster.arrays import FloatArray, IntArray
from placement.budget import Budget
from placement.mix.milp import Pools, groups_of_pools
from placement.mix.problem import MixQuestion
from placement.mix.pulp_solver import Terms, spent
from placement.seating.model import Group, add_seats

PENALTY = 3.0
"""Penalty of a service that is not served, as a multiple of the dearest choice."""


class Choice(NamedTuple):
    """Instances of one need, which serve it alone."""

    objective: float
    instances: FloatArray | IntArray
    """Shape (offers,)."""


Choices = Sequence[Sequence[Choice]]
"""By need."""


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Prices of the stock, as instances pay them; any such prices prove a bound."""

    instance: Sequence[FloatArray]
    """By need, shape (offers,): added to the objective for every instance."""
    stock: float
    """What the whole stock is worth at these prices, negative: the least that such prices can add for all instances."""

    def towards(self, other: "Prices", share: float) -> "Prices":
        """Prices between these and others: they swing less from round to round, and prove no less."""
        mixed = [(1 - share) * a + share * b for a, b in zip(self.instance, other.instance, strict=True)]
        return Prices(mixed, (1 - share) * self.stock + share * other.stock)


def no_prices(question: MixQuestion) -> Prices:
    """Prices of a stock that is not scarce."""
    return Prices([np.zeros(len(need.offers)) for need in question.needs], 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Master:
    """Model of the master problem, without an objective."""

    problem: pulp.LpProblem
    taken: Sequence[Sequence[pulp.LpVariable]]
    out: Sequence[pulp.LpVariable]
    seated: Pools


@dataclass(frozen=True, slots=True, eq=False)
class Relaxed:
    """Solution of the master problem in which choices are taken in fractions."""

    prices: Prices
    objective: float
    """Without penalties."""
    share: Sequence[Sequence[float]]
    """By need and choice."""
    serves_all: bool


def master(question: MixQuestion, choices: Choices, *, is_relaxed: bool) -> Master:
    problem = pulp.LpProblem("columns", pulp.LpMinimize)
    kind = pulp.LpContinuous if is_relaxed else pulp.LpInteger
    taken = [
        [problem.add_variable(f"z_{k}_{j}", 0, None if is_relaxed else 1, kind) for j in range(len(own))]
        for k, own in enumerate(choices)
    ]
    out = [problem.add_variable(f"out_{k}", 0, None if is_relaxed else 1, kind) for k in range(len(taken))]
    for k, own in enumerate(taken):
        problem += pulp.lpSum(own) + out[k] == 1
    seated = _seated(problem, question)
    for (k, g), count in seated.items():
        used = [(z, float(choice.instances[g])) for z, choice in zip(taken[k], choices[k], strict=True)]
        problem += count - pulp.LpAffineExpression(used) == 0, f"linked_{k}_{g}"
    return Master(problem, taken, out, seated)


def dollars(choices: Choices, model: Master) -> pulp.LpAffineExpression:
    """Objective of the choices that are taken."""
    return pulp.LpAffineExpression(
        [
            (z, choice.objective)
            for own, taken in zip(choices, model.taken, strict=True)
            for choice, z in zip(own, taken, strict=True)
        ]
    )


def relaxed(question: MixQuestion, choices: Choices, budget: Budget, terms: Terms) -> Relaxed | None:
    """The relaxation's solution, with its prices; None where the budget is used up."""
    model = master(question, choices, is_relaxed=True)
    dearest = max((choice.objective for own in choices for choice in own), default=0.0)
    cost = dollars(choices, model)
    model.problem.setObjective(cost + PENALTY * max(1.0, dearest) * pulp.lpSum(model.out))
    if not spent(model.problem, budget, terms, fractions=True).has_answer:
        return None
    return Relaxed(
        _prices(model.problem, question, model.seated),
        float(pulp.value(cost) or 0.0),
        [[z.value() or 0.0 for z in own] for own in model.taken],
        all((out.value() or 0.0) < 1e-6 for out in model.out),
    )


def _seated(problem: pulp.LpProblem, question: MixQuestion) -> Pools:
    """Instances, in any fraction, that have seats in the stock."""
    pairs = [(k, g) for k, need in enumerate(question.needs) for g in range(len(need.offers))]
    y = {(k, g): problem.add_variable(f"seated_{k}_{g}", 0) for k, g in pairs}
    add_seats(problem, question.stock, groups_of_pools(question, y), {})
    return y


def _prices(problem: pulp.LpProblem, question: MixQuestion, seated: Pools) -> Prices:
    """Prices of a solved relaxation: the duals of the rows that link instances with their seats.

    Instances of one group pay the same: the dual of one that no choice uses is any number below that. Seats as the
    relaxation takes them are also the best ones at these prices (complementary slackness).
    """
    rows = {row.name: row for row in problem.constraints()}
    dual = {(k, g): float(rows[f"linked_{k}_{g}"].pi or 0.0) for k, g in seated}
    group = {(k, g): question.needs[k].offers[g].group for k, g in seated}
    price: dict[Group, float] = {}
    for at, value in dual.items():
        price[group[at]] = max(price.get(group[at], 0.0), value)
    instance = [
        np.array([price[group[k, g]] for g in range(len(need.offers))]) for k, need in enumerate(question.needs)
    ]
    return Prices(instance, -math.fsum(float(instance[k][g]) * (y.value() or 0.0) for (k, g), y in seated.items()))
