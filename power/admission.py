"""Who may draw at all: the floors of all that is admitted must fit every budget; placement is told what is left."""

from collections.abc import Mapping

import numpy as np

from cluster.arrays import FloatArray
from cluster.plans import Reason
from power.allocator import Allocator, AllocatorState
from power.tree import Tree, reach_of


def floors_w(tree: Tree) -> FloatArray:
    """Watts at each limit, shape (limits,), with every device at its useful floor and the rest at its worst case.

    This is what is left when every lease has ended, so it is what a budget must carry whatever fails. A device that
    opted out has no floor but its highest limit.
    """
    devices = tree.table.devices
    opted_out_w = np.maximum(devices.max_w, devices.default_w)
    return tree.other_w + tree.through(tree.burden * np.where(devices.managed, devices.floor_w, opted_out_w))


def objections_to_floors(tree: Tree) -> tuple[Reason, ...]:
    """Why what is admitted already cannot be kept safe by caps alone; empty when it can."""
    over_w = floors_w(tree) - tree.budget_w
    return tuple(_over(tree, limit, float(over_w[limit])) for limit in np.flatnonzero(over_w > 1e-6).tolist())


def objection_to_more(tree: Tree, domain: str, floor_w: float) -> Reason | None:
    """Why so many watts more, as a floor at the feed, may not be drawn in this domain; None when they may.

    floor_w: of a server: its devices at their useful floors with overshoot and overhead, and everything else in it at
    its worst case. Of a workload: what its devices' floors rise by.
    """
    row = tree.table.domains.names.row(domain)
    if row is None:
        return Reason("NotFound", f"there is no power domain {domain}")
    share = reach_of(tree.table)[row, tree.limit]
    over_w = floors_w(tree) + share * floor_w - tree.budget_w
    passed = np.flatnonzero((over_w > 1e-6) & (share > 0))
    return _over(tree, int(passed[0]), float(over_w[passed[0]])) if len(passed) else None


def _over(tree: Tree, limit: int, over_w: float) -> Reason:
    name = tree.table.domains.names[int(tree.limit[limit])]
    words = f"at their floors {name}'s devices would draw {over_w:.0f} W over its budget: no cap helps then"
    return Reason("FloorsOverBudget", words, {"over_w": over_w, "budget_w": float(tree.budget_w[limit])})


def headroom_w(allocator: Allocator, state: AllocatorState) -> Mapping[str, float]:
    """Domain → watts at the feed that placement may still plan with in it; below 0 where it is short already.

    The lesser of what floors leave and what the present draw and its measured spike leave, at the tightest limit that
    the domain draws through.
    """
    tree = allocator.tree
    drawn_w = allocator.fixed_w + tree.through(tree.overhead * _leased_draw_w(tree, state))
    left_w = tree.budget_w - np.maximum(floors_w(tree), drawn_w + state.spikes.spike_w)
    share = reach_of(tree.table)[:, tree.limit]
    with np.errstate(divide="ignore", invalid="ignore"):
        through = np.where(share > 0, left_w / share, np.inf)
    least = through.min(axis=1, initial=np.inf)
    names = tree.table.domains.names
    return {names[row]: float(least[row]) for row in np.flatnonzero(np.isfinite(least)).tolist()}


def _leased_draw_w(tree: Tree, state: AllocatorState) -> FloatArray:
    """Opted-out devices are in the fixed part at their worst case already."""
    return np.where(tree.table.devices.managed, state.estimate.draw_w, 0.0)
