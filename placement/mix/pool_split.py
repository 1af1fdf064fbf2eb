"""Cheapest split of a service over pools of any fraction of instances, and the lower bound on cost that it proves.

Sets        b: buckets; g: offers; t: lines of g's headroom, or none where the pool is not used
Data        price_g > 0;  load_bg, variance_bg, slope_t, room_t as in `placement.mix.milp`
Variables   t_g: the line of each pool; g_b: the offer of each bucket
Objective   min over t of Σ_g price_g·room_t + Σ_b min_g price_g·(load_bg + slope_t·variance_bg)

Headroom for bursts is concave in the size of a pool: the lowest of its lines. With the lines fixed, cost is linear, so
each bucket goes whole to its cheapest offer; all combinations of lines are searched, pool by pool, without those whose
bound exceeds a known split. The result is the exact optimum of the mix without whole instances and slices. It is far
above the linear relaxation of `placement.mix.milp`, where a pool of many instances pays hardly any headroom: by 2 % of
the cost with 20 services of 140 instances each, in a thousandth of the work.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from placement.budget import Budget
from placement.mix.feasibility import TOLERANCE
from placement.mix.heuristics import instances_for
from placement.mix.problem import RANGES, TANGENTS, Mix, Need

MOST_STATES = 3000
"""Combinations of lines that are kept at a time; the least bound of the others limits the proven one. Chosen: services
with five GPU types need up to 2,000."""
WORK_PER_SPLIT = 5.0
"""Work of a split besides its combinations, in simplex iterations. Measured: 0.3 to 0.5 ms."""
STATES_PER_WORK = 500.0
"""Combinations of lines, of some 40 buckets, per unit of work. Measured: 0.1 µs each and more."""
LEAST_PRICE = 1e-9
"""Dollars per instance and hour of what is free: 0 times an infinite load has no value."""

_SLOPES = np.array([tangent.slope for tangent in TANGENTS])
_ROOMS = np.array([tangent.room for tangent in TANGENTS])

Lines = tuple[int, ...]
"""By offer: number of the line of its pool; 0: the pool holds nothing that needs headroom, and pays none."""


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Buckets by offer, with pools of any fraction of instances."""

    bound: float
    """Lower bound on Σ price · instances of any mix of the need."""
    offer: IntArray
    """Shape (buckets,)."""
    instances: FloatArray
    """Shape (offers,)."""
    each: FloatArray
    """Shape (offers, buckets): marginal cost of a bucket on each offer; inf where an offer cannot serve it."""
    lines: Lines
    work: float


