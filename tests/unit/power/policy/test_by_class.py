"""The shipped policy: levels in their order, the spike kept free, and bursts that end lower the less room there is."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.arrays import FloatArray
from cluster.power import PHASE_IDLE, PHASE_MEMORY_BOUND
from power.control.state import allocator_of
from power.policy.by_class import ByClass, ByClassMemory, Spikes, burst_ends_w, no_demand, planned_excess_w
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
        phase=np.full(4, PHASE_MEMORY_BOUND),
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


def ends_w(
    room_in_spikes: float, prompts: float = 1.0, phase: int = PHASE_MEMORY_BOUND, draw_w: float = LEASE_W
) -> FloatArray:
    """Ends of bursts with this many measured spikes of room below the budget; every lease is 200 W."""
    row = plant()
    shown = replace(seen(row, np.full(4, draw_w)), drawn_w=np.array([BUDGET_W - room_in_spikes * SPIKE_W]))
    shown = replace(shown, phase=np.full(4, phase))
    demand = replace(no_demand(row), prompts=np.full(4, prompts))
    return burst_ends_w(row, demand, spiking(SPIKE_W), shown, np.full(4, LEASE_W))


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
def test_where_phases_alternate_bursts_end_lower_the_less_room_there_is_and_those_of_low_classes_first(
    room_in_spikes: float, high_w: float, low_w: float
) -> None:
    assert ends_w(room_in_spikes) == pytest.approx([high_w, high_w, low_w, low_w], abs=0.01)


@pytest.mark.parametrize(("prompts", "phase"), [(0.0, PHASE_MEMORY_BOUND), (0.0, PHASE_IDLE), (1.0, PHASE_IDLE)])
def test_bursts_that_may_begin_together_fit_the_room_together(prompts: float, phase: int) -> None:
    """Each of four may rise by 200 W above its lease: 400 W a class. With 600 W of room the low class gets half."""
    assert ends_w(600.0 / SPIKE_W, prompts, phase) == pytest.approx([MOST_W, MOST_W, 300.0, 300.0], abs=0.01)
    assert ends_w(200.0 / SPIKE_W, prompts, phase) == pytest.approx([300.0, 300.0, LEASE_W, LEASE_W], abs=0.01)
    assert ends_w(-1.0, prompts, phase).tolist() == [LEASE_W] * 4


def test_leases_that_are_not_drawn_are_no_room_for_bursts() -> None:
    """All draw 50 W and may draw 200 W: of 800 W of room 600 W are theirs, and 200 W are left to the high class."""
    assert ends_w(800.0 / SPIKE_W, 0.0, PHASE_IDLE, 50.0) == pytest.approx([300.0, 300.0, 200.0, 200.0], abs=0.01)


def wanted(
    budget_w: float, draw_w: FloatArray, spike_w: float, rules: PowerRules = RULES, prompts: float = 0.0
) -> Wants:
    """What the policy wants after a minute of this draw, the spike and the fraction of prompts being known."""
    row = plant(budget_w, rules)
    policy = ByClass(row)
    memory: ByClassMemory = replace(policy.first(), spikes=spiking(spike_w))
    memory = replace(memory, demand=replace(memory.demand, prompts=np.full(4, prompts)))
    for second in range(0, 60, 2):
        memory, wants = policy.wants(memory, seen(row, draw_w, float(second)))
    return wants


def test_the_low_class_gives_way_first_and_the_spike_stays_free_of_needs() -> None:
    """Each draws 300 W and needs 315 W; of 1,100 W a spike of 100 W less the margin of 60 W stays free: 1,060 W.

    The high class gets its 630 W, so 430 W are left for the low one, 215 W for each.
    """
    wants = wanted(1100.0, np.full(4, 300.0), spike_w=100.0)

    assert wants.cap_w[:2] == pytest.approx([315.0, 315.0], abs=1.0)
    assert wants.cap_w[2:] == pytest.approx([215.0, 215.0], abs=16.0)  # within the deadband of the lease


def first_wants(
    budget_w: float, shown: PolicyInput, prompts: float = 0.0, usual_w: float = 0.0, spike_w: float = 1.0
) -> Wants:
    """What a policy wants at its first step, the fraction of prompts, the usual need and the spike being known."""
    policy = ByClass(plant(budget_w))
    memory: ByClassMemory = replace(policy.first(), spikes=spiking(spike_w))
    demand = replace(memory.demand, prompts=np.full(4, prompts), usual_w=np.full(4, usual_w))
    return policy.wants(replace(memory, demand=demand), shown)[1]


@pytest.mark.parametrize(("prompts", "cap_w"), [(0.5, 250.0), (0.0, LEASE_W)])
def test_an_idle_device_whose_phases_alternate_gets_what_it_usually_needs(prompts: float, cap_w: float) -> None:
    """Its next request comes before a grant would. One that rests keeps its lease, since there is room."""
    shown = seen(plant(1250.0), np.array([300.0, 300.0, 300.0, 60.0]))
    shown = replace(shown, phase=np.array([PHASE_MEMORY_BOUND] * 3 + [PHASE_IDLE]))

    assert first_wants(1250.0, shown, prompts, usual_w=250.0).cap_w[3] == pytest.approx(cap_w, abs=1.0)


def test_where_phases_alternate_all_that_needs_leave_above_the_draw_is_margin() -> None:
    """Each draws 200 W now and usually needs 300 W: that holds the spike of 200 W, so 1,200 W of 1,300 W are granted.

    Margins of 5 % would hold 40 W of it, and leave 1,140 W.
    """
    wants = first_wants(1300.0, seen(plant(1300.0), np.full(4, 200.0)), prompts=0.5, usual_w=300.0, spike_w=200.0)

    assert wants.cap_w == pytest.approx([300.0] * 4, abs=1.0)


def test_the_same_readings_want_nothing_else() -> None:
    row = plant()
    policy = ByClass(row)
    memory, first = policy.wants(policy.first(), seen(row, np.full(4, 300.0), 0.0))

    again = policy.wants(memory, seen(row, np.full(4, 300.0), 2.0))[1]
    assert (again.cap_w.tolist(), again.burst_to_w.tolist()) == (first.cap_w.tolist(), first.burst_to_w.tolist())


def test_bursts_of_what_is_lowered_end_at_its_new_lease_on_a_full_row() -> None:
    """1,200 W of 1,100 are drawn, so nobody may burst, and nobody above the lease that it gets now (200 W at first)."""
    wants = wanted(1100.0, np.full(4, 300.0), spike_w=160.0)

    assert wants.cap_w[2:].max() < LEASE_W
    assert wants.burst_to_w[2:].tolist() == wants.cap_w[2:].tolist()


@pytest.mark.parametrize(("alternating", "share"), [(0, 1.0), (2, 1.0), (3, RULES.alternating_share)])
def test_less_of_an_excess_is_planned_for_where_most_of_the_working_draw_alternates(
    alternating: int, share: float
) -> None:
    row = plant()
    demand = replace(no_demand(row), prompts=np.where(np.arange(4) < alternating, 0.5, 0.0))

    planned_w = planned_excess_w(row, demand, spiking(SPIKE_W), seen(row, np.full(4, LEASE_W)))

    assert planned_w == pytest.approx([share * SPIKE_W])


def test_a_row_whose_phases_alternate_keeps_less_free_of_needs() -> None:
    """As above, with a spike of 140 W, of which margins hold 60 W: 80 W stay free, so the low class has 195 W each.
    Of an excess of which half is planned for 10 W stay free, so it has 230 W each.
    """
    rules = replace(RULES, alternating_share=0.5)

    steady, alternating = (wanted(1100.0, np.full(4, 300.0), 140.0, rules, prompts) for prompts in (0.0, 0.5))

    assert steady.cap_w[2:] == pytest.approx([195.0, 195.0], abs=1.0)
    assert alternating.cap_w[2:] == pytest.approx([230.0, 230.0], abs=1.0)
