"""The shipped policy: levels in their order, the spike kept free, and bursts that end lower the less room there is."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.arrays import FloatArray
from power.control.state import allocator_of
from power.policy.by_class import ByClass, ByClassMemory, DeviceDemand, Spikes, burst_ends_w, needed
from power.policy.interface import Plant, PolicyInput, Wants
from power.rules import PowerRules
from tests.builders.power import Device, row_of

RULES = PowerRules(reserve_spikes=1.0)
LEASE_W, MOST_W, FLOOR_W, BUDGET_W, SPIKE_W = 200.0, 400.0, 150.0, 2000.0, 100.0


def plant(budget_w: float = BUDGET_W, rules: PowerRules = RULES) -> Plant:
    devices = [Device(f"g{n}", f"n{n}", "high" if n < 2 else "low", floor_w=FLOOR_W) for n in range(4)]
    return allocator_of(row_of(devices, budget_w), rules).plant


def seen(of: Plant, draw_w: FloatArray, at_s: float = 100.0) -> PolicyInput:
    yes = np.ones(4, dtype=np.bool_)
    return PolicyInput(
        at_s=at_s,
        for_s=2.0,
        draw_w=draw_w,
        shown_w=draw_w,
        limit_w=np.full(4, MOST_W),
        lease_w=np.full(4, LEASE_W),
        shows=yes,
        governed=yes,
        base_w=of.tree.table.devices.min_w,
        free_w=of.tree.budget_w,
        drawn_w=np.array([draw_w.sum()]),
        budget_w=of.tree.budget_w,
        is_clean=True,
        slowed=None,
    )


def spiking(spike_w: float) -> Spikes:
    return Spikes((), np.array([spike_w]), np.array([spike_w]))


def ends_w(room_in_spikes: float) -> FloatArray:
    """Ends of bursts with this many measured spikes of room below the budget; every lease is 200 W."""
    row = plant()
    shown = replace(seen(row, np.full(4, LEASE_W)), drawn_w=np.array([BUDGET_W - room_in_spikes * SPIKE_W]))
    return burst_ends_w(row, spiking(SPIKE_W), shown, np.full(4, LEASE_W))


@pytest.mark.parametrize(
    ("room_in_spikes", "high_w", "low_w"),
    [
        (1.6, MOST_W, MOST_W),
        (1.0, MOST_W, 300.0),  # halfway between 0.5 spikes and 1.5, so halfway from the lease to the highest limit
        (0.55, 300.0, 210.0),
        (0.25, LEASE_W, LEASE_W),
        (-1.0, LEASE_W, LEASE_W),
    ],
)
def test_bursts_end_lower_the_less_room_there_is_and_those_of_low_classes_first(
    room_in_spikes: float, high_w: float, low_w: float
) -> None:
    assert ends_w(room_in_spikes) == pytest.approx([high_w, high_w, low_w, low_w], abs=0.01)


def wanted(budget_w: float, draw_w: FloatArray, spike_w: float, rules: PowerRules = RULES) -> Wants:
    """What the policy wants after a minute of this draw, the spike being known."""
    row = plant(budget_w, rules)
    policy = ByClass(row)
    memory: ByClassMemory = replace(policy.first(), spikes=spiking(spike_w))
    for second in range(0, 60, 2):
        memory, wants = policy.wants(memory, seen(row, draw_w, float(second)))
    return wants


def test_the_low_class_gives_way_first_and_the_spike_stays_free_of_needs() -> None:
    """Each draws 300 W and needs 315 W; of 1,100 W a spike of 100 W less the 60 W that needs leave stays free: 1,060 W.

    The high class gets its 630 W, so 430 W are left for the low one, 215 W for each.
    """
    wants = wanted(1100.0, np.full(4, 300.0), spike_w=100.0)

    assert wants.cap_w[:2] == pytest.approx([315.0, 315.0], abs=1.0)
    assert wants.cap_w[2:] == pytest.approx([215.0, 215.0], abs=16.0)  # within the deadband of the lease


def test_a_part_of_the_budget_stays_free_of_needs_even_where_they_leave_more_than_the_spike() -> None:
    """Needs leave 60 W and the spike is 1 W, so only 10 % of 1,200 W stay free: 1,080 W, 225 W for each low device."""
    wants = wanted(1200.0, np.full(4, 300.0), 1.0, replace(RULES, reserve_least_share=0.1))

    assert wants.cap_w == pytest.approx([315.0, 315.0, 225.0, 225.0], abs=1.0)


def demand_after(*draws_w: float, first: DeviceDemand, **shown: object) -> DeviceDemand:
    row, demand = plant(), first
    for draw_w in draws_w:
        demand = needed(row, demand, replace(seen(row, np.full(4, draw_w)), **shown))  # type: ignore[arg-type]
    return demand


def test_a_device_between_two_requests_needs_what_it_needed_and_later_gives_it_back() -> None:
    worked = demand_after(*[300.0] * 60, first=ByClass(plant()).first().demand)
    assert worked.need_w == pytest.approx([315.0] * 4, abs=16.0)

    assert demand_after(*[60.0] * 4, first=worked).need_w.min() > 250.0
    assert demand_after(*[60.0] * 60, first=worked).need_w.max() <= 116.0  # its lowest limit, and the deadband


def test_a_device_that_its_limit_holds_back_is_tried_at_more() -> None:
    """It draws its limit of 200 W, so it is tried at 15 % of 400 W more."""
    known = DeviceDemand(np.full(4, 200.0), np.full(4, 200.0), np.full(4, 200.0))

    assert demand_after(200.0, first=known, limit_w=np.full(4, LEASE_W)).need_w == pytest.approx([260.0] * 4)


def test_what_a_brake_holds_down_shows_no_need() -> None:
    known = DeviceDemand(np.full(4, 300.0), np.full(4, 315.0), np.full(4, 315.0))
    slowed = np.array([True, True, False, False])

    found = demand_after(*[60.0] * 60, first=known, slowed=slowed)

    assert found.need_w[:2].tolist() == [315.0, 315.0]
    assert found.usual_w.tolist() == [315.0] * 4


def test_a_draw_that_no_device_can_have_does_not_stay_in_the_mean() -> None:
    broken = demand_after(60.0, first=ByClass(plant()).first().demand, shown_w=np.full(4, 1e300))

    assert broken.mean_w.max() <= MOST_W
    assert demand_after(60.0, first=broken, shown_w=np.full(4, np.nan)).mean_w.max() <= MOST_W


def test_bursts_of_what_is_lowered_end_at_its_new_lease_on_a_full_row() -> None:
    """1,200 W of 1,100 are drawn, so nobody may burst, and nobody above the lease that it gets now (200 W at first)."""
    wants = wanted(1100.0, np.full(4, 300.0), spike_w=160.0)

    assert wants.cap_w[2:].max() < LEASE_W
    assert wants.burst_to_w[2:].tolist() == wants.cap_w[2:].tolist()
