"""Services that compete for one stock, solved by column generation: whole mixes of each service, chosen together.

Sets        k: needs; j: columns of k, each a mix that serves k alone within the stock; g: offers of k
Data        cost_kj: objective of the column; count_kjg: its instances; the stock, as in `placement.mix.milp`
Variables   z_kj in {0, 1}: column j is taken; out_k in {0, 1}: k is not served; y_kg: instances
Objective   min Σ cost_kj·z_kj + penalty·Σ out_k          or, to admit services, min Σ 2^(rank of k)·out_k
Constraints Σ_j z_kj + out_k = 1;   y_kg = Σ_j count_kjg·z_kj;   y within the stock

The relaxation prices each instance by the duals of its middle row; a need lacks a column where a mix of it is cheaper
at these prices than its own price. The cheapest mixes at any prices of the stock also prove a lower bound (Lasdon,
Optimization Theory for Large Systems, section 8): it is far above that of the joint model's relaxation, because the
instances of each service are whole.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pulp

from cluster.arrays import FloatArray
from placement.budget import Budget
from placement.mix.feasibility import is_feasible
from placement.mix.heuristics import best_single_type, greedy_mix, stock_after, whole_slices
from placement.mix.milp import MixModel, Pools, build_model, groups_of_pools, mixes_from, slices
from placement.mix.problem import Mix, MixQuestion, Need, objective_of
from placement.mix.pulp_solver import Solved, solve
from placement.mix.search import Terms
from placement.seating.model import add_seats
from placement.seating.stock import Stock

PRICING_NODES = 1
"""Nodes of the tree search for one column: a column need not be the cheapest."""
PRICING_GAP = 0.1
"""Relative gap of a column. Chosen: with 12 services and 5 GPU types all are served for half the work of exact ones."""
CHOOSING_NODES = 400
"""Nodes of the tree search that takes one column per service."""
RANKS_AT_ONCE = 20
"""Services that are admitted by one solve: each weighs as much as all later ones together, and 2^20 is within the
solver's tolerances."""
PENALTY = 3.0
"""Penalty of a service that is not served, as a multiple of the dearest column."""


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Mix of one need, feasible by itself."""

    mix: Mix
    objective: float


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """Lower bound on any mixes, at some prices of the stock."""

    stock: float
    """As in `Prices`."""
    least: Sequence[float]
    """By need: least objective of a mix that pays these prices as well."""


@dataclass(slots=True, eq=False)
class ColumnPool:
    """Columns of every need of a question, and what is proven."""

    question: MixQuestion
    columns: list[list[Column]] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)
    prices: "Prices | None" = None
    """Prices of the present round; None before the first."""
    least: list[float] = field(default_factory=list)
    """Bounds of the needs that the present round has priced; the limit of work may end it in between."""
    chosen: "Chosen" = ()
    """The best choice so far; empty before the first."""
    is_begun: bool = False
    """Whether the relaxation was tried; where it takes more than a plan's work, the prices are those of columns."""
    root_work: float = 0.0
    """Work of the joint model before its tree search, as estimated."""

    def __post_init__(self) -> None:
        self.columns = [[] for _ in self.question.needs]

    @property
    def order(self) -> list[int]:
        """Needs in the order of admission: higher priority first, and among equals the first."""
        return sorted(range(len(self.columns)), key=lambda k: (-self.question.needs[k].priority, k))

    def add(self, k: int, mix: Mix) -> bool:
        """Adds a mix of need k, unless it is known or infeasible. Returns whether it was added."""
        alone = self.alone(k)
        if self.known(k, mix) is not None:
            return False
        if not is_feasible(alone, (mix,)):
            return False
        self.columns[k].append(Column(mix, objective_of(alone, (mix,))))
        return True

    def known(self, k: int, mix: Mix) -> Column | None:
        """The column of need k with the same instances; None where there is none."""
        counts = mix.instances.tolist()
        return next((column for column in self.columns[k] if column.mix.instances.tolist() == counts), None)

    def column(self, k: int, mix: Mix) -> Column | None:
        """The column of a mix, which is added where it is new; None for one that is infeasible."""
        self.add(k, mix)
        return self.known(k, mix)

    def alone(self, k: int) -> MixQuestion:
        return replace(self.question, needs=(self.question.needs[k],))

    def bound(self, served: Sequence[int]) -> float:
        """Lower bound on the objective of these needs, when they share the stock."""
        if not self.question.is_exact:
            return -math.inf
        return max((math.fsum((p.stock, *(p.least[k] for k in served))) for p in self.proofs), default=-math.inf)


Chosen = tuple[Column | None, ...]
"""One column per need; None: not served."""


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


