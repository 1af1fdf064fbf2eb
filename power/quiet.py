"""When nothing needs deciding: bounds within which readings may move without any cap moving.

Most periods of most rows bring nothing new. These bounds are worked out once after a step that granted nothing, and
turn the next steps into a few comparisons. They are narrower than what a step in full would ignore, never wider.
"""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray
from cluster.power import PowerReadings
from power.book import Book
from power.rules import PowerRules
from power.tree import Tree


@dataclass(frozen=True, slots=True, eq=False)
class Quiet:
    """Bounds of shape (devices,), and what else must be as it was."""

    least_draw_w: FloatArray
    most_draw_w: FloatArray
    least_mean_w: FloatArray
    most_mean_w: FloatArray
    cap_w: FloatArray
    budget_w: FloatArray
    until_s: float


def quiet_while(
    tree: Tree, rules: PowerRules, book: Book, need_w: FloatArray, budget_w: FloatArray, now_s: float
) -> Quiet:
    """Bounds after a step that granted nothing, when everybody is believed and obeys.

    Every 30 s a step is taken in full whatever happens: what is forgotten with time shows then.
    """
    devices = tree.table.devices
    band_w = rules.band_share * devices.max_w
    squeezed = need_w > book.cap_w + 1.0
    pinned_w = rules.pinned_share * book.cap_w
    at_floor = need_w <= devices.floor_w + 1e-9
    least_mean_w = np.where(at_floor, 0.0, (need_w - band_w) / (1 + rules.margin_share))
    return Quiet(
        least_draw_w=0.5 * devices.idle_w,
        most_draw_w=np.where(book.burst, devices.max_w, book.cap_w),
        least_mean_w=np.where(squeezed, pinned_w, least_mean_w),
        most_mean_w=np.where(squeezed, np.inf, np.minimum(need_w, pinned_w)),
        cap_w=book.cap_w,
        budget_w=budget_w,
        until_s=now_s + 30.0,
    )


def is_quiet(
    quiet: Quiet, rules: PowerRules, readings: PowerReadings, mean_w: FloatArray, budget_w: FloatArray, now_s: float
) -> bool:
    """Whether these readings bring nothing that a step in full would act on."""
    draw_w = readings.draw_w
    return (
        now_s < quiet.until_s
        and bool((mean_w <= quiet.most_mean_w).all())
        and bool((mean_w >= quiet.least_mean_w).all())
        and bool((draw_w <= quiet.most_draw_w).all())
        and bool((draw_w >= quiet.least_draw_w).all())
        and bool((readings.cap_w <= quiet.cap_w).all())
        and bool(readings.at_s.min(initial=now_s) >= now_s - rules.stale_s)
        and bool(readings.at_s.max(initial=now_s) <= now_s + rules.control_delay_s)
        and (budget_w is quiet.budget_w or bool((budget_w == quiet.budget_w).all()))
    )
