"""Admission: the floors of all admitted devices must fit every budget; placement receives the remaining headroom."""

from collections.abc import Mapping

import numpy as np

from cluster.arrays import FloatArray
from cluster.plans import Reason
from power.control.state import Allocator, AllocatorState
from power.domains.tree import Tree, reach_of

LEAST_OVER_W = 1e-6
"""Rounding error of sums; smaller excesses do not count."""


def floors_w(tree: Tree) -> FloatArray:
    """Power at each limit, shape (limits,), with every device at its useful floor and everything else at its worst
    case.

    This is the draw when every lease has ended, so a budget must carry it whatever fails. The floor of a device that
    opted out is its highest limit.
    """
    devices = tree.table.devices
    opted_out_w = np.maximum(devices.max_w, devices.default_w)
    return tree.other_w + tree.through(tree.burden * np.where(devices.managed, devices.floor_w, opted_out_w))


def objections_to_floors(tree: Tree) -> Mapping[str, Reason]:
    """Domain → why caps alone cannot keep the admitted devices within budget; domains where they can are omitted."""
    over_w = floors_w(tree) - tree.budget_w
    return {
        tree.table.domains.names[int(tree.limit[limit])]: Reason(
            "FloorsOverBudget",
            f"at their floors its devices would draw {over_w[limit]:.0f} W over its budget, which no cap can prevent",
            {"over_w": float(over_w[limit]), "budget_w": float(tree.budget_w[limit])},
        )
        for limit in np.flatnonzero(over_w > LEAST_OVER_W).tolist()
    }


def headroom_w(allocator: Allocator, state: AllocatorState, excess_w: FloatArray | float = 0.0) -> Mapping[str, float]:
    """Domain → watts at the feed that additional work may draw in it; below 0 where the domain is short already.

    This is what the present draw and its measured spike leave at the tightest limit that the domain draws through.
    Floors of idle devices are not deducted: they were admitted with the server, and a pod that starts there draws what
    they were reserved for. Where the floors of all admitted devices do not fit, the shortfall is returned instead, so
    that nothing starts there until a server leaves or the budget grows. excess_w: shape (limits,), metered power that
    no known device or load accounts for.
    """
    tree = allocator.tree
    drawn_w = allocator.fixed_w + tree.through(tree.overhead * _leased_draw_w(tree, state))
    left_w = tree.budget_w - excess_w - drawn_w - state.spike_w
    lacking_w = tree.budget_w - floors_w(tree)
    left_w = np.where(lacking_w < -LEAST_OVER_W, np.minimum(left_w, lacking_w), left_w)
    share = reach_of(tree.table)[:, tree.limit]
    with np.errstate(divide="ignore", invalid="ignore"):
        through = np.where(share > 0, left_w / share, np.inf)
    least = through.min(axis=1, initial=np.inf)
    names = tree.table.domains.names
    return {names[row]: float(least[row]) for row in np.flatnonzero(np.isfinite(least)).tolist()}


def _leased_draw_w(tree: Tree, state: AllocatorState) -> FloatArray:
    """Draw of leased devices. Those that opted out are already in the fixed part at their worst case."""
    return np.where(tree.table.devices.managed, state.estimate.draw_w, 0.0)
