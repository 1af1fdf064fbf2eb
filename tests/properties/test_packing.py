"""What always holds when pending pods and gangs are packed, for arbitrary clusters."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings, strategies as st

from cluster.actions import Evict
from cluster.plans import Plan
from cluster.snapshot import PENDING, Snapshot, device_numbers
from controller.cycle import carry_out
from controller.deciders import closing
from controller.deciders.closing import half_started
from controller.deciders.decisions import Decisions
from controller.guard import Limits, guard
from placement.engine.packer import Packer
from placement.packing.draft import effective_priority
from placement.packing.planner import pack
from placement.policies.published import BestFit
from simulator.world import SimulatedWorld
from tests.builders.arbitrary_fleets import fleets, with_importance_shuffled, with_pods_lost
from tests.builders.turns import turn

ANYTHING_GOES = Limits(max_evictions_share=1.0, max_evictions_floor=1000)


def packed(seen: Snapshot) -> Plan:
    return pack(seen, Packer(seen, BestFit()))


def assert_sound(seen: Snapshot) -> None:
    """Nothing over-committed, every pod has its devices, every gang is whole or not there."""
    assert_fits(seen)
    for index, gang in enumerate(seen.gangs):
        running = seen.pods.node[(seen.pods.gang == index)] != PENDING
        assert running.sum() == 0 or running.sum() >= gang.min_members


def assert_fits(seen: Snapshot) -> None:
    """Nothing over-committed, every pod has its devices."""
    free = seen.free()
    assert (free.cpu_milli >= 0).all()
    assert (free.memory_bytes >= 0).all()
    assert (free.gpu_milli >= 0).all()
    for row, where in enumerate(seen.pods.node):
        if where != PENDING:
            shape = seen.pods.shapes[seen.pods.shape[row]]
            held = device_numbers(int(seen.pods.devices[row]))
            assert len(held) == shape.gpus
            assert all(device < seen.nodes.gpus[where] for device in held)


@given(fleets())
def test_a_packing_is_sound_and_the_guard_has_nothing_to_say(seen: Snapshot) -> None:
    plan = packed(seen)

    assert guard(seen, plan, ANYTHING_GOES).refused == ()
    assert_sound(seen.after(plan.actions))


@given(fleets())
def test_the_second_packing_plans_nothing(seen: Snapshot) -> None:
    later = seen.after(packed(seen).actions)

    assert packed(later).actions == ()


@given(fleets(), st.integers(0, 2**32 - 1))
def test_preemption_keeps_everything_sound_and_comes_to_rest(seen: Snapshot, seed: int) -> None:
    busy = with_importance_shuffled(seen.after(packed(seen).actions), seed)

    plan = packed(busy)
    later = busy.after(plan.actions)

    assert guard(busy, plan, ANYTHING_GOES).refused == ()
    assert_sound(later)
    assert packed(later).actions == ()


@settings(max_examples=300)
@given(fleets(), st.integers(0, 2**32 - 1))
def test_preemption_among_gangs_that_run_in_part_starts_no_other_in_part(seen: Snapshot, seed: int) -> None:
    busy = with_importance_shuffled(with_pods_lost(seen.after(packed(seen).actions), seed), seed)

    plan = packed(busy)
    later = busy.after(plan.actions)

    assert guard(busy, plan, ANYTHING_GOES).refused == ()
    assert_fits(later)
    for index, gang in enumerate(seen.gangs):
        before, after = (set(np.flatnonzero((s.pods.gang == index) & (s.pods.node != PENDING))) for s in (busy, later))
        assert len(after) >= gang.min_members or after <= before, f"{gang} ran with {before}, now with {after}"


@settings(max_examples=200)
@given(fleets(), st.integers(0, 2**32 - 1), st.integers(0, 6))
def test_whatever_the_limit_on_evictions_no_pod_is_stopped_for_nothing(seen: Snapshot, seed: int, most: int) -> None:
    busy = with_importance_shuffled(with_pods_lost(seen.after(packed(seen).actions), seed), seed)

    checked = guard(busy, packed(busy), Limits(max_evictions_share=0.0, max_evictions_floor=most))
    later = busy.after(checked.actions)

    assert_fits(later)
    stopped = [row for row in range(len(busy.pods)) if later.pods.node[row] == PENDING != busy.pods.node[row]]
    phases = [sum(isinstance(step.action, Evict) for step in phase.steps) for phase in checked.phases]
    assert len(stopped) <= most or (most > 0 and [each for each in phases if each] == [len(stopped)]), "one whole unit"
    for row in stopped:
        gang = int(busy.pods.gang[row])
        mates = [r for r in stopped if busy.pods.gang[r] == gang] if gang >= 0 else [row]
        node, devices = later.pods.node.copy(), later.pods.devices.copy()
        node[mates], devices[mates] = busy.pods.node[mates], busy.pods.devices[mates]
        back = replace(later, pods=replace(later.pods, node=node, devices=devices)).free()
        free = np.column_stack([back.cpu_milli, back.memory_bytes, back.gpu_milli])
        assert (free < 0).any(), f"{busy.pods.names[row]} was stopped, and nothing took its place"


def seats_by_importance(seen: Snapshot) -> list[int]:
    """How many pods run at each priority, the highest first."""
    priority = effective_priority(seen)
    return [int(((seen.pods.node != PENDING) & (priority == p)).sum()) for p in (20, 10, 5, 0)]


@given(fleets(), st.integers(0, 2**32 - 1))
def test_nobody_is_stopped_but_for_the_gain_of_the_more_important(seen: Snapshot, seed: int) -> None:
    busy = with_importance_shuffled(seen.after(packed(seen).actions), seed)
    later = busy.after(packed(busy).actions)

    # Lexicographic: whatever lower priorities lose, the first priority that changes has gained.
    assert seats_by_importance(later) >= seats_by_importance(busy)


@given(fleets())
def test_every_pod_is_placed_or_has_a_reason(seen: Snapshot) -> None:
    plan = packed(seen)
    later = seen.after(plan.actions)

    told = {unplaced.workload for unplaced in plan.unplaced}
    for row in later.pods.pending.tolist():
        gang = int(later.pods.gang[row])
        label = f"Pod/{later.pods.names[row]}" if gang < 0 else f"Gang/{later.gangs[gang].name}"
        assert label in told


@given(fleets())
def test_after_equals_what_the_world_then_shows(seen: Snapshot) -> None:
    plan = packed(seen)
    simulated = SimulatedWorld(seen)

    outcome = carry_out(simulated, plan)

    assert not outcome.undone
    expected, shown = seen.after(plan.actions), simulated.observe()
    assert shown.pods.node.tolist() == expected.pods.node.tolist()
    assert shown.pods.devices.tolist() == expected.pods.devices.tolist()


@settings(max_examples=200)
@given(fleets(), st.data())
def test_a_gang_that_broke_halfway_is_completed_or_taken_back(seen: Snapshot, data: st.DataObject) -> None:
    plan = packed(seen)
    broken = set(data.draw(st.lists(st.sampled_from(plan.actions), max_size=3))) if plan.actions else set()
    simulated = SimulatedWorld(seen, lambda action: "it will not" if action in broken else None)

    carry_out(simulated, guard(seen, plan, ANYTHING_GOES))
    assert_fits(simulated.observe())
    broken.clear()
    for _ in range(2):  # what completes it, or else its devices are given back
        halfway = simulated.observe()
        carry_out(simulated, guard(halfway, completed_or_rolled_back(halfway), ANYTHING_GOES))

    assert half_started(simulated.observe()) == {}


def completed_or_rolled_back(seen: Snapshot) -> Plan:
    """The plan of a cluster in which no gang may stand half started for any time."""
    plan = packed(seen)
    return plan.joined(closing.roll_back_gangs(seen.after(plan.actions), turn(seen, Decisions(gang_deadline_s=0.0))))
