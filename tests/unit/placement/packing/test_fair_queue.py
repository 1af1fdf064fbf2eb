"""Packing where the work does not suffice for all: no namespace takes all turns, and the next plan goes on."""

from dataclasses import replace

import pytest

from cluster.actions import Bind
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from cluster.workloads import Requirement
from placement.budget import Budget
from placement.engine.packer import Packer
from placement.packing import phases, units
from placement.packing.draft import PLACES_PER_POD, PackingDraft
from placement.packing.planner import pack, tried_in_vain
from placement.packing.units import Order, Unit
from placement.policies.published import BestFit
from tests.builders.fleet import Pod, node, pod, world

NODES = 20
ONE_POD = PLACES_PER_POD + NODES
"""Work for a pod of a new shape."""


def flooded(*others: Pod, count: int = 200, priority: int = 0) -> Snapshot:
    """Pods that fit nowhere, each of a shape of its own, larger than any other and so first in the order of service."""
    flood = [pod(f"flood/{n}", gpus=9, cpu_milli=n + 1, priority=priority) for n in range(count)]
    return world([node(f"n{n}", gpus=8) for n in range(NODES)], [*flood, *others])


def packed(seen: Snapshot, pods: int, tried: frozenset[str] = frozenset()) -> Plan:
    """Packed with work for this many pods."""
    return pack(seen, Packer(seen, BestFit()), Budget(pods * ONE_POD), tried=tried)


def bound(plan: Plan) -> set[str]:
    return {action.pod for action in plan.actions if isinstance(action, Bind)}


def test_a_namespace_that_needs_all_work_leaves_others_their_turn() -> None:
    canaries = [pod(f"good/{n}", gpus=1) for n in range(5)]

    assert bound(packed(flooded(*canaries), 40)) == {f"good/{n}" for n in range(5)}


def test_lower_priorities_have_a_turn_beside_a_flood_of_a_higher_one() -> None:
    assert bound(packed(flooded(pod("good/p", gpus=1), priority=9), 40)) == {"good/p"}


def test_units_that_wait_for_another_round_are_not_sorted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the work of a hundred pods, a flood of two thousand would otherwise be sorted in each of eight rounds."""
    asked: list[int] = []
    order = units.order_of_service

    def counted(draft: PackingDraft, unit: Unit) -> Order:
        asked.append(unit.rows[0])
        return order(draft, unit)

    monkeypatch.setattr(units, "order_of_service", counted)
    packed(flooded(*(pod(f"good/{n}", gpus=1) for n in range(5)), count=2000), 100)

    # To sort them at first, to let them wait, and to let them wait for the end of their priority.
    assert len(asked) <= 3 * 2005


def test_where_the_work_suffices_larger_pods_go_before_smaller_ones_of_any_namespace() -> None:
    """In turns of namespaces the small pod would take the first of three GPUs, and the pair would find two of them on
    different nodes."""
    seen = world([node("a", gpus=2), node("b", gpus=1)], [pod("a/small", gpus=1), pod("b/pair", gpus=2)])

    assert bound(packed(seen, 100)) == {"a/small", "b/pair"}


def test_the_next_plan_goes_on_where_this_one_stopped() -> None:
    seen, tried, turns = flooded(pod("flood/fits", gpus=1)), frozenset[str](), 0
    while "flood/fits" not in bound(plan := packed(seen, 50, tried)):
        tried, turns = tried_in_vain(plan, tried), turns + 1
        assert turns < 10, "without memory each plan tries the same 50 again"
    # 200 pods in vain before it, of which each plan tries 50.
    assert turns == 4


def test_once_all_had_a_turn_the_order_is_the_usual_one() -> None:
    seen = flooded(count=60)
    first = tried_in_vain(packed(seen, 50), frozenset())

    assert len(first) == 50
    assert tried_in_vain(packed(seen, 50, first), first) == frozenset()


def test_a_plan_explains_so_many_kinds_of_pods_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "MOST_EXPLAINED", 3)
    words = [each.reason.words for each in packed(flooded(count=10), 100).unplaced]

    assert len(words) == 10
    assert words.count(phases.UNEXPLAINED.words) == 7


def test_constraints_cost_the_work_that_they_take() -> None:
    """400 values in a pod's affinity are as many look-ups, for every shape anew."""
    terms = tuple((Requirement("disk", "In", tuple(map(str, range(40)))),) for _ in range(10))
    plain = [pod(f"a/{n}", gpus=9, cpu_milli=n + 1) for n in range(20)]
    choosy = [replace(each, shape=replace(each.shape, node_terms=terms)) for each in plain]
    seen = world([node(f"n{n}", gpus=8) for n in range(NODES)], choosy)

    # 10 requirements of 10 + 20 / 16 places and 400 values of an eighth: 160 places beside the 620 of a pod.
    assert sum(each.reason.code == "WorkUsedUp" for each in packed(seen, 12).unplaced) == 10
