"""Carrying out a plan in a world where actions fail."""

from cluster.actions import Action, Bind, Evict
from cluster.plans import Phase, Plan, Reason, Step
from cluster.snapshot import Snapshot
from controller.apply import carry_out
from simulator.world import Fault, SimulatedWorld
from tests.builders.fleet import node, pod, world

WHY = Reason("Test", "because")


def steps(*actions: Action) -> tuple[Step, ...]:
    return tuple(Step(action, WHY) for action in actions)


def failing(*broken: Action) -> Fault:
    return lambda action: "it will not" if action in broken else None


def seats(seen: Snapshot) -> dict[str, int]:
    return dict(zip(seen.pods.names, seen.pods.node.tolist(), strict=True))


def test_a_failed_step_is_reported_and_the_others_go_on() -> None:
    bad, good = Bind("p", "a", (0,)), Bind("q", "b", (0,))
    simulated = SimulatedWorld(world([node("a", gpus=1), node("b", gpus=1)], [pod("p", 1), pod("q", 1)]), failing(bad))

    outcome = carry_out(simulated, Plan(phases=(Phase("start", steps(bad, good)),)))

    assert [s.action for s in outcome.done] == [good]
    assert [(u.step.action, u.reason.code) for u in outcome.undone] == [(bad, "ActionFailed")]
    assert seats(simulated.observe()) == {"p": -1, "q": 1}


def test_nothing_is_put_on_a_node_where_making_room_failed() -> None:
    evict, bind = Evict("p", "a"), Bind("q", "a", (1,))
    seen = world([node("a", gpus=2)], [pod("p", 1, on="a", devices=(0,)), pod("q", 1)])
    simulated = SimulatedWorld(seen, failing(evict))

    outcome = carry_out(simulated, Plan(phases=(Phase("make room", steps(evict)), Phase("start", steps(bind)))))

    assert not outcome.done
    assert seats(simulated.observe()) == {"p": 0, "q": -1}


def test_a_gang_that_breaks_half_way_is_left_for_the_next_cycle_to_complete() -> None:
    first, second, other = Bind("p", "a", (0,)), Bind("q", "b", (0,)), Bind("r", "a", (1,))
    seen = world([node("a", gpus=2), node("b", gpus=1)], [pod("p", 1), pod("q", 1), pod("r", 1)])
    simulated = SimulatedWorld(seen, failing(second))

    plan = Plan(phases=(Phase("start g", steps(first, second), whole=True), Phase("start", steps(other))))
    outcome = carry_out(simulated, plan)

    assert seats(simulated.observe()) == {"p": 0, "q": -1, "r": 0}, "nothing that runs was stopped"
    assert [(u.step.action, u.reason.code) for u in outcome.undone] == [(second, "ActionFailed")]
