"""Phases of a plan that stops pods: each pod is stopped for a unit that starts, and with it."""

import numpy as np

from cluster.actions import Action, Bind, Evict
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from controller.guard import Limits, guard
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import Pod, node, pod, world


def packed(seen: Snapshot) -> Plan:
    return pack(seen, Packer(seen, BestFit()))


def pods_of(plan: Plan, kind: type[Action]) -> set[str]:
    return {action.pod for action in plan.actions if isinstance(action, kind) and isinstance(action, Bind | Evict)}


def full(names: str, gpus: int = 8, gang: str = "") -> list[Pod]:
    """Nodes of these one-letter names, full of pods of one GPU."""
    return [pod(f"{on}{n}", 1, on=on, devices=(n,), gang=gang) for on in names for n in range(gpus)]


def fleet_with_urgent_pods(nodes: int, urgent: int) -> Snapshot:
    """Full nodes of 8 pods of one GPU in any order of names, and pending pods that need a whole node."""
    names = np.random.default_rng(7).permutation(nodes * 8).tolist()
    low = [pod(f"low-{name:04d}", 1, on=f"n{n // 8}", devices=(n % 8,)) for n, name in enumerate(names)]
    high = [pod(f"urgent-{n}", 8, priority=100) for n in range(urgent)]
    return world([node(f"n{n}", gpus=8) for n in range(nodes)], sorted([*low, *high], key=lambda each: each.name))


def test_as_many_urgent_pods_start_as_the_limit_on_evictions_allows_and_none_is_stopped_for_nothing() -> None:
    """40 nodes run 320 pods: 5 % are 16, which two pods of 8 GPUs need."""
    seen = fleet_with_urgent_pods(40, urgent=10)

    checked = guard(seen, packed(seen), Limits())

    assert len(pods_of(checked, Bind)) == 2
    assert len(pods_of(checked, Evict)) == 16
    later = seen.after(checked.actions)
    assert ((later.free().gpu_milli == 1000).sum(axis=1) == 0).all(), "a GPU was freed that no pod uses"
    assert len({each.step.action for each in checked.refused}) == 8 * 9


def test_the_limit_on_evictions_is_for_the_most_important_first() -> None:
    runs = [pod(f"low-{name}", 1, on=name, devices=(0,)) for name in "ab"]
    waits = [pod("a-mid", 1, priority=10), pod("b-high", 1, priority=20)]
    seen = world([node("a", gpus=1), node("b", gpus=1)], [*runs, *waits])

    checked = guard(seen, packed(seen), Limits(max_evictions_floor=1))

    assert pods_of(checked, Bind) == {"b-high"}


def test_a_unit_that_needs_more_evictions_than_are_allowed_stops_none_and_keeps_no_smaller_one_waiting() -> None:
    runs = [*full("a"), pod("b0", 8, on="b", devices=tuple(range(8)))]
    waits = [pod("wide", 8, priority=20), pod("wide-too", 8, priority=10)]
    seen = world([node("a", gpus=8), node("b", gpus=8)], [*runs, *waits])
    plan = packed(seen)
    assert len(pods_of(plan, Evict)) == 9

    checked = guard(seen, plan, Limits(max_evictions_floor=3))

    assert len(pods_of(checked, Evict)) == len(pods_of(checked, Bind)) == 1


def test_a_pod_that_needs_the_evictions_of_another_is_cut_with_it_and_the_others_start() -> None:
    """`wide` makes `low` leave all four GPUs of node a, and takes three; `narrow` may use no other node."""
    only_a = {"name": "a"}
    seen = world(
        [node("a", gpus=4, labels=only_a), node("b", gpus=1)],
        [
            pod("low", 4, on="a", devices=(0, 1, 2, 3)),
            pod("wide", 3, priority=10),
            pod("narrow", 1, priority=9, selector=only_a),
            pod("other", 1, priority=1),
        ],
    )
    plan = packed(seen)
    assert pods_of(plan, Bind) == {"wide", "narrow", "other"}

    checked = guard(seen, plan, Limits(max_evictions_floor=0))

    assert checked.actions == (Bind("other", "b", (0,)),)


def test_an_eviction_names_the_unit_that_it_makes_room_for() -> None:
    seen = world([node("a", gpus=1)], [pod("low", 1, on="a", devices=(0,)), pod("urgent", 1, priority=10)])

    (phase,) = packed(seen).phases

    assert phase.whole
    assert [step.action for step in phase.steps] == [Evict("low", "a"), Bind("urgent", "a", (0,))]
    assert "Pod/urgent" in phase.steps[0].reason.words


def test_a_gang_that_others_make_room_for_is_one_phase_with_what_is_stopped_for_it() -> None:
    gang = Gang("g", 2, priority=10)
    seen = world(
        [node("a", gpus=8), node("b", gpus=8)],
        [*full("ab"), pod("g-0", 8, gang="g", priority=10), pod("g-1", 8, gang="g", priority=10)],
        [gang],
    )
    plan = packed(seen)

    assert [len(phase.steps) for phase in plan.phases] == [1, 18], "their seats are held before"
    assert guard(seen, plan, Limits(max_evictions_share=0.0, max_evictions_floor=0)).actions == ()
    assert guard(seen, plan, Limits(max_evictions_floor=15)).actions == plan.actions, "one unit, alone in its plan"


def test_members_above_the_minimum_are_cut_without_their_gang() -> None:
    """The gang needs one node of two; the limit allows the eight evictions of one."""
    gang = Gang("g", 1, priority=10)
    seen = world(
        [node("a", gpus=8), node("b", gpus=8)],
        [*full("ab"), pod("g-0", 8, gang="g", priority=10), pod("g-1", 8, gang="g", priority=10)],
        [gang],
    )

    checked = guard(seen, packed(seen), Limits(max_evictions_floor=8))

    assert len(pods_of(checked, Bind)) == 1
    assert len(pods_of(checked, Evict)) == 8


def test_members_of_a_gang_that_falls_below_its_minimum_leave_together() -> None:
    """`urgent` needs node a; then two members of three, which need three, would run on."""
    gang = Gang("g", 3)
    runs = [pod(f"g-{n}", 1, on=on, devices=(0,), gang="g") for n, on in enumerate("abc")]
    seen = world([node(name, gpus=1) for name in "abc"], [*runs, pod("urgent", 1, priority=10)], [gang])

    plan = packed(seen)

    assert pods_of(plan, Evict) == {"g-0", "g-1", "g-2"}
    assert pods_of(plan, Bind) == {"urgent"}
    assert guard(seen, plan, Limits(max_evictions_share=0.0, max_evictions_floor=0)).actions == ()
    assert guard(seen, plan, Limits(max_evictions_floor=2)).actions == plan.actions, "one unit, alone in its plan"
