"""The decider of the mix: plans, refusals, reasons, and the fixed point."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cluster.actions import Scale
from cluster.demand import Slo, ThroughputProfile
from cluster.plans import Plan, ServicePlan
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import GpuType, InstanceType, ModelService
from placement.mix.planner import MixSettings, plan_mix
from tests.builders.fleet import Node, node, pod, world
from tests.builders.mix import ample, demand, grid, nothing, of_types, profile, seats, service


def fleet(
    services: Sequence[ModelService],
    profiles: Sequence[ThroughputProfile],
    nodes: Sequence[Node] = (),
    prices: dict[str, float] | None = None,
    inventory: dict[str, int] | None = None,
    pods: Sequence[object] = (),
) -> Snapshot:
    known = prices or {p.gpu_type: 1.0 for p in profiles}
    snapshot = world(nodes, pods=pods, services=services, profiles=profiles, prices=known)  # type: ignore[arg-type]
    types = tuple(replace(t, inventory=(inventory or {}).get(t.name)) for t in snapshot.gpu_types)
    return replace(snapshot, gpu_types=types)


def planned(snapshot: Snapshot, **settings: Any) -> Plan:
    return plan_mix(snapshot, ample(), MixSettings(**settings))


def only(plan: Plan) -> ServicePlan:
    (service_plan,) = plan.services
    return service_plan


def codes(service_plan: ServicePlan) -> list[str]:
    return [note.code for note in service_plan.notes]


def test_a_new_service_is_scaled_and_routed_with_a_certificate() -> None:
    snapshot = fleet([service(rate=2.0, share=((0.5, 0.5),))], [profile("A100", ((1, 0),)), profile("H100", ((1, 1),))])

    plan = planned(replace(snapshot, gpu_types=(snapshot.gpu_types[0], GpuType("H100", 1, 3.0))))

    # 1 request/s of each bucket: the long one must go to H100 (fills it), the short one goes to the cheap A100.
    assert plan.actions == (Scale("ns/chat", of_types({"A100": 1, "H100": 1})),)
    answer = only(plan)
    assert answer.cost_per_hour == pytest.approx(4.0)
    assert answer.certificate is not None
    assert answer.certificate.gap == 0.0
    assert plan.certificates["mix"].objective == pytest.approx(4.0)
    assert answer.routing is not None
    assert answer.routing.instance_types == (InstanceType("A100"), InstanceType("H100"))
    assert answer.routing.weight.tolist() == [[[1.0, 0.0], [0.0, 1.0]]]


def test_in_a_world_that_obeys_the_second_plan_changes_nothing() -> None:
    snapshot = fleet(
        [service(rate=7.3, share=((0.5, 0.5),), headroom_share=None), service("ns/other", rate=3.0)],
        [profile("A100", ((2, 1),)), profile("H100", ((4, 3),)), profile("H100", ((4,),), model="n")],
        prices={"A100": 1.0, "H100": 2.0},
    )

    first = planned(snapshot)
    second = planned(snapshot.after(first.actions))

    assert first.actions
    assert second.actions == ()
    assert [s.instances for s in second.services] == [s.instances for s in first.services]


def test_a_service_without_requests_keeps_none_of_those_that_compete_for_the_stock_from_it() -> None:
    services = [service("ns/a", rate=3.0), service("ns/b", rate=3.0), service("ns/quiet", rate=0.0)]

    plan = planned(fleet(services, [profile("A100", ((1,),))], inventory={"A100": 4}))

    # Each asks for 3 of 4 devices: the first gets them.
    found = {each.service: each.refusal.code if each.refusal else dict(each.instances) for each in plan.services}
    assert found == {"ns/a": of_types({"A100": 3}), "ns/b": "InventoryShort", "ns/quiet": {}}


def test_demand_that_nobody_measured_is_not_zero() -> None:
    snapshot = fleet([service(demand=None, replicas=of_types({"A100": 3}))], [profile("A100", ((1,),))])

    plan = planned(snapshot)

    assert plan.actions == ()
    refusal = only(plan).refusal
    assert refusal is not None
    assert refusal.code == "DemandUnknown"


def test_measured_demand_of_zero_needs_no_instances() -> None:
    snapshot = fleet([service(rate=0.0, replicas=of_types({"A100": 3}))], [profile("A100", ((1,),))])

    assert planned(snapshot).actions == (Scale("ns/chat", of_types({"A100": 0})),)


def test_a_type_without_a_profile_is_never_used_and_never_scaled() -> None:
    snapshot = fleet(
        [service(rate=1.0, replicas=of_types({"T4": 2}))], [profile("A100", ((1,),))], prices={"T4": 0.1, "A100": 9.0}
    )

    assert planned(snapshot).actions == (Scale("ns/chat", of_types({"A100": 1})),)


def test_a_model_without_a_profile_at_its_slo_is_refused() -> None:
    snapshot = fleet([service()], [profile("A100", ((1,),), tpot_s=0.2)])

    refusal = only(planned(snapshot)).refusal

    assert refusal is not None
    assert refusal.code == "NoProfile"


def test_a_profile_of_a_tighter_slo_serves_a_looser_promise() -> None:
    snapshot = fleet([service()], [profile("A100", ((1,),), tpot_s=0.05), profile("A100", ((9,),), tpot_s=0.2)])

    assert only(planned(snapshot)).instances == of_types({"A100": 1})


def test_a_bucket_beyond_the_profiles_table_is_refused_by_name() -> None:
    # The demand's second row holds prompts of up to 200 tokens, the profile ends at 100.
    snapshot = fleet([service(share=((0.5,), (0.5,)))], [profile("A100", ((1,),))])

    refusal = only(planned(snapshot)).refusal

    assert refusal is not None
    assert refusal.code == "BucketUnserved"
    assert "input ≤ 200, output ≤ 50 tokens" in refusal.words


def test_a_bucket_takes_the_throughput_of_the_next_larger_one_in_the_profile() -> None:
    # Prompts of up to 150 tokens are planned with the throughput at 200, not at 100.
    odd = replace(grid(1, 1), input_tokens=(150,))
    snapshot = fleet([service(demand=demand(1.0, on=odd))], [profile("A100", ((9,), (0.5,)))])

    assert only(planned(snapshot)).instances == of_types({"A100": 2})


def test_without_work_for_the_solver_every_service_is_still_planned_within_the_stock() -> None:
    snapshot = fleet(
        [service(f"ns/{n}", rate=2.0, headroom_share=None) for n in range(5)],
        [profile("A100", ((1,),)), profile("H100", ((3,),))],
        prices={"A100": 1.0, "H100": 2.0},
        inventory={"A100": 12, "H100": 8},
    )

    plan = plan_mix(snapshot, nothing())

    assert all(s.refusal is None for s in plan.services)
    for name, count in {"A100": 12, "H100": 8}.items():
        assert sum(s.instances.get(InstanceType(name), 0) for s in plan.services) <= count


def test_spot_prices_count_only_for_services_that_take_them() -> None:
    snapshot = fleet([service("ns/spot", spot=True), service("ns/steady")], [profile("A100", ((1,),))])
    cheap = replace(snapshot, gpu_types=(replace(snapshot.gpu_types[0], spot_price_per_hour=0.25),))

    assert [s.cost_per_hour for s in planned(cheap).services] == pytest.approx([0.25, 1.0])


def test_a_service_keeps_to_the_types_it_allows() -> None:
    profiles = [profile("A100", ((1,),)), profile("H100", ((1,),))]
    snapshot = fleet(
        [service(gpu_types=("H100",), replicas=of_types({"A100": 1}))], profiles, prices={"A100": 1.0, "H100": 9.0}
    )

    assert planned(snapshot).actions == (Scale("ns/chat", of_types({"A100": 0, "H100": 1})),)


def test_what_the_stock_does_not_hold_for_all_goes_by_priority() -> None:
    low, high = service("ns/low", rate=2.0), service("ns/high", rate=2.0, priority=5)
    snapshot = fleet([low, high], [profile("A100", ((1,),))], inventory={"A100": 3})

    first, second = planned(snapshot).services

    assert first.refusal is not None
    assert first.refusal.code == "InventoryShort"
    assert dict(first.refusal.figures) == {"A100": 1.0}
    assert second.instances == of_types({"A100": 2})


def test_stock_is_what_schedulable_nodes_have_free_and_what_the_services_hold() -> None:
    nodes = [
        node("open", gpus=4),
        node("cordoned", gpus=8, schedulable=False),
        node("shared", gpus=2),
        node("other", gpus=8, gpu_type="H100"),
    ]
    pods = [
        pod("a", 1, on="open", devices=(0,), owner="ns/chat"),
        pod("b", 1, on="open", devices=(1,), owner="ns/stranger"),
        pod("c", 1, on="cordoned", devices=(0,), owner="ns/chat"),
        pod("d", 1, on="shared", devices=(0,), gpu_milli=300),
    ]
    profiles = [profile("A100", ((1,),)), profile("A100", ((1,),), gpus_per_instance=2), profile("H100", ((1,),))]
    snapshot = fleet([service()], profiles, nodes, pods=pods, prices={"A100": 1.0, "H100": 1.0})

    # open: 4 - b = 3; cordoned: only its own c = 1; shared: the device that d leaves whole = 1.
    assert seats(snapshot, InstanceType("A100")) == 5
    assert seats(snapshot, InstanceType("A100", 2)) == 1
    assert seats(snapshot, InstanceType("H100")) == 8


def test_notes_say_what_binds_and_what_the_next_gpu_or_a_looser_slo_would_save() -> None:
    # 2 requests/s; "good" does 1 for $1 but there is one; "bad" does 1 for $4. At 200 ms "good" does 2.
    snapshot = fleet(
        [service(rate=2.0, slice_factor=2)],
        [profile("good", ((1,),)), profile("bad", ((1,),)), profile("good", ((2,),), tpot_s=0.2)],
        prices={"good": 1.0, "bad": 4.0},
        inventory={"good": 1},
    )

    notes = {note.code: note for note in only(planned(snapshot)).notes}

    # Now 1 + 4 = 5; with one more good 2, so 3 saved; at 200 ms one good does all, so 4 saved. Bad alone costs 8.
    assert notes["Cheaper"].words == "2 × good at 2.00 $/h would cost 3.00 $/h less and need 1 more good"
    assert notes["LooserSlo"].figures["saved_per_hour"] == pytest.approx(4.0)
    assert notes["SingleType"].figures["saved_per_hour"] == pytest.approx(3.0)
    assert notes["PoolLoad"].figures["busy_share"] == pytest.approx(1.0)


def test_the_cost_of_headroom_is_told() -> None:
    # Half of each instance kept free: two instead of one.
    snapshot = fleet([service(headroom_share=0.5, slice_factor=2)], [profile("A100", ((1,),))])

    notes = {note.code: note for note in only(planned(snapshot)).notes}

    assert notes["Headroom"].figures["extra_per_hour"] == pytest.approx(1.0)


def test_explanations_can_be_left_out() -> None:
    snapshot = fleet([service()], [profile("A100", ((1,),))])

    assert codes(only(planned(snapshot, explain=False))) == []


def test_a_wide_instance_costs_all_its_gpus_and_needs_them_on_one_node() -> None:
    nodes = [node("a", gpus=4), node("b", gpus=3)]
    wide = profile("A100", ((1,),), gpus_per_instance=2)

    fits = fleet([service(rate=3.0)], [wide], nodes)
    short = fleet([service(rate=4.0)], [wide], nodes)

    # 7 devices, but b's third stands alone: 2 + 1 instances of two.
    assert only(planned(fits)).instances == {InstanceType("A100", 2): 3}
    assert only(planned(fits)).cost_per_hour == pytest.approx(6.0)
    refusal = only(planned(short)).refusal
    assert refusal is not None
    assert refusal.code == "InventoryShort"


def test_planned_instances_exist_as_pending_pods_after_the_plan() -> None:
    snapshot = fleet([service(rate=2.0)], [profile("A100", ((1,),))], [node("a", gpus=8)])

    after = snapshot.after(planned(snapshot).actions)

    assert np.count_nonzero(after.pods.node == PENDING) == 2


def test_a_bucket_that_is_almost_never_asked_for_has_an_instance_that_serves_it() -> None:
    """Of 0.1 requests/s 0.003 % are long: 3e-6 requests/s, on a type that serves 10/s. It needs one instance all the
    same."""
    profiles = [profile("L4", ((1,), (0,))), profile("H100", ((20,), (10,)))]
    rare = service(rate=0.1, share=((1 - 3e-5,), (3e-5,)), headroom_share=0.1)

    (chat,) = planned(fleet([rare], profiles, prices={"L4": 1.0, "H100": 4.0})).services

    # The H100 alone serves all of it for $4; an L4 beside it would be $5.
    assert chat.instances == of_types({"H100": 1})
    assert chat.certificate is not None
    assert chat.certificate.gap == 0.0


def test_no_share_is_routed_to_a_type_without_instances() -> None:
    profiles = [profile("L4", ((1,), (0,))), profile("H100", ((20,), (10,)))]
    for split in (False, True):
        rare = service(rate=8.0, share=((1 - 1e-7,), (1e-7,)), continuous_split=split)

        (chat,) = planned(fleet([rare], profiles, prices={"L4": 0.1, "H100": 4.0})).services

        assert chat.routing is not None
        for number, each in enumerate(chat.routing.instance_types):
            assert chat.instances.get(each, 0) or not chat.routing.weight[:, :, number].any()


def test_the_width_of_instances_is_what_the_slo_asks_for() -> None:
    """One GPU meets 100 ms, four together 20 ms."""
    profiles = [
        profile("H100", ((10,),), tpot_s=0.1),
        profile("H100", ((30,),), tpot_s=0.02, gpus_per_instance=4),
    ]
    fast = service(slo=Slo(0.02))
    snapshot = fleet([fast], profiles, [node("a", gpus=8, gpu_type="H100")], prices={"H100": 4.0})

    plan = planned(snapshot)

    assert only(plan).instances == {InstanceType("H100", 4): 1}
    assert only(plan).cost_per_hour == pytest.approx(16.0)
    pods = snapshot.after(plan.actions).pods
    assert [pods.shapes[shape].gpus for shape in pods.shape] == [4]


def test_cost_chooses_among_widths_that_meet_the_same_slo() -> None:
    """An instance of 4 GPUs serves 5 requests/s for the price of four that serve 1 each."""
    profiles = [profile("H100", ((1,),)), profile("H100", ((5,),), gpus_per_instance=4)]

    for rate, cheapest in ((5.0, {InstanceType("H100", 4): 1}), (2.0, {InstanceType("H100"): 2})):
        assert only(planned(fleet([service(rate=rate)], profiles))).instances == cheapest


def test_instances_of_a_width_that_is_no_longer_profiled_are_replaced() -> None:
    profiles = [profile("H100", ((5,),), gpus_per_instance=4)]
    snapshot = fleet([service(replicas=of_types({"H100": 3}))], profiles)

    assert planned(snapshot).actions == (Scale("ns/chat", {InstanceType("H100"): 0, InstanceType("H100", 4): 1}),)
