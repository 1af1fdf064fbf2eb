"""Who may draw at all: the floors of all that is admitted must fit every budget; placement is told what is left."""

from collections.abc import Mapping

import numpy as np

from cluster.arrays import FloatArray
from cluster.plans import Reason
from power.allocator.state import Allocator, AllocatorState
from power.domains.tree import Tree, reach_of

LEAST_OVER_W = 1e-6
"""Sums of floats differ by less."""


def floors_w(tree: Tree) -> FloatArray:
    """Watts at each limit, shape (limits,), with every device at its useful floor and the rest at its worst case.

    This is what is left when every lease has ended, so it is what a budget must carry whatever fails. A device that
    opted out has no floor but its highest limit.
    """
    devices = tree.table.devices
    opted_out_w = np.maximum(devices.max_w, devices.default_w)
    return tree.other_w + tree.through(tree.burden * np.where(devices.managed, devices.floor_w, opted_out_w))


def objections_to_floors(tree: Tree) -> Mapping[str, Reason]:
    """Domain → why what is admitted there cannot be kept safe by caps alone; those where it can are missing."""
    over_w = floors_w(tree) - tree.budget_w
    return {
        tree.table.domains.names[int(tree.limit[limit])]: Reason(
            "FloorsOverBudget",
            f"at their floors its devices would draw {over_w[limit]:.0f} W over its budget: no cap helps then",
            {"over_w": float(over_w[limit]), "budget_w": float(tree.budget_w[limit])},
        )
        for limit in np.flatnonzero(over_w > LEAST_OVER_W).tolist()
    }


def headroom_w(allocator: Allocator, state: AllocatorState, excess_w: FloatArray | float = 0.0) -> Mapping[str, float]:
    """Domain → watts at the feed that more work may begin to draw in it; below 0 where it is short already.

    What the present draw and its measured spike leave, at the tightest limit that the domain draws through. Floors of
    devices at rest take nothing from it: they were admitted with the server, and a pod that starts there draws what
    they stand for. Where the floors of all that is admitted do not fit, what they lack is told instead, so that
    nothing starts there until a server leaves or the budget grows. excess_w: shape (limits,), what meters show there
    that nothing known accounts for.
    """
    tree = allocator.tree
    drawn_w = allocator.fixed_w + tree.through(tree.overhead * _leased_draw_w(tree, state))
    left_w = tree.budget_w - excess_w - drawn_w - state.spikes.spike_w
    lacking_w = tree.budget_w - floors_w(tree)
    left_w = np.where(lacking_w < -LEAST_OVER_W, np.minimum(left_w, lacking_w), left_w)
    share = reach_of(tree.table)[:, tree.limit]
    with np.errstate(divide="ignore", invalid="ignore"):
        through = np.where(share > 0, left_w / share, np.inf)
    least = through.min(axis=1, initial=np.inf)
    names = tree.table.domains.names
    return {names[row]: float(least[row]) for row in np.flatnonzero(np.isfinite(least)).tolist()}


def _leased_draw_w(tree: Tree, state: AllocatorState) -> FloatArray:
    """Opted-out devices are in the fixed part at their worst case already."""
    return np.where(tree.table.devices.managed, state.estimate.draw_w, 0.0)
