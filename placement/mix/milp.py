"""Models of the mix in PuLP: that of all services, and that which takes one known choice for each.

Sets
    k ∈ needs, b ∈ buckets of k, g ∈ offers of k, t ∈ tangents of the headroom curve; j ∈ choices of k
Data
    f_k       slices per bucket (1 where any split is allowed)
    load_kbg  instances of g that the whole of bucket b keeps busy;  variance_kbg  the variance of that
    price_kg  dollars per hour of an instance;  gpus_kg  its devices;  h_k  fixed headroom fraction
    slope_t, room_t   the headroom curve's tangents;  low_t, high_t  between which variances t is the lowest
    cost_kj   objective of a choice;  count_kjg  its instances
Variables
    y_kg ∈ ℕ        instances
    n_kbg ∈ 0..f_k  slices of b on g, whole or continuous; there is none where g cannot serve b
    u_kgt ∈ {0,1}, v_kgt ≥ 0   which tangent holds for the pool, and the pool's variance on it
    short_m ∈ ℕ     missing devices, in the variant that finds the shortage
    z_kj ∈ {0,1}    choice j is taken;  out_k ∈ {0,1}  k is not served;  in the master problem of choices
Objective
    min Σ price_kg·y_kg;  or, to find the shortage, min Σ price_m·short_m
Constraints
    Σ_g n_kbg = f_k                                                        every bucket is served
    n_kbg ≤ f_k·y_kg                                                       where a slice's load is within tolerances
    Σ_b n_kbg/f_k·load_kbg ≤ (1 − h_k)·y_kg                                a fixed headroom, or
    Σ_b n_kbg/f_k·load_kbg + Σ_t (slope_t·v_kgt + room_t·u_kgt) ≤ y_kg     headroom for bursts, with
    Σ_b n_kbg/f_k·variance_kbg = Σ_t v_kgt,   low_t·u_kgt ≤ v_kgt ≤ high_t·u_kgt,   Σ_t u_kgt ≤ 1
    the y_kg have seats in the stocks that they may use                    `placement.stock`
    Σ_j z_kj + out_k = 1;   y_kg = Σ_j count_kjg·z_kj                      in the master problem, in place of buckets
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pulp

from cluster.arrays import FloatArray, IntArray
from placement.budget import Budget
from placement.mix.problem import RANGES, TANGENTS, Mix, MixQuestion, Need, Offer
from placement.mix.pulp_solver import spent
from placement.stock import InstanceGroup, Seats, add_seats

TINY_LOAD = 1e-4
"""Instances: a slice of less load could pass a solver's tolerance (1e-6, with a margin of 100) without an instance."""

Pools = Mapping[tuple[int, int], pulp.LpVariable]
"""By need and offer."""
Slices = Mapping[tuple[int, int, int], pulp.LpVariable]
"""By need, bucket and offer."""


@dataclass(frozen=True, slots=True)
class MixModel:
    problem: pulp.LpProblem
    y: Pools
    n: Slices
    short: Mapping[str, pulp.LpVariable]
    seats: Seats


def build_model(question: MixQuestion, *, whole_slices: bool, ask_what_is_short: bool = False) -> MixModel:
    """Model of a question whose buckets can all be served.

    whole_slices: keep slices whole where the need has a slice factor. Otherwise every bucket may be split in any
    proportion, which is easier to solve and gives a lower bound for the other.
    """
    problem = pulp.LpProblem("mix", pulp.LpMinimize)
    pairs = [(k, g) for k, need in enumerate(question.needs) for g in range(len(need.offers))]
    y = {kg: problem.add_variable(f"y_{kg[0]}_{kg[1]}", 0, cat=pulp.LpInteger) for kg in pairs}
    n: dict[tuple[int, int, int], pulp.LpVariable] = {}
    for k, need in enumerate(question.needs):
        kind = pulp.LpInteger if whole_slices and need.slice_factor else pulp.LpContinuous
        for g, offer in enumerate(need.offers):
            for b in np.flatnonzero(np.isfinite(offer.load)).tolist():
                n[k, b, g] = problem.add_variable(f"n_{k}_{b}_{g}", 0, slices(need), cat=kind)
    short = {name: problem.add_variable(f"short_{m}", 0, cat=pulp.LpInteger) for m, name in enumerate(question.stock)}
    if ask_what_is_short:
        dearest = dict.fromkeys(question.stock, 0.0)
        for offer in (offer for need in question.needs for offer in need.offers):
            for name, units in (*((name, offer.footprint.gpus) for name in offer.stocks), *offer.quotas):
                if units and name in dearest:
                    dearest[name] = max(dearest[name], offer.price_per_hour / units)
        problem += pulp.lpSum(dearest[name] * short[name] for name in question.stock)
    else:
        problem += pulp.LpAffineExpression([(y[k, g], question.needs[k].offers[g].price_per_hour) for k, g in pairs])
    for k, need in enumerate(question.needs):
        for b in range(len(need.cells)):
            terms = [(n[k, b, g], 1) for g in range(len(need.offers)) if (k, b, g) in n]
            problem += pulp.LpAffineExpression(terms) == slices(need)
        for g, offer in enumerate(need.offers):
            _keep_room(problem, need, offer, (k, g), y, n)
    seats = add_seats(problem, question.stock, groups_of_pools(question, y), short if ask_what_is_short else {})
    return MixModel(problem, y, n, short, seats)


