"""Water-filling: power distributed level by level to devices until the limits that they draw through are full."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, all_of
from power.tree import Tree

_FULL_W = 1e-6
"""Room below which a limit counts as full: a microwatt, the residue of rounding."""


def pour(tree: Tree, width_w: FloatArray, level: IntArray, room_w: FloatArray) -> FloatArray:
    """Watts of cap that each device gets, shape (devices,).

    width_w, level: shape (devices, pieces): each device requests pieces of power, each at a level. Lower levels are
    served first and completely. In the first level that does not fit, every device below a full limit gets the same
    fraction of its piece, and nothing of later levels.
    room_w: shape (levels, limits): what the limit may carry when this level has been served, in watts at the limit.

    On a tree this serves each level as far as any other method could, because the sets that a tree limits are nested.
    Where racks are fed twice it never exceeds a limit, but may leave a little of one unused.
    """
    all_w: FloatArray = width_w.sum(axis=1)
    if all_of(tree.at_worst(all_w) <= room_w.min(axis=0)):  # the usual case of a row that is not full
        return all_w
    cell = level[tree.path_device] * tree.limits + tree.path_limit[:, None]
    burden = (tree.burden[tree.path_device] * tree.path_share)[:, None]

    def least(of: FloatArray) -> FloatArray:
        """Least value among the limits of each piece, shape (devices, pieces); 1 where it has none."""
        if tree.only_share is not None:  # a tenth of the time
            return np.asarray(np.minimum(of.ravel()[cell], 1.0))
        made = np.ones(width_w.shape)
        np.minimum.at(made, tree.path_device, of.ravel()[cell])
        return made

    got, left_w = np.zeros(tree.devices), width_w
    for _ in range(tree.limits + 1):  # each turn fills at least one limit, and others then get what it cannot carry
        free_w = room_w - tree.at_worst(got)
        left_w = left_w * least((free_w > _FULL_W).astype(np.float64))
        if not left_w.any():
            break
        load = (left_w[tree.path_device] * burden).ravel()
        asked = np.asarray(np.bincount(cell.ravel(), load, room_w.size), dtype=np.float64).reshape(room_w.shape)
        before = np.cumsum(asked, axis=0) - asked
        given_w = left_w * least(np.maximum((free_w - before) / np.maximum(asked, _FULL_W), 0.0))
        got, left_w = got + given_w.sum(axis=1), left_w - given_w
    return got


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Order of service: the useful floors class by class, the needs class by class, then, where leases are hard limits,
    spare power."""

    level: IntArray
    """Level of each piece, shape (devices, pieces)."""
    keeps_reserve: BoolArray
    """Levels that must leave the reserve free where bursts are allowed, shape (levels, 1): all but the useful floors of
    the first class. Under hard limits none: no device draws more than its lease."""


def levels_of(tree: Tree, bursts: BoolArray) -> Levels:
    ranks = int(tree.rank.max(initial=-1)) + 1
    order = np.arange(2 * ranks + 1)
    level = np.column_stack([tree.rank, ranks + tree.rank, np.full(tree.devices, 2 * ranks)])
    return Levels(level, ((order >= 1) & bursts.any())[:, None])


def widths_w(
    tree: Tree, base_w: FloatArray, need_w: FloatArray, idle: BoolArray, bursts: BoolArray, governed: BoolArray
) -> FloatArray:
    """Watts of each piece above `base_w`, shape (devices, pieces), the input of `pour`.

    A device that may burst gets no spare power, and no floor while idle: a burst carries it from its idle draw until
    its lease is raised. Power held by an idle device must first be seen to be released, which takes three control
    delays; unallocated power can be granted at once.
    """
    floors_w, rests = tree.table.devices.floor_w, idle & bursts
    floor_w = np.where(rests, base_w, np.maximum(floors_w, base_w))
    need_w = np.maximum(np.where(rests, need_w - floors_w + base_w, need_w), floor_w)
    spare_w = np.where(bursts, 0.0, tree.table.devices.max_w - need_w)
    return np.column_stack([floor_w - base_w, need_w - floor_w, spare_w]) * governed[:, None]
