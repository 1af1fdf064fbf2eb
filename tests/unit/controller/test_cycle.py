"""Control loop in a world that obeys, in one where actions fail, and in one that cannot be observed."""

import numpy as np
import pytest
from hypothesis import given, settings

from cluster.actions import Bind, Scale
from cluster.errors import ObservationError
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.brain.inline import InlineBrain
from controller.cycle import STAGES, Cycle, run_cycle
from controller.deciders.decisions import Decisions
from controller.guard import Limits
from controller.ports import Outcome
from simulator.world import Fault, SimulatedWorld
from tests.builders.arbitrary_fleets import fleets
from tests.builders.fleet import Pod, node, pod, shape, world
from tests.builders.mix import of_types, profile, service
from tests.clock import ticking


def brain(policy: str = "bestfit") -> InlineBrain:
    return InlineBrain(Decisions(policy=policy), clock=ticking(1e-6))


def cycles(seen: Snapshot, count: int, policy: str = "bestfit", fault: Fault = lambda _: None) -> list[Cycle]:
    simulated = SimulatedWorld(seen, fault)
    return [run_cycle(simulated, brain(policy), Limits(), deadline_s=10.0) for _ in range(count)]


def serving() -> Snapshot:
    """A chat service that needs two A100 (1.5 instances' worth of load) on a fleet that has four."""
    chat = service("default/chat", rate=1.5)
    fleet = [node("a", gpus=2), node("b", gpus=2)]
    return world(fleet, [pod("p", gpus=1)], services=[chat], profiles=[profile("A100", [[1.0]])])


def test_a_service_gets_its_instances_and_they_get_nodes_in_one_cycle() -> None:
    (first,) = cycles(serving(), 1)

    assert [type(action) for action in first.plan.actions] == [Scale, Bind, Bind, Bind]
    assert first.plan.services[0].instances == of_types({"A100": 2})
    assert not first.plan.refused
    assert not first.outcome.undone


@pytest.mark.parametrize("policy", ["bestfit", "fgd", "tonnage"])
def test_the_second_cycle_plans_nothing(policy: str) -> None:
    first, second = cycles(serving(), 2, policy)

    assert not first.is_quiet
    assert second.is_quiet


@settings(max_examples=50)
@given(fleets())
def test_the_loop_comes_to_rest_on_any_fleet(seen: Snapshot) -> None:
    _, second = cycles(seen, 2)

    assert second.is_quiet


def test_what_made_room_for_one_serves_the_others_in_the_same_plan() -> None:
    """Two pods that start now change places for one of A100s, and leave a GPU there for a share."""
    fleet = [node(name, gpus=4, gpu_type=kind, cpu_milli=8_000) for name, kind in (("n0", "A100"), ("n1", "L4"))]
    asked = [shape(2), shape(1, gpu_types=("A100",)), shape(2), shape(1, 200, gpu_types=("A100",))]
    pods = [Pod(f"p{number}", each) for number, each in enumerate(asked)]

    first, second = cycles(world(fleet, pods), 2)

    assert len(first.outcome.done) == len(pods)
    assert second.is_quiet


def test_what_failed_is_tried_again_on_what_is_seen_then() -> None:
    once = iter(["driver hiccup"])
    first, second, third = cycles(world([node("a", gpus=1)], [pod("p", gpus=1)]), 3, fault=lambda _: next(once, None))

    assert [undone.reason.code for undone in first.outcome.undone] == ["ActionFailed"]
    assert [step.action for step in second.outcome.done] == [Bind("p", "a", (0,))]
    assert third.is_quiet


class BlindWorld(SimulatedWorld):
    """A world that cannot be seen and must not be touched."""

    def observe(self) -> Snapshot:
        raise ObservationError("listing pods: connection refused; the next cycle tries again")

    def report(self, plan: Plan, outcome: Outcome) -> None:
        raise AssertionError("nothing was decided, there is nothing to report")


def test_a_world_that_cannot_be_seen_is_left_alone() -> None:
    with pytest.raises(ObservationError):
        run_cycle(BlindWorld(world([node("a")])), brain(), Limits(), deadline_s=1.0)


def test_every_cycle_is_reported() -> None:
    simulated = SimulatedWorld(world([node("a", gpus=1)], [pod("p", gpus=1), pod("q", gpus=1)]))

    run_cycle(simulated, brain(), Limits(), deadline_s=10.0)

    ((plan, outcome),) = simulated.reports
    assert [unplaced.workload for unplaced in plan.unplaced] == ["Pod/q"]
    assert len(outcome.done) == 1


def test_a_cycle_says_how_long_each_stage_took() -> None:
    simulated = SimulatedWorld(world([node("a", gpus=1)], [pod("p", gpus=1)]))

    cycle = run_cycle(simulated, brain(), Limits(), deadline_s=10.0, clock=ticking(2.5))

    assert cycle.stage_s == dict.fromkeys(STAGES, 2.5)


def test_a_day_of_arrivals_and_departures_never_over_commits_and_ends_at_rest() -> None:
    rng = np.random.default_rng(11)
    simulated = SimulatedWorld(world([node(f"n{i}", gpus=8, cpu_milli=64_000) for i in range(4)]))
    for hour in range(24):
        simulated.arrive(world([], [arrival(rng, f"h{hour}-{i}") for i in range(6)]).pods)
        names = list(simulated.observe().pods.names)
        simulated.depart(rng.choice(names, size=min(4, len(names)), replace=False).tolist())
        cycle = run_cycle(simulated, brain(), Limits(), deadline_s=10.0)
        simulated.pass_time(3600.0)
        assert not cycle.plan.refused
        assert not cycle.outcome.undone
        assert (simulated.observe().free().gpu_milli >= 0).all()
    assert simulated.observe().at_s == 24 * 3600.0
    assert run_cycle(simulated, brain(), Limits(), deadline_s=10.0).is_quiet


def arrival(rng: np.random.Generator, name: str) -> Pod:
    gpus, milli = ((1, 300), (1, 1000), (4, 1000), (8, 1000))[int(rng.integers(4))]
    return pod(name, gpus, gpu_milli=milli, priority=int(rng.choice((0, 10))))