def slices(need: Need) -> int:
    return need.slice_factor or 1


def _keep_room(problem: pulp.LpProblem, need: Need, offer: Offer, kg: tuple[int, int], y: Pools, n: Slices) -> None:
    k, g = kg
    served = np.flatnonzero(np.isfinite(offer.load)).tolist()
    for b in np.flatnonzero((offer.load > 0) & (offer.load <= TINY_LOAD * slices(need))).tolist():
        problem += n[k, b, g] <= slices(need) * y[kg]
    load = pulp.LpAffineExpression([(n[k, b, g], float(offer.load[b]) / slices(need)) for b in served])
    if need.headroom_share is not None:
        problem += load <= (1 - need.headroom_share) * y[kg]
        return
    most = float(offer.variance[served].sum())
    tangents = [t for t, (low, _) in enumerate(RANGES) if low < most or t == 0]
    u = {t: problem.add_variable(f"u_{k}_{g}_{t}", 0, 1, pulp.LpInteger) for t in tangents}
    v = {t: problem.add_variable(f"v_{k}_{g}_{t}", 0) for t in tangents}
    variance = pulp.LpAffineExpression([(n[k, b, g], float(offer.variance[b]) / slices(need)) for b in served])
    problem += variance == pulp.lpSum(v.values())
    problem += pulp.lpSum(u.values()) <= 1
    for t in tangents:
        low, high = RANGES[t]
        problem += v[t] <= min(high, most) * u[t]
        problem += v[t] >= low * u[t]
    room = pulp.lpSum(TANGENTS[t].slope * v[t] + TANGENTS[t].room * u[t] for t in tangents)
    problem += load + room <= y[kg]


def groups_of_pools(question: MixQuestion, y: Pools) -> dict[InstanceGroup, pulp.LpAffineExpression]:
    """Instances by the group of their offer."""
    found: dict[InstanceGroup, list[tuple[pulp.LpVariable, int]]] = {}
    for (k, g), count in y.items():
        found.setdefault(question.needs[k].offers[g].group, []).append((count, 1))
    return {group: pulp.LpAffineExpression(terms) for group, terms in found.items()}


def mixes_from(question: MixQuestion, model: MixModel) -> tuple[Mix, ...]:
    """Values of the solved model, without rounding errors of the solver."""
    mixes = []
    for k, need in enumerate(question.needs):
        offers = range(len(need.offers))
        # PuLP does not know a variable without constraints and cost; its value may as well be 0.
        instances = np.array([round(model.y[k, g].value() or 0) for g in offers], dtype=np.int64)
        share = np.zeros((len(need.cells), len(need.offers)))
        for b in range(len(need.cells)):
            for g in offers:
                if (k, b, g) in model.n:
                    share[b, g] = model.n[k, b, g].value()
        share[share < 1e-7] = 0.0
        # A fraction whose load is within the solver's tolerance needs no instance: it goes with the rest of its bucket.
        lost = (share > 0) & (instances == 0)
        share[lost & (share * ~lost).any(axis=1, keepdims=True)] = 0.0
        share /= share.sum(axis=1, keepdims=True)
        mixes.append(Mix(instances, share))
    return tuple(mixes)


PENALTY = 3.0
"""Penalty of a service that is not served, as a multiple of the dearest choice."""


class MixChoice(NamedTuple):
    """Instances of one need, which serve it alone."""

    objective: float
    instances: FloatArray | IntArray
    """Shape (offers,)."""


