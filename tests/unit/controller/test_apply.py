"""Carrying out a plan in a world where actions fail."""

from cluster.actions import Action, Bind, Evict, Move
from cluster.plans import Phase, Plan, Reason, Step
from cluster.snapshot import Snapshot
from controller.cycle import carry_out
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


def test_a_gang_is_not_begun_when_one_of_its_members_must_be_skipped() -> None:
    evict, member, other = Evict("p", "a"), Bind("q", "a", (0,)), Bind("r", "b", (0,))
    seen = world([node("a", gpus=1), node("b", gpus=1)], [pod("p", 1, on="a", devices=(0,)), pod("q", 1), pod("r", 1)])
    simulated = SimulatedWorld(seen, failing(evict))

    plan = Plan(phases=(Phase("make room", steps(evict)), Phase("start g", steps(member, other), whole=True)))
    outcome = carry_out(simulated, plan)

    assert not outcome.done
    assert seats(simulated.observe()) == {"p": 0, "q": -1, "r": -1}
    assert [(u.step.action, u.reason.code) for u in outcome.undone[1:]] == [(member, "Skipped"), (other, "NotWhole")]


def test_the_other_pods_of_a_phase_start_when_one_of_them_must_be_skipped() -> None:
    evict, bind, other = Evict("p", "a"), Bind("q", "a", (0,)), Bind("r", "b", (0,))
    seen = world([node("a", gpus=1), node("b", gpus=1)], [pod("p", 1, on="a", devices=(0,)), pod("q", 1), pod("r", 1)])
    simulated = SimulatedWorld(seen, failing(evict))

    outcome = carry_out(simulated, Plan(phases=(Phase("room", steps(evict)), Phase("start", steps(bind, other)))))

    assert [step.action for step in outcome.done] == [other]


def test_nothing_is_put_on_either_node_of_a_move_that_failed() -> None:
    move = Move("p", "a", "b", (0,))
    to_source, to_target, elsewhere = Bind("q", "a", (1,)), Bind("r", "b", (1,)), Bind("s", "c", (0,))
    nodes = [node(name, gpus=2) for name in "abc"]
    seen = world(nodes, [pod("p", 1, on="a", devices=(0,)), *(pod(name, 1) for name in "qrs")])
    simulated = SimulatedWorld(seen, failing(move))

    binds = Phase("start", steps(to_source, to_target, elsewhere))
    outcome = carry_out(simulated, Plan(phases=(Phase("move", steps(move)), binds)))

    assert [step.action for step in outcome.done] == [elsewhere]


def test_pods_stopped_on_a_node_for_others_need_not_wait_for_a_bind_that_failed_there() -> None:
    """Where stopped pods hold their devices until they are gone, the bind of `p` fails in the cycle that stops `x`."""
    first, waits, second = Evict("x", "a"), Bind("p", "a", (0,)), Evict("y", "a")
    pods = [pod("x", 1, on="a", devices=(0,)), pod("y", 1, on="a", devices=(1,)), pod("p", 1), pod("q", 1)]
    simulated = SimulatedWorld(world([node("a", gpus=2)], pods), failing(waits))

    phases = (Phase("for p", steps(first, waits), whole=True), Phase("for q", steps(second), whole=True))
    outcome = carry_out(simulated, Plan(phases=phases))

    assert [step.action for step in outcome.done] == [first, second]


def test_a_gang_waits_whole_where_what_was_stopped_for_a_member_still_holds_its_devices() -> None:
    stop, waits, free = Evict("x", "a"), Bind("p", "a", (0,)), Bind("q", "b", (0,))
    pods = [pod("x", 1, on="a", devices=(0,)), pod("p", 1), pod("q", 1)]
    simulated = SimulatedWorld(world([node("a", gpus=1), node("b", gpus=1)], pods), failing(waits))

    outcome = carry_out(simulated, Plan(phases=(Phase("make room for g", steps(stop, free, waits), whole=True),)))

    assert [step.action for step in outcome.done] == [stop]
    assert [(u.step.action, u.reason.code) for u in outcome.undone] == [(waits, "ActionFailed"), (free, "NotWhole")]


def test_where_a_pod_cannot_be_stopped_the_unit_that_it_makes_room_for_does_not_start() -> None:
    stop, start = Evict("x", "a"), Bind("p", "a", (1,))
    pods = [pod("x", 1, on="a", devices=(0,)), pod("p", 1)]
    simulated = SimulatedWorld(world([node("a", gpus=2)], pods), failing(stop))

    outcome = carry_out(simulated, Plan(phases=(Phase("make room for p", steps(stop, start), whole=True),)))

    assert not outcome.done
    assert [u.reason.code for u in outcome.undone] == ["StopRefused", "NotWhole"]
