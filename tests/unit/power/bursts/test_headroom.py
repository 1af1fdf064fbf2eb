"""Room below a budget: by the stricter of two measures, and kept free of needs."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.arrays import FloatArray
from cluster.power import PHASE_MEMORY_BOUND
from power.allocator.marginal_utility import pieces
from power.allocator.state import allocator_of, first_state
from power.allocator.step import step
from power.allocator.targets import targets
from power.bursts.headroom import Room, counted_excess_w, reserve, room_of
from power.domains.tree import tree_of
from power.estimation.estimator import Estimate, first_trust
from power.estimation.spike import Spikes, no_spikes, with_draw
from power.rules import PowerRules
from tests.builders.power import Device, no_readings, row_of

RULES = PowerRules()
TREE = tree_of(row_of([Device(f"g{n}", f"n{n}") for n in range(4)], 2000.0))


FLUTTER_W = np.concatenate([[1000.0], np.tile([900.0, 1100.0], 200)])


def spikes_of(draws_w: FloatArray, every_s: float = 2.0, within_s: float = 6.0) -> Spikes:
    spikes = no_spikes(np.zeros(1))
    for number, watts in enumerate(draws_w):
        spikes = with_draw(spikes, np.array([watts]), number * every_s, within_s, 86_400.0, RULES.mean_s)
    return spikes


def test_a_draw_that_flutters_exceeds_its_smoothed_course_by_half_of_what_it_rises() -> None:
    flutter = spikes_of(FLUTTER_W)

    assert flutter.spike_w == pytest.approx([200.0])
    assert flutter.excess_w == pytest.approx([100.0], abs=25.0)
    assert flutter.smooth_w == pytest.approx([1000.0], abs=25.0)


def test_a_draw_that_climbs_exceeds_its_smoothed_course_by_more_than_it_rises() -> None:
    climb = spikes_of(np.concatenate([np.full(20, 500.0), 500.0 + 50.0 * np.arange(20)]))

    assert climb.spike_w == pytest.approx([150.0])  # 50 W in 2 s, 150 W in 6
    assert climb.excess_w[0] > 250.0


@pytest.mark.parametrize(
    "draws_w", [np.tile([900.0, 1100.0], 50), 500.0 + 10.0 * np.arange(100)], ids=["flutters", "climbs"]
)
def test_several_limits_are_measured_like_one_alone(draws_w: FloatArray) -> None:
    alone, together = spikes_of(draws_w), no_spikes(np.zeros(2))
    for number, watts in enumerate(draws_w):
        both = np.array([watts, 2 * watts])
        together = with_draw(together, both, number * 2.0, 6.0, 86_400.0, RULES.mean_s)

    for name in ("spike_w", "excess_w", "smooth_w"):
        assert getattr(together, name) == pytest.approx(getattr(alone, name)[0] * np.array([1.0, 2.0]))


def test_the_room_is_told_by_the_sharper_measure() -> None:
    """1,900 W may be drawn. Now it is 1,100 W, a peak of the flutter, whose middle is 1,000 W."""
    flutter = spikes_of(FLUTTER_W)
    excess_w = flutter.excess_w

    room = room_of(flutter, excess_w, np.array([1100.0]), np.array([1900.0]))

    assert room.spike_w == pytest.approx(excess_w)
    assert room.free_w == pytest.approx(1900.0 - flutter.smooth_w)
    climb = spikes_of(500.0 + 50.0 * np.arange(20))
    assert room_of(climb, climb.excess_w, np.array([1450.0]), np.array([1900.0])).free_w == pytest.approx([450.0])


def test_before_anything_was_measured_the_draw_alone_tells_the_room() -> None:
    assert room_of(no_spikes(np.zeros(1)), np.zeros(1), np.array([1500.0]), np.array([1900.0])).free_w == [400.0]


def test_what_is_about_to_be_drawn_leaves_less_room() -> None:
    assert Room(np.array([400.0]), np.array([100.0])).less(np.array([150.0])).beyond(2.0).tolist() == [50.0]


@pytest.mark.parametrize(("alternating", "share"), [(0, 1.0), (2, 1.0), (3, RULES.alternating_share)])
def test_less_of_an_excess_counts_where_most_that_works_alternates(alternating: int, share: float) -> None:
    flutter = spikes_of(FLUTTER_W)
    seen = replace(no_readings(4, 5), draw_w=np.full(4, 250.0), phase=np.full(4, PHASE_MEMORY_BOUND))
    prompts = np.where(np.arange(4) < alternating, 0.5, 0.0)

    counted = counted_excess_w(TREE, RULES, flutter, prompts, seen)

    assert counted == pytest.approx(share * flutter.excess_w)


SPIKE_W, EXCESS_W = 200.0, 300.0


def reserve_of(need_w: float, draw_w: float, rise_w: float = SPIKE_W) -> float:
    """Of four devices that all draw and need the same."""
    spikes = Spikes((), np.array([rise_w]), np.array([1.5 * rise_w]))
    draws_w, needs_w = np.full(4, draw_w), np.full(4, need_w)
    kept_w = reserve(
        TREE,
        RULES,
        spikes,
        spikes.excess_w,
        draw_w=draws_w,
        mean_w=draws_w,
        need_w=needs_w,
    )
    return float(kept_w[0])


def test_present_needs_leave_a_spike_and_more_than_that_less_their_own_margin() -> None:
    """The margin is 5 % of the 800 W that are drawn."""
    assert reserve_of(need_w=210.0, draw_w=200.0) == pytest.approx(RULES.reserve_spikes * SPIKE_W - 40.0)
    assert RULES.reserve_spikes > 1


def test_what_a_device_needs_and_does_not_get_is_no_room_for_a_rise() -> None:
    assert reserve_of(need_w=400.0, draw_w=200.0) == reserve_of(need_w=210.0, draw_w=200.0)


def test_the_reserve_has_an_end() -> None:
    assert reserve_of(need_w=100.0, draw_w=100.0, rise_w=1500.0) == pytest.approx(RULES.reserve_most_share * 2000.0)


def test_a_controller_that_starts_in_a_full_hour_does_not_take_the_row_for_one_that_never_rises() -> None:
    allocator = allocator_of(row_of([Device(f"g{n}", f"n{n}") for n in range(4)], 2000.0), RULES)

    assert first_state(allocator).spikes.spike_w == pytest.approx([RULES.first_spike_share * 2000.0])


HARD = replace(RULES, burst_share=0.0)


@pytest.mark.parametrize(
    ("rules", "reserve_w", "low_w"),
    [(RULES, 0.0, 200.0), (RULES, 100.0, 150.0), (RULES, 200.0, 100.0), (RULES, 300.0, 100.0), (HARD, 300.0, 200.0)],
)
def test_on_a_row_that_is_full_at_its_floors_those_of_low_classes_give_way_to_the_reserve(
    rules: PowerRules, reserve_w: float, low_w: float
) -> None:
    """Two devices of each class, floors of 200 W, lowest limits of 100 W, a budget for the floors and no more. Under
    hard limits no device draws more than its lease, and nothing is reserved.
    """
    devices = [Device(f"g{n}", f"n{n}", power_class="high" if n < 2 else "low") for n in range(4)]
    allocator = allocator_of(row_of(devices, 800.0), rules)
    need_w, phase = np.full(4, 400.0), np.full(4, PHASE_MEMORY_BOUND)
    nobody = np.zeros(4, dtype=np.bool_)
    seen = Estimate(need_w, need_w, ~nobody, np.zeros(4, dtype=np.int64), clean=True)
    width_w, level = pieces(allocator.appetite, need_w, need_w, phase, np.zeros(4))

    target_w = targets(
        allocator, first_trust(allocator.tree), seen, width_w, level, np.array([800.0]), np.array([reserve_w])
    )

    assert target_w == pytest.approx([200.0, 200.0, low_w, low_w], abs=1.0)


def test_under_hard_limits_nothing_is_kept_from_those_who_need_it() -> None:
    """All have risen together, as after a restart of the controller, and all want more than there is."""
    rules = PowerRules(stuck_s=0.0, burst_share=0.0)
    allocator = allocator_of(row_of([Device(f"g{n}", f"n{n}", floor_w=100.0) for n in range(4)], 1200.0), rules)
    state, cap_w, sequence = first_state(allocator), np.full(4, 100.0), np.full(4, -1)
    for second in range(0, 120, 2):
        readings = replace(
            allocator.tree.table.readings,
            at_s=np.full(4, float(second)),
            draw_w=np.minimum(cap_w, 390.0),
            cap_w=cap_w,
            sequence=sequence,
            phase=np.full(4, PHASE_MEMORY_BOUND),
        )
        state, grants = step(allocator, state, readings, float(second))
        cap_w, sequence = grants.cap_w, grants.sequence

    assert state.spikes.spike_w[0] > 0.1 * 1200.0
    assert allocator.tree.at_worst(cap_w)[0] > 0.97 * 1200.0
