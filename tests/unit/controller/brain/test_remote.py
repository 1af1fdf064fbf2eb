"""Brain on Ray as the control loop sees it: a plan by the deadline, whatever happens to the brain process."""

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings, strategies as st

from cluster.actions import Bind, Scale
from cluster.plans import Reason
from cluster.snapshot import Snapshot
from cluster.workloads import InstanceType
from controller.brain.frames import plan_frame
from controller.brain.inline import InlineBrain
from controller.brain.link import FAILURES, PATIENCE_S, Link
from controller.brain.remote import LATE_S, RayBrain, late_decisions, usable
from controller.brain.wire import SILENT_S
from controller.cycle import run_cycle
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import PlanRequest, planned
from controller.guard import Limits
from controller.ports import PLANNED_LOCALLY
from simulator.world import SimulatedWorld
from tests.builders.fake_brain import INSTANCES, FakeBrain, Mood, NoChance
from tests.builders.fleet import node, pod, world
from tests.builders.mix import profile, service
from tests.builders.plan_fleets import fleet, odd_asks, with_batch
from tests.builders.snapshot_content import plain
from tests.clock import RunningClock
from tests.until import until

SHORT_S = 0.15
"""A deadline that is meant to pass."""
LONG_S = 30.0
"""One that is not."""


@dataclass
class Bench:
    brain: RayBrain
    peer: FakeBrain
    clock: RunningClock

    def is_up(self) -> None:
        until(lambda: self.brain.standing.state == "up", "the brain is up")

    def fails(self, mood: Mood, times: int = FAILURES) -> None:
        self.peer.mood = mood
        for _ in range(times):
            self.brain.plan(seen(), SHORT_S)


@pytest.fixture
def bench() -> Iterator[Bench]:
    clock, peer = RunningClock(), FakeBrain()
    link = Link(peer, Decisions(), NoChance(), clock)
    link.want(wanted=True)
    made = Bench(RayBrain(link, Decisions(), time.monotonic), peer, clock)
    yield made
    peer.let_go.set()
    link.close()


def seen() -> Snapshot:
    service_, profile_ = service(), profile("A100", ((2.0,),))
    return world([node("a", 4), node("b", 2)], [pod("d/p", 2), pod("d/q", 1)], services=[service_], profiles=[profile_])


def serving(instances: int = 2) -> Snapshot:
    """The same with a service that has instances, and demand for them."""
    (chat,) = seen().services
    return replace(seen(), services=(replace(chat, replicas={InstanceType("A100"): instances}),))


def binds(plan: object) -> int:
    return sum(isinstance(action, Bind) for action in plan.actions)  # type: ignore[attr-defined]


def test_a_plan_of_the_brain_is_the_plan_that_would_be_made_here(bench: Bench) -> None:
    bench.is_up()

    plan = bench.brain.plan(seen(), LONG_S)

    here = InlineBrain(Decisions(), time.monotonic).plan(seen(), LONG_S)
    assert plain(plan.phases) == plain(here.phases)
    assert plain(plan.unplaced) == plain(here.unplaced)
    assert bench.brain.counts.plans == {"ray": 1}


def test_while_there_is_no_brain_the_plan_is_made_here_and_says_so(bench: Bench) -> None:
    bench.is_up()
    bench.peer.is_reachable = False
    bench.peer.mood = "dead"
    bench.brain.plan(seen(), LONG_S)
    until(lambda: bench.brain.standing.state == "away", "it is away")

    plan = bench.brain.plan(seen(), LONG_S)

    assert binds(plan) >= 2
    assert plan.services[0].notes[-1].code == PLANNED_LOCALLY
    assert bench.brain.counts.plans["local"] == 2