class Splitter:
    """Splits of one need at various prices.

    cost: by offer, shape (lines, buckets), instances that a bucket adds on each line of the pool; room: by offer, shape
    (lines,), instances that the line adds to the pool.
    """

    def __init__(self, need: Need) -> None:
        self.load = np.column_stack([offer.load for offer in need.offers])
        self.serves: BoolArray = np.isfinite(self.load)
        self.variance = np.where(self.serves, np.column_stack([offer.variance for offer in need.offers]), 0.0)
        self.headroom_share = need.headroom_share
        self.cost: list[FloatArray] = []
        self.room: list[FloatArray] = []
        self.least: list[FloatArray] = []
        for load, variance in zip(self.load.T, self.variance.T, strict=True):
            if self.headroom_share is not None:
                self.cost.append(load[None, :] / (1 - self.headroom_share))
                self.room.append(np.zeros(1))
                self.least.append(self.cost[-1][0])
                continue
            most = float(variance.sum())
            count = max(1, sum(low < most for low, _ in RANGES))
            without = np.where(variance == 0, load, np.inf)
            self.cost.append(np.vstack([without, load + _SLOPES[:count, None] * variance]))
            self.room.append(np.append(0.0, _ROOMS[:count]))
            # Concave headroom lies above the straight line from nothing to the largest possible pool.
            self.least.append(load + variance * (float((_SLOPES * most + _ROOMS).min()) / most if most else 0.0))

    def instances(self, load: FloatArray, variance: FloatArray) -> FloatArray:
        """Instances, in any fraction, of pools with that load and variance; all of one shape."""
        if self.headroom_share is not None:
            return load / (1 - self.headroom_share)
        lowest = np.searchsorted(_CROSSINGS, variance)
        return load + np.where(variance > 0, _SLOPES[lowest] * variance + _ROOMS[lowest], 0.0)

    def cheapest(self, prices: FloatArray, hint: Lines | None = None) -> Split:
        """The cheapest split. prices: of an instance, shape (offers,), all above 0. hint: lines of a split nearby."""
        least = [price * each for price, each in zip(prices, self.least, strict=True)]
        known, lines = self._descended(prices, self._lines_of(np.array(least).argmin(axis=0)))
        if hint is not None:
            known, lines = min((known, lines), self._descended(prices, hint))
        # Offers by the dollars of their pools, the largest first: the search for lines then excludes most early.
        each, _ = self._dollars(prices, lines)
        order = list(range(len(lines)))
        if np.isfinite(each.min(axis=0)).all():
            offer = each.argmin(axis=0)
            amount = np.bincount(offer, weights=each[offer, np.arange(len(offer))], minlength=len(lines))
            order = [int(g) for g in np.argsort(-amount, kind="stable")]
        bound, lines, states = self._searched(prices, known, lines, order, least)
        each, _ = self._dollars(prices, lines)
        offer = each.argmin(axis=0).astype(np.int64)
        at = np.arange(len(offer))
        load: FloatArray = np.bincount(offer, weights=self.load[at, offer], minlength=len(lines)).astype(np.float64)
        variance = np.bincount(offer, weights=self.variance[at, offer], minlength=len(lines)).astype(np.float64)
        # A pool that is not used is open to small parts of buckets: they pay its middling headroom.
        open_lines = tuple(t or min(5, len(room) - 1) for t, room in zip(lines, self.room, strict=True))
        marginal, _ = self._dollars(prices, open_lines)
        marginal[offer, at] = each[offer, at]
        work = WORK_PER_SPLIT + states / STATES_PER_WORK
        return Split(bound, offer, self.instances(load, variance), marginal, lines, work)

    def _dollars(self, prices: FloatArray, lines: Lines) -> tuple[FloatArray, float]:
        """Dollars of every bucket on each offer, shape (offers, buckets), and of all pools' rooms."""
        each = np.array([price * cost[t] for price, cost, t in zip(prices, self.cost, lines, strict=True)])
        return each, sum(float(price * room[t]) for price, room, t in zip(prices, self.room, lines, strict=True))

    def _lines_of(self, offer: IntArray) -> Lines:
        """Lines that are lowest for the pools with these buckets."""
        count = len(self.room)
        variance = np.bincount(offer, weights=self.variance[np.arange(len(offer)), offer], minlength=count)
        lines = []
        for g, room in enumerate(self.room):
            known = len(room) - 1
            lowest = int((_SLOPES[:known] * variance[g] + _ROOMS[:known]).argmin()) if known else 0
            lines.append(1 + lowest if known and variance[g] > 0 else 0)
        return tuple(lines)

    def _descended(self, prices: FloatArray, lines: Lines) -> tuple[float, Lines]:
        """A split near these lines that is cheapest on its own lines, and its cost."""
        best, best_lines = math.inf, lines
        while True:
            each, rooms = self._dollars(prices, lines)
            cost = float(each.min(axis=0).sum()) + rooms
            if not cost < best - 1e-9 * max(1.0, abs(cost)):
                return best, best_lines
            best, best_lines = cost, lines
            lines = self._lines_of(each.argmin(axis=0))

    def _searched(
        self, prices: FloatArray, known: float, lines: Lines, order: list[int], least: list[FloatArray]
    ) -> tuple[float, Lines, int]:
        """Lower bound over all lines, the best lines, and the number of combinations that were looked at.

        known, lines: cost and lines of a split. least: lower bounds on the buckets' dollars by offer.
        """
        buckets = len(self.load)
        later = [np.full(buckets, np.inf)]
        for g in reversed(order):
            later.insert(0, np.minimum(later[0], least[g]))
        dollars, rooms = np.full((1, buckets), np.inf), np.zeros(1)
        chosen = np.zeros((1, 0), dtype=np.int64)
        states, excluded = 0, math.inf
        for number, g in enumerate(order):
            more = np.minimum(dollars[:, None, :], prices[g] * self.cost[g][None, :, :])
            more_rooms = rooms[:, None] + prices[g] * self.room[g][None, :]
            bound = np.minimum(more, later[number + 1]).sum(axis=2) + more_rooms
            states += bound.size
            before, line = np.nonzero(bound <= known + 1e-9 * max(1.0, abs(known)))
            if len(before) > MOST_STATES:
                by_bound = np.argsort(bound[before, line], kind="stable")
                excluded = min(excluded, float(bound[before, line][by_bound[MOST_STATES]]))
                before, line = before[by_bound[:MOST_STATES]], line[by_bound[:MOST_STATES]]
            dollars, rooms = more[before, line], more_rooms[before, line]
            chosen = np.column_stack([chosen[before], line])
        total = dollars.sum(axis=1) + rooms
        if len(total):
            at = int(total.argmin())
            known = min(known, float(total[at]))
            lines = tuple(int(chosen[at, order.index(g)]) for g in range(len(order)))
        return min(known, excluded), lines, states


_CROSSINGS = np.array([high for _, high in RANGES[:-1]])


