"""Watts that no plan may pass, for arbitrary fleets, power domains, draws and hours."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cluster.plans import Plan
from cluster.snapshot import PENDING, Snapshot, device_numbers
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import decide
from controller.guard import Limits, guard
from placement.engine.packer import Packer
from placement.move_price import MovePrice
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.arbitrary_fleets import fleets, with_importance_shuffled
from tests.builders.power import Device, Domain, power_table

ANYTHING_GOES = Limits(max_evictions_share=1.0, max_evictions_floor=1000)


@st.composite
def powered(draw: st.DrawFn) -> Snapshot:
    """A fleet in two rows of one site; some nodes draw from both rows, some from none, some were never heard."""
    seen = draw(fleets())
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    domains = [Domain("site", 9e4), Domain("row-0", 5e4, {"site": 1.0}), Domain("row-1", 5e4, {"site": 1.0})]
    devices: list[Device] = []
    for name, gpus in zip(seen.nodes.names, seen.nodes.gpus.tolist(), strict=True):
        feeds = ({"row-0": 1.0}, {"row-1": 1.0}, {"row-0": 0.5, "row-1": 1.0}, None)[chance.integers(4)]
        if feeds is None:
            continue
        domains.append(Domain(name, feeds=feeds, kind="node"))
        told = 0 if chance.random() < 0.1 else gpus
        for n in range(told):
            floor_w = float(chance.uniform(100, 300))
            devices.append(Device(f"{name}-{n}", name, floor_w=floor_w, managed=bool(chance.random() < 0.9)))
    power = power_table(domains, devices)
    draw_w = np.where(chance.random(len(devices)) < 0.6, 60.0, chance.uniform(50, 400, len(devices)))
    headroom_w = {d.name: float(chance.uniform(-100, 1500)) for d in domains[:3] if chance.random() < 0.9}
    owner = tuple(f"s{chance.integers(3)}" for _ in range(len(seen.pods)))
    power = replace(
        power,
        readings=replace(power.readings, draw_w=draw_w),
        headroom_w=headroom_w,
    )
    return replace(seen, power=power, pods=replace(seen.pods, owner=owner))


def reserved_w(seen: Snapshot) -> dict[str, float]:
    """By limit, what devices that hold pods need to their floors above what they draw: counted the slow, plain way."""
    power = seen.power
    assert power is not None
    total = dict.fromkeys(power.headroom_w, 0.0)
    for node, name in enumerate(seen.nodes.names):
        row = power.domains.names.row(name)
        if row is None:
            continue
        there = np.flatnonzero(seen.pods.node == node)
        held = len({d for pod in there.tolist() for d in device_numbers(int(seen.pods.devices[pod]))})
        own = power.devices.domain == row
        short = np.maximum(power.devices.floor_w - np.maximum(power.readings.draw_w, power.devices.idle_w), 0.0)
        needs = sorted(np.where(power.devices.managed, short, 0.0)[own].tolist())[:held]
        for limit in total:
            total[limit] += share_of(seen, row, limit) * sum(needs)
    return total


def share_of(seen: Snapshot, row: int, limit: str) -> float:
    """How much of a node's draw a limit carries; the rows carry it, and the site what the rows carry, once at most."""
    power = seen.power
    assert power is not None
    names = power.domains.names
    rows = {
        names[parent]: share
        for child, parent, share in zip(power.feeds.child, power.feeds.parent, power.feeds.share, strict=True)
        if child == row
    }
    return float(min(1.0, sum(rows.values())) if limit == "site" else rows.get(limit, 0.0))


def assert_within(before: Snapshot, after: Snapshot) -> None:
    """No limit carries more floors than its headroom, unless it did so before; then it carries no more than that."""
    assert before.power is not None
    was_w, is_w = reserved_w(before), reserved_w(after)
    for limit, headroom_w in before.power.headroom_w.items():
        assert is_w[limit] <= max(headroom_w, was_w[limit]) + 0.1


def packed(seen: Snapshot) -> Plan:
    return pack(seen, Packer(seen, BestFit()))


@given(powered())
def test_no_plan_passes_a_domains_headroom_and_the_guard_agrees(seen: Snapshot) -> None:
    plan = packed(seen)

    assert_within(seen, seen.after(plan.actions))
    assert guard(seen, plan, ANYTHING_GOES).refused == ()


@given(powered())
def test_the_second_packing_plans_nothing(seen: Snapshot) -> None:
    assert packed(seen.after(packed(seen).actions)).actions == ()


@given(powered(), st.integers(0, 2**32 - 1))
def test_preemption_passes_no_headroom_and_comes_to_rest(seen: Snapshot, seed: int) -> None:
    busy = with_importance_shuffled(seen.after(packed(seen).actions), seed)
    plan = packed(busy)
    later = busy.after(plan.actions)

    assert_within(busy, later)
    assert guard(busy, plan, ANYTHING_GOES).refused == ()
    assert packed(later).actions == ()


@pytest.mark.parametrize("returns", [False, True])
@settings(max_examples=50)
@given(seen=powered())
def test_moves_pass_no_headroom(returns: bool, seen: Snapshot) -> None:
    decisions = Decisions(
        policy="bestfit",
        returns_idle_nodes=returns,
        move_price=MovePrice(per_pod_usd=0.0, per_gpu_usd=0.001),
    )
    seen = replace(seen, pods=replace(seen.pods, movable=np.ones(len(seen.pods), dtype=np.bool_)))
    plan = decide(seen, decisions, deadline_s=60.0, clock=lambda: 0.0)

    assert_within(seen, seen.after(plan.actions))
    assert guard(seen, plan, ANYTHING_GOES).refused == ()


@given(powered())
def test_unpublished_headroom_changes_no_plan(seen: Snapshot) -> None:
    assert seen.power is not None
    unknown = replace(seen, power=replace(seen.power, headroom_w={}))

    assert packed(unknown) == packed(replace(seen, power=None))


@given(powered())
def test_a_pod_runs_or_has_a_reason(seen: Snapshot) -> None:
    plan = packed(seen)
    told = {left.workload for left in plan.unplaced}
    for row in np.flatnonzero(seen.after(plan.actions).pods.node == PENDING).tolist():
        gang = int(seen.pods.gang[row])
        assert (f"Pod/{seen.pods.names[row]}" if gang < 0 else f"Gang/{seen.gangs[gang].name}") in told
