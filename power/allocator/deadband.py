"""When nothing needs deciding: bounds within which readings may move without any cap moving.

Most periods of most rows bring nothing new. These bounds are worked out once, after a step in full, and turn the next
steps into a few comparisons. They are narrower than what a step in full would ignore, never wider; only that caps are
moved at most so often while every domain is far from its budget is a rule of its own (`PowerRules.calm_look_s`).
"""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, all_of, any_of
from cluster.power import PHASE_IDLE, PowerReadings
from power.domains.tree import Tree
from power.estimation.commitments import Book
from power.rules import PowerRules

UNTIL_S = 30.0
"""After so long a step is taken in full whatever happens: what is forgotten with time shows then."""


@dataclass(frozen=True, slots=True, eq=False)
class Quiet:
    """Bounds of shape (devices,), and what else must be as it was."""

    least_draw_w: FloatArray
    most_draw_w: FloatArray
    most_cap_w: FloatArray
    budget_w: FloatArray
    far_w: FloatArray | None
    """Shape (limits,): while devices draw less through each, caps wait for the next look; None: they never wait."""
    look_s: float
    """When that is."""
    lacks: BoolArray
    """Shape (devices,): who has less than it usually needs at work, so that its work ends the waiting."""
    mean_w: tuple[FloatArray, FloatArray] | None
    """Least and most of the smoothed draws with which no cap moves; None while grants are under way."""
    until_s: float


def quiet_means_w(tree: Tree, rules: PowerRules, book: Book, need_w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bounds on smoothed draws after a step that granted nothing, when all that was granted before is obeyed."""
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
    """Whether these readings can wait for the next look, whatever they ask for. drawn_w: shape (limits,)."""
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
    """Whether these readings bring nothing that a step in full would act on. mean_w: the smoothed draws."""
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
    """Whether every device is fresh, draws what it can, and enforces what it was granted: `estimate` finds no fault."""
    at_s = readings.at_s
    return (
        all_of(readings.draw_w <= quiet.most_draw_w)
        and all_of(readings.draw_w >= quiet.least_draw_w)
        and all_of(readings.cap_w <= quiet.most_cap_w)
        and at_s.item(at_s.argmin()) >= now_s - rules.stale_s
        and at_s.item(at_s.argmax()) <= now_s + rules.control_delay_s
    )
