"""Deadband of the allocator: bounds within which readings may move without any cap moving.

In most periods of most rows nothing relevant changes. These bounds are computed once, after a full step, and reduce the
next steps to a few comparisons. They are narrower than what a full step would ignore, never wider. The one exception is
the interval between changes of caps while every domain is far from its budget (`PowerRules.calm_look_s`).
"""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, all_of, any_of
from cluster.power import PHASE_IDLE, PowerReadings
from power.domains.tree import Tree
from power.estimation.commitments import Book
from power.rules import PowerRules

UNTIL_S = 30.0
"""Longest interval between full steps, whatever happens, so that the effects of forgetting over time show."""


@dataclass(frozen=True, slots=True, eq=False)
class Quiet:
    """Bounds of the deadband, shape (devices,), and the other conditions under which they apply."""

    least_draw_w: FloatArray
    most_draw_w: FloatArray
    most_cap_w: FloatArray
    budget_w: FloatArray
    far_w: FloatArray | None
    """Draws below which caps wait for the next full step, shape (limits,), one for each limit; None: caps never
    wait."""
    look_s: float
    """Instant of the next full step."""
    lacks: BoolArray
    """Devices with less than they usually need while working, whose work therefore ends the waiting; shape
    (devices,)."""
    mean_w: tuple[FloatArray, FloatArray] | None
    """Least and largest smoothed draws at which no cap moves; None while grants are outstanding."""
    until_s: float


def quiet_means_w(tree: Tree, rules: PowerRules, book: Book, need_w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bounds on smoothed draws after a step that granted nothing, when all earlier grants are obeyed."""
    devices = tree.table.devices
    band_w = rules.band_share * devices.max_w
    squeezed = need_w > book.cap_w + 1.0
    pinned_w = rules.pinned_share * book.cap_w
    at_floor = need_w <= devices.floor_w + 1e-9
    least_w = np.where(at_floor, 0.0, (need_w - band_w) / (1 + rules.margin_share))
    return np.where(squeezed, pinned_w, least_w), np.where(squeezed, np.inf, np.minimum(need_w, pinned_w))


def may_wait(
    quiet: Quiet, rules: PowerRules, readings: PowerReadings, drawn_w: FloatArray, budget_w: FloatArray, now_s: float
) -> bool:
    """Whether these readings can wait for the next full step, whatever need they show. drawn_w: shape (limits,)."""
    return (
        quiet.far_w is not None
        and now_s < quiet.look_s
        and all_of(drawn_w < quiet.far_w)
        and not any_of(quiet.lacks & (readings.phase != PHASE_IDLE))
        and all_of(budget_w == quiet.budget_w)
        and in_order(quiet, rules, readings, now_s)
    )


def rests(
    quiet: Quiet, rules: PowerRules, readings: PowerReadings, mean_w: FloatArray, budget_w: FloatArray, now_s: float
) -> bool:
    """Whether a full step would ignore these readings. mean_w: the smoothed draws."""
    if quiet.mean_w is None or now_s >= quiet.until_s:
        return False
    least_w, most_w = quiet.mean_w
    return (
        all_of(mean_w <= most_w)
        and all_of(mean_w >= least_w)
        and all_of(budget_w == quiet.budget_w)
        and in_order(quiet, rules, readings, now_s)
    )


def in_order(quiet: Quiet, rules: PowerRules, readings: PowerReadings, now_s: float) -> bool:
    """Whether every reading is fresh and possible and every grant enforced, so that `estimate` would find no fault."""
    at_s = readings.at_s
    return (
        all_of(readings.draw_w <= quiet.most_draw_w)
        and all_of(readings.draw_w >= quiet.least_draw_w)
        and all_of(readings.cap_w <= quiet.most_cap_w)
        and at_s.item(at_s.argmin()) >= now_s - rules.stale_s
        and at_s.item(at_s.argmax()) <= now_s + rules.control_delay_s
    )