def generate(pool: ColumnPool, prices: Prices, budget: Budget, terms: Terms) -> int:
    """Adds the cheapest mix of every need at these prices, and a proof to the pool. Returns how many were added.

    Where the budget ends a round, the next call goes on with it; the prices must then be the same.
    """
    added = 0
    for k in range(len(pool.least), len(pool.columns)):
        if not budget.allows_more():
            return added
        bound, is_new = _price(pool, k, prices.instance[k], budget, terms)
        pool.least.append(bound)
        added += is_new
    pool.proofs.append(Proof(prices.stock, tuple(pool.least)))
    pool.least.clear()
    return added


def start(pool: ColumnPool, budget: Budget, terms: Terms) -> Prices | None:
    """Prices of the relaxation in which instances have any fraction, and its mixes rounded as columns.

    None where it has no solution: the stock does not hold all needs.
    """
    question = pool.question
    model = build_model(replace(question, stock={}), whole_slices=False)
    seated = _seated(model.problem, question)
    problem = model.problem
    for (k, g), count in seated.items():
        problem += count - model.y[k, g] == 0, f"linked_{k}_{g}"
    if not _spent(problem, budget, terms, fractions=True).has_answer:
        return None
    for k, (need, mix) in enumerate(zip(question.needs, mixes_from(question, model), strict=True)):
        used = np.array([model.y[k, g].value() or 0.0 for g in range(len(need.offers))])
        for instances in (np.floor(used + 1e-6), np.ceil(used - 1e-6)):
            pool.add(k, whole_slices(need, Mix(instances.astype(np.int64), mix.share)))
    return _prices(problem, question, seated)


def _seated(problem: pulp.LpProblem, question: MixQuestion) -> Pools:
    """Instances, in any fraction, that have seats in the stock."""
    pairs = [(k, g) for k, need in enumerate(question.needs) for g in range(len(need.offers))]
    y = {(k, g): problem.add_variable(f"seated_{k}_{g}", 0) for k, g in pairs}
    add_seats(problem, question.stock, groups_of_pools(question, y), {})
    return y


def _prices(problem: pulp.LpProblem, question: MixQuestion, seated: Pools) -> Prices:
    """Prices of a solved relaxation: the duals of the rows that link instances with their seats.

    Seats as the relaxation takes them are also the best ones at these prices (complementary slackness).
    """
    rows = {row.name: row for row in problem.constraints()}
    instance = [
        np.array([float(rows[f"linked_{k}_{g}"].pi or 0.0) for g in range(len(need.offers))])
        for k, need in enumerate(question.needs)
    ]
    return Prices(instance, -math.fsum(float(instance[k][g]) * (y.value() or 0.0) for (k, g), y in seated.items()))


def fill(pool: ColumnPool, chosen: Chosen) -> int:
    """Adds mixes of every need from what the others leave, without a solver. Returns how many were added."""
    added = 0
    for k, need in enumerate(pool.question.needs):
        left: Mapping[str, Stock] = pool.question.stock
        for other, column in enumerate(chosen):
            if other != k and column is not None:
                left = stock_after(left, pool.question.needs[other], column.mix)
        options = (greedy_mix(need, left), best_single_type(need, left))
        added += sum(pool.add(k, mix) for mix in options if mix is not None)
    return added


@dataclass(frozen=True, slots=True, eq=False)
class _Master:
    problem: pulp.LpProblem
    taken: Sequence[Sequence[pulp.LpVariable]]
    out: Sequence[pulp.LpVariable]
    seated: Pools


def _master(pool: ColumnPool, *, is_relaxed: bool) -> _Master:
    problem = pulp.LpProblem("columns", pulp.LpMinimize)
    kind = pulp.LpContinuous if is_relaxed else pulp.LpInteger
    taken = [
        [problem.add_variable(f"z_{k}_{j}", 0, None if is_relaxed else 1, kind) for j in range(len(columns))]
        for k, columns in enumerate(pool.columns)
    ]
    out = [problem.add_variable(f"out_{k}", 0, None if is_relaxed else 1, kind) for k in range(len(taken))]
    for k, columns in enumerate(taken):
        problem += pulp.lpSum(columns) + out[k] == 1
    seated = _seated(problem, pool.question)
    for (k, g), count in seated.items():
        used = [(z, int(column.mix.instances[g])) for z, column in zip(taken[k], pool.columns[k], strict=True)]
        problem += count - pulp.LpAffineExpression(used) == 0, f"linked_{k}_{g}"
    return _Master(problem, taken, out, seated)


def _penalty(pool: ColumnPool) -> float:
    dearest = max((column.objective for columns in pool.columns for column in columns), default=0.0)
    return PENALTY * max(1.0, dearest)


def column_prices(pool: ColumnPool, budget: Budget, terms: Terms) -> Prices | None:
    """Prices of the relaxation in which columns are taken in fractions."""
    master = _master(pool, is_relaxed=True)
    master.problem.setObjective(_dollars(pool, master) + _penalty(pool) * pulp.lpSum(master.out))
    if not _spent(master.problem, budget, terms, fractions=True).has_answer:
        return None
    return _prices(master.problem, pool.question, master.seated)


