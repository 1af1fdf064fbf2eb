"""Packing engine: cached ratings equal new ones, and it never charges missing resources."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cluster.arrays import FloatArray, IntArray
from cluster.nodes import NodeTaint
from cluster.snapshot import Snapshot, device_numbers
from cluster.workloads import PodShape, Requirement, Toleration
from placement.engine.ledger import Ledger
from placement.engine.packer import Choice, Packer, content_rank
from placement.engine.policy import Knowledge, Policy, Rated
from placement.policies import POLICIES, policy_named
from tests.builders.fleet import GIB, Node, node, pod, shape, world
from tests.rigs import packing_rivals  # noqa: F401  # adds its policies

SHAPES = (
    shape(gpus=0, cpu_milli=4000),
    shape(gpus=0, cpu_milli=500, memory_bytes=30 * GIB),
    shape(gpus=1, gpu_milli=300, cpu_milli=2000),
    shape(gpus=1, gpu_milli=700, cpu_milli=2000),
    shape(gpus=1, gpu_milli=700, cpu_milli=2000, memory_bytes=20 * GIB),
    shape(gpus=1, gpu_milli=500, cpu_milli=1000, gpu_types=("T4",)),
    shape(gpus=1, cpu_milli=4000),
    shape(gpus=2, cpu_milli=8000),
    shape(gpus=4, cpu_milli=8000),
    shape(gpus=2, gpu_milli=400, cpu_milli=1000),
)
KEEPING = [name for name in POLICIES if name != "random"]


def fleet() -> Snapshot:
    small = [node(f"t{n}", gpus=2, gpu_type="T4", cpu_milli=16_000, memory_bytes=64 * GIB) for n in range(3)]
    big = [node(f"a{n}", gpus=4, cpu_milli=32_000, memory_bytes=128 * GIB) for n in range(3)]
    return world([*small, *big, node("c", cpu_milli=8000, memory_bytes=32 * GIB)])


def packer_of(seen: Snapshot, name: str = "bestfit", rank: IntArray | None = None) -> Packer:
    return Packer(seen, policy_named(name, Knowledge(seen, SHAPES, seed=1)), rank)


def chosen_afresh(packer: Packer, asked: PodShape, on: int | None = None) -> Choice | None:
    """The oracle: rates every node that can take the pod, keeps nothing, takes the first of the cheapest.

    on: the only node that it may take.
    """
    policy, ledger = packer.policy, packer.ledger
    nodes = np.flatnonzero(packer.feasible(asked))
    nodes = nodes if on is None else nodes[nodes == on]
    if not len(nodes):
        return None
    rated, surcharge = policy.rate(policy.rating_key(asked), ledger, nodes), policy.surcharge(asked, ledger)
    extra = np.zeros(len(nodes)) if surcharge is None else np.append(surcharge, 0.0)[ledger.gpu_type[nodes]]
    cost = rated.cost + extra
    best = min(range(len(nodes)), key=lambda n: (cost[n], nodes[n]))
    return Choice(int(nodes[best]), int(rated.devices[best]), float(cost[best]))


deeds = st.lists(st.tuples(st.integers(0, len(SHAPES) - 1), st.booleans(), st.integers(0, 100)), max_size=60)


@pytest.mark.parametrize("name", KEEPING)
@settings(max_examples=25, deadline=None)
@given(deeds=deeds)
def test_kept_ratings_are_the_ratings_that_would_be_made_now(name: str, deeds: list[tuple[int, bool, int]]) -> None:
    packer = packer_of(fleet(), name)
    placed: list[tuple[PodShape, Choice]] = []
    for kind, leaves, which in deeds:
        if leaves and placed:
            gone, was = placed.pop(which % len(placed))
            packer.remove(gone, was.node, was.devices)
        asked = SHAPES[kind]
        choice = packer.choose(asked)
        assert choice == chosen_afresh(packer, asked)
        for on in range(len(packer.nodes)):
            assert packer.choose(asked, on) == chosen_afresh(packer, asked, on)
        if choice is not None:
            packer.place(asked, choice)
            placed.append((asked, choice))


@pytest.mark.parametrize("name", list(POLICIES))
@settings(max_examples=25, deadline=None)
@given(kinds=st.lists(st.integers(0, len(SHAPES) - 1), max_size=80))
def test_no_device_node_or_type_is_charged_beyond_what_it_has(name: str, kinds: list[int]) -> None:
    packer = packer_of(fleet(), name)
    for kind in kinds:
        asked = SHAPES[kind]
        choice = packer.choose(asked)
        if choice is None:
            assert not packer.feasible(asked).any()  # what fits is never turned away
            continue
        assert packer.eligible(asked)[choice.node]
        assert len(device_numbers(choice.devices)) == asked.gpus
        packer.place(asked, choice)
    ledger = packer.ledger
    assert ledger.cpu_milli.min() >= 0
    assert ledger.memory_bytes.min() >= 0
    assert ledger.gpu_milli.min() >= 0


@pytest.mark.parametrize("name", KEEPING)
@settings(max_examples=15, deadline=None)
@given(kinds=st.lists(st.integers(0, len(SHAPES) - 1), max_size=40), data=st.data())
def test_what_runs_where_does_not_depend_on_how_nodes_are_named(
    name: str, kinds: list[int], data: st.DataObject
) -> None:
    nodes: list[Node] = [node(f"n{n}", gpus=2 * (n % 3), cpu_milli=16_000) for n in range(7)]
    shuffled = data.draw(st.permutations(nodes))

    def contents(order: list[Node]) -> list[object]:
        seen = world(order)
        packer = packer_of(seen, name, content_rank(seen, seed=3))
        for kind in kinds:
            choice = packer.choose(SHAPES[kind])
            if choice is not None:
                packer.place(SHAPES[kind], choice)
        left = packer.ledger
        return sorted((int(c), g.tolist()) for c, g in zip(left.cpu_milli, left.gpu_milli, strict=True))

    assert contents(nodes) == contents(shuffled)


def test_of_equal_nodes_the_one_of_least_rank_is_taken() -> None:
    seen = world([node("a", gpus=1), node("b", gpus=1), node("c", gpus=1)])

    choice = packer_of(seen, rank=np.array([2, 0, 1])).choose(shape(gpus=1))

    assert choice is not None
    assert choice.node == 1


def test_a_pod_that_was_tried_and_removed_leaves_no_trace() -> None:
    packer = packer_of(fleet())
    before = packer.choose(SHAPES[6])
    assert before is not None
    packer.place(SHAPES[6], before)
    packer.remove(SHAPES[6], before.node, before.devices)

    assert packer.choose(SHAPES[6]) == before


def test_memory_only_filters_so_shapes_that_differ_in_it_share_ratings() -> None:
    seen = world([node("a", gpus=1, memory_bytes=8 * GIB), node("b", gpus=2, memory_bytes=64 * GIB)])
    packer = packer_of(seen)

    little, much = (packer.choose(shape(gpus=1, memory_bytes=size * GIB)) for size in (4, 32))

    assert little is not None
    assert much is not None
    assert (little.node, much.node) == (0, 1)  # a is left fuller, but has no 32 GiB


def test_a_choice_among_some_nodes_is_one_of_them() -> None:
    packer = packer_of(world([node("a", gpus=1), node("b", gpus=4)]))

    choice = packer.choose(shape(gpus=1), among=np.array([False, True]))

    assert choice is not None
    assert choice.node == 1


def test_taints_cordons_and_types_keep_pods_away() -> None:
    tainted = node("a", gpus=1, taints=(NodeTaint("team", "x"),))
    seen = world([tainted, node("b", gpus=1, schedulable=False), node("c", gpus=1, gpu_type="T4")])
    packer = packer_of(seen)
    tolerant = shape(gpus=1, gpu_types=("A100",), tolerations=(Toleration("team", "Exists"),))

    assert packer.choose(shape(gpus=1, gpu_types=("A100",))) is None
    choice = packer.choose(tolerant)
    assert choice is not None
    assert choice.node == 0


def test_bound_pods_count_from_the_start_for_policies_that_look_at_pods() -> None:
    # Both nodes have one device idle and one taken; only on b it is taken by a pod of the same kind.
    seen = world(
        [node("a", gpus=2), node("b", gpus=2)],
        [
            pod("p", gpus=1, gpu_milli=500, on="a", devices=(0,)),
            pod("q", gpus=1, gpu_milli=500, on="a", devices=(0,)),
            pod("r", gpus=1, on="b", devices=(0,)),
        ],
    )

    choice = packer_of(seen, "clustering").choose(shape(gpus=1))

    assert choice is not None
    assert choice.node == 1


class Dear(Policy):
    """Nodes cost their row; a surcharge can make GPU type 0 dearer; a switch turns the order around."""

    name = "dear"

    def __init__(self) -> None:
        self.extra: FloatArray | None = None
        self.sign = 1.0

    def rate(self, shape: PodShape, ledger: Ledger, nodes: IntArray) -> Rated:
        return Rated(self.sign * nodes.astype(np.float64), np.zeros(len(nodes), dtype=np.int64))

    def surcharge(self, shape: PodShape, ledger: Ledger) -> FloatArray | None:
        return self.extra


def test_a_surcharge_counts_at_once_and_spares_nodes_without_gpus() -> None:
    seen = world([node("a", gpus=1, gpu_type="A100"), node("b"), node("c", gpus=1, gpu_type="T4")])
    policy = Dear()
    packer = Packer(seen, policy)
    cpu_pod = shape()
    first = packer.choose(cpu_pod)
    policy.extra = np.array([5.0, 0.0])  # types are sorted: A100, T4

    then = packer.choose(cpu_pod)

    assert first is not None
    assert then is not None
    assert (first.node, then.node, then.cost) == (0, 1, 1.0)


def test_a_new_version_of_a_policy_rates_again() -> None:
    policy = Dear()
    packer = Packer(world([node("a"), node("b")]), policy)
    assert packer.choose(shape()) == Choice(0, 0, 0.0)
    policy.sign = -1.0
    assert packer.choose(shape()) == Choice(0, 0, 0.0)  # kept: nothing told the engine

    policy.version += 1

    assert packer.choose(shape()) == Choice(1, 0, -1.0)


def test_ratings_that_were_put_aside_for_lack_of_memory_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = fleet()
    policy = policy_named("bestfit", Knowledge(seen))
    monkeypatch.setattr("placement.engine.packer.ROW_BYTES", 0)  # keeps eight rows
    packer = Packer(seen, policy)
    asked = [shape(cpu_milli=100 + n) for n in range(20)]

    first = [packer.choose(one) for one in asked]

    assert [packer.choose(one) for one in asked] == first


def test_an_empty_fleet_takes_nothing() -> None:
    assert packer_of(world([])).choose(shape()) is None


def test_constraints_are_not_looked_at_where_no_node_has_room() -> None:
    """A tenant may have thousands of pods wait that are larger than any node, each with constraints of its own."""
    packer = packer_of(fleet())
    terms = tuple((Requirement("disk", "In", (f"v{n}",)),) for n in range(30))

    assert packer.choose(replace(shape(gpus=5), node_terms=terms)) is None
    assert packer.filter.matches.evaluated == 0
    assert packer.choose(replace(shape(gpus=4), node_terms=terms)) is None
    assert packer.filter.matches.evaluated == len(terms)
