"""Cache of values that depend on a node's state alone, so that each distinct state is computed once.

The state of a node after a pod is added repeats massively: thousands of lookups a second fall on a few hundred new
states. The key of a state is a 64-bit number, a sum of random words: one per (device, thousandths left) whatever the
device's place, one for CPU and GPU type.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cluster.arrays import FloatArray, IntArray
from cluster.workloads import WHOLE_GPU_MILLI

Words = NDArray[np.uint64]
Evaluate = Callable[[IntArray, IntArray, IntArray], FloatArray]
"""(GPU type, free CPU, thousandths left per device) of distinct states → one value each. The value must not depend on
the order of a node's devices."""
States = Callable[[IntArray], tuple[IntArray, IntArray, IntArray]]
"""Positions in an array of numbers → (GPU type, free CPU, thousandths left per device) of these states."""

MOST_STATES = 400_000
"""Cached states before all are dropped: about 60 MB. A replay of openb under FGD meets 33,000."""

_DEVICE: Words = np.random.default_rng(0x70E).integers(2**64, size=WHOLE_GPU_MILLI + 1, dtype=np.uint64)
_ODD = np.uint64(0x9E3779B97F4A7C15)  # the golden ratio in 64 bits: spreads neighbouring numbers
_MIX = np.uint64(0xBF58476D1CE4E5B9)  # the multiplier of splitmix64's finaliser


def words_of(gpu_type: IntArray, cpu_milli: IntArray, gpu_milli: IntArray) -> Words:
    """64-bit number per state, equal for equal states whatever the order of the devices.

    Two of a million different states share a number with a chance of 3 in 100 million.
    """
    words: Words = cpu_words(gpu_type, cpu_milli) + device_words(gpu_milli).sum(axis=1, dtype=np.uint64)
    return words


def cpu_words(gpu_type: IntArray, cpu_milli: IntArray) -> Words:
    """Part of a state's number for its free CPU and GPU type."""
    mixed: Words = (cpu_milli.astype(np.uint64) * np.uint64(64) + (gpu_type + 1).astype(np.uint64)) * _ODD
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIX
    mixed ^= mixed >> np.uint64(32)
    return mixed


def device_words(left_milli: IntArray) -> Words:
    """Parts of a state's number for devices, to be summed over a node's devices. Over-committed counts as full."""
    words: Words = _DEVICE.take(left_milli, mode="clip")
    return words


class StateMemo:
    """Cache of one value per state."""

    def __init__(self, evaluate: Evaluate, most: int = MOST_STATES) -> None:
        self._evaluate = evaluate
        self._most = most
        self._known: dict[int, float] = {}

    def of(self, gpu_type: IntArray, cpu_milli: IntArray, gpu_milli: IntArray) -> FloatArray:
        """Values of states. gpu_type, cpu_milli: shape (states,); gpu_milli: (states, width)."""
        words = words_of(gpu_type, cpu_milli, gpu_milli)
        return self.of_words(words, lambda new: (gpu_type[new], cpu_milli[new], gpu_milli[new]))

    def of_words(self, words: Words, states: States) -> FloatArray:
        """Values of states by number; `states` builds the new ones (positions in `words`), which are few."""
        known = self._known
        found = [known.get(word) for word in words.tolist()]
        return np.array(self._with_new(words, found, states) if None in found else found, dtype=np.float64)

    def _with_new(self, words: Words, found: Sequence[float | None], states: States) -> list[float]:
        """The same values with those of the unknown states, which it computes and remembers."""
        numbers, first = words.tolist(), dict[int, int]()
        for position, value in enumerate(found):
            if value is None:
                first.setdefault(numbers[position], position)
        new = self._evaluate(*states(np.fromiter(first.values(), dtype=np.int64, count=len(first))))
        fresh = dict(zip(first, new.tolist(), strict=True))
        if len(self._known) > self._most:
            self._known.clear()
        self._known.update(fresh)
        return [fresh[word] if value is None else value for word, value in zip(numbers, found, strict=True)]
