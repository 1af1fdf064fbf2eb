"""Background deciders on Ray: one may fail, stall or die, and resumes from its memory; no plan waits for it."""

from controller.brain.frames import SlotOutcome, plan_from_frame, proposal_from_frame, snapshot_frame
from controller.brain.on_ray.actors import SILENT_S, STALLED_S
from controller.brain.on_ray.process import BackgroundPool, PlannerPool, SnapshotHolder
from controller.deciders.decider import LARGEST_MEMORY, PROPOSE_S, Proposal
from controller.deciders.decisions import Decisions
from tests.builders.fake_ray import FakeActor, FakeRay
from tests.unit.controller.deciders.fake_background import FAILS, Counting, snapshot_that


class Bench:
    """Slots, their snapshots, and time."""

    def __init__(self, proposer: Counting | None = None) -> None:
        self.ray = FakeRay()
        self.holder = SnapshotHolder(self.ray)
        self.slots = BackgroundPool(self.ray, [proposer or Counting()], self.ray.clock)
        self.slots.begin()
        self.passes(1.0)

    @property
    def actor(self) -> FakeActor:
        return self.ray.actors[-1]

    def sees(self, does: str = "") -> None:
        self.holder.hold(snapshot_frame(snapshot_that(does)))

    def passes(self, for_s: float) -> list[SlotOutcome]:
        outcomes: list[SlotOutcome] = []
        over_at_s = self.ray.now_s + for_s
        while self.ray.now_s < over_at_s:
            outcomes += self.slots.turn(self.holder.newest)
            self.ray.now_s += 0.1
        return outcomes


def proposals(outcomes: list[SlotOutcome]) -> list[Proposal]:
    return [proposal_from_frame(outcome.frame) for outcome in outcomes if outcome.frame]


def test_a_slot_thinks_once_about_each_snapshot_and_remembers() -> None:
    bench = Bench()

    bench.sees()
    first = bench.passes(3.0)
    bench.sees()
    second = bench.passes(3.0)

    assert [proposal.memory for proposal in proposals(first)] == [b"1"]
    assert [proposal.memory for proposal in proposals(second)] == [b"2"]
    assert bench.slots.up == ("counting",)


def test_the_latest_snapshot_wins_and_earlier_waiting_ones_are_skipped() -> None:
    bench = Bench()
    bench.actor.mood = "stuck"
    bench.sees()
    bench.passes(0.5)
    for _ in range(5):
        bench.sees()
    bench.actor.mood = "well"

    assert [proposal.memory for proposal in proposals(bench.passes(2.0))] == [b"1", b"2"]


def test_a_decider_that_fails_reports_the_error_and_is_asked_about_the_next_snapshot() -> None:
    bench = Bench()
    bench.sees()
    bench.passes(1.0)
    bench.actor.mood = "wrong"
    bench.sees(FAILS)
    failed = bench.passes(3.0)
    bench.actor.mood = "well"
    bench.sees()

    assert [(outcome.reason, outcome.frame) for outcome in failed] == [("error", b"")]
    assert "error in the planner" in failed[0].words
    assert [proposal.memory for proposal in proposals(bench.passes(1.0))] == [b"2"]
    assert len(bench.ray.actors) == 1, "an error is no reason to replace it"


def test_a_stalled_decider_is_replaced_by_one_that_continues_from_its_memory() -> None:
    bench = Bench()
    bench.sees()
    bench.passes(1.0)
    bench.actor.mood = "stuck"
    bench.sees()
    stalled = bench.passes(PROPOSE_S + STALLED_S + 1.0)
    bench.sees()

    assert [outcome.reason for outcome in stalled] == ["stuck"]
    assert bench.ray.actors[0].is_killed
    assert [proposal.memory for proposal in proposals(bench.passes(2.0))] == [b"2"]


def test_a_decider_that_dies_is_called_again_after_its_restart_with_its_memory() -> None:
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

    assert [outcome.reason for outcome in died] == ["lost"]
    assert [proposal.memory for proposal in proposals(bench.passes(3.0))] == [b"2"]
    assert bench.slots.watched.restarts == 0 or bench.slots.processes == (bench.actor.pid,)


def test_a_slot_on_a_node_that_freezes_begins_elsewhere_with_the_snapshot_that_is_held() -> None:
    bench = Bench()
    bench.sees()
    bench.passes(1.0)
    bench.actor.mood = "silent"
    bench.sees()

    outcomes = bench.passes(SILENT_S + 4.0)

    assert [outcome.reason for outcome in outcomes] == ["silent", ""]
    assert proposals(outcomes)[0].memory == b"2"


def test_a_result_after_the_deadline_is_discarded() -> None:
    bench = Bench()
    bench.actor.mood = "stuck"
    bench.sees()
    bench.passes(PROPOSE_S + 1.0)
    bench.actor.mood = "well"

    assert [outcome.reason for outcome in bench.passes(1.0)] == ["deadline"]


def test_a_full_queue_is_told_and_nothing_piles_up() -> None:
    bench = Bench()
    bench.actor.mood = "full"
    bench.sees()

    assert [outcome.reason for outcome in bench.passes(1.0)] == ["queue_full"]


def test_a_memory_above_the_limit_is_refused() -> None:
    class Hoards(Counting):
        def propose(self, snapshot: object, memory: bytes, deadline_s: float) -> Proposal:
            return Proposal(memory=bytes(LARGEST_MEMORY + 1))

    bench = Bench(Hoards())
    bench.sees()

    with_error = bench.passes(1.0)

    assert [outcome.reason for outcome in with_error] == ["error"]


def test_a_plan_does_not_wait_for_a_slot() -> None:
    ray = FakeRay()
    pool, slots = PlannerPool(ray, Decisions(), ray.clock, ray.sleep), BackgroundPool(ray, [Counting()], ray.clock)
    pool.begin(1, within_s=30.0)
    slots.begin()
    ray.actors[-1].mood = "silent"
    slots.turn(pool.holder.newest)
    began_s = ray.now_s

    plan = pool.plan(snapshot_frame(snapshot_that()), 10.0)

    assert plan_from_frame(plan)
    assert ray.now_s - began_s < 0.5
