"""Search for one service's cheapest instances at any prices: counts of instances in the order of their cost.

Sets        b: buckets; g: offers
Data        price_g > 0;  load_bg, variance_bg and room(V), the headroom of a pool of variance V, as in
            `placement.mix.problem`; f: slices per bucket
Variables   y_g ∈ ℕ: instances; n_bg ∈ 0..f: slices of b on g, whole ones where the need has a slice factor
Objective   min Σ price_g·y_g
Constraints Σ_g n_bg = f;  Σ_b n_bg/f·load_bg + room(Σ_b n_bg/f·variance_bg) ≤ y_g

Few counts cost between the bound of the cheapest split (`placement.mix.pool_split`) and the optimum, so they are tried
one after the other. As those with an instance less were tried before, each pool needs more than all its instances but
one: that limits its variance, and between two variances a chord is nowhere above the headroom, which is concave. With
chords a count is one small linear program. Where it has no solution, its duals are prices at which the demand costs
more than the instances do, and they exclude most other counts. Where it has one that the headroom exceeds, the range of
a pool's variance is halved there. A count that is neither excluded nor found to serve limits the bound.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from placement.budget import Budget
from placement.highs_program import Entries, Program
from placement.mix.feasibility import TOLERANCE, is_feasible, seats_of
from placement.mix.heuristics import instances_for, seats_left
from placement.mix.pool_split import CROSSINGS, LEAST_PRICE, Splitter, cheapest_split, headroom
from placement.mix.problem import TANGENTS, Mix, MixQuestion, Need

FEW_OFFERS = 5
"""Offers of a first search. Chosen: of 20 they cost 1.7 % more than all do; 7 cost 0.9 % more, at twice the work."""
FEW_TRIALS = 3
"""Linear programs for each count in a first search. Chosen: it proves 0.7 % less than the optimum, with 20 0.3 %."""
FIRST_STEP = 0.004
"""First range of costs above the bound whose counts are listed, as a fraction of it. Chosen: many optima are within."""
STEP_GROWTH = 1.5
"""Factor from one range to the next. Chosen."""
MOST_COUNTS = 100_000
"""Counts, or parts of them, that are listed at a time. Chosen: 30 ms."""
LESS, MORE = 3, 9
"""Instances that a pool may have less than the cheapest split has, and more than that, where there are too many counts.
Chosen: of five offers they have some 10,000."""
MOST_DOUBTS = 100
"""Counts that may serve, without a mix on exactly them, after which a search ends. Chosen."""
AT_ONCE = 256
"""Counts that prices exclude at a time. Chosen."""
SPREAD = 0.1
"""Relative difference of costs at which an offer is e times less promising. Chosen; at 0.05 and 0.2 mixes are alike."""
SPARE = 0.02
"""What room that is left is worth beside an instance that is missing. Chosen: far less."""
RISK = 0.25
"""Fraction of the headroom that a solution exceeds its chords by, and that is worth trying. Measured alike."""
MOVES = 24
"""Moves of a slice that are tried in pairs. Chosen: with 60 no more roundings succeed."""
WORK_PER_SEARCH = 4.0
"""Work of a search besides its counts, in simplex iterations. Measured: 1 ms."""
COUNTS_PER_WORK = 5_000.0
"""Counts that are listed per unit of work. Measured: 0.03 µs each."""
PAIRS_PER_WORK = 45.0
"""Buckets and offers in a linear program per unit of work. Measured: 0.2 to 0.4 ms for 60 of them."""
WORK_PER_ROUNDING = 5.0
"""Work of a rounding. Measured: 1 to 2 ms."""


def cheapest(
    alone: MixQuestion,
    prices: FloatArray,
    budget: Budget,
    gap: float,
    *,
    most: float = math.inf,
    bound: float = -math.inf,
    offers: int | None = None,
    trials: int = FEW_TRIALS,
    fewest: IntArray | None = None,
    limit: IntArray | None = None,
) -> tuple[Mix | None, float]:
    """A mix of a question's only need at these prices of an instance, shape (offers,), and a bound on all its mixes.

    The mix costs less than `most`, the cost of a known one, by more than the gap; None: there is none, or it was not
    found. bound: known one. offers: number of promising ones that are searched, which proves nothing; None: all of
    them. trials: linear programs for each count. fewest, limit: of each offer's instances.
    """
    (need,) = alone.needs
    floor = 0 * need.running_counts if fewest is None else fewest
    if not need.cells:
        return Mix(floor, np.zeros((0, len(prices)))), max(bound, 0.0)
    few = np.flatnonzero((floor > 0) | (np.argsort(_promising(need, prices)) < (offers or len(prices))))
    part, mix = replace(need, offers=tuple(need.offers[g] for g in few)), None
    if np.isfinite([offer.load for offer in part.offers]).any(axis=0).all():
        search = _Search(replace(alone, needs=(part,)), prices[few], floor[few], budget, trials)
        if limit is not None:
            search.limit = np.minimum(search.limit, limit[few])
        mix, proven = search.run(gap, most, bound)
        if len(few) == len(prices):
            return mix, max(bound, proven)
    if mix is not None:
        among, mix = mix, Mix(floor.copy(), np.zeros((len(need.cells), len(prices))))
        mix.instances[few], mix.share[:, few] = among.instances, among.share
    return mix, bound if math.isfinite(bound) else cheapest_split(need, prices, budget).bound


def _promising(need: Need, prices: FloatArray) -> IntArray:
    """Offers by the dollars of buckets that are cheap on them, the most first."""
    load = np.column_stack([offer.load for offer in need.offers])
    serves = np.isfinite(load)
    busy = np.maximum(np.where(serves, load, 0.0).sum(axis=0), LEAST_PRICE)
    dollars = load * np.maximum(prices, LEAST_PRICE) * np.maximum(1.0, instances_for(need, serves.astype(float)) / busy)
    best = dollars.min(axis=1, keepdims=True)
    share = (np.maximum(dollars, LEAST_PRICE) / np.maximum(best, LEAST_PRICE)) ** (-1 / SPREAD)
    worth = (best * share / share.sum(axis=1, keepdims=True)).sum(axis=0)
    return np.argsort(-worth, kind="stable")


class _Search:
    """One search. By offer and count: the variances that a pool may have, and its chord between them."""

    def __init__(self, alone: MixQuestion, prices: FloatArray, fewest: IntArray, budget: Budget, trials: int) -> None:
        (self.need,), self.alone, self.fewest, self.budget, self.trials = alone.needs, alone, fewest, budget, trials
        self.prices = np.maximum(LEAST_PRICE, prices)
        splitter = Splitter(self.need)
        self.serves = splitter.serves
        whole = np.maximum(fewest, instances_for(self.need, self.serves.astype(float)))
        self.limit = np.minimum(whole, [seats_left(offer, alone.stock) for offer in self.need.offers]).astype(np.int64)
        self.load = np.where(self.serves, splitter.load, 0.0) / (1 - (self.need.headroom_share or 0.0))
        self.variance = splitter.variance * (self.need.headroom_share is None)
        counts = np.arange(int(self.limit.max(initial=0)) + 1)
        ranges = [_variances(counts, *each) for each in zip(self.load.T, self.variance.T, strict=True)]
        self.low, self.high = np.array([low for low, _ in ranges]), np.array([high for _, high in ranges])
        self.low[counts <= fewest[:, None]] = 0.0  # no count with an instance less is tried
        self.slope, self.room = _chord(self.low, self.high)
        self.bucket, self.offer = np.nonzero(self.serves)
        self.program = self._program()
        self.duals = [self.prices]
        """Prices that exclude counts."""

    def run(self, gap: float, most: float, known: float) -> tuple[Mix | None, float]:
        split = cheapest_split(self.need, self.prices, self.budget)
        self.budget.spend(WORK_PER_SEARCH)
        low, step, bound = max(known, split.bound, float(self.fewest @ self.prices)), FIRST_STEP, math.inf
        best, doubts = None, 0
        high = min(most * (1 - gap) - TOLERANCE, float(self.prices @ self.limit) + TOLERANCE)
        while low < high:
            upper = min(low * (1 + step), high)
            counts = self._counts(low, upper, self.fewest, self.limit)
            if counts is None:  # many instances: those near the cheapest split
                bound, fewest = min(low, bound), np.maximum(self.fewest, split.instances.astype(np.int64) - LESS)
                near = np.minimum(self.limit, fewest + np.where(split.instances > 0, MORE, LESS))
                counts = self._counts(low, upper, np.minimum(fewest, near), near)
            for count in self._left(counts if counts is not None else fewest[:0, None]):
                cost = float(count @ self.prices)
                if cost > high:
                    break
                if not self.budget.allows_more() or doubts == MOST_DOUBTS:
                    return best, min(cost, bound)
                mix, may_serve = self._mix_on(count)
                if mix is not None and float(mix.instances @ self.prices) <= high:
                    best, high = mix, float(mix.instances @ self.prices) * (1 - gap) - TOLERANCE
                if best is not None and cost > high:
                    return best, min(cost, bound)
                if may_serve:
                    bound, doubts = min(cost, bound), doubts + 1
            low, step = upper, step * STEP_GROWTH
        return best, min(low, bound)

    def _counts(self, low: float, high: float, fewest: IntArray, most: IntArray) -> IntArray | None:
        """Counts within these that cost between those, the cheapest first, shape (counts, offers); None: too many."""
        order = np.argsort(-self.prices, kind="stable")
        counts, cost = np.zeros((1, 0), dtype=np.int64), np.full(1, fewest @ self.prices)
        for g in order:
            more = np.minimum(np.floor((high - cost) / self.prices[g] + 1e-9), most[g] - fewest[g])
            each = 1 + np.maximum(-1, more).astype(np.int64)
            if each.sum() > MOST_COUNTS:
                return None
            self.budget.spend(each.sum() / COUNTS_PER_WORK)
            row = np.repeat(np.arange(len(each)), each)
            count = np.arange(len(row)) - np.repeat(np.cumsum(each) - each, each)
            counts, cost = np.column_stack([counts[row], count]), cost[row] + count * self.prices[g]
        within = cost >= low - 1e-9
        ascending = np.argsort(cost[within], kind="stable")
        in_order: IntArray = fewest + counts[within][ascending][:, np.argsort(order)]
        return in_order

    def _left(self, counts: IntArray) -> Iterator[IntArray]:
        """Counts that no prices exclude by the time that they are next."""
        for start in range(0, len(counts), AT_ONCE):
            part, known = counts[start : start + AT_ONCE], 0
            while len(part):
                for prices in self.duals[known:]:
                    part = part[~self._excluded(part, prices)]
                known = len(self.duals)
                if len(part):
                    yield part[0]
                    part = part[1:]

    def _excluded(self, counts: IntArray, prices: FloatArray) -> BoolArray:
        """Whether the demand costs more than these instances do, shape (counts,)."""
        at, paid = np.arange(len(prices)), np.maximum(prices, LEAST_PRICE)
        load, slope = np.where(self.serves, paid * self.load, np.inf).T, paid * self.slope[at, counts]
        # A table by count would be of a gigabyte where there are ten thousands of instances.
        each = load + slope[:, :, None] * self.variance.T + np.where(counts > 0, 0.0, np.inf)[:, :, None]
        least = each.min(axis=1).sum(axis=1)
        beyond: BoolArray = least + self.room[at, counts] @ paid > counts @ paid + TOLERANCE * paid.sum()
        return beyond

    def _mix_on(self, count: IntArray) -> tuple[Mix | None, bool]:
        """The demand on these instances or few more, and whether these may serve it."""
        if self.alone.stock and seats_of(self.alone, (Mix(count, self.load[:0]),)) is None:
            return None, False
        at = np.arange(len(count))
        ranges = [(self.low[at, count], self.high[at, count])]
        for _ in range(self.trials):
            low, high = ranges.pop()
            slope, room = _chord(low, high)
            share, spare = self._shares(count, slope, room)
            if share is not None:
                variance = (share * self.variance).sum(axis=0)
                beyond = np.where(count > 0, headroom(variance) - slope * variance - room, 0.0)
                if spare >= RISK * beyond.sum():
                    return self._rounded(share, count), True
                g = int(beyond.argmax())
                if beyond[g] < TOLERANCE or not low[g] < variance[g] < high[g]:
                    break
                middle = variance[g]
                ranges += [(low, np.where(at == g, middle, high)), (np.where(at == g, middle, low), high)]
            if not ranges:
                return None, False
        return None, True

    def _program(self) -> Program:
        """Instances that are missing, at their prices, less a little of what every pool leaves free.

        Rows: buckets; loads and variances of the pools. Columns: shares; by pool what is missing, and its variance; the
        room that is left.
        """
        buckets, offers, pairs = *self.load.shape, len(self.bucket)
        load, variance = buckets + np.arange(offers), buckets + offers + np.arange(offers)
        sent, missing = np.arange(pairs), pairs + np.arange(offers)
        varies, spare = missing + offers, np.full(offers, pairs + 2 * offers)
        one, amounts = np.ones(offers), (self.load, self.variance)
        entries = Entries(
            np.concatenate([self.bucket, load[self.offer], variance[self.offer], load, load, load, variance]),
            np.concatenate([sent, sent, sent, missing, varies, spare, varies]),
            np.concatenate([np.ones(pairs), *(a[self.bucket, self.offer] for a in amounts), -one, 0 * one, one, -one]),
        )
        cost = np.concatenate([np.zeros(pairs), self.prices, 0 * one, [-SPARE * self.prices.min() / offers]])
        lowest = np.concatenate([np.ones(buckets), -np.inf * one, 0 * one])
        return Program(cost, np.full(len(cost), np.inf), lowest, np.maximum(lowest, 0.0), entries)

    def _shares(self, count: IntArray, slope: FloatArray, room: FloatArray) -> tuple[FloatArray | None, float]:
        """Shares in any fraction that serve the demand with these chords, and the instances that each pool leaves free.

        None: there are none. Prices that show it are kept.
        """
        buckets, offers, pairs = *self.load.shape, len(self.bucket)
        load, used = buckets + np.arange(offers), count > 0
        upper = np.append(used[self.offer].astype(float), np.full(2 * offers + 1, np.inf))
        limit = np.concatenate([np.ones(buckets), np.where(used, count - room, np.inf), np.zeros(offers)])
        self.program.change(upper, limit, Entries(load, pairs + offers + np.arange(offers), slope))
        self.budget.spend(pairs / PAIRS_PER_WORK)
        if not self.program.solve():  # a bucket has no offer
            self.duals.append(self.prices)
            return None, 0.0
        values = self.program.values
        if values[pairs : pairs + offers].sum() > TOLERANCE / 2:
            self.duals.append(np.clip(-self.program.row_duals[load], 0.0, self.prices))
            return None, 0.0
        share = np.zeros_like(self.load)
        share[self.bucket, self.offer] = np.where(values[:pairs] > TOLERANCE / 10, values[:pairs], 0.0)
        return share / share.sum(axis=1, keepdims=True), float(values[-1])

    def _rounded(self, share: FloatArray, count: IntArray) -> Mix | None:
        """These shares in whole slices, moved two at a time until these instances serve them, or with few more."""
        self.budget.spend(WORK_PER_ROUNDING)
        parts = self.need.slice_factor
        if parts is None:
            return self._checked(share, count)
        amounts = (self.load / parts, self.variance / parts)
        sent = np.floor(share * parts + TOLERANCE).astype(np.int64)
        most_left = np.argsort(sent - share * parts, axis=1, kind="stable")
        for row, missing in enumerate((parts - sent.sum(axis=1)).tolist()):
            sent[row, most_left[row, :missing]] += 1
        may = (self.serves & (count > 0))[:, None, :] & ~np.eye(len(count), dtype=bool)
        while True:
            bucket, source, target = np.nonzero((sent > 0)[:, :, None] & may)
            rows, nothing = np.arange(len(bucket)), len(bucket)
            after = np.zeros((2, nothing + 1, len(count)))
            for change, each in zip(after, amounts, strict=True):
                change[rows, source] -= each[bucket, source]
                change[rows, target] += each[bucket, target]
            now = np.array([(sent * each).sum(axis=0) for each in amounts])[:, None, :]
            missing = self._missing(now + after, count)
            best = np.append(np.argsort(missing[:nothing], kind="stable")[:MOVES], nothing)
            first, second = (best[each] for each in np.triu_indices(len(best), 1))
            bucket, source = np.append(bucket, -1), np.append(source, -1)
            apart = (bucket[first] != bucket[second]) | (source[first] != source[second])
            first, second = first[apart], second[apart]
            both = self._missing(now + after[:, first] + after[:, second], count)
            if not len(both) or both.min() >= missing[nothing] - TOLERANCE / 10:
                return self._checked(sent / parts, count)
            for n in (first[both.argmin()], second[both.argmin()]):
                if n < nothing:
                    sent[bucket[n], source[n]] -= 1
                    sent[bucket[n], target[n]] += 1

    def _missing(self, pools: FloatArray, count: IntArray) -> FloatArray:
        """Instances that these pools need beyond those that there are. pools: loads and variances."""
        needed = pools[0] + headroom(np.maximum(pools[1], 0.0))
        beyond: FloatArray = np.maximum(needed - count - TOLERANCE / 2, 0.0).sum(axis=-1)
        return beyond

    def _checked(self, share: FloatArray, count: IntArray) -> Mix | None:
        mix = Mix(np.maximum(count, instances_for(self.need, share)), share)
        return mix if (mix.instances <= self.limit).all() and is_feasible(self.alone, (mix,)) else None


def _chord(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Slopes and rooms of lines that are nowhere above the headroom between these variances."""
    start, end = headroom(low), headroom(high)
    slope = np.divide(end - start, high - low, out=np.zeros_like(low), where=high > low)
    return slope, start - slope * low


def _variances(counts: IntArray, load: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Least and most variance of pools that need more than all these instances but one, and no more than all.

    They hold the buckets of the least or the most variance per load, shape (buckets,).
    """
    found = []
    ascending = np.argsort(variance / np.maximum(load, LEAST_PRICE), kind="stable")
    for less, order, first in ((1, ascending, TANGENTS[0].room), (0, ascending[::-1], 0.0)):
        held, number = np.zeros((2, len(load) + 1)), np.arange(len(load) + 1)
        held[:, 1:] = np.cumsum([load[order], variance[order]], axis=1)
        at = np.sort(np.append(number, np.interp(CROSSINGS, held[1], number)))
        busy, varies = (np.interp(at, number, each) for each in held)
        found.append(np.interp(counts - less, busy + np.maximum(headroom(varies), first), varies))
    return found[0], np.maximum(*found)
