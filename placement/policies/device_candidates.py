"""Device choices for a pod on each node, and the state that each would leave; fine-grained policies rate them."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.workloads import PodShape
from placement.engine.device_fit import left_after, tightest_devices
from placement.engine.ledger import Ledger
from placement.engine.policy import Rated
from placement.engine.state_memo import StateMemo, Words, cpu_words, device_words, words_of


@dataclass(frozen=True, slots=True, eq=False)
class Options:
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
    """Number of the state afterwards (placement/engine/state_memo.py)."""
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


def options(shape: PodShape, ledger: Ledger, nodes: IntArray) -> Options:
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
        return Options(count, np.arange(count), devices, gpu_type, cpu_milli, of_then, of_now, before, shape)
    node, device = np.nonzero(before >= shape.gpu_milli)
    words_before = device_words(before)
    now = before[node, device]
    # Only one device differs from the node's present state: its word is exchanged, the sum of the others stays.
    whole = cpu_words(both_types, both_cpus).reshape(2, count) + words_before.sum(axis=1, dtype=np.uint64)
    words = whole[1][node] - words_before[node, device] + device_words(now - shape.gpu_milli)
    masks: IntArray = np.left_shift(1, device)
    return Options(count, node, masks, gpu_type[node], cpu_milli[node], words, whole[0], before, shape)
