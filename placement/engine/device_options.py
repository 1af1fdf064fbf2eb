"""Device choices for a pod on each node, and a cache of the values of the node states that they leave.

The state of a node after a pod is added repeats massively: thousands of lookups a second fall on a few hundred new
states. The key of a state is a 64-bit number, a sum of random words: one per (device, thousandths left) whatever the
device's place, one for CPU and GPU type.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.arrays import FloatArray, IntArray
from cluster.workloads import WHOLE_GPU_MILLI, PodShape
from placement.engine.ledger import Ledger, left_after, tightest_devices
from placement.engine.policy import Rated

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
        known, numbers = self._known, words.tolist()
        found = [known.get(word) for word in numbers]
        if None in found:
            first: dict[int, int] = {}
            for position, value in enumerate(found):
                if value is None:
                    first.setdefault(numbers[position], position)
            new = self._evaluate(*states(np.fromiter(first.values(), dtype=np.int64, count=len(first))))
            fresh = dict(zip(first, new.tolist(), strict=True))
            if len(known) > self._most:
                known.clear()
            known.update(fresh)
            found = [fresh[word] if value is None else value for word, value in zip(numbers, found, strict=True)]
        return np.array(found, dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceOptions:
    """Device choices: one per device with enough left for a pod with a fraction of a GPU, one per node for others."""

    count: int
    """Number of nodes; each has at least one option."""
    node: IntArray
    """Shape (options,): position in the given nodes; ascending."""
    devices: IntArray
    """Shape (options,): the bit mask that the pod would hold; ascending within a node."""
    gpu_type: IntArray
    """Shape (options,), as are the next two."""
    cpu_milli: IntArray
    """Free CPU afterwards."""
    words: Words
    """Number of the state afterwards (placement/engine/device_options.py)."""
    words_before: Words
    """Shape (nodes,): number of the state now."""
    before_milli: IntArray
    """Shape (nodes, width): thousandths left of each device now."""
    shape: PodShape

    def states(self, picked: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """States after some of the options: GPU type, free CPU, and thousandths left per device (picked, width)."""
        left = left_after(self.shape, self.before_milli[self.node[picked]], self.devices[picked])
        return self.gpu_type[picked], self.cpu_milli[picked], left

    def values(self, memo: StateMemo) -> FloatArray:
        """Cached value of the state after each option. Shape (options,)."""
        return memo.of_words(self.words, self.states)

    def losses(self, memo: StateMemo, ledger: Ledger, nodes: IntArray) -> FloatArray:
        """Drop of its node's cached value by each option. Shape (options,). nodes: those passed to `options`."""
        now = (ledger.gpu_type[nodes], ledger.cpu_milli[nodes], self.before_milli)

        def states(picked: IntArray) -> tuple[IntArray, IntArray, IntArray]:
            after = self.states(np.arange(len(self.node)))
            kind, cpu_milli, left = (np.concatenate(both)[picked] for both in zip(now, after, strict=True))
            return kind, cpu_milli, left

        # One call for both sides: new states are then computed together, in half the time.
        values = memo.of_words(np.concatenate([self.words_before, self.words]), states)
        losses: FloatArray = values[self.node] - values[self.count :]
        return losses

    def cheapest(self, cost: FloatArray) -> Rated:
        """Cheapest option of each node, the lowest device among equals. cost: shape (options,)."""
        if len(self.node) == self.count:
            return Rated(cost, self.devices)
        order = np.lexsort((cost, self.node))  # stable: equals keep their order
        first = order[np.searchsorted(self.node, np.arange(self.count))]
        return Rated(cost[first], self.devices[first])


def options(shape: PodShape, ledger: Ledger, nodes: IntArray) -> DeviceOptions:
    """Options of a pod on nodes that can all take it."""
    count, before = len(nodes), ledger.gpu_milli[nodes]
    cpu_before = ledger.cpu_milli[nodes]
    cpu_milli = cpu_before - shape.cpu_milli
    gpu_type = ledger.gpu_type[nodes]
    both_types, both_cpus = np.concatenate([gpu_type, gpu_type]), np.concatenate([cpu_before, cpu_milli])
    if shape.gpus != 1 or shape.is_whole_gpu:
        devices = tightest_devices(shape, before)
        words = words_of(both_types, both_cpus, np.concatenate([before, left_after(shape, before, devices)]))
        of_now, of_then = words[:count], words[count:]
        return DeviceOptions(count, np.arange(count), devices, gpu_type, cpu_milli, of_then, of_now, before, shape)
    node, device = np.nonzero(before >= shape.gpu_milli)
    words_before = device_words(before)
    now = before[node, device]
    # Only one device differs from the node's present state: its word is exchanged, the sum of the others stays.
    whole = cpu_words(both_types, both_cpus).reshape(2, count) + words_before.sum(axis=1, dtype=np.uint64)
    words = whole[1][node] - words_before[node, device] + device_words(now - shape.gpu_milli)
    masks: IntArray = np.left_shift(1, device)
    return DeviceOptions(count, node, masks, gpu_type[node], cpu_milli[node], words, whole[0], before, shape)
