"""Mixes without a solver, and what they leave of a stock."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cluster.arrays import FloatArray, IntArray
from placement.mix import problem
from placement.mix.feasibility import TOLERANCE
from placement.mix.pool_split import LEAST_PRICE, headroom
from placement.stock import InstanceGroup, Stock


def best_single_type(need: problem.Need, stock: Mapping[str, Stock]) -> problem.Mix | None:
    """Mix with all buckets on the cheapest type that can serve all of them and has enough devices."""
    options = []
    for g, offer in enumerate(need.offers):
        if np.isfinite(offer.load).all():
            share = np.zeros((len(need.cells), len(need.offers)))
            share[:, g] = 1.0
            options.append(problem.Mix(instances_for(need, share), share))
    options = [mix for mix in options if in_stock(need, mix.instances, stock)]
    return min(options, key=lambda mix: problem.mix_cost(need, mix), default=None)


RATIOS = np.array([0.6, 0.75, 0.9, 1.0, 1.1, 1.35, 1.7])
"""Ratios of dollars at which two types share the buckets. Chosen: at 1.0 alone mixes are as dear as single types."""


def best_pair(need: problem.Need, prices: FloatArray, stock: Mapping[str, Stock]) -> problem.Mix | None:
    """The cheapest mix of one or two types that have seats, at these prices of an instance, shape (offers,).

    Whole buckets go where they cost less, also at other ratios of the dollars: instances are whole, so the boundary
    where both cost the same is rarely the best one.
    """
    load, variance = loads_of(need)
    first, second = (np.tile(each, len(RATIOS)) for each in np.triu_indices(len(need.offers)))
    paid = np.maximum(prices, LEAST_PRICE)  # 0 dollars for infinitely many instances have no value
    dollars, ratio = load * paid, np.repeat(RATIOS, len(first) // len(RATIOS))
    goes = (dollars[:, first] <= ratio * dollars[:, second]) | (first == second)
    cost, seats = np.zeros(len(first)), np.array([seats_left(offer, stock) for offer in need.offers])
    for offer, sent in ((first, goes), (second, ~goes)):
        amounts = ((np.where(sent, each[:, offer], 0.0)).sum(axis=0) for each in (load, variance))
        count = np.ceil(room_of(need, *amounts) - TOLERANCE)
        cost += np.where(count <= seats[offer], count * paid[offer], np.inf)
    best = int(cost.argmin())
    if not math.isfinite(cost[best]):
        return None
    share = np.zeros(load.shape)
    share[np.arange(len(load)), np.where(goes[:, best], first[best], second[best])] = 1.0
    return problem.Mix(instances_for(need, share), share)


def loads_of(need: problem.Need) -> tuple[FloatArray, FloatArray]:
    """Loads and variances of all buckets on all offers, shape (buckets, offers)."""
    return np.column_stack([o.load for o in need.offers]), np.column_stack([o.variance for o in need.offers])


def room_of(need: problem.Need, load: FloatArray, variance: FloatArray) -> FloatArray:
    """`placement.mix.problem.room_needed` of many pools at once."""
    return load + headroom(variance) if need.headroom_share is None else load / (1 - need.headroom_share)


def instances_for(need: problem.Need, share: FloatArray) -> IntArray:
    """Fewest instances that hold these fractions, shape (offers,)."""
    load, variance = (np.where(share > 0, each, 0.0) for each in loads_of(need))
    room = room_of(need, (load * share).sum(axis=0), (variance * share).sum(axis=0))
    fewest: IntArray = np.maximum(np.ceil(room - TOLERANCE), (load > 0).any(axis=0)).astype(np.int64)
    return fewest


MARGIN = 2
"""Factor on the instances that a mix may use. Chosen: solvers and heuristics round up by an instance here and there."""


def most_of(need: problem.Need) -> Mapping[InstanceGroup, int]:
    """Instances by group of which no mix has more, with a margin: an offer serves all that it can, or what runs stays.

    The room of a pool grows with its load, so no part of the demand needs more than all of it.
    """
    found, serves = Counter[InstanceGroup](), np.isfinite(loads_of(need)[0])
    for offer, count in zip(need.offers, instances_for(need, serves.astype(float)).tolist(), strict=True):
        found[offer.group] += MARGIN * max(count, need.running_count(offer))
    return found


def in_stock(need: problem.Need, instances: IntArray, stock: Mapping[str, Stock]) -> bool:
    """Whether each offer's instances would fit the stock without the others'."""
    return all(int(count) <= seats_left(offer, stock) for count, offer in zip(instances, need.offers, strict=True))


def seats_left(offer: problem.Offer, stock: Mapping[str, Stock]) -> float:
    """Instances of an offer that the stock would hold without others; infinite where it has no limit."""
    limits: list[float] = [stock[name].gpus // units for name, units in offer.quotas if units and name in stock]
    if all(name in stock for name in offer.stocks):
        limits.append(sum(stock[name].holds(offer.footprint) for name in offer.stocks))
    return max(0.0, min(limits, default=math.inf))


def stock_after(stock: Mapping[str, Stock], need: problem.Need, mix: problem.Mix) -> dict[str, Stock]:
    """Stock that remains after this mix, whose instances go where others want to go least."""
    left = dict(stock)
    for count, offer in zip(mix.instances.tolist(), need.offers, strict=True):
        if not count:
            continue
        for name, units in offer.quotas:
            if name in left:
                left[name] = replace(left[name], gpus=left[name].gpus - units * count)
        limited = [name for name in offer.stocks if name in left]
        for name in limited:
            is_last = name == limited[-1]
            taken = count if is_last or count < 0 else min(count, left[name].holds(offer.footprint))
            left[name] = left[name].minus(offer.footprint, taken)
            count -= taken
    return left


def stocks_without_others(
    stock: Mapping[str, Stock], needs: Sequence[problem.Need], mixes: Sequence[problem.Mix | None]
) -> list[Mapping[str, Stock]]:
    """For each need, the stock that the mixes of all others leave; None holds nothing.

    Halves take the other half's mixes first, so that n needs cost n log n changes of a stock instead of n².
    """
    if len(needs) <= 1:
        return [stock] * len(needs)
    half = len(needs) // 2
    found: list[Mapping[str, Stock]] = []
    for own, others in ((slice(0, half), slice(half, None)), (slice(half, None), slice(0, half))):
        left = stock
        for need, mix in zip(needs[others], mixes[others], strict=True):
            left = left if mix is None else stock_after(left, need, mix)
        found += stocks_without_others(left, needs[own], mixes[own])
    return found
