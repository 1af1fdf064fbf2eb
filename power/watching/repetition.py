"""Detection of meters that are stuck: a working device whose readings are the same to the last digit.

Its readings are not believed, so no cap rises on them and the device counts at the worst case of what it may hold.
Leases need none of it: it names what an operator has to repair.
"""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, all_of, any_of
from cluster.power import NEVER_S, PHASE_IDLE, PowerReadings
from power.domains.tree import Tree
from power.rules import PowerRules


@dataclass(frozen=True, slots=True, eq=False)
class Repetition:
    """Memory of the check; shape (devices,) each."""

    looked_at_w: FloatArray
    """Draw at the last check whether readings change at all."""
    looked_at_s: float
    moved: BoolArray
    """Whether a reading has differed from that since."""
    stuck: BoolArray


def no_repetition(tree: Tree) -> Repetition:
    return Repetition(np.full(tree.devices, -1.0), NEVER_S, tree.everyone, tree.nobody)


def repeated(
    before: Repetition, rules: PowerRules, readings: PowerReadings, idle_w: FloatArray, now_s: float
) -> Repetition:
    """The memory with the check whether readings change, made once per `stuck_s`: an unchanged working device is stuck.

    A device held back by its cap may well draw the same for long; believing its reading means taking it at its worst
    case.
    """
    if rules.stuck_s == 0:
        return before
    due = now_s - before.looked_at_s >= rules.stuck_s
    if not due and all_of(before.moved) and not any_of(before.stuck):
        return before
    moved = before.moved | (readings.draw_w != before.looked_at_w)
    if not due:
        return Repetition(before.looked_at_w, before.looked_at_s, moved, before.stuck & ~moved)
    works = (readings.phase != PHASE_IDLE) & (readings.draw_w > 1.1 * idle_w)
    held_back = readings.draw_w >= rules.pinned_share * readings.cap_w
    return Repetition(readings.draw_w.copy(), now_s, np.zeros_like(moved), ~moved & works & ~held_back)
