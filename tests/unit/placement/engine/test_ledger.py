"""Ledger: free resources, and the nodes that changed since a mark."""

import numpy as np

from placement.engine.ledger import Ledger
from tests.builders.fleet import GIB, node, pod, shape, world


def test_taking_and_giving_back_leaves_what_was_there() -> None:
    ledger = Ledger.of(world([node("a", gpus=2), node("b", gpus=1)]))
    asked = shape(gpus=2, gpu_milli=300, cpu_milli=5000, memory_bytes=GIB)

    ledger.take(asked, 0, (0, 1))
    assert ledger.gpu_milli.tolist() == [[700, 700], [1000, 0]]
    assert ledger.cpu_milli.tolist() == [91_000, 96_000]
    assert ledger.memory_bytes.tolist() == [511 * GIB, 512 * GIB]
    ledger.give(asked, 0, (0, 1))

    assert ledger.gpu_milli.tolist() == [[1000, 1000], [1000, 0]]
    assert ledger.cpu_milli.tolist() == [96_000, 96_000]
    assert ledger.memory_bytes.tolist() == [512 * GIB] * 2


def test_each_mark_sees_the_nodes_touched_after_it_once_and_in_order() -> None:
    ledger = Ledger.of(world([node(name) for name in "abcd"]))
    start = ledger.mark
    ledger.take(shape(), 2, ())
    between = ledger.mark
    ledger.take(shape(), 0, ())
    ledger.give(shape(), 2, ())
    ledger.take(shape(), 0, ())

    assert ledger.changed_since(start).tolist() == [0, 2]
    assert ledger.changed_since(between).tolist() == [0, 2]
    assert ledger.changed_since(ledger.mark).tolist() == []


def test_free_devices_are_counted_one_by_one_not_summed_up() -> None:
    halves = [pod(f"h{d}", gpus=1, gpu_milli=500, on="a", devices=(d,)) for d in range(4)]
    ledger = Ledger.of(world([node("a", gpus=4), node("b", gpus=2)], halves))

    assert ledger.free.fits(shape(gpus=2)).tolist() == [False, True]  # two GPUs are free on a, in four halves
    assert ledger.free.fits(shape(gpus=4, gpu_milli=500)).tolist() == [True, False]
    assert ledger.free.fits(shape(gpus=2), np.array([1])).tolist() == [True]


def test_an_over_committed_node_takes_only_what_asks_for_none_of_the_resource() -> None:
    over = pod("p", gpus=1, cpu_milli=100_000, on="a", devices=(0,))
    ledger = Ledger.of(world([node("a", gpus=2)], [over]))

    assert not ledger.free.fits(shape(cpu_milli=1)).any()
    assert ledger.free.fits(shape(cpu_milli=0)).all()
