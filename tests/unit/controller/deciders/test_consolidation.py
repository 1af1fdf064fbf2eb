"""Polish: what is found beside plans moves pods only where that pays when the plan is made."""

from dataclasses import dataclass, replace

from cluster.actions import Bind, Move
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.brain.frames import SlotOutcome, proposal_frame
from controller.brain.from_settings import inline_brain
from controller.brain.inline import HERE_S, PATIENCE, Background, SlotCounts
from controller.deciders.consolidation import Polish
from controller.deciders.decider import BackgroundDecider, Decider
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import ORDER, PlanRequest, decide, planned, sections_of, whole_plan
from controller.guard import Limits, guard
from placement.batch.problem import HostPrice
from placement.moves import MovePrice
from tests.builders.fleet import node, pod, world
from tests.builders.snapshot_content import plain
from tests.clock import ticking
from tests.unit.controller.deciders.fake_background import FAILS, STALLS, Counting, snapshot_that

FREE = MovePrice(per_pod_usd=0.0, per_gpu_usd=0.0, stay_h=1.0)
DECISIONS = Decisions(policy="bestfit", polish_share=1.0, move_price=FREE)
LONG_S = 30.0


def still() -> float:
    return 0.0


def polish(price: MovePrice = FREE, share: float = 1.0) -> Polish:
    return Polish(share, price, HostPrice(), still)


def halves(*more: object, gpus_of_q: int = 2) -> Snapshot:
    """Two nodes of 4 $ an hour, half full each: one could run both pods."""
    nodes = [node("a", gpus=4), node("b", gpus=4)]
    pods = [
        pod("p", gpus=2, on="a", devices=(0, 1), movable=True),
        pod("q", gpus=gpus_of_q, on="b", devices=tuple(range(4 - gpus_of_q, 4)), movable=True),
    ]
    return world(nodes, [*pods, *more], prices={"A100": 1.0})  # type: ignore[list-item]


def moves(plan: Plan) -> list[tuple[str, str]]:
    return [(action.pod, action.node) for action in plan.actions if isinstance(action, Move)]


class Elsewhere:
    """Slots that are not here: outcomes that come when they are laid down."""

    def __init__(self, *outcomes: SlotOutcome, is_up: bool = True) -> None:
        self.waiting, self.is_up, self.remembered = list(outcomes), is_up, dict[str, bytes]()

    def outcomes(self) -> list[SlotOutcome]:
        outcomes, self.waiting = self.waiting, []
        return outcomes

    def remember(self, slot: str, memory: bytes) -> None:
        self.remembered[slot] = memory

    def brain(self, proposer: Counting | Polish) -> "Beside":
        return Beside(Background((proposer,), still, self), proposer)


@dataclass
class Beside:
    """A brain whose only background decider is this proposer."""

    background: Background
    proposer: Counting | Polish

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        asked = PlanRequest(DECISIONS, deadline_s, still)
        order = (
            *(entry for entry in ORDER if isinstance(entry, Decider)),
            BackgroundDecider(self.proposer.name, self.of),
        )
        adopt = self.background.beside(asked.over_at_s)
        return whole_plan(snapshot, DECISIONS, lambda seen: planned(seen, asked), adopt, sections_of(order))

    def of(self, decisions: Decisions) -> Counting | Polish:
        return self.proposer

    @property
    def counts(self) -> SlotCounts:
        return self.background.counts


def found_in(snapshot: Snapshot, by: Polish | None = None) -> SlotOutcome:
    return SlotOutcome("polish", proposal_frame((by or polish()).propose(snapshot, b"", LONG_S)))


def test_a_node_that_it_pays_to_empty_is_emptied_with_the_next_plan_and_once() -> None:
    elsewhere = Elsewhere(found_in(halves()))
    brain = elsewhere.brain(polish())

    plan = brain.plan(halves(), LONG_S)

    assert moves(plan) == [("p", "b")]
    assert guard(halves(), plan, Limits()).refused == ()
    assert moves(brain.plan(halves(), LONG_S)) == []


def test_what_no_longer_pays_when_the_plan_is_made_is_not_moved() -> None:
    """It was found while both pods fitted on one node; now q asks for three of its four GPUs."""
    brain = Elsewhere(found_in(halves())).brain(polish())

    assert moves(brain.plan(halves(gpus_of_q=3), LONG_S)) == []


def test_a_move_that_costs_more_than_the_node_is_not_made_whoever_proposes_it() -> None:
    """96 cores and 512 GiB are 4.93 $ an hour, so is the node; two GPUs at 2.5 $ are 5 $."""
    dear = polish(MovePrice(per_pod_usd=0.0, per_gpu_usd=2.5, stay_h=1.0))

    assert moves(dear.propose(halves(), b"", LONG_S).plan) == []
    assert moves(Elsewhere(found_in(halves())).brain(dear).plan(halves(), LONG_S)) == []


