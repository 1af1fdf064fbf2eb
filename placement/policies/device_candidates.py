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
            is_now = picked < self.count
            after = self.states(picked[~is_now] - self.count)
            order = np.argsort(np.argsort(~is_now, kind="stable"), kind="stable")
            joined = [np.concatenate([n[picked[is_now]], a])[order] for n, a in zip(now, after, strict=True)]
            return joined[0], joined[1], joined[2]

        # One call for both sides: new states are then computed together, in half the time.
        values = memo.of_words(np.concatenate([words_of(*now), self.words]), states)
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
    before = ledger.gpu_milli[nodes]
    cpu_milli = ledger.cpu_milli[nodes] - shape.cpu_milli
    gpu_type = ledger.gpu_type[nodes]
    if shape.gpus != 1 or shape.is_whole_gpu:
        devices = tightest_devices(shape, before)
        words = words_of(gpu_type, cpu_milli, left_after(shape, before, devices))
        return Options(len(nodes), np.arange(len(nodes)), devices, gpu_type, cpu_milli, words, before, shape)
    node, device = np.nonzero(before >= shape.gpu_milli)
    words_before = device_words(before)
    now = before[node, device]
    # Only one device differs from the node's present state: its word is exchanged, the sum of the others stays.
    whole = cpu_words(gpu_type, cpu_milli) + words_before.sum(axis=1, dtype=np.uint64)
    words = whole[node] - words_before[node, device] + device_words(now - shape.gpu_milli)
    masks: IntArray = np.left_shift(1, device)
    return Options(len(nodes), node, masks, gpu_type[node], cpu_milli[node], words, before, shape)
