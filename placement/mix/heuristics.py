"""Mixes without a solver, and what they leave of a stock."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cluster.arrays import FloatArray, IntArray
from placement.mix import problem
from placement.mix.feasibility import TOLERANCE
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


def instances_for(need: problem.Need, share: FloatArray) -> IntArray:
    """Fewest instances that hold these fractions, shape (offers,)."""
    rooms = (
        problem.room_needed(*problem.pool_load(offer, share[:, g]), need.headroom_share)
        for g, offer in enumerate(need.offers)
    )
    fewest = [int(problem.serves_any(offer, share[:, g])) for g, offer in enumerate(need.offers)]
    return np.maximum([math.ceil(room - TOLERANCE) for room in rooms], fewest, dtype=np.int64)


MARGIN = 2
"""Factor on the instances that a mix may use. Chosen: solvers and heuristics round up by an instance here and there."""


def most_of(need: problem.Need) -> Mapping[InstanceGroup, int]:
    """Instances by group of which no mix has more, with a margin: an offer serves all that it can, or what runs stays.

    The room of a pool grows with its load, so no part of the demand needs more than all of it.
    """
    found = Counter[InstanceGroup]()
    for g, offer in enumerate(need.offers):
        share = np.zeros((len(need.cells), len(need.offers)))
        share[np.isfinite(offer.load), g] = 1.0
        found[offer.group] += MARGIN * max(int(instances_for(need, share)[g]), need.running_count(offer))
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