Choices = Sequence[Sequence[MixChoice]]
"""By need."""


@dataclass(frozen=True, slots=True, eq=False)
class StockPrices:
    """Prices of the stock, as instances pay them; any such prices prove a bound."""

    instance: Sequence[FloatArray]
    """By need, shape (offers,): added to the objective for every instance."""
    stock: float
    """What the whole stock is worth at these prices, negative: the least that such prices can add for all instances."""

    def towards(self, other: "StockPrices", share: float) -> "StockPrices":
        """Prices between these and others: they swing less from round to round, and prove no less."""
        mixed = [(1 - share) * a + share * b for a, b in zip(self.instance, other.instance, strict=True)]
        return StockPrices(mixed, (1 - share) * self.stock + share * other.stock)


def no_prices(question: MixQuestion) -> StockPrices:
    """Prices of a stock that is not scarce."""
    return StockPrices([np.zeros(len(need.offers)) for need in question.needs], 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class MixMaster:
    """Model of the master problem, without an objective."""

    problem: pulp.LpProblem
    taken: Sequence[Sequence[pulp.LpVariable]]
    out: Sequence[pulp.LpVariable]
    seated: Pools


def master(question: MixQuestion, choices: Choices, *, is_relaxed: bool) -> MixMaster:
    """Model that takes one choice of instances for each need, together within the stock."""
    problem = pulp.LpProblem("columns", pulp.LpMinimize)
    kind = pulp.LpContinuous if is_relaxed else pulp.LpInteger
    taken = [
        [problem.add_variable(f"z_{k}_{j}", 0, None if is_relaxed else 1, kind) for j in range(len(own))]
        for k, own in enumerate(choices)
    ]
    out = [problem.add_variable(f"out_{k}", 0, None if is_relaxed else 1, kind) for k in range(len(taken))]
    for k, own in enumerate(taken):
        problem += pulp.lpSum(own) + out[k] == 1
    pairs = [(k, g) for k, need in enumerate(question.needs) for g in range(len(need.offers))]
    seated = {(k, g): problem.add_variable(f"seated_{k}_{g}", 0) for k, g in pairs}  # in any fraction
    add_seats(problem, question.stock, groups_of_pools(question, seated), {})
    for (k, g), count in seated.items():
        used = [(z, float(choice.instances[g])) for z, choice in zip(taken[k], choices[k], strict=True)]
        problem += count - pulp.LpAffineExpression(used) == 0, f"linked_{k}_{g}"
    return MixMaster(problem, taken, out, seated)


def dollars(choices: Choices, model: MixMaster) -> pulp.LpAffineExpression:
    """Objective of the choices that are taken."""
    return pulp.LpAffineExpression(
        [
            (z, choice.objective)
            for own, taken in zip(choices, model.taken, strict=True)
            for choice, z in zip(own, taken, strict=True)
        ]
    )


def relaxed_prices(question: MixQuestion, choices: Choices, budget: Budget) -> StockPrices | None:
    """Prices of the relaxation in which choices are taken in fractions; None where the budget is used up."""
    model = master(question, choices, is_relaxed=True)
    dearest = max((choice.objective for own in choices for choice in own), default=0.0)
    model.problem.setObjective(dollars(choices, model) + PENALTY * max(1.0, dearest) * pulp.lpSum(model.out))
    if not spent(model.problem, budget, fractions=True).has_answer:
        return None
    return _prices(model.problem, question, model.seated)


def _prices(problem: pulp.LpProblem, question: MixQuestion, seated: Pools) -> StockPrices:
    """Prices of a solved relaxation: the duals of the rows that link instances with their seats.

    Instances of one group pay the same: the dual of one that no choice uses is any number below that. Seats as the
    relaxation takes them are also the best ones at these prices (complementary slackness).
    """
    rows = {row.name: row for row in problem.constraints()}
    dual = {(k, g): float(rows[f"linked_{k}_{g}"].pi or 0.0) for k, g in seated}
    group = {(k, g): question.needs[k].offers[g].group for k, g in seated}
    price: dict[InstanceGroup, float] = {}
    for at, value in dual.items():
        price[group[at]] = max(price.get(group[at], 0.0), value)
    instance = [
        np.array([price[group[k, g]] for g in range(len(need.offers))]) for k, need in enumerate(question.needs)
    ]
    return StockPrices(instance, -math.fsum(float(instance[k][g]) * (y.value() or 0.0) for (k, g), y in seated.items()))
