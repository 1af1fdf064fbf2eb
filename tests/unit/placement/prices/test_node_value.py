"""Worth of the free resources of a node."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from placement.prices.classes import ClassShares, PodClass, kinds_of, shares_from
from placement.prices.node_value import NodeValues
from tests.builders.fleet import Node, node, world

HALF = PodClass(2000, 1, 500)
WHOLE = PodClass(8000, 1, 1000)
PAIR = PodClass(12_000, 2, 1000)
WORTH = {HALF: 0.4, WHOLE: 1.0, PAIR: 2.5}
MIX = shares_from([(c, 1.0) for c in WORTH])


def values(fleet: tuple[Node, ...] = (node("a", gpus=4, cpu_milli=32_000),), mix: ClassShares = MIX) -> NodeValues:
    seen = world(fleet)
    worth = np.array([WORTH[PodClass(c.cpu_milli, c.gpus, c.gpu_milli)] for c in mix.classes])
    return NodeValues(mix, worth, kinds_of(seen.nodes, seen.gpu_type_names))


def worth(of: NodeValues, cpu_milli: int, *gpu_milli: int, gpu_type: int = 0) -> float:
    state = np.zeros((1, 4), dtype=np.int64)
    state[0, : len(gpu_milli)] = gpu_milli
    return float(of.values(np.array([gpu_type]), np.array([cpu_milli]), state)[0])


def test_one_gpu_goes_to_the_pods_that_pay_most() -> None:
    assert worth(values(), 8_000, 1000) == pytest.approx(1.0)


def test_with_less_cpu_it_goes_to_classes_that_need_less() -> None:
    # 4 cores: two halves at 0.4. 2 cores: one half. 1.9 cores: none.
    assert worth(values(), 4_000, 1000) == pytest.approx(0.8)
    assert worth(values(), 2_000, 1000) == pytest.approx(0.4)
    assert worth(values(), 1_900, 1000) == 0


def test_two_idle_gpus_may_go_to_one_wide_pod() -> None:
    assert worth(values(), 12_000, 1000, 1000) == pytest.approx(2.5)


def test_rests_of_two_gpus_are_not_one_gpu() -> None:
    # 0.5 and 0.5 on two devices host two halves, not a whole: 0.8.
    assert worth(values(), 32_000, 500, 500) == pytest.approx(0.8)


def test_a_rest_that_no_pod_asks_for_is_worth_nothing() -> None:
    assert worth(values(), 32_000, 490) == 0


def test_all_parts_of_a_node_share_its_cpu() -> None:
    # 14 cores: the pair takes 12, one half 2; a second half finds no CPU: 2.5 + 0.4.
    assert worth(values(), 14_000, 1000, 1000, 500, 500) == pytest.approx(2.9)


def test_a_gpu_type_is_worth_only_what_may_run_on_it() -> None:
    fleet = (node("a", gpus=4, cpu_milli=32_000, gpu_type="A100"), node("b", gpus=4, cpu_milli=32_000, gpu_type="L4"))
    mix = shares_from([(PodClass(8000, 1, 1000, ("A100",)), 1.0), (HALF, 1.0)])
    of = values(fleet, mix)

    assert worth(of, 8_000, 1000, gpu_type=0) == pytest.approx(1.0)
    assert worth(of, 8_000, 1000, gpu_type=1) == pytest.approx(0.8)


def test_a_node_of_no_type_and_an_overcommitted_one_are_worth_nothing() -> None:
    assert worth(values(), 8_000, 0, gpu_type=-1) == 0
    assert worth(values(), -100, -200, 1000) == 0


MILLI = st.sampled_from((0, 300, 500, 700, 1000))


@given(
    cpu=st.integers(0, 40_000),
    more_cpu=st.integers(0, 10_000),
    milli=st.tuples(MILLI, MILLI, MILLI, MILLI),
    more=st.tuples(MILLI, MILLI, MILLI, MILLI),
)
@settings(deadline=None)
def test_more_free_resources_are_never_worth_less(
    cpu: int, more_cpu: int, milli: tuple[int, ...], more: tuple[int, ...]
) -> None:
    of = values()
    richer = [min(1000, a + b) for a, b in zip(milli, more, strict=True)]

    assert worth(of, cpu + more_cpu, *richer) >= worth(of, cpu, *milli) - 1e-9


@given(cpu=st.integers(0, 32_000), milli=st.tuples(MILLI, MILLI, MILLI, MILLI))
@settings(deadline=None, max_examples=40)
def test_values_are_those_of_the_best_packing(cpu: int, milli: tuple[int, ...]) -> None:
    def best(free_cpu: int, free: tuple[int, ...]) -> float:
        found = 0.0
        for asked, pays in WORTH.items():
            room = [d for d, left in enumerate(free) if left >= asked.gpu_milli]
            if asked.cpu_milli > free_cpu or len(room) < asked.gpus:
                continue
            # Every device with room for a share is tried; whole devices are alike.
            for start in range(len(room) - asked.gpus + 1):
                taken = room[start : start + asked.gpus]
                after = tuple(left - asked.gpu_milli * (d in taken) for d, left in enumerate(free))
                found = max(found, pays + best(free_cpu - asked.cpu_milli, tuple(sorted(after))))
        return found

    # Free CPU counts in whole steps of 400.
    assert worth(values(), cpu, *milli) == pytest.approx(best(cpu // 400 * 400, milli))
