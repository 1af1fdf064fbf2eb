"""The ways in which a pod could take a node's devices, and what each would leave: what fine-grained policies rate."""

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
    """Each entry is one way: a pod with a share of one GPU has one per device that has room, others one per node."""

    count: int
    """How many nodes were asked about; each has at least one option."""
    node: IntArray
    """Shape (options,): position in the nodes that were asked about; rising."""
    devices: IntArray
    """Shape (options,): the bit mask that the pod would hold; rising within a node."""
    gpu_type: IntArray
    """Shape (options,), as are the next two."""
    cpu_milli: IntArray
    """Free CPU afterwards."""
    words: Words
    """The number of the state afterwards (placement/engine/state_memo.py)."""
    before_milli: IntArray
    """Shape (nodes, width): what is left of each device now."""
    shape: PodShape

    def states(self, picked: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """What some of the options leave: GPU type, free CPU, and thousandths left per device (picked, width)."""
        left = left_after(self.shape, self.before_milli[self.node[picked]], self.devices[picked])
        return self.gpu_type[picked], self.cpu_milli[picked], left

    def values(self, memo: StateMemo) -> FloatArray:
        """The remembered value of what each option leaves. Shape (options,)."""
        return memo.of_words(self.words, self.states)

    def losses(self, memo: StateMemo, ledger: Ledger, nodes: IntArray) -> FloatArray:
        """By how much each option lowers the remembered value of its node. Shape (options,). nodes: as asked about."""
        now = (ledger.gpu_type[nodes], ledger.cpu_milli[nodes], self.before_milli)

        def states(picked: IntArray) -> tuple[IntArray, IntArray, IntArray]:
            is_now = picked < self.count
            after = self.states(picked[~is_now] - self.count)
            order = np.argsort(np.argsort(~is_now, kind="stable"), kind="stable")
            joined = [np.concatenate([n[picked[is_now]], a])[order] for n, a in zip(now, after, strict=True)]
            return joined[0], joined[1], joined[2]

        # One question for both sides: what is new of them is then worked out in one go, in half the time.
        values = memo.of_words(np.concatenate([words_of(*now), self.words]), states)
        losses: FloatArray = values[self.node] - values[self.count :]
        return losses

    def cheapest(self, cost: FloatArray) -> Rated:
        """Each node's option of least cost, the lowest device among equals. cost: shape (options,)."""
        if len(self.node) == self.count:
            return Rated(cost, self.devices)
        order = np.lexsort((cost, self.node))  # stable: equals keep their order
        first = order[np.searchsorted(self.node, np.arange(self.count))]
        return Rated(cost[first], self.devices[first])


def options(shape: PodShape, ledger: Ledger, nodes: IntArray) -> Options:
    """The options of a pod on nodes that all have room for it."""
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
    # Only one device differs from the node as it is: its word is exchanged, the others stay summed up.
    whole = cpu_words(gpu_type, cpu_milli) + words_before.sum(axis=1, dtype=np.uint64)
    words = whole[node] - words_before[node, device] + device_words(now - shape.gpu_milli)
    masks: IntArray = np.left_shift(1, device)
    return Options(len(nodes), node, masks, gpu_type[node], cpu_milli[node], words, before, shape)
