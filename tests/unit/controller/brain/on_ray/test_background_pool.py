"""Background deciders on Ray: one may fail, stall or die, and resumes from its memory; no plan waits for it."""

from controller.brain.background_frames import Idea, thought_from_frame
from controller.brain.frames import plan_from_frame, snapshot_frame
from controller.brain.on_ray.background_pool import SlotCrew
from controller.brain.on_ray.fake_ray import FakeActor, FakeRay
from controller.brain.on_ray.planner_pool import Crew
from controller.brain.on_ray.shared_snapshot import SnapshotHolder
from controller.brain.on_ray.supervised_actors import SILENT_S, STALLED_S
from controller.deciders.background import LARGEST_MEMORY, THINK_S, Thought
from controller.deciders.decisions import Decisions
from tests.unit.controller.deciders.fake_background import FAILS, Counting, snapshot_that


class Bench:
    """Slots, the snapshots they think about, and time."""

    def __init__(self, occupant: Counting | None = None) -> None:
        self.ray = FakeRay()
        self.holder = SnapshotHolder(self.ray.put)
        self.slots = SlotCrew(self.ray, [occupant or Counting()], self.ray.clock)
        self.slots.begin()
        self.passes(1.0)

    @property
    def actor(self) -> FakeActor:
        return self.ray.actors[-1]

    def sees(self, does: str = "") -> None:
        self.holder.hold(snapshot_frame(snapshot_that(does)))

    def passes(self, for_s: float) -> list[Idea]:
        ideas: list[Idea] = []
        over_at_s = self.ray.now_s + for_s
        while self.ray.now_s < over_at_s:
            ideas += self.slots.turn(self.holder.newest)
            self.ray.now_s += 0.1
        return ideas


def thoughts(ideas: list[Idea]) -> list[Thought]:
    return [thought_from_frame(idea.frame) for idea in ideas if idea.frame]


def test_a_slot_thinks_once_about_each_snapshot_and_remembers() -> None:
    bench = Bench()

    bench.sees()
    first = bench.passes(3.0)
    bench.sees()
    second = bench.passes(3.0)

    assert [thought.memory for thought in thoughts(first)] == [b"1"]
    assert [thought.memory for thought in thoughts(second)] == [b"2"]
    assert bench.slots.up == ("counting",)


def test_the_latest_snapshot_wins_and_the_ones_before_it_are_not_thought_about() -> None:
    bench = Bench()
    bench.actor.mood = "stuck"
    bench.sees()
    bench.passes(0.5)
    for _ in range(5):
        bench.sees()
    bench.actor.mood = "well"

    assert [thought.memory for thought in thoughts(bench.passes(2.0))] == [b"1", b"2"]


def test_an_occupant_that_fails_says_why_and_is_asked_about_the_next_snapshot() -> None:
    bench = Bench()
    bench.sees()
    bench.passes(1.0)
    bench.actor.mood = "wrong"
    bench.sees(FAILS)
    failed = bench.passes(3.0)
    bench.actor.mood = "well"
    bench.sees()

    assert [(idea.reason, idea.frame) for idea in failed] == [("error", b"")]
    assert "mistake" in failed[0].words
    assert [thought.memory for thought in thoughts(bench.passes(1.0))] == [b"2"]
    assert len(bench.ray.actors) == 1, "a mistake is no reason to replace it"


def test_an_occupant_that_stalls_is_replaced_by_one_that_goes_on_where_it_was() -> None:
    bench = Bench()
    bench.sees()
    bench.passes(1.0)
    bench.actor.mood = "stuck"
    bench.sees()
    stalled = bench.passes(THINK_S + STALLED_S + 1.0)
    bench.sees()

    assert [idea.reason for idea in stalled] == ["stuck"]
    assert bench.ray.actors[0].is_killed
    assert [thought.memory for thought in thoughts(bench.passes(2.0))] == [b"2"]


def test_an_occupant_that_dies_is_asked_again_when_it_is_back_and_goes_on_where_it_was() -> None:
    bench = Bench()
    bench.sees()
    bench.passes(1.0)
    bench.actor.mood = "stuck"
    bench.sees()
    bench.passes(0.5)
    bench.actor.mood = "dead"
    died = bench.passes(0.5)
    bench.actor.restarted()
    bench.sees()

    assert [idea.reason for idea in died] == ["lost"]
    assert [thought.memory for thought in thoughts(bench.passes(3.0))] == [b"2"]
    assert bench.slots.watched.restarts == 0 or bench.slots.processes == (bench.actor.pid,)


def test_a_slot_on_a_node_that_freezes_begins_elsewhere_with_the_snapshot_that_is_held() -> None:
    bench = Bench()
    bench.sees()
    bench.passes(1.0)
    bench.actor.mood = "silent"
    bench.sees()

    ideas = bench.passes(SILENT_S + 4.0)

    assert [idea.reason for idea in ideas] == ["silent", ""]
    assert thoughts(ideas)[0].memory == b"2"


def test_a_thought_that_comes_too_late_is_none() -> None:
    bench = Bench()
    bench.actor.mood = "stuck"
    bench.sees()
    bench.passes(THINK_S + 1.0)
    bench.actor.mood = "well"

    assert [idea.reason for idea in bench.passes(1.0)] == ["deadline"]


def test_a_full_queue_is_told_and_nothing_piles_up() -> None:
    bench = Bench()
    bench.actor.mood = "full"
    bench.sees()

    assert [idea.reason for idea in bench.passes(1.0)] == ["queue_full"]


def test_nobody_remembers_more_than_may_travel_with_every_thought() -> None:
    class Hoards(Counting):
        def think(self, snapshot: object, memory: bytes, deadline_s: float) -> Thought:
            return Thought(memory=bytes(LARGEST_MEMORY + 1))

    bench = Bench(Hoards())
    bench.sees()

    with_error = bench.passes(1.0)

    assert [idea.reason for idea in with_error] == ["error"]


def test_a_plan_does_not_wait_for_a_slot() -> None:
    ray = FakeRay()
    crew, slots = Crew(ray, Decisions(), ray.clock, ray.sleep), SlotCrew(ray, [Counting()], ray.clock)
    crew.begin(1, within_s=30.0)
    slots.begin()
    ray.actors[-1].mood = "silent"
    slots.turn(crew.holder.newest)
    began_s = ray.now_s

    plan = crew.plan(snapshot_frame(snapshot_that()), 10.0)

    assert plan_from_frame(plan)
    assert ray.now_s - began_s < 0.5
