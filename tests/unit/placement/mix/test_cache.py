"""A pool for the cache of prompts: when it pays, how large it is, what it changes, and how it goes away."""

import io
import json
from typing import Any

import pytest

from cluster.plans import Plan
from controller.objects.manifests import read_manifests
from controller.queries.plan_diff import plan_diff
from controller.settings import settings_from
from controller.snapshot.from_manifests import snapshot_from
from placement.budget import Budget
from placement.mix.memory import SearchMemory
from placement.mix.planner import MixSettings, plan_mix
from tests.mix_exact.comparison import observed, planned
from tests.mix_exact.phases import own
from tests.unit.placement.mix.test_phases import fleet, plan_of, scaled

HALF = {"memory": "1Ti", "hits": [{"within": "10s", "share": 0.5}]}
"""6 prompts/s of 1000 tokens of 100 kB are 0.6 GB/s: 64 GiB hold those of 115 s, so that one instance finds half."""


def world_of(
    cache: dict[str, Any] | None = None, status: dict[str, int] | None = None, **world: Any
) -> list[dict[str, Any]]:
    made = fleet(**{"phased": False, "whole": 1.0, **world})
    for each in made:
        if each["kind"] == "ModelProfile":
            each["spec"]["throughput"][0]["decodedPerSecond"] = [[100.0]]
    made[-1]["spec"] |= {"slo": {"tpot": "60ms"}, "headroom": 0, "cache": HALF if cache is None else cache}
    made[-1]["status"] = {"mix": status} if status else {}
    return made


def cached(cache: dict[str, Any] | None = None, status: dict[str, int] | None = None, **world: Any) -> Plan:
    return plan_of(world_of(cache, status, **world))


def instances(plan: Plan) -> dict[str, dict[str, int]]:
    return {each.service: {kind.name: n for kind, n in each.instances.items()} for each in plan.services}


def test_a_cache_has_as_much_memory_as_saves_more_than_it_costs() -> None:
    """Without: 6 × cheap at 1 request/s. With half of a second's work found: 1/(1 - 0.5·0.99) = 1.98/s, so 4 × cheap,
    2 $/h less for one instance at 64 × 0.004 $/h = 0.256."""
    plan = cached()

    assert instances(plan) == {"default/s": {"cheap": 4}, "default/s-cache": {"cheapx0": 1}}
    assert sum(each.cost_per_hour for each in plan.services) == pytest.approx(4.256)
    assert "1 instances of 64 GiB cost 0.26 $/h, and 1.74 $/h less are paid in all" in plan.services[1].notes[0].words
    assert plan.services[1].routing is None


@pytest.mark.parametrize(
    "cache",
    [{**HALF, "pricePerGiBHour": 0.1}, {"memory": "1Ti", "hits": [{"within": "10s", "share": 0.0}]}],
    ids=["dear", "never-hit"],
)
def test_a_cache_that_saves_less_than_it_costs_is_not_there(cache: dict[str, Any]) -> None:
    assert instances(cached(cache)) == {"default/s": {"cheap": 6}, "default/s-cache": {}}


def test_a_published_curve_stands_in_for_hits_that_nobody_measured() -> None:
    """One instance holds 115 s: 0.402 are found, 1/(1 - 0.398) = 1.66/s: 4 × cheap."""
    assert instances(cached({"memory": "64Gi"}))["default/s-cache"] == {"cheapx0": 1}


def test_what_is_fetched_is_bound_by_the_network() -> None:
    """Half of 0.1 GB a request over 25 GB/s are 500 requests/s; over 0.004 GB/s 4 % come, too little for one less."""
    manifests = fleet(phased=False, whole=1.0)
    assert instances(cached(network=False)) == {"default/s": {"cheap": 6}, "default/s-cache": {}}
    for each in manifests:
        if each["kind"] == "GPUType":
            each["spec"]["network"] = "4M"
    manifests[-1]["spec"] |= {"slo": {"tpot": "60ms"}, "headroom": 0, "cache": HALF}
    assert instances(plan_of(manifests)) == {"default/s": {"cheap": 6}, "default/s-cache": {}}


def test_no_more_is_fetched_than_comes_in_time() -> None:
    """Of 0.1 GB over 0.1 GB/s 1/(0.99 + 1) come while the rest is computed, all that may be found: 1.99 requests/s."""
    found = {}
    for share in (0.4, 1.0):
        made = world_of({"memory": "64Gi", "hits": [{"within": "10s", "share": share}]})
        for each in made:
            if each["kind"] == "GPUType":
                each["spec"]["network"] = "100M"
        found[share] = instances(plan_of(made))["default/s"]

    assert found == {0.4: {"cheap": 4}, 1.0: {"cheap": 4}}


@pytest.mark.parametrize("most", ["64Gi", "1Ti", "100Ti"])
def test_memory_that_a_cache_may_have_beyond_what_pays_changes_nothing(most: str) -> None:
    plan = cached({**HALF, "memory": most})

    assert instances(plan) == {"default/s": {"cheap": 4}, "default/s-cache": {"cheapx0": 1}}
    assert plan.certificates["mix"].bound == pytest.approx(4.256)


def test_a_running_cache_has_no_more_memory_than_it_may() -> None:
    """At 60 requests/s three instances would save more than they cost."""
    made = world_of({"memory": "64Gi"}, {"cheap": 40, "cache/cheapx0": 3})
    made[-1]["spec"]["demand"]["requestsPerSecond"] = 60

    assert sum(instances(plan_of(made))["default/s-cache"].values()) == 1


