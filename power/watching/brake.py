"""Detection of a hardware power brake: most working devices draw far less than usual on a row that was full just
before.

The brake of a row holds all clocks down for a minute, and nothing reports it to the allocator. Meanwhile the row looks
calm: needs seem small, there is room for every burst, and credit is restored quickly. When it is released, all devices
return at once to their working draw, with bursts on top, and the brake engages again. So while it is engaged, nothing
is learnt from the draws that it holds down, and no device may exceed its lease. Afterwards bursts are allowed again
gradually, as room permits.
"""

from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import BoolArray, FloatArray, any_of
from cluster.power import NEVER_S
from power.domains.tree import Tree

_FULL_SHARE = 0.95
"""Fraction of the budget below which no brake can be engaged: a brake engages at the budget, so the row must have been
near it."""
_LASTS_S = 300.0
"""Longest time after the row was full for which a brake may be assumed. Brakes hold for a minute; a lower draw that
lasts longer is the present work."""
_SLOWED_SHARE = 0.75
"""Fraction of a device's working draw under its lease below which it is held down. A brake leaves less than half."""
_MOST_SHARE = 0.5
"""Fraction of the working draw of all active devices that must be held down at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Braking:
    """Brakes that are engaged, and the devices that they hold down."""

    full_s: FloatArray
    """Instant when the draw was last near the budget, shape (limits,)."""
    held_s: FloatArray
    """Instant when most of the draw was last held down, shape (limits,)."""
    holding: BoolArray
    """Limits whose brake is engaged, shape (limits,)."""
    under: BoolArray
    """Devices that draw through a limit whose brake is engaged, shape (devices,)."""
    slowed: BoolArray
    """Those of them that are held down by it, shape (devices,)."""
    holds: bool


def no_brake(tree: Tree) -> Braking:
    never_s, nowhere = np.full(tree.limits, NEVER_S), np.zeros(tree.limits, dtype=bool)
    return Braking(never_s, never_s, nowhere, tree.nobody, tree.nobody, holds=False)


def is_watched(braking: Braking, now_s: float) -> bool:
    """Whether a brake is or may be engaged: some domain was full a short while ago."""
    return braking.holds or any_of(braking.full_s > now_s - _LASTS_S)


def is_full(drawn_w: FloatArray, budget_w: FloatArray) -> BoolArray:
    """Limits so near to their budgets that a brake may engage; shape (limits,)."""
    full: BoolArray = drawn_w >= _FULL_SHARE * budget_w
    return full


def watched(
    before: Braking,
    tree: Tree,
    *,
    draw_w: FloatArray,
    at_work_w: FloatArray,
    drawn_w: FloatArray,
    budget_w: FloatArray,
    let_go_s: float,
    now_s: float,
) -> Braking:
    """The brakes detected now, each limit separately.

    at_work_w: shape (devices,), working draw of each device under its lease; 0 for idle devices.
    drawn_w, budget_w: shape (limits,). let_go_s: time for which a brake counts as engaged after it was last detected,
    until the draws that it held down are visible.
    """
    full = is_full(drawn_w, budget_w)
    full_s = np.where(full, now_s, before.full_s) if any_of(full) else before.full_s
    lately = full_s > now_s - _LASTS_S
    if not (lately.any() or before.holds):
        return before if full_s is before.full_s else replace(before, full_s=full_s)
    slowed = draw_w < _SLOWED_SHARE * at_work_w
    low_w, all_w = tree.through(np.where(slowed, at_work_w, 0.0)), tree.through(at_work_w)
    there = lately & (low_w > _MOST_SHARE * all_w)
    held_s = np.where(there, now_s, before.held_s)
    holding = now_s - held_s <= let_go_s
    return Braking(
        full_s, held_s, holding, _through(tree, holding), slowed & _through(tree, there), holds=any_of(holding)
    )


def _through(tree: Tree, which: BoolArray) -> BoolArray:
    """Devices that draw through any of these limits. which: shape (limits,)."""
    made = np.zeros(tree.devices, dtype=bool)
    made[tree.path_device[which[tree.path_limit]]] = True
    return made
