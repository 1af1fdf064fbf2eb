"""Mixed-integer model of the mix, in PuLP.

Sets
    k ∈ needs, b ∈ buckets of k, g ∈ offers of k, t ∈ tangents of the headroom curve
Data
    f_k       slices per bucket (1 where any split is allowed)
    load_kbg  instances of g that the whole of bucket b keeps busy;  variance_kbg  the variance of that
    price_kg  dollars per hour of an instance;  gpus_kg  its devices;  h_k  fixed headroom fraction
    slope_t, room_t   the headroom curve's tangents;  low_t, high_t  between which variances t is the lowest
    was_kg    running instances;  change  price of a change, dollars per hour;  start_k  that of a start, in price_kg
Variables
    y_kg ∈ ℕ        instances
    n_kbg ∈ 0..f_k  slices of b on g, whole or continuous; there is none where g cannot serve b
    moved_kg ≥ 0    instances started or stopped;  started_kg ≥ 0  instances started
    u_kgt ∈ {0,1}, v_kgt ≥ 0   which tangent holds for the pool, and the pool's variance on it
    short_m ∈ ℕ     missing devices, in the variant that finds the shortage
Objective
    min Σ price_kg·y_kg + change·Σ moved_kg + Σ start_k·price_kg·started_kg
    or, to find the shortage, min Σ price_m·short_m
Constraints
    Σ_g n_kbg = f_k                                                        every bucket is served
    n_kbg ≤ f_k·y_kg                                                       where a slice's load is within tolerances
    Σ_b n_kbg/f_k·load_kbg ≤ (1 − h_k)·y_kg                                a fixed headroom, or
    Σ_b n_kbg/f_k·load_kbg + Σ_t (slope_t·v_kgt + room_t·u_kgt) ≤ y_kg     headroom for bursts, with
    Σ_b n_kbg/f_k·variance_kbg = Σ_t v_kgt,   low_t·u_kgt ≤ v_kgt ≤ high_t·u_kgt,   Σ_t u_kgt ≤ 1
    the y_kg have seats in the stocks that they may use                    `placement.seating.model`
    moved_kg ≥ ±(y_kg − was_kg);  started_kg ≥ y_kg − was_kg
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pulp

from placement.mix.headroom import RANGES, TANGENTS
from placement.mix.problem import Mix, MixQuestion, Need, Offer
from placement.seating.model import Group, Seats, add_seats

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
    n = {
        (k, b, g): problem.add_variable(f"n_{k}_{b}_{g}", 0, slices(need), cat=_slice_kind(need, whole_slices))
        for k, need in enumerate(question.needs)
        for g, offer in enumerate(need.offers)
        for b in np.flatnonzero(np.isfinite(offer.load)).tolist()
    }
    short = {name: problem.add_variable(f"short_{m}", 0, cat=pulp.LpInteger) for m, name in enumerate(question.stock)}
    if ask_what_is_short:
        problem += pulp.lpSum(_device_price(question, name) * short[name] for name in question.stock)
    else:
        problem += pulp.LpAffineExpression(
            [(y[k, g], question.needs[k].offers[g].price_per_hour) for k, g in pairs]
        ) + _changes(problem, question, y)
    for k, need in enumerate(question.needs):
        _serve_every_bucket(problem, need, k, n)
        for g, offer in enumerate(need.offers):
            _keep_room(problem, need, offer, (k, g), y, n)
    seats = add_seats(problem, question.stock, groups_of_pools(question, y), short if ask_what_is_short else {})
    return MixModel(problem, y, n, short, seats)


def slices(need: Need) -> int:
    return need.slice_factor or 1


def _slice_kind(need: Need, whole_slices: bool) -> str:
    kind = pulp.LpInteger if whole_slices and need.slice_factor else pulp.LpContinuous
    return str(kind)


def _device_price(question: MixQuestion, stock: str) -> float:
    return max(
        (o.price_per_hour / o.gpus for need in question.needs for o in need.offers if stock in o.stocks),
        default=0.0,
    )


def _changes(problem: pulp.LpProblem, question: MixQuestion, y: Pools) -> pulp.LpAffineExpression:
    terms = []
    for k, need in enumerate(question.needs):
        for g, offer in enumerate(need.offers if question.counts_changes_of(need) else ()):
            if question.change_price_per_hour:
                moved = problem.add_variable(f"moved_{k}_{g}", 0)
                problem += moved >= y[k, g] - need.running_count(offer)
                problem += moved >= need.running_count(offer) - y[k, g]
                terms.append((moved, question.change_price_per_hour))
            if need.start_share:
                started = problem.add_variable(f"started_{k}_{g}", 0)
                problem += started >= y[k, g] - need.running_count(offer)
                terms.append((started, need.start_share * offer.price_per_hour))
    return pulp.LpAffineExpression(terms)


def _serve_every_bucket(problem: pulp.LpProblem, need: Need, k: int, n: Slices) -> None:
    for b in range(len(need.cells)):
        terms = [(n[k, b, g], 1) for g in range(len(need.offers)) if (k, b, g) in n]
        problem += pulp.LpAffineExpression(terms) == slices(need)


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


def groups_of_pools(question: MixQuestion, y: Pools) -> dict[Group, pulp.LpAffineExpression]:
    """Instances by the group of their offer."""
    found: dict[Group, list[tuple[pulp.LpVariable, int]]] = {}
    for (k, g), count in y.items():
        found.setdefault(question.needs[k].offers[g].group, []).append((count, 1))
    return {group: pulp.LpAffineExpression(terms) for group, terms in found.items()}


def mixes_from(question: MixQuestion, model: MixModel) -> tuple[Mix, ...]:
    """Values of the solved model, without rounding errors of the solver."""
    return tuple(_mix_from(need, k, model) for k, need in enumerate(question.needs))


def _mix_from(need: Need, k: int, model: MixModel) -> Mix:
    count, offers = len(need.cells), range(len(need.offers))
    # PuLP does not know a variable without constraints and cost; its value may as well be 0.
    instances = np.array([round(model.y[k, g].value() or 0) for g in offers], dtype=np.int64)
    share = np.zeros((count, len(need.offers)))
    for b in range(count):
        for g in offers:
            if (k, b, g) in model.n:
                share[b, g] = model.n[k, b, g].value()
    share[share < 1e-7] = 0.0
    # A fraction whose load is within the solver's tolerance needs no instance, so it goes with the rest of its bucket.
    lost = (share > 0) & (instances == 0)
    share[lost & (share * ~lost).any(axis=1, keepdims=True)] = 0.0
    share /= share.sum(axis=1, keepdims=True)
    return Mix(instances, share)
