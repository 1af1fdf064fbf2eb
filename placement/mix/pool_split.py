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

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from placement.budget import Budget
from placement.mix.problem import RANGES, TANGENTS, Need

MOST_STATES = 300
"""Combinations of lines that are kept at a time; the least bound of the others limits the proven one. Chosen: with 20
GPU types it is 0.1 % below that of ten times as many, in a fifth of the work."""
WORK_PER_SPLIT = 3.0
"""Work of a split besides its combinations, in simplex iterations. Measured: 0.3 to 0.5 ms."""
STATES_PER_WORK = 500.0
"""Combinations of lines, of some 40 buckets, per unit of work. Measured: 0.1 µs each and more."""
NO_VARIANCE = 1e-9
"""Variance that is within the tolerances of solvers."""
LEAST_PRICE = 1e-9
"""Dollars per instance and hour of what is free: 0 times an infinite load has no value."""

_SLOPES = np.array([tangent.slope for tangent in TANGENTS])
_ROOMS = np.array([tangent.room for tangent in TANGENTS])
CROSSINGS = np.array([high for _, high in RANGES[:-1]])
"""Variances at which the lowest line changes."""

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

    def cheapest(self, prices: FloatArray) -> Split:
        """The cheapest split. prices: of an instance, shape (offers,), all above 0."""
        least = [price * each for price, each in zip(prices, self.least, strict=True)]
        known, lines = self._descended(prices, self._lines_of(np.array(least).argmin(axis=0)))
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
        work = WORK_PER_SPLIT + states / STATES_PER_WORK
        instances = load / (1 - self.headroom_share) if self.headroom_share is not None else load + headroom(variance)
        return Split(bound, offer, instances, work)

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


def headroom(variance: FloatArray) -> FloatArray:
    """`placement.mix.problem.burst_room` of many pools at once."""
    lowest = np.searchsorted(CROSSINGS, variance)
    return np.where(variance > NO_VARIANCE, _SLOPES[lowest] * variance + _ROOMS[lowest], 0.0)


def cheapest_split(need: Need, prices: FloatArray, budget: Budget) -> Split:
    """The cheapest split at these prices of an instance, shape (offers,). Charged to the budget."""
    split = Splitter(need).cheapest(np.maximum(LEAST_PRICE, prices))
    budget.spend(split.work)
    return split
