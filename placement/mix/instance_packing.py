"""Slices of a service's demand on single instances, so that none is overloaded.

Load is a rate, so a router that may send every request anywhere in a pool can always divide a pool's load evenly, and
the fluid count is enough. A router that keeps sessions on one instance (for its prefix cache, for example) moves whole
slices. The slices must then be packed into instances, and the fluid count may be too low.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import FloatArray
from placement.mix.feasibility import TOLERANCE
from placement.mix.headroom import room_needed
from placement.mix.heuristics import in_stock, stock_after
from placement.mix.problem import Mix, MixQuestion, Need, pool_load
from placement.seating.stock import Stock


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


def pack_pool(need: Need, mix: Mix, g: int) -> PackedPool:
    """Deals the slices of one pool to its instances: largest first, each to the fullest instance where it fits.

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
            chosen = _fullest_with_room(room, size)
            if chosen is None and need.slice_factor is None and room.max(initial=0.0) > TOLERANCE:
                chosen = int(np.argmax(room))
            if chosen is None:
                left_over.append(b)
                break
            taken = min(size, float(room[chosen]) + TOLERANCE)
            cut = part * taken / size
            load[chosen] += taken
            share[chosen][b] = share[chosen].get(b, 0.0) + cut
            part, size = (part - cut, size - taken) if size - taken > TOLERANCE else (0.0, 0.0)
    return PackedPool(tuple(InstanceLoad(float(x), s) for x, s in zip(load, share, strict=True)), tuple(left_over))


def instance_limit(need: Need, mix: Mix, g: int) -> float:
    """Maximum load of one instance of a pool: its equal part of what the headroom leaves."""
    if need.headroom_share is not None:
        return 1 - need.headroom_share
    count = int(mix.instances[g])
    load, variance = pool_load(need.offers[g], mix.share[:, g])
    return max(0.0, 1 - (room_needed(load, variance, None) - load) / count) if count else 0.0


def _slices(need: Need, mix: Mix, g: int, limit: float) -> list[tuple[float, int, float]]:
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


def _fullest_with_room(room: FloatArray, size: float) -> int | None:
    fits = np.flatnonzero(room + TOLERANCE >= size)
    return int(fits[np.argmin(room[fits])]) if fits.size else None


def fit_into_instances(question: MixQuestion, mixes: tuple[Mix, ...]) -> tuple[Mix, ...] | None:
    """Mixes, changed where single instances would be overloaded; None where the stock does not allow it.

    A slice that fits nowhere in its pool goes to another pool where it fits, or else gets one more instance.
    """
    left: Mapping[str, Stock] = question.stock
    for need, mix in zip(question.needs, mixes, strict=True):
        left = stock_after(left, need, mix)
    repaired = []
    for need, mix in zip(question.needs, mixes, strict=True):
        fitted = _fit(need, mix, left)
        if fitted is None:
            return None
        left = stock_after(left, need, replace(fitted, instances=fitted.instances - mix.instances))
        repaired.append(fitted)
    return tuple(repaired)


def _fit(need: Need, mix: Mix, left: Mapping[str, Stock]) -> Mix | None:
    while (overfull := _first_overfull(need, mix)) is not None:
        g, b = overfull
        better = _moved(need, mix, b, g) or _grown(need, mix, b, g, left)
        if better is None:
            return None
        left = stock_after(left, need, replace(better, instances=better.instances - mix.instances))
        mix = better
    return mix


def _first_overfull(need: Need, mix: Mix) -> tuple[int, int] | None:
    """Offer and bucket of a slice that found no instance there."""
    for g in range(len(need.offers)):
        left_over = pack_pool(need, mix, g).left_over
        if left_over:
            return g, left_over[0]
    return None


def _moved(need: Need, mix: Mix, b: int, g: int) -> Mix | None:
    """Mix with one slice of bucket b in another pool, where all its slices fit its instances."""
    others = (h for h in range(len(need.offers)) if h != g)
    return next((tried for h in others if (tried := _shifted(need, mix, b, g, h)) is not None), None)


def _grown(need: Need, mix: Mix, b: int, g: int, left: Mapping[str, Stock]) -> Mix | None:
    """Mix with one more instance, of the cheapest type in stock where the slice then fits."""
    for h in sorted(range(len(need.offers)), key=lambda h: (need.offers[h].price_per_hour, h != g)):
        more = np.zeros_like(mix.instances)
        more[h] = 1
        grown = Mix(mix.instances + more, mix.share)
        tried = grown if h == g else _shifted(need, grown, b, g, h)
        if tried is not None and in_stock(need, more, left):
            return tried
    return None


def _shifted(need: Need, mix: Mix, b: int, g: int, other: int) -> Mix | None:
    """Mix with one slice of bucket b moved from pool g to another one; None where that would overload it."""
    offer = need.offers[other]
    if not np.isfinite(offer.load[b]):
        return None
    share = mix.share.copy()
    left_here = round(share[b, g] * need.slice_factor) - 1 if need.slice_factor else 0
    share[b, other] += share[b, g] - (here := left_here / (need.slice_factor or 1))
    share[b, g] = here
    tried = Mix(mix.instances, share)
    room = room_needed(*pool_load(offer, share[:, other]), need.headroom_share)
    fits = room <= mix.instances[other] + TOLERANCE and not pack_pool(need, tried, other).left_over
    return tried if fits else None
