"""The proven bound and the prices behind it."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cluster.arrays import IntArray
from placement.prices.allocation_bound import allocation_bound, best_patterns, single_size_patterns
from placement.prices.classes import FleetKinds, PodClass, kinds_of
from tests.builders.fleet import Node, node, world


def kinds(*nodes: Node) -> FleetKinds:
    seen = world(nodes)
    return kinds_of(seen.nodes, seen.gpu_type_names)


def bound(classes: list[PodClass], demand: list[int], fleet: FleetKinds) -> float:
    return allocation_bound(classes, np.array(demand, dtype=float), fleet).gpus


def test_the_requested_gpus_are_a_bound_on_an_empty_fleet() -> None:
    fleet = kinds(node("a", gpus=8))

    assert bound([PodClass(1000, 1, 500), PodClass(1000, 2, 1000)], [3, 2], fleet) == pytest.approx(3 * 0.5 + 2 * 2)


def test_fractions_that_cannot_share_a_gpu_strand_the_rest() -> None:
    # Two pods of 0.6 do not share one GPU, so of 2 GPUs at most 2 * 0.6 are allocated.
    fleet = kinds(node("a", gpus=2))

    assert bound([PodClass(1000, 1, 600)], [9], fleet) == pytest.approx(1.2)


def test_fractions_fill_each_other_up_by_the_best_pattern() -> None:
    # 0.6 + 0.4 fill a GPU; with two pods of 0.4 the third GPU holds 0.6 alone: 1 + 1 + 0.6.
    fleet = kinds(node("a", gpus=3))

    assert bound([PodClass(1000, 1, 600), PodClass(1000, 1, 400)], [9, 2], fleet) == pytest.approx(2.6)


def test_cpu_bounds_what_gpus_could_serve() -> None:
    # 8 cores at 6 a pod: 8 / 6 of a pod. Half pods are what makes it a relaxation.
    fleet = kinds(node("a", gpus=2, cpu_milli=8_000))

    assert bound([PodClass(6000, 1, 1000)], [2], fleet) == pytest.approx(8 / 6)


def test_gpus_of_a_type_serve_only_classes_that_may_use_it() -> None:
    fleet = kinds(node("a", gpus=2, gpu_type="A100"), node("b", gpus=4, gpu_type="L4"))

    assert bound([PodClass(1000, 1, 1000, ("A100",))], [5], fleet) == pytest.approx(2)


def test_a_pod_wider_than_every_node_is_served_nowhere() -> None:
    fleet = kinds(node("a", gpus=4), node("b", gpus=4))

    assert bound([PodClass(1000, 8, 1000)], [1], fleet) == 0


def test_pods_without_gpus_allocate_nothing_and_need_nothing() -> None:
    fleet = kinds(node("a", gpus=1, cpu_milli=4_000))

    assert bound([PodClass(4000, 0, 0), PodClass(4000, 1, 1000)], [9, 1], fleet) == pytest.approx(1)


def test_a_fleet_without_gpus_allocates_none() -> None:
    assert bound([PodClass(1000, 1, 1000)], [1], kinds(node("a"))) == 0


def test_in_a_full_fleet_the_worth_of_a_pod_is_what_it_displaces() -> None:
    # Whole pods would fill all GPUs, so a GPU is worth 1; a pod of 0.6 takes a whole GPU from them, as no other
    # fraction fills it up. Its worth is capped at what it brings: 0.6.
    fleet = kinds(node("a", gpus=4))
    classes = [PodClass(1000, 1, 600), PodClass(1000, 1, 1000)]

    priced = allocation_bound(classes, np.array([1.0, 9.0]), fleet)

    assert priced.worth == pytest.approx([0.6, 1.0])
    assert priced.device_price == pytest.approx([1.0])


def test_a_start_from_earlier_patterns_changes_no_bound() -> None:
    fleet = kinds(node("a", gpus=5, cpu_milli=20_000))
    classes = [PodClass(1000, 1, milli) for milli in (810, 470, 320, 110)]
    first = allocation_bound(classes, np.array([3.0, 4, 5, 6]), fleet)

    again = allocation_bound(classes, np.array([5.0, 2, 7, 1]), fleet, first.patterns)

    assert again.gpus == pytest.approx(bound(classes, [5, 2, 7, 1], fleet))


def test_the_best_pattern_is_the_dearest_filling_of_one_gpu() -> None:
    # 0.5 pays 3, 0.3 pays 2: three of 0.3 pay 6 and leave 0.1; 0.5 + 0.3 pay 5; two of 0.5 pay 6 too; never more.
    best, counts = best_patterns([500, 300], np.array([[3.0, 2.0], [3.1, 2.0]]))

    assert best == pytest.approx([6.0, 6.2])
    assert counts[1].tolist() == [2, 0]


def test_single_size_patterns_fill_up_with_smaller_sizes() -> None:
    assert single_size_patterns([600, 300]).tolist() == [[1, 1], [0, 3]]


def best_by_trying(pods: list[PodClass], gpus: list[int], cpu: list[int]) -> float:
    """The most GPU that any packing allocates, by trying every seat of every pod."""

    def tried(rest: list[PodClass], milli: list[IntArray], free: list[int]) -> int:
        if not rest:
            return 0
        best = tried(rest[1:], milli, free)
        asked = rest[0]
        for n, d in product(range(len(milli)), range(max(gpus))):
            room = [x for x in range(d, len(milli[n])) if milli[n][x] >= asked.gpu_milli][: asked.gpus]
            if len(room) == asked.gpus and free[n] >= asked.cpu_milli:
                after = [m.copy() for m in milli]
                after[n][room] -= asked.gpu_milli
                left = [c - asked.cpu_milli * (i == n) for i, c in enumerate(free)]
                best = max(best, asked.gpus * asked.gpu_milli + tried(rest[1:], after, left))
        return best

    return tried(pods, [np.full(g, 1000) for g in gpus], cpu) / 1000


@given(
    pods=st.lists(
        st.builds(PodClass, st.sampled_from((1000, 3000)), st.just(1), st.sampled_from((300, 500, 600, 1000)))
        | st.builds(PodClass, st.just(2000), st.just(2), st.just(1000)),
        max_size=5,
    ),
    gpus=st.lists(st.integers(1, 2), min_size=1, max_size=2),
    cpu=st.integers(2, 6),
)
@settings(max_examples=60, deadline=None)
def test_no_packing_allocates_more_than_the_bound(pods: list[PodClass], gpus: list[int], cpu: int) -> None:
    fleet = kinds(*(node(f"n{n}", gpus=g, cpu_milli=cpu * 1000) for n, g in enumerate(gpus)))
    classes = sorted(set(pods))

    proven = bound(classes, [pods.count(c) for c in classes], fleet)

    assert proven >= best_by_trying(pods, gpus, [cpu * 1000] * len(gpus)) - 1e-6
