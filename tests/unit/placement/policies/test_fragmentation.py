"""Typical pods, and the part of a node's idle GPU that they could not use."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cluster.arrays import FloatArray, IntArray
from placement.engine.device_options import StateMemo, options, words_of
from placement.engine.ledger import Ledger
from placement.policies.fgd import Fragmentation, typical_pods
from placement.prices.classes import ClassShares, class_of
from tests.builders.fleet import GIB, node, pod, shape, world

SMALL = shape(gpus=1, gpu_milli=400, cpu_milli=2000, memory_bytes=0)
WHOLE = shape(gpus=1, cpu_milli=4000, memory_bytes=0)
PAIR = shape(gpus=2, cpu_milli=8000, memory_bytes=0)
CPU_ONLY = shape(cpu_milli=2000, memory_bytes=0)


def test_the_most_popular_classes_are_taken_until_they_cover_95_percent() -> None:
    # 50 + 30 + 15 of 100 pods are 95 %: the last class is left out, and shares are of 95.
    pods = [SMALL] * 50 + [WHOLE] * 30 + [CPU_ONLY] * 15 + [PAIR] * 5

    mix = typical_pods(pods)

    assert mix.classes == tuple(map(class_of, (SMALL, WHOLE, CPU_ONLY)))
    assert mix.share.tolist() == [50 / 95, 30 / 95, 15 / 95]


def test_memory_and_selectors_do_not_make_a_class_and_order_does_not_matter() -> None:
    pods = [
        shape(gpus=1, memory_bytes=GIB),
        shape(gpus=1, memory_bytes=2 * GIB, selector={"zone": "1"}),
        shape(gpus=1, gpu_types=("T4",)),
        shape(gpus=2),
    ]

    mix, turned = typical_pods(pods), typical_pods(reversed(pods))

    assert len(mix.classes) == 3
    assert mix.share.tolist() == [0.5, 0.25, 0.25]
    assert mix.classes == turned.classes


def test_what_a_class_cannot_use_is_its_fragment() -> None:
    # One node: 1000, 600 and 300 milli left on its devices (1900 idle), 5 cores left.
    # SMALL (400 milli, 2 cores): 300 are too little.                            F = 300
    # WHOLE (1000 milli, 4 cores): 600 + 300.                                    F = 900
    # PAIR: there are no two idle devices (nor 8 cores).                         F = 1900
    # CPU_ONLY: asks for no GPU.                                                 F = 1900
    seen = world(
        [node("a", gpus=3, cpu_milli=7000)],
        [
            pod("p", gpus=1, gpu_milli=400, cpu_milli=1000, on="a", devices=(1,)),
            pod("q", gpus=1, gpu_milli=700, cpu_milli=1000, on="a", devices=(2,)),
        ],
    )
    classes = tuple(map(class_of, (SMALL, WHOLE, PAIR, CPU_ONLY)))
    mix = ClassShares(classes, np.array([0.4, 0.3, 0.2, 0.1]))

    fragment = Fragmentation(mix, seen.gpu_type_names).of_nodes(Ledger.of(seen), np.array([0]))

    assert fragment.tolist() == pytest.approx([0.4 * 300 + 0.3 * 900 + 0.2 * 1900 + 0.1 * 1900])


def test_gpus_of_a_type_that_a_class_does_not_accept_are_its_fragment() -> None:
    seen = world([node("a", gpus=2), node("t", gpus=2, gpu_type="T4"), node("c")])
    mix = ClassShares((class_of(shape(gpus=1, gpu_types=("T4",))),), np.array([1.0]))

    fragment = Fragmentation(mix, seen.gpu_type_names).of_nodes(Ledger.of(seen), np.arange(3))

    assert fragment.tolist() == [2000.0, 0.0, 0.0]


states = st.lists(
    st.tuples(st.integers(-1, 2), st.integers(0, 128_000), st.lists(st.integers(0, 1000), min_size=3, max_size=3)),
    min_size=1,
    max_size=30,
)


@given(states)
def test_states_share_a_number_just_when_they_are_alike_but_for_the_order_of_devices(
    found: list[tuple[int, int, list[int]]],
) -> None:
    gpu_type, cpu, left = (np.array(column) for column in zip(*found, strict=True))

    words = words_of(gpu_type, cpu, left).tolist()

    alike = [(kind, cores, tuple(sorted(devices))) for kind, cores, devices in found]
    assert len(set(words)) == len(set(alike))
    assert len(set(zip(words, alike, strict=True))) == len(set(alike))


def test_a_state_is_worked_out_once_until_too_many_are_known() -> None:
    asked: list[int] = []

    def evaluate(gpu_type: IntArray, cpu_milli: IntArray, gpu_milli: IntArray) -> FloatArray:
        asked.extend(cpu_milli.tolist())
        return cpu_milli.astype(np.float64)

    memo = StateMemo(evaluate, most=2)
    none = np.zeros((4, 1), dtype=np.int64)

    def values(*cpu: int) -> list[float]:
        count = len(cpu)
        return memo.of(none[:count, 0], np.array(cpu), none[:count]).tolist()

    assert values(1, 2, 1) == [1.0, 2.0, 1.0]
    assert values(2, 1) == [2.0, 1.0]
    assert sorted(asked) == [1, 2]
    assert values(3, 1) == [3.0, 1.0]
    assert values(4) == [4.0]  # three were known, which is too many: all are forgotten
    assert values(1) == [1.0]
    assert sorted(asked) == [1, 1, 2, 3, 4]


@given(st.lists(st.lists(st.integers(0, 10), min_size=3, max_size=3), min_size=1, max_size=6), st.integers(1, 10))
def test_options_are_the_devices_with_enough_left_and_the_state_that_each_leaves(
    tenths_left: list[list[int]], tenths_asked: int
) -> None:
    left = 100 * np.array(tenths_left)
    seen = world([node(f"n{n}", gpus=3, cpu_milli=9000) for n in range(len(left))])
    ledger = Ledger.of(seen)
    ledger.gpu_milli[:] = left
    asked = shape(gpus=1, gpu_milli=100 * tenths_asked, cpu_milli=2000)
    nodes = np.flatnonzero(ledger.free.fits(asked))

    ways = options(asked, ledger, nodes)

    gpu_type, cpu, after = ways.states(np.arange(len(ways.node)))
    assert ways.words.tolist() == words_of(gpu_type, cpu, after).tolist()
    assert (after >= 0).all()
    assert (cpu == 7000).all()
    assert ((left[nodes][ways.node] - after).sum(axis=1) == asked.gpu_milli).all()
    room = (left[nodes] >= asked.gpu_milli).sum()
    assert len(ways.node) == (room if tenths_asked < 10 else len(nodes))


def test_the_cheapest_option_of_each_node_wins_and_the_lowest_device_among_equals() -> None:
    seen = world([node("a", gpus=2), node("b", gpus=3)])
    ways = options(SMALL, Ledger.of(seen), np.array([0, 1]))

    rated = ways.cheapest(np.array([2.0, 1.0, 5.0, 3.0, 3.0]))

    assert rated.cost.tolist() == [1.0, 3.0]
    assert rated.devices.tolist() == [0b10, 0b010]
