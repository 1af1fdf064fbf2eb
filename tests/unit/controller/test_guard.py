"""Guard: refuses actions that must not be done, whichever decider planned them."""

import ast
import inspect
from dataclasses import replace
from itertools import chain

import pytest

from cluster import occupancy
from cluster.actions import Action, Bind, Evict, Move, ReleaseClaim, Scale, SetReplicas
from cluster.autoscaling import Scaler, ScaleTarget
from cluster.demand import ExpectedDemand
from cluster.plans import Phase, Plan, Reason, Step
from cluster.snapshot import Snapshot
from cluster.workloads import Gang, IdleClaim, InstanceType, ModelService
from controller import guard as guard_module
from controller.guard import MOST_PODS, Limits, guard
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import Node, Pod, node, pod, world
from tests.builders.mix import demand, of_types, service
from tests.builders.power import Device, Domain, power_table
from tests.builders.scalers import NOW_S, scaler

WHY = Reason("Test", "because")


def plan(*actions: Action, whole: bool = False) -> Plan:
    return Plan(phases=(Phase("p", tuple(Step(action, WHY) for action in actions), whole=whole),))


def refusals(seen: Snapshot, *actions: Action, whole: bool = False, limits: Limits | None = None) -> list[str]:
    return [r.reason.code for r in guard(seen, plan(*actions, whole=whole), limits or Limits()).refused]


def test_a_sound_plan_passes_unchanged() -> None:
    seen = world([node("a", gpus=2)], [pod("p", gpus=1), pod("q", gpus=1)])
    sound = plan(Bind("p", "a", (0,)), Bind("q", "a", (1,)))

    assert guard(seen, sound, Limits()) == sound


def test_a_device_is_never_given_twice() -> None:
    seen = world([node("a", gpus=2)], [pod("p", gpus=1), pod("q", gpus=1)])

    assert refusals(seen, Bind("p", "a", (0,)), Bind("q", "a", (0,))) == ["OverCapacity"]


def test_fractions_share_a_device_only_up_to_the_whole() -> None:
    # 600 + 300 fit into 1000 thousandths, another 300 do not.
    seen = world([node("a", gpus=1)], [pod(n, gpus=1, gpu_milli=m) for n, m in (("p", 600), ("q", 300), ("r", 300))])

    assert refusals(seen, *(Bind(n, "a", (0,)) for n in "pqr")) == ["OverCapacity"]


def test_cpu_and_memory_are_never_over_committed() -> None:
    seen = world([node("a", cpu_milli=1500)], [pod("p"), pod("q")])  # 1000 milli each

    assert refusals(seen, Bind("p", "a"), Bind("q", "a")) == ["OverCapacity"]


def test_a_pod_gets_as_many_existing_devices_as_it_asks_for() -> None:
    seen = world([node("a", gpus=2)], [pod("p", gpus=2)])

    assert refusals(seen, Bind("p", "a", (0,))) == ["WrongDevices"]
    assert refusals(seen, Bind("p", "a", (1, 1))) == ["WrongDevices"]
    assert refusals(seen, Bind("p", "a", (1, 2))) == ["OverCapacity"]


def test_nothing_starts_on_a_cordoned_node() -> None:
    seen = world([node("a", gpus=1, schedulable=False)], [pod("p", gpus=1)])

    assert refusals(seen, Bind("p", "a", (0,))) == ["NotEligible"]


def test_what_runs_is_not_bound_again_and_what_is_gone_not_stopped() -> None:
    seen = world([node("a", gpus=2)], [pod("p", gpus=1, on="a", devices=(0,)), pod("q", gpus=1)])

    assert refusals(seen, Bind("p", "a", (1,))) == ["AlreadyBound"]
    assert refusals(seen, Evict("q", "a")) == ["NotThere"]
    assert refusals(seen, Evict("ghost", "a")) == ["NotFound"]


def test_what_an_eviction_frees_can_be_given_in_the_same_plan_and_a_refused_one_frees_nothing() -> None:
    seen = world([node("a", gpus=1)], [pod("p", gpus=1, on="a", devices=(0,)), pod("q", gpus=1)])
    actions = (Evict("p", "a"), Bind("q", "a", (0,)))

    assert refusals(seen, *actions) == []
    assert refusals(seen, *actions, limits=Limits(max_evictions_floor=0)) == ["TooManyEvictions", "OverCapacity"]