def test_while_there_is_no_brain_a_plan_has_all_of_its_work_and_its_own_policy() -> None:
    """Also while the first brain starts, which is when an operator makes its first plans."""
    link = Link(FakeBrain(is_reachable=False), Decisions(), NoChance())
    try:
        plan = RayBrain(link, Decisions(), time.monotonic).plan(seen(), Decisions().within_s)
    finally:
        link.close()

    here = InlineBrain(Decisions(), time.monotonic).plan(seen(), Decisions().within_s)
    assert plain(plan.phases) == plain(here.phases)
    assert plan.cut_short == here.cut_short == ()


def test_a_plan_for_what_does_not_exist_is_not_used_and_one_is_made_here(bench: Bench) -> None:
    bench.is_up()
    bench.peer.mood = "strange"

    plan = bench.brain.plan(seen(), LONG_S)

    assert binds(plan) >= 2
    assert bench.brain.counts.fallbacks == {"garbled": 1}


def test_a_plan_with_a_byte_that_is_no_text_is_made_here_in_the_same_cycle_and_costs_trust(bench: Bench) -> None:
    bench.is_up()
    bench.peer.mood = "no_plan"

    plan = bench.brain.plan(seen(), LONG_S)

    assert binds(plan) >= 2
    assert bench.brain.counts.plans == {"local": 1}
    assert bench.brain.counts.fallbacks == {"garbled": 1}
    assert not bench.brain.standing.trusted


@pytest.mark.parametrize("mood", ["infeasible", "absurd"])
def test_a_brain_whose_plan_the_guard_would_refuse_is_distrusted_and_replaced(bench: Bench, mood: Mood) -> None:
    bench.is_up()
    bench.peer.mood = mood

    plans = [bench.brain.plan(seen(), LONG_S) for _ in range(3)]

    here = InlineBrain(Decisions(), time.monotonic).plan(seen(), LONG_S)
    assert [plain(plan.phases) for plan in plans] == [plain(here.phases)] * 3
    assert bench.brain.counts.plans == {"local": 3}
    assert bench.brain.counts.fallbacks == {"infeasible": 1, "distrusted": 2}
    assert not bench.brain.standing.trusted
    bench.peer.mood = "well"
    bench.clock.ahead_s += PATIENCE_S
    until(lambda: bench.peer.opened == 2 and bench.brain.standing.trusted, "another brain has come")
    until(lambda: bench.brain.plan(seen(), LONG_S) and bench.brain.counts.plans["ray"], "it is asked")


@pytest.mark.parametrize("mood", ["absurd", "too_many", "to_nothing"])
def test_a_brain_that_scales_past_the_fleet_or_to_nothing_is_not_heeded_and_pods_are_placed(
    bench: Bench, mood: Mood
) -> None:
    """In the same cycle, with as little work as any other plan: no table is made of instances that nobody can have."""
    bench.is_up()
    bench.peer.mood = mood

    cycle = run_cycle(SimulatedWorld(serving()), bench.brain, Limits(), LONG_S)

    here = InlineBrain(Decisions(), time.monotonic).plan(serving(), LONG_S)
    assert bench.brain.counts.fallbacks == {"infeasible": 1}
    assert tuple(step.action for step in cycle.outcome.done) == here.actions
    assert binds(cycle.plan) >= 2
    assert not any(
        isinstance(action, Scale) and INSTANCES[mood] in action.instances.values() for action in here.actions
    )


def test_a_message_that_is_no_text_ends_the_brain_and_not_the_link(bench: Bench) -> None:
    bench.is_up()
    bench.peer.mood = "no_text"

    plan = bench.brain.plan(seen(), LONG_S)

    assert binds(plan) >= 2
    assert bench.brain.counts.fallbacks == {"lost": 1}
    bench.peer.mood = "well"
    until(lambda: bench.peer.opened == 2 and bench.brain.standing.state == "up", "another brain has come")
    bench.brain.plan(seen(), LONG_S)
    assert bench.brain.counts.plans["ray"] == 1
    assert bench.brain.standing.losses == {"garbled": 1}


class Stumbles(FakeBrain):
    """A brain whose first opening fails in a way that nobody foresaw."""

    def open(self) -> socket.socket:
        if not self.closed:
            raise ValueError("an address without a port")
        return super().open()