def test_room_that_the_plan_itself_takes_is_not_moved_into() -> None:
    """Two pods wait for the four GPUs that are free: the plan seats them, and then no node can be emptied."""
    waiting = [pod(f"w{n}", gpus=2) for n in range(2)]
    brain = Elsewhere(found_in(halves())).brain(polish())

    plan = brain.plan(halves(*waiting), LONG_S)

    assert sum(isinstance(action, Bind) for action in plan.actions) == 2
    assert moves(plan) == []


def test_what_a_plan_starts_is_left_where_it_is() -> None:
    """Only w fits beside q, and it was started by this very plan."""
    brain = Elsewhere(found_in(halves())).brain(polish())
    alone = halves(pod("w", gpus=2, movable=True))

    plan = brain.plan(alone, LONG_S)

    assert "w" not in [name for name, _ in moves(plan)]


def test_no_more_pods_move_than_their_share() -> None:
    assert moves(polish(share=0.4).propose(halves(), b"", LONG_S).plan) == [], "0.4 of two pods is none"


def test_nodes_that_are_gone_are_passed_over() -> None:
    gone = world([node("b", gpus=4)], [pod("q", gpus=2, on="b", devices=(2, 3), movable=True)])

    assert Elsewhere(found_in(halves())).brain(polish()).plan(gone, LONG_S).actions == ()


def test_a_search_that_is_cut_short_goes_on_behind_the_node_that_it_looked_at_last() -> None:
    hurried = replace(polish(MovePrice(per_pod_usd=1e9)), clock=ticking(1.0))

    first = hurried.propose(halves(), b"", 2.0)  # 0 s: begins; 1 s: a; 2 s: over
    second = hurried.propose(halves(), first.memory, 2.0)

    assert (first.memory, second.memory) == (b"a", b"b")
    assert [reason.code for reason in first.plan.cut_short] == ["PolishOutOfTime"]


def test_how_many_nodes_are_looked_at_depends_on_the_deadline_and_on_no_clock() -> None:
    """100,000 nodes a second, divided by the fleet's two: one in 20 µs, and one in any case."""
    searching = polish(MovePrice(per_pod_usd=1e9))

    assert searching.propose(halves(), b"", 19e-6).memory == b"a"
    assert searching.propose(halves(), b"", 20e-6).memory == b"b"


def test_a_run_skipped_for_want_of_time_is_named_in_the_plan() -> None:
    elsewhere = Elsewhere(is_up=False)

    plan = elsewhere.brain(polish()).plan(halves(), HERE_S / 2)

    assert moves(plan) == []
    assert "BackgroundOutOfTime" in {reason.code for reason in plan.cut_short}


def test_a_memory_that_nobody_understands_is_none() -> None:
    assert moves(polish().propose(halves(), b"\xff\xfe", LONG_S).plan) == [("p", "b")]


def test_without_anybody_in_a_slot_the_plan_is_that_of_the_other_deciders() -> None:
    alone = decide(halves(), Decisions(), deadline_s=LONG_S, clock=still)

    assert plain(inline_brain(Decisions(), still).plan(halves(), LONG_S)) == plain(alone)


def test_while_slots_are_away_their_deciders_run_here_from_the_same_memory() -> None:
    elsewhere = Elsewhere(SlotOutcome("counting", proposal_frame(Counting().propose(snapshot_that(), b"6", LONG_S))))
    brain = elsewhere.brain(Counting())
    brain.plan(snapshot_that(), LONG_S)
    elsewhere.is_up = False

    plan = brain.plan(snapshot_that(), LONG_S)

    assert plan.phases[-1].steps[0].reason.words == "proposal 8"
    assert elsewhere.remembered == {"counting": b"8"}
    assert brain.counts.thoughts == {("counting", "ray"): 1, ("counting", "local"): 1}


def test_the_decider_of_a_slot_that_is_silent_for_a_few_plans_runs_here() -> None:
    brain = Elsewhere().brain(Counting())

    adopted = [len(brain.plan(snapshot_that(), LONG_S).actions) for _ in range(PATIENCE + 1)]

    assert adopted == [0] * (PATIENCE - 1) + [1, 0]


def test_a_background_decider_that_fails_here_costs_no_plan() -> None:
    failing = world([node("a", 4), node(FAILS, 0)], [pod("w", 1)])
    brain = Elsewhere(is_up=False).brain(Counting())

    plan = brain.plan(failing, LONG_S)

    assert [type(action) for action in plan.actions] == [Bind]
    assert brain.counts.failures == {("counting", "error"): 1}


def test_without_time_left_nobody_thinks_here() -> None:
    """Over this snapshot it would never come back."""
    brain = Elsewhere(is_up=False).brain(Counting())

    assert brain.plan(snapshot_that(STALLS), 0.0).actions == ()


def test_an_unreadable_outcome_is_counted_and_dropped() -> None:
    brain = Elsewhere(SlotOutcome("counting", b"\x00" * 8 + b"nonsense")).brain(Counting())

    assert brain.plan(snapshot_that(), LONG_S).actions == ()
    assert brain.counts.failures == {("counting", "garbled"): 1}
