"""Services that compete for one stock, solved by column generation: whole mixes of each service, chosen together.

Each column is a mix that serves one service alone within the stock; the master problem (`placement.mix.milp`) takes
one for each. Objective: min Σ cost_kj·z_kj + penalty·Σ out_k or, to admit services, min Σ 2^(rank of k)·out_k.

The relaxation prices each instance by the duals of the rows that link instances with seats; a need lacks a column where
a mix of it is cheaper at these prices than its own price. The cheapest splits at any prices of the stock also prove a
lower bound (Lasdon, Optimization Theory for Large Systems, section 8): it is far above that of the joint model's
relaxation, because the pools of each service pay their headroom (`placement.mix.pool_split`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pulp

from cluster.arrays import FloatArray, IntArray
from placement.budget import Budget
from placement.mix import heuristics, milp
from placement.mix.feasibility import is_feasible
from placement.mix.instance_search import FEW_OFFERS, FEW_TRIALS, cheapest
from placement.mix.pool_split import cheapest_split
from placement.mix.problem import Mix, MixAnswer, MixQuestion, total_cost
from placement.mix.pulp_solver import spent
from placement.stock import Stock

SPLIT_ROUNDS = 5
"""Rounds of prices from splits of any fraction of instances, before mixes are searched. Chosen."""
CHOOSING_NODES = 400
"""Nodes of the tree search that takes one column per service."""
CHOOSING_SHARE = 0.1
"""Fraction of the gap that is good enough, at which the choice of columns is solved: it is small."""
RANKS_AT_ONCE = 20
"""Services that are admitted by one solve: each weighs as much as all later ones together, and 2^20 is within the
solver's tolerances."""


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Mix of one need, feasible by itself."""

    mix: Mix
    objective: float


@dataclass(frozen=True, slots=True, eq=False)
class MixProof:
    """Lower bound on any mixes, at some prices of the stock."""

    prices: milp.StockPrices
    least: Sequence[float]
    """By need: least cost of a mix that pays these prices as well."""

    def bound(self, served: Sequence[int]) -> float:
        """Lower bound on the objective of these needs, when they share the stock."""
        return math.fsum((self.prices.stock, *(self.least[k] for k in served)))


@dataclass(slots=True, eq=False)
class ColumnPool:
    """Columns of every need of a question, and what is proven."""

    question: MixQuestion
    prices: milp.StockPrices
    """Prices of the present round."""
    columns: list[list[Column]] = field(default_factory=list)
    splits: list[milp.MixChoice] = field(default_factory=list)
    """Cheapest splits of all needs at the prices of the first rounds, round by round."""
    proofs: list[MixProof] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    """Bounds of the needs that the present round has priced; the limit of work may end it in between."""
    chosen: "Chosen" = ()
    """The best choice so far; empty before the first."""
    has_running: bool = False
    """Whether mixes on the running instances were looked for."""
    root_work: float = 0.0
    """Work of the joint model before its tree search, as estimated."""
    is_priced: bool = False
    """Whether the prices are good enough to search mixes at them."""
    is_dry: bool = False
    """Whether the last round of prices added no column."""
    settled: MixAnswer | None = None
    """The answer of the exact joint model, once the work of a plan sufficed for it; None before."""

    def __post_init__(self) -> None:
        self.columns = self.columns or [[] for _ in self.question.needs]

    @property
    def choices(self) -> milp.Choices:
        """Instances and objectives of the columns."""
        return [[milp.MixChoice(each.objective, each.mix.instances) for each in columns] for columns in self.columns]

    @property
    def priced(self) -> milp.Choices:
        """Choices that give the next prices: also splits, as long as these are searched."""
        splits = self.splits if len(self.proofs) <= SPLIT_ROUNDS else []
        return [[*own, *splits[k :: len(self.columns)]] for k, own in enumerate(self.choices)]

    @property
    def order(self) -> list[int]:
        """Needs in the order of admission: higher priority first, and among equals the first."""
        return sorted(range(len(self.columns)), key=lambda k: (-self.question.needs[k].priority, k))

    def add(self, k: int, mix: Mix) -> bool:
        """Adds a mix of need k, unless it is known or infeasible. Returns whether it was added."""
        alone = self.alone(k)
        if self.with_instances(k, mix.instances) is not None:
            return False
        if not is_feasible(alone, (mix,)):
            return False
        self.columns[k].append(Column(mix, total_cost(alone, (mix,))))
        return True

    def with_instances(self, k: int, instances: IntArray) -> Column | None:
        """The column of need k with these instances; None where there is none."""
        counts = instances.tolist()
        return next((column for column in self.columns[k] if column.mix.instances.tolist() == counts), None)

    def column(self, k: int, mix: Mix) -> Column | None:
        """The column of a mix, which is added where it is new; None for one that is infeasible."""
        self.add(k, mix)
        return self.with_instances(k, mix.instances)

    def alone(self, k: int) -> MixQuestion:
        return replace(self.question, needs=(self.question.needs[k],))

    def paid(self, k: int) -> FloatArray:
        """What an instance of each offer of need k costs with its stock, shape (offers,)."""
        return np.array([o.price_per_hour for o in self.question.needs[k].offers]) + self.prices.instance[k]

    def bound(self, served: Sequence[int]) -> float:
        """Lower bound on the objective of these needs, when they share the stock."""
        if not self.question.is_exact:
            return -math.inf
        return max((proof.bound(served) for proof in self.proofs), default=-math.inf)

    @property
    def least_gaps(self) -> list[float]:
        """By need: what its cheapest mix costs above the least at the prices of the best proof, dollars per hour."""
        if (proof := self.best_proof) is None:
            return [0.0] * len(self.columns)
        found = []
        for own, prices, least in zip(self.columns, proof.prices.instance, proof.least, strict=True):
            paid = (column.objective + float(column.mix.instances @ prices) for column in own)
            found.append(max(0.0, min(paid, default=0.0) - least))
        return found

    @property
    def best_proof(self) -> MixProof | None:
        """The proof of the highest bound; None before the first."""
        everything = range(len(self.columns))
        return max(self.proofs, key=lambda proof: proof.bound(everything), default=None)

    def raise_proof(self, proof: MixProof, bounds: Mapping[int, float]) -> None:
        """Raises a proof by bounds on single needs at its prices."""
        least = tuple(max(value, bounds.get(k, value)) for k, value in enumerate(proof.least))
        self.proofs[self.proofs.index(proof)] = replace(proof, least=least)


Chosen = tuple[Column | None, ...]
"""One column per need; None: not served."""


def generate(pool: ColumnPool, budget: Budget, gap: float) -> int:
    """Adds a cheap mix of every need at the pool's prices, and a proof. Returns how many mixes are new.

    In the first rounds these are splits of any fraction of instances: they cost hardly any work, and their prices are
    near those of mixes. Where the budget ends a round, the next call goes on with it; the prices must then be the same.
    gap: relative one that is good enough.
    """
    added, prices = 0, pool.prices
    for k in range(len(pool.least), len(pool.columns)):
        if not budget.allows_more():
            return added
        alone, paid = pool.alone(k), pool.paid(k)
        if not pool.is_priced:
            split = cheapest_split(alone.needs[0], paid, budget)
            own = float(split.instances @ (paid - prices.instance[k]))
            pool.splits.append(milp.MixChoice(own, split.instances))
            pool.least.append(split.bound)
            added += 1
            continue
        most = min((float(column.mix.instances @ paid) for column in pool.columns[k]), default=math.inf)
        mix, bound = cheapest(alone, paid, budget, gap, most=most, offers=FEW_OFFERS, trials=FEW_TRIALS)
        pool.least.append(bound)
        added += mix is not None and pool.add(k, mix)
    pool.is_dry = not added
    pool.proofs.append(MixProof(prices, tuple(pool.least)))
    pool.least.clear()
    pool.is_priced = pool.is_priced or len(pool.proofs) == SPLIT_ROUNDS
    return added


def choose(pool: ColumnPool, budget: Budget, gap: float, *, serve_all: bool = False) -> Chosen:
    """Columns that the stock holds together: first for as many needs as possible by rank, then at the least cost.

    Higher priority ranks first, then order: a need is never given up for later ones. serve_all: they are known to hold
    together, so only cost decides. gap: relative one that is good enough for all.
    """
    model = milp.master(pool.question, pool.choices, is_relaxed=False)
    order = [] if serve_all else pool.order
    best: Chosen = (None,) * len(pool.columns)
    for out in model.out if serve_all else ():
        out.bounds(0, 0)
    for start in range(0, len(order), RANKS_AT_ONCE):
        now = order[start : start + RANKS_AT_ONCE]
        weights = [(model.out[k], 2.0 ** (len(now) - 1 - rank)) for rank, k in enumerate(now)]
        model.problem.setObjective(pulp.LpAffineExpression(weights))
        if not spent(model.problem, budget, most_nodes=CHOOSING_NODES).has_answer:
            return best
        best = _chosen(pool, model)
        for k in now:
            is_out = round(model.out[k].value() or 0)
            model.out[k].bounds(is_out, is_out)
    model.problem.setObjective(milp.dollars(pool.choices, model))
    if spent(model.problem, budget, most_nodes=CHOOSING_NODES, gap=CHOOSING_SHARE * gap).has_answer:
        best = _chosen(pool, model)
    return best


def first_fit(pool: ColumnPool, budget: Budget, gap: float) -> Chosen:
    """Mixes that the stock holds together: by rank each need's cheapest at the pool's prices in what others leave.

    It is searched where no column fits, or only one that is dearer than another. gap: relative one that is good enough.
    """
    left: Mapping[str, Stock] = pool.question.stock
    chosen: list[Column | None] = [None] * len(pool.columns)
    for k in pool.order:
        alone, paid = replace(pool.alone(k), stock=left), pool.paid(k)
        in_order = sorted(pool.columns[k], key=lambda column: float(column.mix.instances @ paid))
        taken = next((column for column in in_order if is_feasible(alone, (column.mix,))), None)
        if taken is None or taken is not in_order[0]:
            most = math.inf if taken is None else float(taken.mix.instances @ paid)
            mix = cheapest(alone, paid, budget, gap, most=most, offers=FEW_OFFERS)[0] if budget.allows_more() else None
            if mix is None and taken is None:
                mix = heuristics.best_pair(alone.needs[0], paid, left)
            taken = taken if mix is None else pool.column(k, mix)
        if taken is not None:
            left = heuristics.stock_after(left, alone.needs[0], taken.mix)
        chosen[k] = taken
    return tuple(chosen)


def _chosen(pool: ColumnPool, model: milp.MixMaster) -> Chosen:
    return tuple(
        next((c for c, z in zip(columns, taken, strict=True) if (z.value() or 0) > 0.5), None)
        for columns, taken in zip(pool.columns, model.taken, strict=True)
    )