def test_no_error_ends_the_link() -> None:
    peer = Stumbles()
    link = Link(peer, Decisions(), NoChance())
    link.want(wanted=True)
    try:
        until(lambda: link.standing.state == "up", "the brain is up")
        assert link.standing.losses == {"broken": 1}
    finally:
        link.close()


SOUND = plan_frame(InlineBrain(Decisions(), time.monotonic).plan(seen(), LONG_S))


@given(
    changes=st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=4),
    is_cut_off=st.booleans(),
)
@settings(max_examples=1_000, deadline=None)
def test_a_plan_with_other_bytes_is_used_or_not_and_never_raises(
    *, changes: list[tuple[int, int]], is_cut_off: bool
) -> None:
    frame = bytearray(SOUND)
    for at, byte in changes:
        frame[at] = byte
    if is_cut_off:
        del frame[changes[0][0] :]

    found = usable(seen(), bytes(frame))

    assert isinstance(found, Reason) or seen().after(found.actions).at_s == 0.0


def test_a_brain_that_dies_over_a_request_costs_no_time(bench: Bench) -> None:
    bench.is_up()
    bench.peer.mood = "dead"
    began_s = time.monotonic()

    plan = bench.brain.plan(seen(), LONG_S)

    assert time.monotonic() - began_s < LONG_S / 2
    assert binds(plan) >= 2
    assert bench.brain.counts.fallbacks == {"lost": 1}


def test_an_outcome_of_a_slot_is_returned_once_and_its_memory_is_sent_to_the_next_brain() -> None:
    decisions, peer = Decisions(polish_share=1.0), FakeBrain()
    link = Link(peer, decisions, NoChance())
    link.want(wanted=True)
    try:
        brain = RayBrain(link, Decisions(), time.monotonic)  # which reads no outcomes itself
        until(lambda: link.standing.state == "up", "the brain is up")
        brain.plan(running(), LONG_S)
        until(lambda: bool(link._outcomes), "an outcome has arrived")
        assert [(outcome.slot, outcome.reason) for outcome in link.outcomes()] == [("polish", "")]
        assert link.outcomes() == []
        peer.mood = "dead"
        brain.plan(running(), LONG_S)
        peer.mood = "well"
        until(lambda: peer.opened == 2 and link.standing.state == "up", "the next brain is up")
        brain.plan(running(), LONG_S)
        assert peer.remembered == {"polish": b"a"}
    finally:
        link.close()


def running() -> Snapshot:
    return world([node("a", 4)], [pod("d/p", 2, on="a", devices=(0, 1), movable=True)])


def test_a_brain_that_ended_is_started_anew(bench: Bench) -> None:
    bench.is_up()
    bench.fails("dead", 1)
    bench.peer.mood = "well"

    until(lambda: bench.peer.opened >= 2, "it is started again")
    bench.is_up()
    bench.brain.plan(seen(), LONG_S)

    assert bench.brain.counts.plans["ray"] == 1
    assert bench.brain.standing.losses["ended"] == 1


def test_an_answer_after_the_deadline_is_dropped(bench: Bench) -> None:
    bench.is_up()
    bench.fails("late", 1)

    bench.peer.mood = "well"
    bench.peer.let_go.set()
    until(lambda: bench.brain.standing.late == 1, "the late answer came")
    plan = bench.brain.plan(seen(), LONG_S)

    assert bench.brain.counts.plans == {"local": 1, "ray": 1}
    assert binds(plan) >= 2


@pytest.mark.parametrize("mood", ["wrong_request", "wrong_epoch"])
def test_an_answer_to_another_request_or_of_an_earlier_term_is_dropped(bench: Bench, mood: Mood) -> None:
    bench.is_up()
    bench.fails(mood, 1)

    until(lambda: bench.brain.standing.late == 1, "its answer came")
    assert bench.brain.counts.plans == {"local": 1}