def test_the_search_for_a_size_goes_on_where_work_ended_it() -> None:
    snapshot, memory = observed(world_of(HALF)), SearchMemory()
    plans = [plan_mix(snapshot, Budget(work), memory=memory) for work in (12.0, 10_000.0)]

    costs = [sum(each.cost_per_hour for each in plan.services) for plan in plans]
    assert costs == pytest.approx([6.0, 4.256])


def test_a_change_of_a_plan_costs_what_the_cache_costs() -> None:
    snapshot, plan = planned(world_of(HALF, {"cheap": 6, "cache/cheapx0": 2}), settings_from({}))
    of_cache = next(each for each in plan_diff(snapshot, plan).services if each.service == "default/s-cache")

    assert (of_cache.cost_before, of_cache.cost_after) == pytest.approx((0.512, 0.256))


def test_the_prefill_pool_is_smaller_by_what_is_found() -> None:
    """6 prompts/s of 100 ms keep 0.6 × dear busy, of which half is found; with its bursts that is one instance less."""
    manifests = fleet(ttft="500ms", whole=0.2)
    manifests[-1]["spec"]["demand"]["requestsPerSecond"] = 20
    before = instances(plan_of(manifests))
    manifests[-1]["spec"]["cache"] = HALF
    after = instances(plan_of(manifests))

    assert after["default/s-prefill"]["dear"] < before["default/s-prefill"]["dear"]
    assert after["default/s-decode"] == before["default/s-decode"]
    assert sum(after["default/s-cache"].values()) > 0


def test_a_running_cache_stays_while_another_size_saves_less_than_starts_cost() -> None:
    mix = {"cheap": 4, "cache/dearx0": 2}

    assert scaled(cached(status=mix)) == {"default/s-cache": {"dearx0": 1}}, "0.256 of 4.512 $/h are worth a start"
    assert scaled(cached({**HALF, "pricePerGiBHour": 0.001}, status=mix)) == {}


def test_a_cache_that_is_asked_for_no_more_is_scaled_to_none() -> None:
    manifests = fleet(phased=False, whole=1.0)
    manifests[-1]["status"] = {"mix": {"cheap": 8, "cache/dearx0": 2}}

    assert scaled(plan_of(manifests))["default/s-cache"] == {"dearx0": 0}


def test_nodes_have_seats_for_a_cache_in_the_memory_that_instances_leave() -> None:
    """A node of 8 devices and 256Gi, whose instances take 24Gi each: 64Gi are left, which is one seat."""
    manifests = fleet(phased=False, whole=1.0)
    manifests[-1]["spec"] |= {"slo": {"tpot": "60ms"}, "headroom": 0, "instance": {"memory": "24Gi"}}
    manifests[-1]["spec"]["cache"] = {"memory": "1Ti", "hits": [{"within": "300s", "share": 1.0}]}
    for each in manifests:
        if each["kind"] == "ModelProfile":
            each["spec"]["throughput"][0]["decodedPerSecond"] = [[100.0]]
    has = {"cpu": "96", "memory": "256Gi", "nvidia.com/gpu": "8"}
    meta = {"name": "n0", "labels": {"nvidia.com/gpu.product": "cheap"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"allocatable": has}}

    assert instances(plan_of([*manifests, node]))["default/s-cache"] == {"cheapx0": 1}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"cache": {"memory": "1Gi"}}, "is less than instanceMemory"),
        ({"cache": {"memory": "1Ti"}, "models": ["n"]}, "is of one model"),
    ],
)
def test_a_cache_that_cannot_be_is_a_mistake(spec: dict[str, Any], words: str) -> None:
    manifests = fleet(phased=False)
    manifests[-1]["spec"] |= spec

    with pytest.raises(Exception, match=words):
        observed(manifests)


def test_a_pool_called_as_another_service_is_a_mistake() -> None:
    manifests = fleet(phased=False)
    manifests[-1]["spec"]["cache"] = {"memory": "1Ti"}

    with pytest.raises(Exception, match="rename that service"):
        observed([*manifests, own("ModelService", "s-cache", model="m", slo={"tpot": "60ms"})])


def test_at_rest_the_sizes_of_a_cache_are_not_solved_again() -> None:
    manifests = fleet(phased=False, whole=1.0)
    manifests[-1]["spec"] |= {"slo": {"tpot": "60ms"}, "cache": HALF}
    for each in manifests:
        if each["kind"] == "ModelProfile":
            each["spec"]["throughput"][0]["decodedPerSecond"] = [[100.0]]
    snapshot, memory, settings = observed(manifests), SearchMemory(), MixSettings(explain=False)
    budgets = [Budget(2000.0), Budget(2000.0)]

    first, second = (plan_mix(snapshot, each, settings, memory) for each in budgets)

    assert instances(first) == instances(second)
    assert 2000 - budgets[1].work < 10 < 2000 - budgets[0].work
    # With another price of memory they are.
    manifests[-1]["spec"]["cache"] = {**HALF, "pricePerGiBHour": 0.1}
    assert instances(plan_mix(observed(manifests), Budget(2000.0), settings, memory))["default/s-cache"] == {}


def test_a_cache_whose_worth_is_not_known_is_said_to_be_left_out() -> None:
    manifests = fleet(phased=False, network=False)
    manifests[-1]["spec"]["cache"] = HALF
    text = io.StringIO(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))

    notes = snapshot_from(read_manifests(["-"], text)).notes

    assert "CacheNotCounted" in {each.reason.code for each in notes}
