"""Inputs for the bounds on bursts: devices that would draw more, devices that must keep to their leases, and room."""

import numpy as np

from cluster.arrays import BoolArray, FloatArray, any_of
from cluster.power import PHASE_IDLE, PHASE_MEMORY_BOUND, PowerReadings
from power.allocator.state import Allocator
from power.bursts.burst_limits import BurstAccount, bounded
from power.bursts.headroom import room_of
from power.estimation.brake import Braking
from power.estimation.commitments import Book
from power.estimation.spike import Spikes


def with_bounds(
    allocator: Allocator,
    account: BurstAccount,
    spikes: Spikes,
    excess_w: FloatArray,
    readings: PowerReadings,
    budget_w: FloatArray,
    book: Book,
    braking: Braking,
    *,
    draw_w: FloatArray,
    drawn_w: FloatArray,
    usual_w: FloatArray,
    short: BoolArray,
    now_s: float,
) -> BurstAccount:
    """Account with bounds on bursts, based on the present draw and on the draw expected soon after caps were raised.

    excess_w, budget_w: shape (limits,): the excess over the smoothed draw to plan for, and the budgets.
    draw_w: shape (devices,), believed draw of each device; drawn_w: shape (limits,), the same through each limit.
    short: shape (devices,), devices whose targets are below their needs.
    """
    tree, rules = allocator.tree, allocator.rules
    held_back = (draw_w >= rules.pinned_share * readings.cap_w) & (readings.phase != PHASE_IDLE)
    room = room_of(spikes, excess_w, drawn_w, budget_w - allocator.fixed_w)
    soon_w = drawn_w
    if any_of(held_back):
        soon_w = tree.drawn(np.where(held_back, np.maximum(draw_w, np.minimum(book.cap_w, usual_w)), draw_w))
        room = room.less(np.maximum(soon_w - drawn_w, 0.0))
    return bounded(
        account,
        tree,
        rules,
        draw_w=draw_w,
        held_back=held_back,
        to_lease=short & (readings.phase == PHASE_MEMORY_BOUND),
        drawn_w=soon_w + allocator.fixed_w,
        room=room,
        budget_w=budget_w,
        cap_w=book.cap_w,
        usual_w=usual_w,
        braked=braking.under if braking.holds else None,
        now_s=now_s,
    )
