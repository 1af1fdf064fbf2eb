"""What a step needs to bound bursts: who would draw more, who is to keep to its lease, and how much room there is."""

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
    """Bounds on bursts by what is drawn, or is about to be drawn by those that were just given more.

    excess_w, budget_w: shape (limits,): the excess over the smoothed draw that is to be counted on, and the budgets.
    draw_w: shape (devices,), what is believed of each; drawn_w: shape (limits,), what these are through each limit.
    short: shape (devices,), whose targets are below their needs.
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