def test_a_move_may_use_what_the_pod_itself_holds() -> None:
    seen = world([node("a", gpus=2)], [pod("p", gpus=1, on="a", devices=(0,))])

    assert refusals(seen, Move("p", "a", "a", (1,))) == []
    assert refusals(seen, Move("p", "a", "a", (0,))) == []


def test_a_whole_phase_falls_with_one_of_its_steps() -> None:
    seen = world([node("a", gpus=1)], [pod("p", gpus=1), pod("q", gpus=1)])

    assert refusals(seen, Bind("p", "a", (0,)), Bind("q", "a", (0,)), whole=True) == ["OverCapacity", "NotWhole"]


def test_a_struck_phase_gives_back_what_it_took() -> None:
    seen = world([node("a", gpus=1)], [pod("p", gpus=1), pod("q", gpus=1), pod("r", gpus=1)])
    broken = plan(Bind("p", "a", (0,)), Bind("q", "a", (0,)), whole=True)

    checked = guard(seen, broken.joined(plan(Bind("r", "a", (0,)))), Limits())

    assert checked.actions == (Bind("r", "a", (0,)),)


def test_devices_of_a_claim_whose_release_was_struck_stay_allocated() -> None:
    claimed = world([node("a", gpus=1)], [pod("holder", gpus=1, on="a", devices=(0,)), pod("q"), pod("r", gpus=1)])
    seen = replace(claimed, idle_claims=(IdleClaim("c", ("q",), 0.0, "holder"),))
    struck = plan(ReleaseClaim("c"), Bind("ghost", "a", (0,)), whole=True)

    checked = guard(seen, struck.joined(plan(Bind("r", "a", (0,)))), Limits())

    assert checked.actions == ()
    assert [each.reason.code for each in checked.refused] == ["NotFound", "NotWhole", "OverCapacity"]


def test_a_struck_phase_is_undone_in_reverse_order_when_it_changed_a_pod_twice() -> None:
    seen = world([node("a", gpus=1)], [pod("p", gpus=1, on="a", devices=(0,)), pod("q", gpus=1)])
    struck = plan(Evict("p", "a"), Bind("p", "a", (0,)), Bind("ghost", "a"), whole=True)

    checked = guard(seen, struck.joined(plan(Bind("q", "a", (0,)))), Limits())

    assert checked.actions == (), "p still runs on the only device"


def test_a_struck_phase_gives_its_evictions_back() -> None:
    seen = world(
        [node("a", gpus=2), node("b", gpus=2)], [pod(n, gpus=1, on="a", devices=(d,)) for d, n in enumerate("pq")]
    )
    struck = plan(Evict("p", "a"), Move("q", "a", "b", (0,)), Bind("ghost", "a"), whole=True)
    sound = plan(Evict("q", "a"), Move("p", "a", "b", (1,)))

    assert guard(seen, struck.joined(sound), Limits(max_evictions_floor=2)).actions == sound.actions


