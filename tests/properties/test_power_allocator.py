"""The allocator on arbitrary trees: within budgets, floors by class, monotone, idempotent, opted-out untouched."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cluster.arrays import FloatArray
from cluster.power import PHASE_COMPUTE_BOUND, PHASE_IDLE, PHASE_MEMORY_BOUND, PowerReadings, PowerTable
from power.control.state import Allocator, AllocatorState, Grants, allocator_of, first_state
from power.control.step import step
from power.policy.water_filling import levels_of, pour, widths_w
from power.rules import PowerRules
from tests.builders.power import Device, Domain, power_table

many = settings(max_examples=max(250, settings.default.max_examples if settings.default else 0))

pytestmark = pytest.mark.slow

RULES = PowerRules(stuck_s=0.0)
STRICT = replace(RULES, burst_share=0.0)


@dataclass(frozen=True)
class Fleet:
    table: PowerTable
    demand_w: tuple[float, ...]
    phase: tuple[int, ...]


@st.composite
def fleets(draw: st.DrawFn, *, twice_fed: bool = True) -> Fleet:
    racks = draw(st.integers(1, 3))
    twice = twice_fed and racks > 1 and draw(st.booleans())
    domains = [Domain("row", draw(st.floats(600.0, 4000.0)), other_w=draw(st.sampled_from((0.0, 100.0))))]
    domains += [
        Domain(
            f"r{n}",
            draw(st.sampled_from((500.0, 900.0, 1e15))),
            {"row": 1.0, **({"r0": 0.5} if twice and n == 1 else {})},
        )
        for n in range(racks)
    ]
    count = draw(st.integers(1, 8))
    devices = [
        Device(
            f"g{n}",
            f"r{draw(st.integers(0, racks - 1))}",
            draw(st.sampled_from(("high", "low"))),
            max_w=draw(st.sampled_from((300.0, 400.0, 700.0))),
            floor_w=draw(st.sampled_from((100.0, 150.0, 250.0))),
            overshoot_share=draw(st.sampled_from((0.0, 0.05))),
            overhead_share=draw(st.sampled_from((0.0, 0.25))),
            managed=draw(st.integers(0, 9)) > 0,
        )
        for n in range(count)
    ]
    demand = st.sampled_from((60.0, 120.0, 240.0, 390.0, 690.0))
    phase = st.sampled_from((PHASE_IDLE, PHASE_MEMORY_BOUND, PHASE_COMPUTE_BOUND, -1))
    return Fleet(
        power_table(domains, devices),
        tuple(draw(st.lists(demand, min_size=count, max_size=count))),
        tuple(draw(st.lists(phase, min_size=count, max_size=count))),
    )


def readings(fleet: Fleet, held_w: FloatArray, heard: object, now_s: float) -> PowerReadings:
    """Readings of devices that obey at once."""
    count = len(held_w)
    return replace(
        fleet.table.readings,
        at_s=np.full(count, now_s),
        draw_w=np.minimum(np.array(fleet.demand_w), held_w),
        cap_w=held_w,
        sequence=np.array(heard),
        phase=np.array(fleet.phase),
    )


def settled(fleet: Fleet, rules: PowerRules = STRICT, scale: float = 1.0) -> tuple[Allocator, AllocatorState, Grants]:
    """After a minute in a world that obeys, budgets times `scale`."""
    allocator = allocator_of(fleet.table, rules)
    state, held_w, heard = first_state(allocator), fleet.table.devices.max_w, fleet.table.leases.sequence
    for second in range(0, 60, 2):
        seen = readings(fleet, held_w, heard, float(second))
        state, grants = step(allocator, state, seen, float(second), scale * allocator.tree.budget_w)
        held_w, heard = grants.cap_w, grants.sequence
    return allocator, state, grants


def worst_w(allocator: Allocator, cap_w: FloatArray) -> FloatArray:
    return allocator.fixed_w + allocator.tree.through(
        allocator.tree.burden * np.where(allocator.tree.table.devices.managed, cap_w, 0.0)
    )


def lowest_fit(allocator: Allocator, scale: float = 1.0) -> bool:
    """Whether the lowest limits fit: the allocator can do no more than grant them."""
    lowest_w = worst_w(allocator, allocator.tree.table.devices.min_w)
    return bool((lowest_w <= scale * allocator.tree.budget_w).all())


def assert_caps_fit_every_budget(allocator: Allocator, grants: Grants) -> None:
    assert not lowest_fit(allocator) or (worst_w(allocator, grants.cap_w) <= allocator.tree.budget_w + 1e-6).all()


def assert_caps_are_within_what_devices_accept(fleet: Fleet, grants: Grants) -> None:
    assert (grants.cap_w >= fleet.table.devices.min_w).all()
    assert (grants.cap_w <= fleet.table.devices.max_w).all()
    assert (grants.safe_w <= grants.cap_w).all()


def assert_opted_out_devices_are_not_touched(fleet: Fleet, grants: Grants) -> None:
    out = ~fleet.table.devices.managed
    assert (grants.sequence[out] == -1).all()
    assert (grants.cap_w[out] == fleet.table.devices.max_w[out]).all()


def assert_no_high_device_is_below_its_floor_beside_a_low_one_above_its_own(
    fleet: Fleet, allocator: Allocator, grants: Grants
) -> None:
    tree, floor_w = allocator.tree, fleet.table.devices.floor_w
    full = tree.budget_w - worst_w(allocator, grants.cap_w) < 2 * len(grants.cap_w)
    low_above = (tree.rank > 0) & fleet.table.devices.managed & (grants.cap_w > floor_w + 1.0)
    for device in np.flatnonzero((grants.cap_w < floor_w - 1.0) & (tree.rank == 0) & fleet.table.devices.managed):
        mine = [limit for limit in tree.path_limit[tree.path_device == device] if full[limit]]
        assert any(not low_above[tree.path_device[tree.path_limit == limit]].any() for limit in mine)


def assert_the_same_readings_come_to_rest(
    fleet: Fleet, allocator: Allocator, state: AllocatorState, grants: Grants
) -> None:
    """A third look at them finds nothing to change; the second may, since a first grant tells what a draw shows."""
    seen = readings(fleet, grants.cap_w, grants.sequence, 60.0)
    for _ in range(3):
        state, again = step(allocator, state, seen, 60.0)
    assert not again.changed.any()


@many
@given(fleet=fleets())
def test_in_a_world_that_obeys_caps_fit_budgets_classes_and_devices_and_come_to_rest(fleet: Fleet) -> None:
    allocator, state, grants = settled(fleet)

    assert_caps_fit_every_budget(allocator, grants)
    assert_caps_are_within_what_devices_accept(fleet, grants)
    assert_opted_out_devices_are_not_touched(fleet, grants)
    assert_no_high_device_is_below_its_floor_beside_a_low_one_above_its_own(fleet, allocator, grants)
    assert_the_same_readings_come_to_rest(fleet, allocator, state, grants)


@many
@given(fleet=fleets())
def test_caps_with_bursts_fit_every_budget_in_a_world_that_obeys(fleet: Fleet) -> None:
    allocator, _, grants = settled(fleet, RULES)

    assert_caps_fit_every_budget(allocator, grants)


def poured(allocator: Allocator, fleet: Fleet, scale: float | FloatArray) -> FloatArray:
    """What devices get above their lowest limits of budgets times `scale`, whatever came before."""
    devices, tree = fleet.table.devices, allocator.tree
    need_w = np.clip(np.array(fleet.demand_w), devices.floor_w, devices.max_w)
    levels, idle = levels_of(tree, tree.nobody), np.array(fleet.phase) == PHASE_IDLE
    width_w = widths_w(tree, devices.min_w, need_w, idle, tree.nobody, tree.everyone)
    free_w = scale * tree.budget_w - allocator.fixed_w - tree.through(tree.burden * devices.min_w)
    return pour(tree, width_w, levels.level, np.tile(free_w, (len(levels.keeps_reserve), 1)))


@many
@given(fleet=fleets(twice_fed=False), less=st.floats(0.5, 1.0), which=st.integers(0, 3))
def test_a_smaller_budget_gives_nobody_below_it_more(fleet: Fleet, less: float, which: int) -> None:
    allocator = allocator_of(fleet.table, STRICT)
    cut = which % allocator.tree.limits
    scale = np.where(np.arange(allocator.tree.limits) == cut, less, 1.0)

    before_w, after_w = poured(allocator, fleet, 1.0), poured(allocator, fleet, scale)

    below = allocator.tree.path_device[allocator.tree.path_limit == cut]
    assert (after_w[below] <= before_w[below] + 1e-6).all()


@many
@given(fleet=fleets(), old_s=st.floats(10.5, 1000.0), which=st.integers(0, 7))
def test_a_stale_reading_raises_no_cap_whatever_it_says(fleet: Fleet, old_s: float, which: int) -> None:
    allocator, state, grants = settled(fleet, scale=0.7)
    seen = readings(fleet, grants.cap_w, grants.sequence, 62.0)
    at_s = seen.at_s.copy()
    at_s[which % len(at_s)] -= old_s

    for second in (62.0, 64.0, 66.0):
        before_w = state.ledger.cap_w
        state, grants = step(allocator, state, replace(seen, at_s=at_s, sequence=grants.sequence), second)
        stale = second - at_s > RULES.stale_s
        assert (grants.cap_w[stale] <= before_w[stale]).all()


@many
@given(fleet=fleets())
def test_rises_together_never_exceed_what_is_free(fleet: Fleet) -> None:
    allocator, state, grants = settled(fleet, scale=0.6)
    held_w, heard = grants.cap_w, grants.sequence
    for second in range(60, 90, 2):
        seen = readings(fleet, held_w, heard, float(second))
        state, grants = step(allocator, state, seen, float(second))
        held_now_w = state.estimate.held_w
        free_w = allocator.tree.budget_w - worst_w(allocator, held_now_w)
        rises_w = allocator.tree.through(allocator.tree.burden * np.maximum(grants.cap_w - held_now_w, 0.0))
        assert (rises_w <= np.maximum(free_w, 0.0) + 1e-6).all()
        held_w, heard = grants.cap_w, grants.sequence
