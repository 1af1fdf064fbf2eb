"""Power in placement: a pod whose floor no headroom covers is refused, with its reason."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from cluster.actions import Bind
from cluster.plans import Phase, Plan, Reason, Step
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import decide
from controller.guard import Limits, guard
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from power.safety.bursts import credit_after, overdrawn
from tests.builders.fleet import Pod, node, pod, world
from tests.builders.power import Device, Domain, power_table

RISE_W = 140.0
"""Of a device that starts to work: its floor of 200 W less the 60 W that it draws at rest (tests/builders/power.py)."""


def powered(
    headroom_w: Mapping[str, float],
    pods: Sequence[Pod] = (),
    *,
    gpus: int = 2,
    per_row: int = 1,
    draws_w: Mapping[str, float] | None = None,
    gangs: Sequence[Gang] = (),
) -> Snapshot:
    """Rows of nodes `row/0`, `row/1` …, each row with its headroom in watts; draws of busy devices."""
    nodes = [f"{row}/{n}" for row in headroom_w for n in range(per_row)]
    devices = [Device(f"{name}-{d}", name) for name in nodes for d in range(gpus)]
    domains = [Domain(row, 5000.0, kind="row") for row in headroom_w]
    domains += [Domain(name, feeds={name.split("/")[0]: 1.0}, kind="node") for name in nodes]
    power = power_table(domains, devices)
    drawn_w = np.array([(draws_w or {}).get(device.name, device.idle_w) for device in devices])
    power = replace(
        power,
        readings=replace(power.readings, draw_w=drawn_w),
        headroom_w=headroom_w,
    )
    return replace(world([node(name, gpus) for name in nodes], pods, gangs), power=power)


def packed(seen: Snapshot) -> Plan:
    return pack(seen, Packer(seen, BestFit()))


def where(plan: Plan) -> dict[str, str]:
    return {action.pod: action.node for action in plan.actions if isinstance(action, Bind)}


def test_a_pod_goes_where_headroom_carries_its_floor() -> None:
    seen = powered({"a": RISE_W - 1, "b": RISE_W}, [pod("p", 1)])

    assert where(packed(seen)) == {"p": "b/0"}


def test_a_pod_without_power_headroom_waits_and_its_reason_names_the_domain() -> None:
    (left,) = packed(powered({"a": 100.0, "b": 20.0}, [pod("p", 1)])).unplaced

    assert left.reason.code == "NoPowerHeadroom"
    assert "it needs 140 W to run at its floor, and power domain a leaves 100 W" in left.reason.words
    assert (left.reason.figures["need_w"], left.reason.figures["headroom_w"]) == (140.0, 100.0)


def test_headroom_taken_by_one_pod_is_not_given_to_another() -> None:
    seen = powered({"a": 2 * RISE_W}, [pod(f"p{n}", 1) for n in range(3)], gpus=4)

    assert len(where(packed(seen))) == 2


def test_a_running_pod_that_draws_little_keeps_its_floor() -> None:
    seen = powered({"a": RISE_W}, [pod("idle", 1, on="a/0", devices=(0,)), pod("p", 1)])

    assert where(packed(seen)) == {}


def test_a_pod_that_draws_its_floor_is_in_the_draw_already() -> None:
    seen = powered({"a": RISE_W}, [pod("busy", 1, on="a/0", devices=(0,)), pod("p", 1)], draws_w={"a/0-0": 300.0})

    assert where(packed(seen)) == {"p": "a/0"}


def test_a_device_in_use_takes_its_floor_once_however_many_pods_share_it() -> None:
    seen = powered({"a": RISE_W}, [pod(f"p{n}", 1, gpu_milli=300) for n in range(4)])

    assert len(where(packed(seen))) == 3  # the fourth would be the first on the other device


def test_pods_without_gpus_and_nodes_in_no_domain_are_not_refused() -> None:
    seen = powered({"a": 0.0}, [pod("cpu"), pod("gpu", 1)])
    outside = replace(seen, nodes=world([node("a/0", 2), node("free", 2)]).nodes)

    assert where(packed(seen)) == {"cpu": "a/0"}
    assert where(packed(outside))["gpu"] == "free"


def test_every_feed_of_a_row_must_have_the_headroom() -> None:
    seen = powered({"a": 1000.0}, [pod("p", 1)])
    domains = [Domain("site", 9000.0), Domain("a", 5000.0, {"site": 1.0}), Domain("a/0", feeds={"a": 1.0})]
    power = power_table(domains, [Device("d0", "a/0"), Device("d1", "a/0")])

    for site_w, placed in ((139.0, 0), (140.0, 1)):
        above = replace(power, headroom_w={"site": site_w, "a": 1000.0})
        assert len(where(packed(replace(seen, power=above)))) == placed


def test_a_gang_that_headroom_does_not_carry_whole_takes_none() -> None:
    members = [pod(f"m{n}", 1, gang="g") for n in range(3)]
    seen = powered({"a": 2.5 * RISE_W}, [*members, pod("single", 1)], gpus=4, gangs=[Gang("g", 3)])

    assert where(packed(seen)) == {"single": "a/0"}


def test_a_pod_of_higher_priority_takes_the_headroom_of_a_lower_one() -> None:
    seen = powered(
        {"a": RISE_W}, [pod("low", 1, on="a/0", devices=(0,)), pod("high", 1, priority=10)], draws_w={"a/0-0": 60.0}
    )
    plan = packed(seen)

    assert where(plan) == {"high": "a/0"}  # the other device is free, the watts are not
    assert [left.workload for left in plan.unplaced] == ["Pod/low"]


def test_without_headroom_in_the_snapshot_power_decides_nothing() -> None:
    seen = powered({"a": 0.0}, [pod("p", 1)])
    unknown = replace(seen, power=replace(seen.power, headroom_w={}))  # type: ignore[type-var]

    assert where(packed(unknown)) == {"p": "a/0"}


def test_the_guard_counts_the_headroom_again() -> None:
    seen = powered({"a": RISE_W}, [pod("p", 1), pod("q", 1)])
    why = Reason("LeastCost", "")
    plan = Plan((Phase("start pods", tuple(Step(Bind(name, "a/0", (n,)), why) for n, name in enumerate("pq"))),))
    checked = guard(seen, plan, Limits())

    assert where(checked) == {"p": "a/0"}
    assert [refused.reason.code for refused in checked.refused] == ["NoPowerHeadroom"]


@pytest.mark.parametrize("returns", [False, True])
def test_plans_stay_within_the_headroom(returns: bool) -> None:
    seen = powered({"a": 3.5 * RISE_W, "b": 1.5 * RISE_W}, [pod(f"p{n}", 1) for n in range(8)], gpus=4, per_row=2)
    plan = decide(seen, Decisions(returns_idle_nodes=returns), deadline_s=60.0, clock=lambda: 0.0)
    rows = [name.split("/")[0] for name in where(plan).values()]

    assert (rows.count("a"), rows.count("b")) == (3, 1)
    assert {left.reason.code for left in plan.unplaced} == {"NoPowerHeadroom"}


def test_a_liar_is_found_by_its_account_and_an_honest_burst_is_not() -> None:
    burst_j, lease_w = np.array([4000.0, 4000.0]), np.array([1000.0, 1000.0])
    credit_j = burst_j.copy()
    for _ in range(40):  # 80 s: the first never keeps to its lease, the second bursts for 2 s and then keeps to it
        draw_w = np.array([1500.0, 1000.0 if _ else 3000.0])
        credit_j = credit_after(credit_j, draw_w, lease_w, burst_j, 2.0, 300.0)
    assert overdrawn(credit_j, burst_j).tolist() == [True, False]
