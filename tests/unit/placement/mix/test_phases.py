"""Services whose prefill and decode may be apart: which mode is chosen, what an SLO on the first token does."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from cluster.actions import Scale
from cluster.plans import Plan
from cluster.workloads import InstanceType
from controller.settings import settings_from
from placement.budget import Budget
from placement.mix.planner import plan_mix
from tests.mix_exact.comparison import observed, planned
from tests.mix_exact.phases import own


def fleet(*, network: bool = True, ttft: str = "1s", whole: float = 1.0, phased: bool = True) -> list[dict[str, Any]]:
    """Fast prefill on the dear type, cheap decode on the other. whole: requests per second without phases."""
    made = []
    for name, price, prefill, decoded in (("dear", 4.0, "100ms", 4.0), ("cheap", 1.0, "900ms", 4.0)):
        more = {"network": "25G"} if network else {}
        made.append(own("GPUType", name, nodeLabel={"values": [name]}, memory="80Gi", pricePerHour={"onDemand": price},
                        **more))  # fmt: skip
        table = {"slo": {"tpot": "60ms"}, "requestsPerSecond": [[whole]], "decodedPerSecond": [[decoded]]}
        grid = {"inputTokens": [1000], "outputTokens": [100]}
        made.append(own("ModelProfile", f"m-{name}", model="m", gpuType=name, grid=grid, throughput=[table],
                        prefill=[prefill], cacheBytesPerToken=100_000))  # fmt: skip
    demand = {"requestsPerSecond": 6, "inputTokens": [1000], "outputTokens": [100], "histogram": [[1.0]]}
    phases = {"phases": {"prefill": {}, "decode": {}}} if phased else {}
    made.append(own("ModelService", "s", model="m", slo={"tpot": "60ms", "ttft": ttft}, demand=demand, **phases))
    return made


def plan_of(manifests: list[dict[str, Any]]) -> Plan:
    return planned(manifests, settings_from({}))[1]


def pools(plan: Plan) -> dict[str, set[str]]:
    return {each.service: {kind.gpu_type for kind in each.instances} for each in plan.services if each.instances}


def test_phases_go_apart_onto_unlike_types_where_that_costs_less() -> None:
    plan = plan_of(fleet(ttft="500ms", whole=0.5))

    assert pools(plan) == {"default/s-prefill": {"dear"}, "default/s-decode": {"cheap"}}
    assert plan.services[0].refusal is None
    assert "prefill and decode are apart, which costs" in plan.services[0].notes[0].words
    assert plan.certificates["mix"].gap <= 0.001


def test_phases_stay_together_where_that_costs_less() -> None:
    plan = plan_of(fleet(whole=4.0))

    assert pools(plan) == {"default/s": {"cheap"}}


def test_phases_stay_together_where_no_network_is_known() -> None:
    plan = plan_of(fleet(network=False, whole=0.5))

    assert list(pools(plan)) == ["default/s"]
    assert not any(each.refusal for each in plan.services)


def test_a_service_without_phases_has_one_pool() -> None:
    assert list(pools(plan_of(fleet(whole=0.5, phased=False)))) == ["default/s"]


def test_a_type_whose_prefill_is_too_slow_for_the_first_token_is_not_used() -> None:
    assert pools(plan_of(fleet(ttft="1s", whole=4.0, phased=False))) == {"default/s": {"cheap"}}
    assert pools(plan_of(fleet(ttft="500ms", whole=4.0, phased=False))) == {"default/s": {"dear"}}


def test_a_first_token_slo_without_prefill_times_is_refused_with_that_reason() -> None:
    manifests = fleet(phased=False)
    for each in manifests:
        if each["kind"] == "ModelProfile":
            del each["spec"]["prefill"]

    (service,) = plan_of(manifests).services
    assert service.refusal is not None
    assert "slo.ttft needs it" in service.refusal.words


def test_a_slow_network_makes_decode_dearer() -> None:
    slow = copy.deepcopy(fleet(ttft="500ms", whole=0.3))
    for each in slow:
        if each["kind"] == "GPUType":
            each["spec"]["network"] = 200_000_000
    # 1,000 tokens of 100 kB take 0.5 s on each network of 0.2 GB/s, of the 6 s that 100 tokens may take: a sixth, which
    # leaves two thirds of the requests in flight; 25 GB/s leave nearly all.
    costs = [
        sum(each.cost_per_hour for each in plan_of(manifests).services)
        for manifests in (fleet(ttft="500ms", whole=0.3), slow)
    ]

    assert costs[0] < costs[1]


@pytest.mark.parametrize(("share", "less"), [(0.9, True), (0.9999, False)])
def test_a_looser_share_needs_less_headroom(share: float, *, less: bool) -> None:
    usual, other = fleet(phased=False, whole=1.7), fleet(phased=False, whole=1.7)
    other[-1]["spec"]["slo"]["share"] = share
    costs = [sum(each.cost_per_hour for each in plan_of(each_).services) for each_ in (usual, other)]

    assert (costs[1] < costs[0]) if less else (costs[1] >= costs[0])


def test_a_pool_that_is_called_as_another_service_is_a_mistake() -> None:
    manifests = [*fleet(), own("ModelService", "s-prefill", model="m", slo={"tpot": "60ms"})]

    with pytest.raises(Exception, match="rename that service"):
        observed(manifests)


def running(status: dict[str, int], **world: Any) -> Plan:
    manifests = fleet(ttft="500ms", **world)
    manifests[-1]["status"] = {"mix": status}
    return plan_of(manifests)


def scaled(plan: Plan) -> dict[str, dict[str, int]]:
    steps = (step.action for step in plan.steps() if isinstance(step.action, Scale))
    return {each.service: {kind.name: count for kind, count in each.instances.items()} for each in steps}


def test_running_phases_stay_apart_where_the_other_mode_saves_less_than_its_starts() -> None:
    """6 requests/s need 3 × cheap and 2 × dear, 11 $/h; whole, at 2.5 a second and instance, 3 × dear with room: 12."""
    together, apart = running({"dear": 3}, whole=3.0), running({"decode/cheap": 3, "prefill/dear": 2}, whole=3.0)

    assert scaled(together) != {}, "1 of 12 $/h pays the starts"
    assert scaled(apart) == {}
    assert scaled(running({"decode/cheap": 3, "prefill/dear": 2}, whole=0.5)) == {}


def test_running_pools_stay_as_they_are_while_no_mode_is_found() -> None:
    """Their service is refused: they are not stopped for that."""
    manifests = fleet(ttft="1ms")
    manifests[-1]["status"] = {"mix": {"decode/cheap": 3, "prefill/dear": 2}}
    plan = plan_of(manifests)

    assert scaled(plan) == {}
    assert all(each.refusal for each in plan.services)


def test_pools_whose_service_has_no_phases_any_more_are_scaled_to_none() -> None:
    plan = running({"decode/cheap": 3, "prefill/dear": 2}, whole=4.0, phased=False)

    assert scaled(plan)["default/s-decode"] == {"cheap": 0}
    assert scaled(plan)["default/s-prefill"] == {"dear": 0}
    assert pools(plan) == {"default/s": {"dear"}}


def test_what_is_stopped_in_one_mode_serves_until_the_instances_of_the_other_are_ready() -> None:
    snapshot, _ = planned(fleet(ttft="500ms", whole=0.5), settings_from({}))
    whole, *pools_ = snapshot.services
    had = replace(whole, replicas={InstanceType("dear"): 12}, is_loading=False)
    services = (had, *(replace(each, is_loading=False, replicas={}) for each in pools_))
    plan = plan_mix(replace(snapshot, services=services), Budget(1e6))

    assert scaled(plan) == {"default/s-decode": {"cheap": 3}, "default/s-prefill": {"dear": 2}}