def _dollars(pool: ColumnPool, master: _Master) -> pulp.LpAffineExpression:
    return pulp.LpAffineExpression(
        [
            (z, column.objective)
            for columns, taken in zip(pool.columns, master.taken, strict=True)
            for column, z in zip(columns, taken, strict=True)
        ]
    )


def _price(pool: ColumnPool, k: int, prices: FloatArray, budget: Budget, terms: Terms) -> tuple[float, bool]:
    """Lower bound on a mix of need k at these prices, and whether a mix was added."""
    alone = pool.alone(k)
    model = build_model(alone, whole_slices=False)
    _tighten(model, alone.needs)
    paid = pulp.lpSum(float(prices[g]) * count for (_, g), count in model.y.items())
    model.problem.setObjective(model.problem.objective + paid)
    solved = _spent(model.problem, budget, replace(terms, gap=PRICING_GAP), most_nodes=PRICING_NODES)
    if not solved.has_answer:
        return solved.bound, False
    (mix,) = mixes_from(alone, model)
    return solved.bound, pool.add(k, whole_slices(alone.needs[0], mix))


def _tighten(model: MixModel, needs: Sequence[Need]) -> None:
    """Adds that a bucket needs an instance where it is served: redundant, but it raises the relaxation."""
    problem = model.problem
    for (k, _, g), sent in model.n.items():
        problem += sent <= slices(needs[k]) * model.y[k, g]


def choose(pool: ColumnPool, budget: Budget, terms: Terms) -> Chosen:
    """Columns that the stock holds together: first for as many needs as possible by rank, then at the least cost.

    Higher priority ranks first, then order: a need is never given up for later ones.
    """
    master = _master(pool, is_relaxed=False)
    order = pool.order
    best: Chosen = (None,) * len(pool.columns)
    for start in range(0, len(order), RANKS_AT_ONCE):
        now = order[start : start + RANKS_AT_ONCE]
        weights = [(master.out[k], 2.0 ** (len(now) - 1 - rank)) for rank, k in enumerate(now)]
        master.problem.setObjective(pulp.LpAffineExpression(weights))
        if not _spent(master.problem, budget, Terms(solver=terms.solver), most_nodes=CHOOSING_NODES).has_answer:
            return best
        best = _chosen(pool, master)
        for k in now:
            is_out = round(master.out[k].value() or 0)
            master.out[k].bounds(is_out, is_out)
    master.problem.setObjective(_dollars(pool, master))
    if _spent(master.problem, budget, terms, most_nodes=CHOOSING_NODES).has_answer:
        best = _chosen(pool, master)
    return best


def first_fit(pool: ColumnPool) -> Chosen:
    """The cheapest column of each need that the stock still holds, by rank: what there is where no solver has time."""
    left: Mapping[str, Stock] = pool.question.stock
    chosen: list[Column | None] = [None] * len(pool.columns)
    for k in pool.order:
        alone = replace(pool.alone(k), stock=left)
        cheapest_first = sorted(pool.columns[k], key=lambda column: column.objective)
        chosen[k] = next((column for column in cheapest_first if is_feasible(alone, (column.mix,))), None)
        if (taken := chosen[k]) is not None:
            left = stock_after(left, pool.question.needs[k], taken.mix)
    return tuple(chosen)


def _chosen(pool: ColumnPool, master: _Master) -> Chosen:
    return tuple(
        next((c for c, z in zip(columns, taken, strict=True) if (z.value() or 0) > 0.5), None)
        for columns, taken in zip(pool.columns, master.taken, strict=True)
    )


def _spent(
    problem: pulp.LpProblem, budget: Budget, terms: Terms, *, most_nodes: int | None = None, fractions: bool = False
) -> Solved:
    solved = solve(
        problem, most_nodes=most_nodes, limit_s=budget.left_s, gap=terms.gap, solver=terms.solver, fractions=fractions
    )
    budget.spend(solved.work, solved.cut_short)
    return solved


def resolve(pool: ColumnPool, chosen: Chosen, some: Sequence[int], nodes: int, budget: Budget, terms: Terms) -> bool:
    """Solves some needs together on the stock that the others leave; adds their mixes. Returns whether any is new."""
    left = dict(pool.question.stock)
    for k, column in enumerate(chosen):
        if k not in some and column is not None:
            left = stock_after(left, pool.question.needs[k], column.mix)
    together = replace(pool.question, needs=tuple(pool.question.needs[k] for k in some), stock=left)
    model = build_model(together, whole_slices=True)
    _tighten(model, together.needs)
    if not _spent(model.problem, budget, terms, most_nodes=nodes).has_answer:
        return False
    new = [pool.add(k, mix) for k, mix in zip(some, mixes_from(together, model), strict=True)]
    return any(new)
