"""The shipped policy: levels in their order, room for swings kept free, and bursts that fit the room together."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.arrays import FloatArray
from cluster.power import PHASE_COMPUTE_BOUND, PHASE_IDLE, PHASE_MEMORY_BOUND
from power.control.state import allocator_of
from power.policy.by_class import ByClass, ByClassMemory, burst_ends_w
from power.policy.interface import Plant, PolicyInput, Wants
from power.rules import PowerRules
from tests.builders.power import Device, row_of

RULES = PowerRules(spike_swings=1.0, swing_memory_s=1e9)
LEASE_W, MOST_W, FLOOR_W, BUDGET_W, SWING_W = 200.0, 400.0, 150.0, 2000.0, 100.0


def plant(budget_w: float = BUDGET_W, rules: PowerRules = RULES) -> Plant:
    devices = [Device(f"g{n}", f"n{n}", "high" if n < 2 else "low", floor_w=FLOOR_W) for n in range(4)]
    return allocator_of(row_of(devices, budget_w), rules).plant


def seen(of: Plant, draw_w: FloatArray) -> PolicyInput:
    yes = np.ones(4, dtype=np.bool_)
    return PolicyInput(
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


def known(of: Plant, prompts: float, swing_w: float) -> ByClassMemory:
    """A memory in which the fraction of prompts and the swing of the draw are known."""
    first = ByClass(of).first()
    swings_w = np.array([swing_w])
    return replace(first, prompts=np.full(4, prompts), swing_w=swings_w, spike_w=of.rules.spike_swings * swings_w)


def ends_w(
    room_w: float, prompts: float = 1.0, phase: int = PHASE_COMPUTE_BOUND, draw_w: float = LEASE_W
) -> list[float]:
    """Ends of bursts with this room below the budget; every lease is 200 W."""
    row = plant()
    shown = replace(seen(row, np.full(4, draw_w)), drawn_w=np.array([BUDGET_W - room_w]), phase=np.full(4, phase))
    found: list[float] = burst_ends_w(row, known(row, prompts, SWING_W), shown, np.full(4, LEASE_W)).tolist()
    return found


@pytest.mark.parametrize(
    ("room_w", "high_w", "low_w"),
    [
        (1100.0, MOST_W, MOST_W),  # a swing for the high class, ten for the low one
        (600.0, MOST_W, 300.0),
        (50.0, 300.0, LEASE_W),
        (-1.0, LEASE_W, LEASE_W),
    ],
)
def test_where_phases_alternate_bursts_need_some_swings_of_room(room_w: float, high_w: float, low_w: float) -> None:
    assert ends_w(room_w) == pytest.approx([high_w, high_w, low_w, low_w])


@pytest.mark.parametrize(("prompts", "phase"), [(0.0, PHASE_COMPUTE_BOUND), (0.0, PHASE_IDLE), (1.0, PHASE_IDLE)])
def test_bursts_that_may_begin_together_fit_the_room_together(prompts: float, phase: int) -> None:
    """Each of four may rise by 200 W above its lease: 400 W a class. With 600 W of room the low class gets half."""
    assert ends_w(600.0, prompts, phase) == pytest.approx([MOST_W, MOST_W, 300.0, 300.0])
    assert ends_w(200.0, prompts, phase) == pytest.approx([300.0, 300.0, LEASE_W, LEASE_W])
    assert ends_w(-1.0, prompts, phase) == [LEASE_W] * 4


def of_tokens(room_w: float, limit_w: float, draw_w: float = 100.0) -> list[float]:
    """Ends of bursts while all generate tokens and draw this much under leases of 200 W and this limit."""
    row = plant()
    shown = replace(seen(row, np.full(4, draw_w)), drawn_w=np.array([BUDGET_W - room_w]), limit_w=np.full(4, limit_w))
    found: list[float] = burst_ends_w(row, known(row, 0.0, SWING_W), shown, np.full(4, LEASE_W)).tolist()
    return found


def test_only_some_of_those_in_token_generation_begin_a_prompt_within_a_control_delay() -> None:
    """0.35 of 600 W a class, from the draw: 315 W of room carry the high class, and half of the low one."""
    assert RULES.together_share == 0.35
    assert of_tokens(315.0, LEASE_W) == pytest.approx([MOST_W, MOST_W, 300.0, 300.0])


def test_all_that_their_leases_hold_back_draw_more_together_as_soon_as_they_may() -> None:
    """Each draws its lease and may rise by 200 W: 400 W a class. A limit that is higher still holds none back."""
    assert of_tokens(600.0, LEASE_W, LEASE_W) == pytest.approx([MOST_W, MOST_W, 300.0, 300.0])
    assert of_tokens(210.0, MOST_W, LEASE_W) == pytest.approx([MOST_W, MOST_W, 300.0, 300.0])


def test_leases_that_are_not_drawn_are_no_room_for_bursts() -> None:
    """All draw 50 W and may draw 200 W: of 800 W of room 600 W are theirs, and 200 W are left to the high class."""
    assert ends_w(800.0, 0.0, PHASE_IDLE, 50.0) == pytest.approx([300.0, 300.0, 200.0, 200.0])


def test_a_device_that_smooths_its_draw_rises_only_so_far_within_a_control_delay() -> None:
    """At 25 W/s for 2 s each rises by 50 W at most: 150 W carry the high class, and half of the low one.

    No limit of a burst is above what it counts for: it holds for seconds after the controller died.
    """
    row = plant()
    smooth = replace(row.tree.table.devices, ramp_w_per_s=np.full(4, 25.0))
    row = replace(row, tree=replace(row.tree, table=replace(row.tree.table, devices=smooth)))
    shown = replace(seen(row, np.full(4, LEASE_W)), drawn_w=np.array([BUDGET_W - 150.0]), phase=np.full(4, PHASE_IDLE))

    ends = burst_ends_w(row, known(row, 0.0, SWING_W), shown, np.full(4, LEASE_W))

    assert ends == pytest.approx([250.0, 250.0, 225.0, 225.0])


def test_a_draw_that_has_just_fallen_is_no_room_yet() -> None:
    row = plant()
    shown = replace(seen(row, np.full(4, LEASE_W)), drawn_w=np.array([800.0]), phase=np.full(4, PHASE_IDLE))
    memory = replace(known(row, 0.0, SWING_W), smooth_w=np.array([BUDGET_W]))

    assert burst_ends_w(row, memory, shown, np.full(4, LEASE_W)).tolist() == [LEASE_W] * 4


def wanted(budget_w: float, draw_w: FloatArray, spike_w: float, rules: PowerRules = RULES) -> Wants:
    """What the policy wants after a minute of this draw, the spike being known."""
    row = plant(budget_w, rules)
    policy, memory = ByClass(row), known(row, 0.0, spike_w)
    for _ in range(30):
        memory, wants = policy.wants(memory, seen(row, draw_w))
    return wants


def test_the_low_class_gives_way_first_and_the_spike_stays_free_of_needs() -> None:
    """Each draws 300 W and needs 315 W; of 1,100 W a spike of 100 W less the margin of 60 W stays free: 1,060 W.

    The high class gets its 630 W, so 430 W are left for the low one, 215 W for each.
    """
    wants = wanted(1100.0, np.full(4, 300.0), spike_w=100.0)

    assert wants.cap_w[:2] == pytest.approx([315.0, 315.0], abs=1.0)
    assert wants.cap_w[2:] == pytest.approx([215.0, 215.0], abs=16.0)  # within the deadband of the lease


@pytest.mark.parametrize(("prompts", "cap_w"), [(0.5, 250.0 * (1 + RULES.margin_share)), (0.0, LEASE_W)])
def test_an_idle_device_whose_phases_alternate_gets_what_it_draws_on_average(prompts: float, cap_w: float) -> None:
    """Its next request comes before a grant would. One that rests keeps its lease, since there is room."""
    row = plant(1250.0)
    shown = replace(seen(row, np.array([300.0, 300.0, 300.0, 60.0])), for_s=0.0)
    shown = replace(shown, phase=np.array([PHASE_MEMORY_BOUND] * 3 + [PHASE_IDLE]))
    memory = replace(known(row, prompts, 1.0), mean_w=np.full(4, 250.0))

    assert ByClass(row).wants(memory, shown)[1].cap_w[3] == pytest.approx(cap_w, abs=1.0)


def test_the_same_readings_want_nothing_else() -> None:
    row = plant()
    policy = ByClass(row)
    memory, first = policy.wants(policy.first(), seen(row, np.full(4, 300.0)))

    again = policy.wants(memory, seen(row, np.full(4, 300.0)))[1]
    assert (again.cap_w.tolist(), again.burst_to_w.tolist()) == (first.cap_w.tolist(), first.burst_to_w.tolist())


def test_bursts_of_what_is_lowered_end_at_its_new_lease_on_a_full_row() -> None:
    """1,200 W of 1,100 are drawn, so nobody may burst, and nobody above the lease that it gets now (200 W at first)."""
    wants = wanted(1100.0, np.full(4, 300.0), spike_w=160.0)

    assert wants.cap_w[2:].max() < LEASE_W
    assert wants.burst_to_w[2:].tolist() == wants.cap_w[2:].tolist()