def test_requests_carry_the_epoch_of_the_lease(bench: Bench) -> None:
    bench.is_up()
    bench.brain.lead(leads=True, epoch=7)

    bench.brain.plan(seen(), LONG_S)

    assert [ask.epoch for ask in bench.peer.asked] == [7]


def test_a_brain_that_is_late_again_and_again_is_not_waited_for(bench: Bench) -> None:
    bench.is_up()
    bench.fails("mute")
    began_s = time.monotonic()

    bench.brain.plan(seen(), LONG_S)

    assert time.monotonic() - began_s < LONG_S / 2
    assert bench.brain.counts.fallbacks["distrusted"] == 1
    assert not bench.brain.standing.trusted


def test_trust_comes_back_with_a_trial_that_is_in_time(bench: Bench) -> None:
    bench.is_up()
    bench.fails("wrong_request")
    bench.peer.mood = "well"

    bench.brain.plan(seen(), LONG_S)  # planned here, and tried there
    until(lambda: bench.brain.standing.trusted, "it is trusted again")
    bench.brain.plan(seen(), LONG_S)

    assert bench.brain.counts.plans["ray"] == 1


def test_a_silent_brain_is_replaced(bench: Bench) -> None:
    bench.is_up()
    bench.peer.mood = "mute"
    bench.clock.ahead_s += SILENT_S

    until(lambda: bench.brain.standing.losses["silent"] == 1, "it is given up")
    bench.peer.mood = "well"
    until(lambda: bench.peer.opened >= 2, "another one is started")

    assert not bench.peer.closed[0], "a frozen process must be killed"


def test_a_brain_that_lives_and_never_plans_in_time_is_replaced(bench: Bench) -> None:
    bench.is_up()
    bench.fails("wrong_request")
    bench.clock.ahead_s += PATIENCE_S

    until(lambda: bench.brain.standing.losses["useless"] == 1, "it is given up")


def test_what_is_no_message_ends_the_brain(bench: Bench) -> None:
    bench.is_up()
    bench.fails("garbage", 1)

    until(lambda: bench.brain.standing.losses["ended"] + bench.brain.standing.losses["garbled"] == 1, "it is given up")


def test_a_brain_of_another_version_is_refused() -> None:
    peer = FakeBrain(version="another")
    link = Link(peer, Decisions(), NoChance())
    brain = RayBrain(link, Decisions(), time.monotonic)
    brain.lead(leads=True)
    try:
        until(lambda: brain.standing.losses["refused"] >= 1, "it is refused")
        plan = brain.plan(seen(), SHORT_S)
    finally:
        link.close()

    assert brain.counts.plans == {"local": 1}
    assert binds(plan) >= 2


def test_a_replica_that_stands_by_keeps_no_brain(bench: Bench) -> None:
    bench.is_up()

    bench.brain.lead(leads=False)

    until(lambda: bench.brain.standing.state == "away" and bench.peer.closed == [True], "it is let go in order")
    bench.brain.lead(leads=True)
    bench.is_up()
    assert bench.peer.opened == 2
    assert not bench.brain.standing.losses


def test_a_plan_past_the_deadline_places_every_pod_that_fits() -> None:
    """1,500 pods on 2,000 nodes: one by one, half a second of work examines nodes for some hundreds of them."""
    asks = odd_asks(1)
    waiting = with_batch(fleet(2000, asks), 1500, 1, asks)

    plan = planned(waiting, PlanRequest(late_decisions(Decisions()), LATE_S, clock=lambda: 0.0))

    assert binds(plan) == 1500


def test_a_trial_that_is_answered_late_does_not_bring_trust_back(bench: Bench) -> None:
    bench.is_up()
    bench.fails("mute")
    bench.peer.mood = "late"
    bench.brain.plan(seen(), SHORT_S)  # the trial, for which nothing waits
    until(lambda: len(bench.peer.asked) == 1, "the trial has arrived")

    bench.clock.ahead_s += 10 * SHORT_S
    bench.peer.let_go.set()

    until(lambda: bench.brain.standing.late == 1, "the late answer came")
    assert not bench.brain.standing.trusted
