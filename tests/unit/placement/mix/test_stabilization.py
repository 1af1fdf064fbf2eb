"""Holding: a service that was just changed and still serves its demand is left alone, one that does not is not."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cluster.actions import Scale
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from cluster.workloads import InstanceType
from placement.mix.corrections import held
from placement.mix.planner import plan_mix
from tests.builders.fleet import node, pod, world
from tests.builders.mix import ample, of_types, profile, service


def fleet(rate: float, replicas: Mapping[str, int], scaled_at_s: float | None, at_s: float = 1000.0) -> Snapshot:
    """A100s serve 10 requests/s for 3 $/h, L4s 2 requests/s for 1 $/h."""
    wanted = service("ns/chat", rate=rate, replicas=of_types(replicas), scaled_at_s=scaled_at_s)
    nodes = [node("a", gpus=8, gpu_type="A100"), node("l", gpus=8, gpu_type="L4")]
    profiles = [profile("A100", [[10.0]]), profile("L4", [[2.0]])]
    return world(nodes, services=[wanted], profiles=profiles, prices={"A100": 3.0, "L4": 1.0}, at_s=at_s)


def planned(snapshot: Snapshot, hold_s: float = 300.0) -> Plan:
    plan = plan_mix(snapshot, ample())
    return held(snapshot, plan, ample(), hold_s=hold_s)


def test_a_cheaper_mix_waits_until_the_hold_is_over() -> None:
    # 4 requests/s need two L4s (2 $/h); one A100 (3 $/h) serves them, too.
    assert planned(fleet(4.0, {"A100": 1}, scaled_at_s=701.0)).actions == ()
    assert planned(fleet(4.0, {"A100": 1}, scaled_at_s=700.0)).actions == (
        Scale("ns/chat", of_types({"A100": 0, "L4": 2})),
    )


def test_what_is_held_says_what_runs_and_how_to_route_to_it() -> None:
    (chat,) = planned(fleet(4.0, {"A100": 1}, scaled_at_s=999.0)).services

    assert chat.instances == of_types({"A100": 1})
    assert chat.cost_per_hour == pytest.approx(3.0)
    assert chat.routing is not None
    weights = dict(zip(chat.routing.instance_types, chat.routing.weight[0, 0], strict=True))
    assert weights[InstanceType("A100")] == pytest.approx(1.0)
    assert chat.notes[0].code == "Held"


def test_a_service_that_cannot_serve_its_demand_any_more_does_not_wait() -> None:
    # 14 requests/s are more than one A100 serves.
    (action,) = planned(fleet(14.0, {"A100": 1}, scaled_at_s=999.0)).actions

    assert isinstance(action, Scale)


def test_a_service_whose_instances_lost_their_seats_to_other_pods_does_not_wait() -> None:
    # One A100 is requested, and all of them hold other pods: two L4s serve the demand.
    before = fleet(4.0, {"A100": 1}, scaled_at_s=999.0)
    others = [pod(f"other-{n}", gpus=1, on="a", devices=(n,)) for n in range(8)]
    waits = pod("chat", gpus=1, gpu_types=("A100",), owner="ns/chat")
    nodes = [node("a", gpus=8, gpu_type="A100"), node("l", gpus=8, gpu_type="L4")]
    full = replace(before, pods=world(nodes, [*others, waits]).pods)

    assert planned(full).actions == (Scale("ns/chat", of_types({"A100": 0, "L4": 2})),)

    runs = pod("chat", gpus=1, gpu_types=("A100",), owner="ns/chat", on="a", devices=(7,))
    assert planned(replace(before, pods=world(nodes, [*others[:7], runs]).pods)).actions == (), "it has its seat"


def test_nothing_is_held_where_nobody_knows_when_it_changed_or_holding_is_off() -> None:
    assert planned(fleet(4.0, {"A100": 1}, scaled_at_s=None)).actions
    assert planned(fleet(4.0, {"A100": 1}, scaled_at_s=999.0), hold_s=0.0).actions


def test_a_service_that_is_as_it_should_be_is_not_touched() -> None:
    plan = plan_mix(fleet(4.0, {"L4": 2}, 999.0), ample())

    assert planned(fleet(4.0, {"L4": 2}, 999.0)).actions == plan.actions == ()
    assert replace(plan, services=()).phases == ()
