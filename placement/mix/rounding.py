"""Whole instances near a split of any fraction: parts of a few buckets move until every pool is nearly full."""

from typing import NamedTuple

import numpy as np

from cluster.arrays import FloatArray, IntArray
from placement.budget import Budget
from placement.mix.feasibility import TOLERANCE
from placement.mix.heuristics import instances_for
from placement.mix.pool_split import LEAST_PRICE, Split, Splitter
from placement.mix.problem import Mix, Need

PAIRS = 24
"""Buckets and offers that parts may move to, those of the least loss. Chosen: with 16 the mixes of 20 services cost
0.19 % more than their splits, with 24 they cost 0.11 % more."""
MOST_STEPS = 4
"""Steps, each of which moves parts of up to two buckets. Chosen; most end after two."""
MOST_STEPS_LIMITED = 12
"""The same where the number of instances is limited: whole buckets may have to leave."""
EXCESS = 10.0
"""Price of an instance beyond the limit, as a multiple of its own."""
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


def rounded(need: Need, splitter: Splitter, split: Split, prices: FloatArray, most: FloatArray | None = None) -> Mix:
    """A mix of whole instances and slices near that split, as cheap as few moves make it at these prices.

    most: shape (offers,), instances that there may be of each, as far as the moves reach; None: any number.
    """
    whole = need.slice_factor or ANY_SPLIT_PARTS
    count = np.zeros((len(split.offer), len(need.offers)), dtype=np.int64)
    count[np.arange(len(split.offer)), split.offer] = whole
    best = np.inf
    steps = MOST_STEPS if most is None else MOST_STEPS_LIMITED
    for _ in range(steps if len(count) else 0):  # without demand there is nothing to move
        moves = _moves(count, split.each.T)
        cost, first, second = _best_two(splitter, count / whole, moves, whole, prices, most)
        if not cost < best - 1e-9:
            break
        best = cost
        for n in (first, second):
            if n:
                count[moves.bucket[n], moves.source[n]] -= moves.parts[n]
                count[moves.bucket[n], moves.target[n]] += moves.parts[n]
    share = count / whole
    return Mix(instances_for(need, share), share)


def split_and_rounded(
    need: Need, prices: FloatArray, budget: Budget, most: FloatArray | None = None
) -> tuple[Split, Mix]:
    """The cheapest split at these prices of an instance, shape (offers,), and a mix near it. Charged to the budget.

    most: see `rounded`.
    """
    splitter, paid = Splitter(need), np.maximum(LEAST_PRICE, prices)
    split = splitter.cheapest(paid)
    budget.spend(split.work + WORK_PER_ROUNDING)
    return split, rounded(need, splitter, split, paid, most)


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
    splitter: Splitter, share: FloatArray, moves: _Moves, whole: int, prices: FloatArray, most: FloatArray | None
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
    counts = np.ceil(instances - TOLERANCE)
    cost = counts @ prices
    if most is not None:
        cost = cost + EXCESS * (np.maximum(0.0, counts - most) @ prices)
    at = int(cost.argmin())
    return float(cost[at]), int(first[at]), int(second[at])


def _changes(amount: FloatArray, moves: _Moves, whole: int) -> FloatArray:
    """Changes of the pools by each move, shape (moves, offers). amount: of whole buckets, shape (buckets, offers)."""
    found = np.zeros((len(moves.parts), amount.shape[1]))
    rows, share = np.arange(len(moves.parts)), moves.parts / whole
    found[rows, moves.source] -= share * amount[moves.bucket, moves.source]
    found[rows, moves.target] += share * amount[moves.bucket, moves.target]
    return found
