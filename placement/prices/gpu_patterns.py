"""Patterns of fractional pods that share one GPU, and the best of them under given prices."""

from collections.abc import Sequence
from math import gcd

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.workloads import WHOLE_GPU_MILLI


def single_size_patterns(sizes_milli: Sequence[int]) -> IntArray:
    """For each size, the GPU that holds as many of it as fit, filled up with smaller ones. Shape (sizes, sizes)."""
    patterns = np.zeros((len(sizes_milli), len(sizes_milli)), dtype=np.int64)
    for first, size in enumerate(sizes_milli):
        left = WHOLE_GPU_MILLI
        for number in sorted(range(len(sizes_milli)), key=lambda n: (n != first, -sizes_milli[n])):
            if number == first or sizes_milli[number] < size:
                patterns[first, number], left = divmod(left, sizes_milli[number])
    return patterns


def best_patterns(sizes_milli: Sequence[int], price: FloatArray) -> tuple[FloatArray, IntArray]:
    """Most valuable way to fill one GPU, for several price lists at once: an unbounded knapsack.

    price: shape (lists, sizes), what one pod of that size pays.
    Returns the best total, shape (lists,), and the counts that attain it, shape (lists, sizes).
    """
    lists, count = price.shape
    if not count:
        return np.zeros(lists), np.zeros((lists, 0), dtype=np.int64)
    unit = gcd(WHOLE_GPU_MILLI, *sizes_milli)
    size = np.array(sizes_milli, dtype=np.int64) // unit
    room = WHOLE_GPU_MILLI // unit
    # Rows below zero mean "does not fit"; best[room_left] starts at row `offset`.
    offset = int(size.max())
    best = np.full((offset + room + 1, lists), -np.inf)
    best[offset] = 0.0
    last = np.full((room + 1, lists), -1, dtype=np.int64)
    every_list = np.arange(lists)
    for left in range(1, room + 1):
        offers = best[offset + left - size] + price.T
        choice = offers.argmax(axis=0)
        offered = offers[choice, every_list]
        kept = best[offset + left - 1]
        better = offered > kept
        best[offset + left] = np.where(better, offered, kept)
        last[left] = np.where(better, choice, -1)
    return best[offset + room], _counts(last, size)


def _counts(last: IntArray, size: IntArray) -> IntArray:
    """Counts, found by walking back through the choices of `best_patterns`."""
    counts = np.zeros((last.shape[1], len(size)), dtype=np.int64)
    for row in range(last.shape[1]):
        left = last.shape[0] - 1
        while left > 0:
            chosen = last[left, row]
            if chosen < 0:
                left -= 1
            else:
                counts[row, chosen] += 1
                left -= int(size[chosen])
    return counts
