"""Allocations that go together, beside those of kube-scheduler's own allocator."""

import json

import pytest

from controller.dra import requests as dra_requests
from controller.dra.inventory import inventory_from
from controller.dra.objects import DeviceClass, DeviceTaint, DeviceToleration, ResourceClaim, ResourceSlice
from controller.dra.room import DeviceRoom
from controller.dra.selectors import SelectorError
from tests.builders.dra import DRIVERS, claim, decoded, device, devices, request, slice_on
from tests.builders.dra_cases import NODE, case
from tests.unit.controller.dra.recorded import RECORD, text


def allocated(seed: int) -> list[list[str]] | None:
    of = case(seed)
    inventory = inventory_from([decoded(each, ResourceSlice) for each in of["slices"]], DRIVERS)
    classes = {each["metadata"]["name"]: decoded(each, DeviceClass) for each in of["classes"]}
    wanted = [dra_requests.requests_of_claim(decoded(each, ResourceClaim), classes) for each in of["wanted"]]
    feasibility = dra_requests.Feasibility(DRIVERS)
    feasibility.put(NODE, inventory)
    found = feasibility.allocation(NODE, wanted, [decoded(each, ResourceClaim) for each in of["held"]])
    if found is None:
        return None
    return [[text(each.listed.id.device, dict(each.consumed or {})) for each in given] for given in found]


def test_the_devices_are_those_that_kube_scheduler_allocates() -> None:
    """Counters, shares, taints, capacities and constraints; with 20,000 seeds there was no difference."""
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    differ = {seed: (theirs, ours) for seed, theirs in enumerate(recorded) if theirs != (ours := allocated(seed))}

    assert differ == {}
    assert sum(each is not None for each in recorded) > 100


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, False),
        ({"key": "k", "operator": "Sometimes"}, False),
    ],
)
def test_a_toleration_means_what_it_means_for_kube_scheduler(toleration: dict[str, str], *, tolerates: bool) -> None:
    assert decoded(toleration, DeviceToleration).tolerates(DeviceTaint("k", "v", "NoExecute")) is tolerates


def test_a_search_that_takes_too_long_is_given_up() -> None:
    """Nine of one kind are 167,960 choices of 20, and after each the other does not agree."""
    known = dra_requests.Feasibility(DRIVERS)
    known.put("a", inventory_from([slice_on("a", [*devices(20), device("x", product="L4")])], DRIVERS))
    constraint = [{"matchAttribute": "gpu.nvidia.com/productName"}]
    other = request(1, "b", "device.attributes['gpu.nvidia.com'].productName == 'L4'")
    classes = {"gpu.nvidia.com": decoded({"metadata": {"name": "gpu.nvidia.com"}}, DeviceClass)}
    wanted = dra_requests.requests_of_claim(claim("c", request(9), other, constraints=constraint), classes)

    with pytest.raises(SelectorError, match="20000 ways"):
        known.allocation("a", [wanted], ())


def test_claims_that_hold_more_of_a_pools_counters_than_there_are_are_told() -> None:
    of = next(each for each in map(case, range(100)) if len(each["slices"]) > 1)
    listed = [each for part in of["slices"] for each in part["spec"].get("devices", ()) if "consumesCounters" in each]
    inventory = inventory_from([decoded(each, ResourceSlice) for each in of["slices"]], DRIVERS)
    gpu = listed[0]["consumesCounters"][0]["counterSet"]
    names = [each["name"] for each in listed if each["consumesCounters"][0]["counterSet"] == gpu]

    assert DeviceRoom(inventory, [claim("c", on=(NODE, tuple(names[:1])))]).overdrawn == []
    assert DeviceRoom(inventory, [claim("c", on=(NODE, tuple(names)))]).overdrawn == [("gpu.nvidia.com", NODE)]
