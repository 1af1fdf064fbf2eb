"""The ring keeps the last cycles within its bounds, each snapshot once, and quiet cycles far apart."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from cluster.actions import Bind, Evict
from cluster.plans import Phase, Plan, Reason, Refused, Step
from cluster.snapshot import Snapshot
from controller.brain.frames import plan_frame
from controller.cycle import Cycle
from controller.ports import Outcome, Undone
from controller.recording.ring import ENTRY_BYTES, CycleEntry, Ring, outcome_from, recorded, seen_at
from tests.builders.fleet import node, pod, world

WHY = Reason("LeastCost", "for a reason")
BOUND = Step(Bind("d/p", "a", (0,)), WHY)
MIB = 2**20


def seen(at_s: float = 0.0, pods: int = 1) -> Snapshot:
    return world([node("a", gpus=8)], [pod(f"d/{n}", 1) for n in range(pods)], at_s=at_s)


def quiet(at_s: float, pods: int = 1) -> Cycle:
    return Cycle(seen(at_s, pods), Plan(), Outcome())


def acting(at_s: float, pods: int = 1) -> Cycle:
    plan = Plan((Phase("pack", (BOUND,)),))
    return Cycle(seen(at_s, pods), plan, Outcome(done=(BOUND,)), wanted=plan)


def ring(keep_s: float = 3600.0, most_cycles: int = 1000, most_bytes: int = 32 * MIB) -> Ring:
    return Ring(keep_s, most_cycles, most_bytes)


def filled(into: Ring, *cycles: Cycle) -> tuple[CycleEntry, ...]:
    for cycle in cycles:
        into.put(cycle)
    return into.copy().entries


def test_a_cycle_is_kept_with_what_was_seen_wanted_and_done() -> None:
    refused = Refused(Step(Evict("d/q", "a"), WHY), Reason("NotThere", "no"))
    failed = Undone(BOUND, Reason("ActionFailed", "409"))
    plan = Plan(refused=(refused,))
    wanted = Plan((Phase("pack", (BOUND,)),))
    cycle = Cycle(seen(5.0), plan, Outcome((BOUND,), (failed,)), {"plan": 0.1}, wanted)
    kept = ring()

    (entry,) = filled(kept, cycle)

    assert (entry.number, entry.at_s, entry.stage_s, entry.is_quiet) == (1, 5.0, {"plan": 0.1}, False)
    frames = dict(recorded(cycle, 1)[1])
    assert frames.keys() == kept.copy().frames.keys()
    assert frames[entry.wanted] == plan_frame(wanted)
    assert frames[entry.guarded] == plan_frame(plan)
    assert outcome_from(frames[entry.outcome]) == cycle.outcome


def test_an_unchanged_snapshot_is_kept_once() -> None:
    kept = ring()

    one, other = filled(kept, acting(1.0), acting(2.0))

    assert one.snapshot == other.snapshot
    # A snapshot, a plan that the guard left as it was, and an outcome.
    assert len(kept.copy().frames) == 3


def test_its_instants_come_back_with_a_snapshot_that_is_kept_once() -> None:
    cycle = replace(acting(7.0), snapshot=replace(seen(7.0), observed_at_s={"pods": 6.5}))

    entry, _ = recorded(cycle, 1)

    again = seen_at(seen(0.0), entry)
    assert (again.at_s, again.observed_at_s) == (7.0, {"pods": 6.5})


def test_quiet_cycles_that_see_the_same_are_counted() -> None:
    (entry,) = filled(ring(), quiet(1.0), quiet(2.0), quiet(3.0))

    assert (entry.at_s, entry.repeats, entry.last_at_s) == (1.0, 2, 3.0)


def test_quiet_cycles_that_see_something_else_are_kept_a_minute_apart_and_the_newest() -> None:
    entries = filled(ring(), *(quiet(float(n), pods=1 + n % 7) for n in range(150)))

    assert [entry.at_s for entry in entries] == [0.0, 60.0, 120.0, 149.0]


def test_no_cycle_in_which_something_was_decided_is_thinned() -> None:
    entries = filled(ring(), *(acting(float(n), pods=1 + n) for n in range(30)))

    assert [entry.number for entry in entries] == list(range(1, 31))


@pytest.mark.parametrize(
    "cycle",
    [
        Cycle(seen(1.0), Plan(refused=(Refused(BOUND, WHY),)), Outcome()),
        Cycle(seen(1.0), Plan(), Outcome(undone=(Undone(BOUND, WHY),))),
    ],
    ids=["refused", "undone"],
)
def test_a_cycle_in_which_something_was_refused_or_failed_is_not_quiet(cycle: Cycle) -> None:
    assert not filled(ring(), cycle)[0].is_quiet


def test_what_is_older_than_the_ring_keeps_is_dropped() -> None:
    entries = filled(ring(keep_s=100.0), acting(0.0, 1), acting(50.0, 2), acting(101.0, 3))

    assert [entry.at_s for entry in entries] == [50.0, 101.0]


def test_only_so_many_cycles_are_kept() -> None:
    assert [entry.number for entry in filled(ring(most_cycles=2), *(acting(float(n)) for n in range(5)))] == [4, 5]


def large(number: int) -> Cycle:
    """Some 120 kB even when compressed: random priorities of 20,000 pods."""
    rng = np.random.default_rng(number)
    table = seen(float(number), pods=20_000)
    return replace(acting(0.0), snapshot=replace(table, pods=replace(table.pods, priority=rng.integers(0, 64, 20_000))))


def test_memory_stays_within_the_bound_of_bytes() -> None:
    kept = ring(most_bytes=MIB)
    cycles = [large(number) for number in range(12)]
    filled(kept, cycles[0])
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        filled(kept, *cycles[1:])
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept.held_bytes <= MIB
    assert after - before <= MIB
    assert kept.copy().entries[-1].number == 12


def test_the_bytes_of_what_is_dropped_are_given_back() -> None:
    kept = ring(most_cycles=1)
    filled(kept, *(acting(float(n), pods=1 + n) for n in range(20)))

    recording = kept.copy()
    assert set(recording.frames) == set(recording.entries[0].frames)
    assert kept.held_bytes == ENTRY_BYTES + sum(map(len, recording.frames.values()))


def test_the_python_objects_of_an_entry_fit_into_what_is_counted_for_it() -> None:
    kept = ring()
    filled(kept, acting(0.0))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        # The same snapshot and plans each time: what grows is the entries.
        filled(kept, *(replace(acting(float(n)), stage_s={"observe": float(n), "plan": n + 0.5}) for n in range(200)))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (after - before) / 200 < ENTRY_BYTES


def test_a_cycle_larger_than_the_whole_ring_is_counted_and_left_out() -> None:
    kept = ring(most_bytes=ENTRY_BYTES)

    assert filled(kept, acting(0.0)) == ()
    assert kept.copy().too_large == 1