def full_and_two_gangs(size: int) -> Snapshot:
    """Pods of priority 0 on every device, and two gangs of priority 10 that ask for half of the devices each."""
    runs = [pod(f"low-{n}", 1, on=f"n{n // 8}", devices=(n % 8,)) for n in range(2 * size)]
    wants = [pod(f"{gang}-{n}", 1, gang=gang, priority=10) for gang in ("ns/a", "ns/b") for n in range(size)]
    gangs = [Gang(name, size, priority=10) for name in ("ns/a", "ns/b")]
    return world([node(f"n{n}", gpus=8) for n in range(2 * size // 8)], [*runs, *wants], gangs)


def test_a_gang_above_the_limit_on_evictions_is_one_unit_and_the_next_one_waits_for_the_next_plan() -> None:
    seen = full_and_two_gangs(64)
    limits = Limits()  # 5 % of 128 pods are 6; 10 are always allowed

    checked = guard(seen, pack(seen, Packer(seen, BestFit())), limits)
    later = seen.after(checked.actions)
    then = guard(later, pack(later, Packer(later, BestFit())), limits)

    assert len([a for a in checked.actions if isinstance(a, Evict)]) == 64
    (waits,) = [each for each in checked.unplaced if each.workload == "Gang/ns/b"]
    assert waits.reason.code == "TooManyEvictions"
    assert "stops 10 pods, the most that one plan may" in waits.reason.words
    assert len([a for a in then.actions if isinstance(a, Evict)]) == 64


def test_where_the_limit_on_evictions_is_none_no_gang_stops_any() -> None:
    seen = full_and_two_gangs(8)

    checked = guard(seen, pack(seen, Packer(seen, BestFit())), Limits(max_evictions_share=0.0, max_evictions_floor=0))

    assert checked.actions == ()


def test_a_gang_is_never_started_in_part_even_when_nobody_marked_the_phase() -> None:
    gang = Gang("g", min_members=2)
    seen = world([node("a", gpus=2)], [pod("p", gpus=1, gang="g"), pod("q", gpus=1, gang="g")], [gang])

    assert refusals(seen, Bind("p", "a", (0,))) == ["GangNotWhole"]
    assert refusals(seen, Bind("p", "a", (0,)), Bind("q", "a", (1,))) == []


def test_a_release_of_a_gang_in_part_may_be_taken_back() -> None:
    """Its node takes it no more, so kube-scheduler never binds it: nothing else would ever make the gang whole."""
    pods = [pod("p", gpus=1, on="a", devices=(0,), gang="g"), pod("q", gpus=1, on="b", devices=(0,), gang="g")]
    seen = world([node("a", gpus=1), node("b", gpus=1)], pods, [Gang("g", min_members=2)])

    assert refusals(seen, Evict("q", "b")) == ["GangNotWhole"]
    assert refusals(replace(seen, released_at_s={"q": 0.0}), Evict("q", "b")) == []


def powered(headroom_w: float, *pods: Pod) -> Snapshot:
    """Three nodes with a GPU each in one row; one that starts to work takes 140 W, its floor less what it draws."""
    domains = [Domain("row", 5000.0), *(Domain(name, feeds={"row": 1.0}) for name in "abc")]
    table = power_table(domains, [Device(f"g-{name}", name) for name in "abc"])
    seen = world([node(name, gpus=1) for name in "abc"], pods)
    return replace(seen, power=replace(table, headroom_w={"row": headroom_w}))


def test_power_that_one_step_takes_is_not_given_to_the_next() -> None:
    seen = powered(280.0, *(pod(name, gpus=1) for name in "pqr"))

    assert refusals(seen, Bind("p", "a", (0,)), Bind("q", "b", (0,)), Bind("r", "c", (0,))) == ["NoPowerHeadroom"]


def test_power_that_a_stopped_pod_gives_back_may_be_taken_in_the_same_plan() -> None:
    seen = powered(140.0, pod("p", gpus=1, on="a", devices=(0,)), pod("q", gpus=1))

    assert refusals(seen, Evict("p", "a"), Bind("q", "b", (0,))) == []
    assert refusals(seen, Bind("q", "b", (0,))) == ["NoPowerHeadroom"]


def test_power_that_a_struck_phase_took_is_free_again() -> None:
    seen = powered(140.0, pod("p", gpus=1), pod("q", gpus=1))
    struck = plan(Bind("p", "a", (0,)), Bind("ghost", "b"), whole=True)

    assert guard(seen, struck.joined(plan(Bind("q", "b", (0,)))), Limits()).actions == (Bind("q", "b", (0,)),)


def test_stale_evidence_is_not_acted_on() -> None:
    seen = replace(world([node("a", gpus=1)], [pod("p", gpus=1)], at_s=100.0), observed_at_s={"pods": 30.0})

    assert refusals(seen, Bind("p", "a", (0,)), limits=Limits(max_age_s=60)) == ["StaleEvidence"]
    assert refusals(seen, Bind("p", "a", (0,)), limits=Limits(max_age_s=80)) == []


def test_an_unknown_service_is_not_scaled() -> None:
    assert refusals(world([node("a")]), Scale("ghost", of_types({"A100": 1}))) == ["NotFound"]


def test_every_code_of_the_guard_is_foreseen() -> None:
    """A code that is not has no counter before its first occurrence, which alerts on an increase then miss."""
    trees = (ast.walk(ast.parse(inspect.getsource(each))) for each in (guard_module, occupancy))
    calls = [each for each in chain(*trees) if isinstance(each, ast.Call) and each.args]
    codes = {
        call.args[0].value
        for call in calls
        if ast.unparse(call.func).rpartition(".")[2] == "Reason" and isinstance(call.args[0], ast.Constant)
    }

    assert codes == set(guard_module.REASONS)


SERVED = service("ns/s", 1.0, ((1.0,),))


@pytest.mark.parametrize(
    ("nodes", "inventory", "most"),
    [
        ([node("a", 8), node("b", 7), node("c", 8, gpu_type="H100"), node("d", 8, schedulable=False)], None, 5),
        ([], 9, 2),
        ([], None, MOST_PODS),
    ],
)
def test_a_service_gets_no_more_instances_than_the_fleet_holds(
    nodes: list[Node], inventory: int | None, most: int
) -> None:
    """Instances of four GPUs: two on `a`, one on `b`, two on the cordoned `d`, which may come back."""
    seen = world(nodes, services=[SERVED], prices={"A100": 1.0})
    seen = replace(seen, gpu_types=tuple(replace(each, inventory=inventory) for each in seen.gpu_types))

    assert refusals(seen, Scale("ns/s", {InstanceType("A100", 4): most})) == []
    assert refusals(seen, Scale("ns/s", {InstanceType("A100", 4): most + 1})) == ["TooManyInstances"]


def test_a_service_may_shrink_that_has_more_instances_than_the_fleet_holds() -> None:
    seen = world([node("a", 2)], services=[replace(SERVED, replicas=of_types({"A100": 9}))])

    assert refusals(seen, Scale("ns/s", of_types({"A100": 8}))) == []
    assert refusals(seen, Scale("ns/s", of_types({"A100": 10}))) == ["TooManyInstances"]


def services(count: int, **replicas: int) -> list[ModelService]:
    return [replace(service(f"ns/s{n}", 1.0, ((1.0,),)), replicas=of_types(replicas)) for n in range(count)]


def test_all_services_of_a_plan_start_no_more_than_the_fleet_holds() -> None:
    """A brain that scales each of 1,000 services to the size of the fleet would have the tables hold 1,000 fleets."""
    seen = world([node("a", 8)], services=services(3))
    scales = [Scale(f"ns/s{n}", of_types({"A100": 4})) for n in range(3)]

    assert refusals(seen, *scales) == ["TooManyInstances"]


def test_a_plan_stops_a_share_of_all_instances_and_the_next_one_goes_on() -> None:
    seen = world([node("a", 8), node("b", 8)], services=services(4, A100=4))
    scales = [Scale(f"ns/s{n}", of_types({"A100": 1})) for n in range(4)]

    # 3 of each 4 would stop, 12 of 16; a quarter are 4, so the first service alone changes, and with the 10 that always
    # may stop the first three.
    quarter = Limits(max_stopped_share=0.25)
    assert refusals(seen, *scales, limits=replace(quarter, max_evictions_floor=0)) == ["TooManyInstancesStopped"] * 3
    assert refusals(seen, *scales, limits=quarter) == ["TooManyInstancesStopped"]
    assert refusals(seen, *scales) == [], "by default there is no such limit"
    assert refusals(seen, Scale("ns/s0", of_types({"A100": 4}))) == []


@pytest.mark.parametrize(
    ("rate_per_s", "instances", "codes"),
    [
        (1.0, {"A100": 0, "L4": 0}, ["NoInstanceLeft"]),
        (1.0, {"A100": 0}, []),  # the other type's instance stays
        (1.0, {"A100": 0, "L4": 2}, []),
        (0.0, {"A100": 0, "L4": 0}, []),
    ],
)
def test_a_service_with_demand_keeps_an_instance(
    rate_per_s: float, instances: dict[str, int], codes: list[str]
) -> None:
    has = replace(service("ns/s", rate_per_s, ((1.0,),)), replicas=of_types({"A100": 1, "L4": 1}))
    seen = world([node("a", 8), node("b", 8, gpu_type="L4")], services=[has])

    assert refusals(seen, Scale("ns/s", of_types(instances))) == codes


WEB = ScaleTarget("apps/v1", "Deployment", "ns/chat")


@pytest.mark.parametrize(
    ("changes", "action", "code"),
    [
        ({}, SetReplicas("ns/chat", WEB, 6, 4), None),
        ({}, SetReplicas("ns/chat", WEB, 2, 4), None),
        ({"max_replicas": 5}, SetReplicas("ns/chat", WEB, 6, 4), "OutOfBounds"),
        ({"min_replicas": 3}, SetReplicas("ns/chat", WEB, 2, 4), "OutOfBounds"),
        ({}, SetReplicas("ns/chat", WEB, 6, 5), "ReplicasChanged"),
        ({}, SetReplicas("ns/other", WEB, 6, 4), "NotFound"),
        ({}, SetReplicas("ns/chat", ScaleTarget("apps/v1", "Deployment", "ns/other"), 6, 4), "NotFound"),
        ({"mode": "Recommend"}, SetReplicas("ns/chat", WEB, 6, 4), "ModeForbids"),
        ({"mode": "ScaleUpOnly"}, SetReplicas("ns/chat", WEB, 2, 4), "ModeForbids"),
        ({"mode": "ScaleUpOnly"}, SetReplicas("ns/chat", WEB, 6, 4), None),
        ({"conflict": "HorizontalPodAutoscaler/ns/web"}, SetReplicas("ns/chat", WEB, 6, 4), "AnotherAutoscaler"),
        ({"observed_at_s": NOW_S - 120.0}, SetReplicas("ns/chat", WEB, 2, 4), "MetricsStale"),
        ({"load": None}, SetReplicas("ns/chat", WEB, 2, 4), "MetricsStale"),
        ({"load": None}, SetReplicas("ns/chat", WEB, 6, 4), None),
    ],
)
def test_replicas_are_set_only_as_their_policy_allows(
    changes: dict[str, object], action: SetReplicas, code: str | None
) -> None:
    seen = replace(world([node("a")], at_s=NOW_S), scalers=(scaler(wanted=4, **changes),))

    assert refusals(seen, action) == ([code] if code else [])


CHAT = ScaleTarget("tonnage.dev/v1alpha1", "ModelService", "ns/chat")


def permitted_rates(rate_per_s: float, *policies: Scaler) -> list[float]:
    """Of a plan that expects this rate of the service ns/chat."""
    seen = replace(world([node("a")], services=[service("ns/chat")], at_s=NOW_S), scalers=policies)
    expecting = Plan(expected=(ExpectedDemand("ns/chat", demand(rate_per_s), 0.04),))
    return [each.demand.rate_per_s for each in guard(seen, expecting, Limits()).expected]


@pytest.mark.parametrize(
    ("changes", "rate_per_s", "rates"),
    [
        ({}, 5.0, [5.0]),
        ({"mode": "ScaleUpOnly"}, 5.0, [5.0]),
        ({"max_replicas": 5, "replica_load": 2.0}, 10.0, [10.0]),
        ({"max_replicas": 5, "replica_load": 2.0}, 10.1, []),
        ({}, -1.0, []),
        ({}, float("nan"), []),
        ({"mode": "Recommend"}, 5.0, []),
        ({"mode": "Off"}, 5.0, []),
        ({"conflict": "HorizontalPodAutoscaler/ns/chat"}, 5.0, []),
        ({"target": replace(CHAT, kind="Deployment")}, 5.0, []),
        ({"target": replace(CHAT, name="ns/other")}, 5.0, []),
    ],
)
def test_a_service_is_planned_only_for_a_demand_that_its_policy_stands_behind(
    changes: dict[str, object], rate_per_s: float, rates: list[float]
) -> None:
    assert permitted_rates(rate_per_s, scaler(**{"target": CHAT, **changes})) == rates


@pytest.mark.parametrize("other", [{"mode": "Off"}, {"mode": "Recommend", "conflict": "ScalingPolicy/ns/chat"}])
def test_a_further_policy_of_a_service_keeps_none_from_the_demand_of_the_one_in_force(other: dict[str, object]) -> None:
    in_force, further = scaler(target=CHAT), scaler(name="ns/more", target=CHAT, **other)

    assert permitted_rates(5.0, in_force, further) == permitted_rates(5.0, further, in_force) == [5.0]
