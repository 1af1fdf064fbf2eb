"""A hardware brake seen from outside: most that works draws far less than it would, on a row that was full just now.

The brake of a row holds all clocks down for a minute, and nothing tells the allocator. While it holds, the row looks
calm: needs seem small, there is room for every burst, credit comes back quickly. When it lets go, all draw at once
what they draw at work, with bursts on top, and the brake is pulled again. So while it holds nothing is learnt from
what those draw that it holds down, and nobody passes its lease; afterwards bursts are let back as room allows, bit by
bit.
"""

from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import BoolArray, FloatArray, any_of
from cluster.power import NEVER_S
from power.domains.tree import Tree

_FULL_SHARE = 0.95
"""Of the budget: a brake is pulled at the budget, so a row that was never so near to it has none pulled."""
_LASTS_S = 300.0
"""So long after the row was full a brake may hold. Brakes hold for a minute; what lasts longer is what work is now."""
_SLOWED_SHARE = 0.75
"""Of what a device draws at work under its lease: less is held down. A brake leaves less than half."""
_MOST_SHARE = 0.5
"""Of the watts of all that work: so much must be held down at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Braking:
    """Whether a brake holds, and where."""

    full_s: FloatArray
    """Shape (limits,): when the draw was last near the budget."""
    held_s: FloatArray
    """Shape (limits,): when most was last held down."""
    holding: BoolArray
    """Shape (limits,): whose brake holds."""
    under: BoolArray
    """Shape (devices,): who draws through a limit whose brake holds."""
    slowed: BoolArray
    """Shape (devices,): who of them is held down by it."""
    holds: bool


def no_brake(tree: Tree) -> Braking:
    never_s, nowhere = np.full(tree.limits, NEVER_S), np.zeros(tree.limits, dtype=bool)
    return Braking(never_s, never_s, nowhere, tree.nobody, tree.nobody, holds=False)


def is_watched(braking: Braking, now_s: float) -> bool:
    """Whether a brake holds, or may hold: some domain was full a short while ago."""
    return braking.holds or any_of(braking.full_s > now_s - _LASTS_S)


def is_full(drawn_w: FloatArray, budget_w: FloatArray) -> BoolArray:
    """Which limits are so near to their budgets that a brake may be pulled; shape (limits,)."""
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
    """What is seen of brakes now, each limit by itself.

    at_work_w: shape (devices,), what each draws at work under its lease; 0 for who has no work.
    drawn_w, budget_w: shape (limits,). let_go_s: so long after it was last seen a brake counts as holding, until all
    that it held down shows.
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