PAIRS = 24
"""Buckets and offers that parts may move to, those of the least loss. Chosen: with 16 the mixes of 20 services cost
0.19 % more than their splits, with 24 they cost 0.11 % more."""
MOST_STEPS = 4
"""Steps, each of which moves parts of up to two buckets. Chosen; most end after two."""
ANY_SPLIT_PARTS = 8
"""Parts of a bucket where any split is allowed."""
WORK_PER_ROUNDING = 50.0
"""Work of a rounding, in simplex iterations. Measured: 3 to 6 ms."""


class _Moves(NamedTuple):
    """Moves of parts, shape (moves,) each."""

    bucket: IntArray
    source: IntArray
    target: IntArray
    parts: IntArray


def rounded(need: Need, splitter: Splitter, split: Split, prices: FloatArray) -> Mix:
    """A mix of whole instances and slices near that split, as cheap as few moves make it at these prices."""
    whole = need.slice_factor or ANY_SPLIT_PARTS
    count = np.zeros((len(split.offer), len(need.offers)), dtype=np.int64)
    count[np.arange(len(split.offer)), split.offer] = whole
    best = np.inf
    for _ in range(MOST_STEPS if len(count) else 0):  # without demand there is nothing to move
        moves = _moves(count, split.each.T)
        cost, first, second = _best_two(splitter, count / whole, moves, whole, prices)
        if not cost < best - 1e-9:
            break
        best = cost
        for n in (first, second):
            if n:
                count[moves.bucket[n], moves.source[n]] -= moves.parts[n]
                count[moves.bucket[n], moves.target[n]] += moves.parts[n]
    share = count / whole
    return Mix(instances_for(need, share), share)


def split_and_rounded(need: Need, prices: FloatArray, budget: Budget) -> tuple[Split, Mix]:
    """The cheapest split at these prices of an instance, shape (offers,), and a mix near it. Charged to the budget."""
    splitter, paid = Splitter(need), np.maximum(LEAST_PRICE, prices)
    split = splitter.cheapest(paid)
    budget.spend(split.work + WORK_PER_ROUNDING)
    return split, rounded(need, splitter, split, paid)


def _moves(count: IntArray, each: FloatArray) -> _Moves:
    """Moves of parts by the least relative loss; the first one moves nothing.

    count: parts, each: marginal cost; both shape (buckets, offers).
    """
    bucket, source = np.nonzero(count)
    now = each[bucket, source][:, None]
    loss = np.divide(each[bucket] - now, now, out=np.full((len(bucket), each.shape[1]), np.inf), where=now > 0)
    loss[np.arange(len(bucket)), source] = np.inf
    least = np.argsort(loss, axis=None, kind="stable")[:PAIRS]
    least = least[np.isfinite(loss.ravel()[least])]
    at, target = np.unravel_index(least, loss.shape)
    available = count[bucket[at], source[at]]
    repeated = np.repeat(np.arange(len(at)), available)
    parts = np.concatenate([np.arange(1, n + 1) for n in available]) if len(at) else np.zeros(0, dtype=np.int64)
    nothing = np.zeros(1, dtype=np.int64)
    return _Moves(
        *(
            np.concatenate([nothing, column]).astype(np.int64)
            for column in (bucket[at][repeated], source[at][repeated], target[repeated], parts)
        )
    )


def _best_two(
    splitter: Splitter, share: FloatArray, moves: _Moves, whole: int, prices: FloatArray
) -> tuple[float, int, int]:
    """Cost after the best two moves, and their numbers; 0 moves nothing."""
    used = np.where(share > 0, splitter.load, 0.0)
    load, variance = (used * share).sum(axis=0), (splitter.variance * share).sum(axis=0)
    more_load = _changes(np.where(splitter.serves, splitter.load, 0.0), moves, whole)
    more_variance = _changes(splitter.variance, moves, whole)
    first, second = np.triu_indices(len(moves.parts))
    # Two moves of the same parts may move more of them than there are.
    apart = (moves.bucket[first] != moves.bucket[second]) | (moves.source[first] != moves.source[second]) | (first == 0)
    first, second = first[apart], second[apart]
    instances = splitter.instances(
        np.maximum(load + more_load[first] + more_load[second], 0.0),
        np.maximum(variance + more_variance[first] + more_variance[second], 0.0),
    )
    cost = np.ceil(instances - TOLERANCE) @ prices
    at = int(cost.argmin())
    return float(cost[at]), int(first[at]), int(second[at])


def _changes(amount: FloatArray, moves: _Moves, whole: int) -> FloatArray:
    """Changes of the pools by each move, shape (moves, offers). amount: of whole buckets, shape (buckets, offers)."""
    found = np.zeros((len(moves.parts), amount.shape[1]))
    rows, share = np.arange(len(moves.parts)), moves.parts / whole
    found[rows, moves.source] -= share * amount[moves.bucket, moves.source]
    found[rows, moves.target] += share * amount[moves.bucket, moves.target]
    return found
