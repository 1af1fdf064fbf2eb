"""Demand beyond the stock: the largest part of it is served, and nothing that runs is given up for less."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cluster.plans import Plan, ServicePlan
from cluster.snapshot import Snapshot
from placement.mix.corrections import PARTS, with_parts
from placement.mix.planner import MixSettings, plan_mix
from tests.builders.fleet import node, world
from tests.builders.mix import ample, of_types, profile, service

SETTINGS = MixSettings(explain=False)


def fleet(rates: Mapping[str, float], gpus: int = 4, **running: int) -> Snapshot:
    """One node with so many GPUs, each of which serves 2 requests/s for 1 $/h."""
    services = [
        replace(service(name, rate), replicas=of_types({"A100": running.get(name, 0)})) for name, rate in rates.items()
    ]
    profiles = [profile("A100", ((2.0,),))]
    return world([node("a", gpus=gpus, gpu_type="A100")], services=services, profiles=profiles)


def planned(snapshot: Snapshot, *expected: str) -> dict[str, ServicePlan]:
    before = plan_mix(snapshot, ample(), SETTINGS)
    return by_service(with_parts(snapshot, before, expected, ample(), SETTINGS))


def by_service(plan: Plan) -> dict[str, ServicePlan]:
    return {each.service: each for each in plan.services}


def instances(plan: ServicePlan) -> int:
    return sum(plan.instances.values())


def test_an_expected_demand_beyond_the_stock_gets_the_largest_part_that_the_stock_holds() -> None:
    """10 requests/s need 5 GPUs; 12 of 16 parts are 7.5 requests/s, on all 4, and 13 would be 8.1."""
    found = planned(fleet({"chat": 10.0}), "chat")["chat"]
    assert (found.refusal, instances(found)) == (None, 4)
    (note,) = found.notes
    assert note.code == "PartOfDemand"
    assert note.figures == {"served_per_s": pytest.approx(7.5), "expected_per_s": 10.0}


def test_a_demand_of_the_spec_is_refused_as_before() -> None:
    found = planned(fleet({"chat": 10.0}))["chat"]
    assert found.refusal is not None
    assert found.refusal.code == "InventoryShort"


def test_a_demand_that_the_stock_holds_is_served_whole() -> None:
    snapshot = fleet({"chat": 8.0})
    before = plan_mix(snapshot, ample(), SETTINGS)
    assert with_parts(snapshot, before, ("chat",), ample(), SETTINGS) is before


def test_running_instances_are_not_given_up_for_a_part() -> None:
    """Two parts of 16 of 60 requests/s fit 4 GPUs, three do not: all 4 run already. With 5 running the stock of 4
    would hold fewer, so they stay."""
    assert instances(planned(fleet({"chat": 60.0}, chat=4), "chat")["chat"]) == 4
    assert planned(fleet({"chat": 60.0}, chat=5), "chat")["chat"].refusal is not None


def test_another_service_keeps_its_mix() -> None:
    found = planned(fleet({"first": 4.0, "chat": 10.0}), "chat")
    assert (instances(found["first"]), instances(found["chat"])) == (2, 2)


def test_what_not_even_one_part_fits_keeps_its_reason() -> None:
    found = planned(fleet({"chat": 2.0 * PARTS + 100}, gpus=1), "chat")["chat"]
    assert found.refusal is not None
