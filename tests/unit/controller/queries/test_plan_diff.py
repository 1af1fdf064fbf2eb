"""Plan as the difference that it makes to a cluster."""

from dataclasses import replace

from cluster.actions import Bind, Evict, Move, Scale
from cluster.plans import Phase, Plan, Reason, ServicePlan, Step, Unplaced
from cluster.workloads import InstanceType
from controller.deciders.edits import AWAITS_POD
from controller.queries.plan_diff import plan_diff
from tests.builders.fleet import node, pod, world
from tests.builders.mix import of_types, profile, service

WHY = Reason("Because", "it is so")
NOW = world(
    [node("a", gpus=8), node("b", gpus=8)],
    [pod("ns/runs", gpus=1, on="a", devices=(0,)), pod("ns/waits", gpus=1)],
    services=[service("ns/s", replicas=of_types({"A100": 2, "L4": 0}))],
    prices={"A100": 3.0, "L4": 1.0},
)


def planned(*actions: Bind | Evict | Move | Scale, **rest: object) -> Plan:
    return Plan(phases=(Phase("all", tuple(Step(action, WHY) for action in actions)),), **rest)  # type: ignore[arg-type]


def mix(refusal: Reason | None = None, **instances: int) -> ServicePlan:
    return ServicePlan("ns/s", of_types(instances), 0.0, None, None, refusal=refusal)


def test_a_service_shows_instances_and_dollars_before_and_after() -> None:
    """2 A100 at 3 $/h become 4 L4 at 1 $/h."""
    diff = plan_diff(NOW, planned(Scale("ns/s", of_types({"A100": 0, "L4": 4})), services=(mix(A100=0, L4=4),)))

    (change,) = diff.services
    assert (change.before, change.after) == (of_types({"A100": 2}), of_types({"L4": 4}))
    assert (diff.cost_before, diff.cost_after) == (6.0, 4.0)
    assert change.reason == WHY


def test_an_instance_of_several_gpus_costs_each_of_them() -> None:
    """4 A100 at 3 $/h become 1 L4 at 1 $/h. Both types have profiles of both widths, the other one last."""
    four, one = InstanceType("A100", 4), InstanceType("L4")
    widths = (("A100", 4), ("L4", 1), ("A100", 1), ("L4", 4))
    now = replace(
        NOW,
        services=(service("ns/s", replicas={four: 1}),),
        profiles=tuple(profile(name, [[1.0]], gpus_per_instance=gpus) for name, gpus in widths),
    )

    diff = plan_diff(now, planned(services=(ServicePlan("ns/s", {one: 1}, 0.0, None, None),)))

    assert (diff.cost_before, diff.cost_after) == (12.0, 1.0)


def test_a_service_without_a_plan_stays_as_it_is_and_says_why() -> None:
    (change,) = plan_diff(NOW, planned(services=(mix(refusal=WHY),))).services

    assert change.is_refused
    assert not change.is_change
    assert change.reason == WHY


def test_a_service_without_a_template_is_planned_only_where_the_plan_does_nothing_about_it() -> None:
    now = replace(NOW, services=tuple(replace(each, is_planned_only=True) for each in NOW.services))

    (apart,) = plan_diff(now, planned(services=(mix(L4=4),))).services
    (scaled,) = plan_diff(now, planned(Scale("ns/s", of_types({"L4": 4})), services=(mix(L4=4),))).services

    assert (apart.is_planned_only, scaled.is_planned_only) == (True, False)


def test_pods_start_stop_and_move() -> None:
    steps = (Bind("ns/waits", "b", (3,)), Evict("ns/runs", "a"), Move("ns/runs", "a", "b", (1,)))

    seats = [(p.node_before, p.node_after, p.devices) for p in plan_diff(NOW, planned(*steps)).pods]

    assert seats == [(None, "b", (3,)), ("a", None, ()), ("a", "b", (1,))]


def test_what_is_left_over_is_no_change_and_is_told() -> None:
    diff = plan_diff(NOW, planned(unplaced=(Unplaced("Pod/ns/waits", WHY),)))

    assert diff.is_empty
    assert diff.left_over == (("Pod/ns/waits", WHY),)


def test_pods_that_are_yet_to_be_made_are_not_left_over() -> None:
    """The operator places them in its next cycle."""
    to_come = Unplaced("Pod/ns/s-a100-0", Reason(AWAITS_POD, "it was asked for in this cycle"))

    diff = plan_diff(NOW, planned(unplaced=(to_come, Unplaced("Pod/ns/waits", WHY))))

    assert diff.awaited == ("Pod/ns/s-a100-0",)
    assert diff.left_over == (("Pod/ns/waits", WHY),)
