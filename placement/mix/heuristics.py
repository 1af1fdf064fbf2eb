"""Mixes without a solver: the best single type, a greedy mix, and whole slices packed into single instances."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import FloatArray, IntArray
from placement.mix import problem
from placement.mix.feasibility import TOLERANCE
from placement.stock import InstanceGroup, Stock


def start_mixes(question: problem.MixQuestion) -> tuple[problem.Mix, ...] | None:
    """Cheaper of single type and greedy for each need, most important needs first; None where stock ran out."""
    left = dict(question.stock)
    found: dict[int, problem.Mix] = {}
    for k in sorted(range(len(question.needs)), key=lambda k: (-question.needs[k].priority, k)):
        need = question.needs[k]
        options = [mix for mix in (best_single_type(need, left), greedy_mix(need, left)) if mix is not None]
        if not options:
            return None
        found[k] = min(options, key=lambda mix: problem.mix_cost(need, mix))
        left = stock_after(left, need, found[k])
    return tuple(found[k] for k in range(len(question.needs)))


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


def greedy_mix(need: problem.Need, stock: Mapping[str, Stock]) -> problem.Mix | None:
    """Mix with each bucket on the type where its load costs least, slice by slice while the stock lasts.

    Buckets with few possible offers come first, among those the most expensive first.
    """
    parts = need.slice_factor or 1
    price = np.array([offer.price_per_hour for offer in need.offers])
    dollars = np.column_stack([offer.load for offer in need.offers]) * price
    cheapest = dollars.min(axis=1)
    share = np.zeros_like(dollars)
    pools = _Pools(need)
    for b in sorted(range(len(dollars)), key=lambda b: (int(np.isfinite(dollars[b]).sum()), -cheapest[b])):
        for g in np.argsort(dollars[b], kind="stable"):
            if not np.isfinite(dollars[b, g]):
                break
            room = parts - round(share[b].sum() * parts)
            fits = pools.slices_that_fit(b, int(g), room, parts, stock)
            share[b, g] += fits / parts
            if fits == room:
                break
        else:
            return None
        if round(share[b].sum() * parts) < parts:
            return None
    instances = instances_for(need, share)
    return problem.Mix(instances, share) if in_stock(need, instances, stock) else None


def running_mix(need: problem.Need) -> problem.Mix | None:
    """Mix on the instances that run now, if they serve the need with each bucket on the cheapest type in turn."""
    if not need.running:
        return None
    names = [f"running {offer.instance_type}" for offer in need.offers]
    offers = tuple(replace(offer, places=(name,)) for name, offer in zip(names, need.offers, strict=True))
    counts = need.running_counts
    stock = {n: Stock(int(c) * o.gpus) for n, c, o in zip(names, counts, need.offers, strict=True)}
    found = greedy_mix(replace(need, offers=offers), stock)
    return None if found is None else problem.Mix(counts, found.share)


def whole_slices(need: problem.Need, mix: problem.Mix) -> problem.Mix:
    """Mix with its split slices moved whole to the types with most headroom, and with more instances where needed."""
    if need.slice_factor is None:
        return mix
    parts = need.slice_factor
    count = np.floor(mix.share * parts + TOLERANCE)
    pools = _Pools(need)
    for b, g in np.argwhere(count > 0):
        pools.add(int(b), int(g), count[b, g] / parts)
    load = np.column_stack([offer.load for offer in need.offers])
    missing = [b for b in range(len(need.cells)) for _ in range(round(parts - count[b].sum()))]
    for b in sorted(missing, key=lambda b: -np.min(load[b])):
        room = [pools.room_left(b, g, 1 / parts, int(mix.instances[g])) for g in range(len(need.offers))]
        best = int(np.argmax(room))
        pools.add(b, best, 1 / parts)
        count[b, best] += 1
    share = count / parts
    return problem.Mix(np.maximum(mix.instances, instances_for(need, share)), share)


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


class _Pools:
    """Load and variance per offer while slices are dealt."""

    def __init__(self, need: problem.Need) -> None:
        self.need = need
        self.load = [0.0] * len(need.offers)
        self.variance = [0.0] * len(need.offers)

    def add(self, b: int, g: int, share: float) -> None:
        self.load[g] += share * float(self.need.offers[g].load[b])
        self.variance[g] += share * float(self.need.offers[g].variance[b])

    def room_left(self, b: int, g: int, share: float, instances: int) -> float:
        """Instances that stay free when this fraction is added; negative where it does not fit."""
        offer = self.need.offers[g]
        load = self.load[g] + share * float(offer.load[b])
        if not math.isfinite(load):
            return -math.inf
        variance = self.variance[g] + share * float(offer.variance[b])
        return instances + TOLERANCE / 2 - problem.room_needed(load, variance, self.need.headroom_share)

    def slices_that_fit(self, b: int, g: int, wanted: int, parts: int, stock: Mapping[str, Stock]) -> int:
        """Adds as many of the wanted slices as the stock can hold on this offer. Returns their number."""
        offer = self.need.offers[g]
        most = seats_left(offer, stock)
        fits = wanted
        while math.isfinite(most) and fits and self.room_left(b, g, fits / parts, int(most)) < 0:
            fits -= 1
        self.add(b, g, fits / parts)
        return fits


@dataclass(frozen=True, slots=True)
class InstanceLoad:
    """Load of one instance."""

    load: float
    share: Mapping[int, float]
    """Bucket → fraction of its whole demand."""


@dataclass(frozen=True, slots=True)
class PackedPool:
    """Slices dealt to the instances of one pool."""

    instances: tuple[InstanceLoad, ...]
    left_over: tuple[int, ...]
    """Buckets of unplaced slices, one entry per slice."""


def pack_pool(need: problem.Need, mix: problem.Mix, g: int) -> PackedPool:
    """Deals the slices of one pool to its instances: largest first, each to the fullest instance where it fits.

    Load is a rate, so a router that may send every request anywhere in a pool can divide a pool's load evenly. One that
    keeps sessions on one instance (for its prefix cache, for example) moves whole slices, and the fluid count may be
    too low.

    A slice that is larger than an instance is cut: it fills whole instances, and the rest is packed as a slice. Where
    any split is allowed, a bucket's part of the pool is one slice and is cut wherever an instance is full.
    """
    limit = instance_limit(need, mix, g)
    load = np.zeros(int(mix.instances[g]))
    share: list[dict[int, float]] = [{} for _ in load]
    left_over = []
    for size, b, part in sorted(_slices(need, mix, g, limit), reverse=True):
        while part > 0:
            room = limit - load
            fits = np.flatnonzero(room + TOLERANCE >= size)
            if fits.size:
                chosen = int(fits[np.argmin(room[fits])])
            elif need.slice_factor is None and room.max(initial=0.0) > TOLERANCE:
                chosen = int(np.argmax(room))
            else:
                left_over.append(b)
                break
            taken = min(size, float(room[chosen]) + TOLERANCE)
            cut = part * taken / size
            load[chosen] += taken
            share[chosen][b] = share[chosen].get(b, 0.0) + cut
            part, size = (part - cut, size - taken) if size - taken > TOLERANCE else (0.0, 0.0)
    return PackedPool(tuple(InstanceLoad(float(x), s) for x, s in zip(load, share, strict=True)), tuple(left_over))


def instance_limit(need: problem.Need, mix: problem.Mix, g: int) -> float:
    """Maximum load of one instance of a pool: its equal part of what the headroom leaves."""
    if need.headroom_share is not None:
        return 1 - need.headroom_share
    count = int(mix.instances[g])
    load, variance = problem.pool_load(need.offers[g], mix.share[:, g])
    return max(0.0, 1 - (problem.room_needed(load, variance, None) - load) / count) if count else 0.0


def _slices(need: problem.Need, mix: problem.Mix, g: int, limit: float) -> list[tuple[float, int, float]]:
    """(load, bucket, fraction of the bucket) of everything that the pool serves, nothing larger than an instance."""
    pieces = []
    for b in np.flatnonzero(mix.share[:, g] > 0).tolist():
        whole = float(mix.share[b, g])
        count = round(whole * need.slice_factor) if need.slice_factor else 1
        size = float(need.offers[g].load[b]) * whole / count
        full = int(size / limit) if limit > 0 and need.slice_factor else 0
        for _ in range(count):
            part = whole / count
            pieces += [(limit, b, part * limit / size)] * full
            rest = size - full * limit
            if rest > TOLERANCE or not full:
                pieces.append((rest, b, part * rest / size))
    return pieces


def fit_into_instances(question: problem.MixQuestion, mixes: tuple[problem.Mix, ...]) -> tuple[problem.Mix, ...] | None:
    """Mixes, changed where single instances would be overloaded; None where the stock does not allow it.

    A slice that fits nowhere in its pool goes to another pool where it fits, or else gets one more instance.
    """
    left: Mapping[str, Stock] = question.stock
    for need, mix in zip(question.needs, mixes, strict=True):
        left = stock_after(left, need, mix)
    repaired = []
    for need, before in zip(question.needs, mixes, strict=True):
        pools, mix, own = range(len(need.offers)), before, left
        while overfull := next(((g, b) for g in pools for b in pack_pool(need, mix, g).left_over), None):
            g, b = overfull
            shifted = (_shifted(need, mix, b, g, h) for h in pools if h != g)
            better = next((tried for tried in shifted if tried is not None), None) or _grown(need, mix, b, g, own)
            if better is None:
                return None
            own = stock_after(own, need, replace(better, instances=better.instances - mix.instances))
            mix = better
        left = stock_after(left, need, replace(mix, instances=mix.instances - before.instances))
        repaired.append(mix)
    return tuple(repaired)


def _grown(need: problem.Need, mix: problem.Mix, b: int, g: int, left: Mapping[str, Stock]) -> problem.Mix | None:
    """Mix with one more instance, of the cheapest type in stock where the slice then fits."""
    for h in sorted(range(len(need.offers)), key=lambda h: (need.offers[h].price_per_hour, h != g)):
        more = np.zeros_like(mix.instances)
        more[h] = 1
        grown = problem.Mix(mix.instances + more, mix.share)
        tried = grown if h == g else _shifted(need, grown, b, g, h)
        if tried is not None and in_stock(need, more, left):
            return tried
    return None


def _shifted(need: problem.Need, mix: problem.Mix, b: int, g: int, other: int) -> problem.Mix | None:
    """Mix with one slice of bucket b moved from pool g to another one; None where that would overload it."""
    offer = need.offers[other]
    if not np.isfinite(offer.load[b]):
        return None
    share = mix.share.copy()
    left_here = round(share[b, g] * need.slice_factor) - 1 if need.slice_factor else 0
    share[b, other] += share[b, g] - (here := left_here / (need.slice_factor or 1))
    share[b, g] = here
    tried = problem.Mix(mix.instances, share)
    room = problem.room_needed(*problem.pool_load(offer, share[:, other]), need.headroom_share)
    fits = room <= mix.instances[other] + TOLERANCE and not pack_pool(need, tried, other).left_over
    return tried if fits else None
