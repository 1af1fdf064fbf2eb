"""Water-filling: power distributed level by level to devices until the limits that they draw through are full."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from power.tree import Tree

_FULL_W = 1e-6
"""Room below which a limit counts as full: a microwatt, the residue of rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class Pouring:
    """The parts of a tree that water-filling needs, arranged once."""

    tree: Tree
    levels: int
    only_limit: IntArray | None
    """The only limit of each device, shape (devices,), where every device has exactly one; else None."""
    only_burden: FloatArray
    """Worst-case watts at that limit per watt of cap, shape (devices,)."""


def pouring_of(tree: Tree, levels: int) -> Pouring:
    single = len(tree.path_device) == tree.devices and len(set(tree.path_device.tolist())) == tree.devices
    only = tree.path_limit[np.argsort(tree.path_device)] if single else None
    share = np.ones(tree.devices)
    share[tree.path_device] = tree.path_share
    return Pouring(tree, levels, only, tree.burden * share)


def pour(pouring: Pouring, width_w: FloatArray, level: IntArray, room_w: FloatArray) -> FloatArray:
    """Watts of cap that each device gets, shape (devices,).

    width_w, level: shape (devices, pieces): each device requests pieces of power, each at a level. Lower levels are
    served first and completely. In the first level that does not fit, every device below a full limit gets the same
    fraction of its piece, and nothing of later levels.
    room_w: shape (levels, limits): what the limit may carry when this level has been served, in watts at the limit.

    On a tree this serves each level as far as any other method could, because the sets that a tree limits are nested.
    Where racks are fed twice it never exceeds a limit, but may leave a little of one unused.
    """
    tree, only = pouring.tree, pouring.only_limit
    if only is not None:  # no device draws through two limits: all limits are solved independently and at once
        cell = level * tree.limits + only[:, None]
        load = width_w * pouring.only_burden[:, None]
        served = _served(_asked(pouring, cell, load), room_w)
        return np.asarray((width_w * served.ravel()[cell]).sum(axis=1), dtype=np.float64)
    # Limits overlap: all devices are raised together to the level where the first limit is full; those below that limit
    # stop, and the rest continue.
    got = np.zeros(tree.devices)
    left_w = width_w.copy()
    rows = np.arange(tree.devices)[:, None]
    for _ in range(pouring.levels + tree.limits):
        reached, share, full = _first_full(pouring, left_w, level, room_w - tree.through(tree.burden * got))
        part = np.where(level < reached, 1.0, np.where(level == reached, share, 0.0))
        given = left_w * part
        got += given.sum(axis=1)
        left_w -= given
        if not full.any():
            return got
        stopped = np.zeros(tree.devices, dtype=bool)
        stopped[tree.path_device[full[tree.path_limit]]] = True
        left_w[rows[stopped]] = 0.0
    return got


def _asked(pouring: Pouring, cell: IntArray, load_w: FloatArray) -> FloatArray:
    """Watts of each level at each limit, shape (levels, limits)."""
    carried = np.bincount(cell.ravel(), load_w.ravel(), pouring.levels * pouring.tree.limits)
    return np.asarray(carried, dtype=np.float64).reshape(pouring.levels, -1)


def _served(asked: FloatArray, room_w: FloatArray) -> FloatArray:
    """Fraction of each level that fits each limit, shape (levels, limits)."""
    before = np.cumsum(asked, axis=0) - asked
    return np.minimum(np.maximum((room_w - before) / np.maximum(asked, _FULL_W), 0.0), 1.0)


def _first_full(
    pouring: Pouring, left_w: FloatArray, level: IntArray, room_w: FloatArray
) -> tuple[int, float, BoolArray]:
    """The first level that does not fit everywhere, the fraction of it that does, and the limits that are full then."""
    tree = pouring.tree
    cell = level[tree.path_device] * tree.limits + tree.path_limit[:, None]
    load = left_w[tree.path_device] * (tree.burden[tree.path_device] * tree.path_share)[:, None]
    asked = _asked(pouring, cell, load)
    over = (np.cumsum(asked, axis=0) > room_w + _FULL_W) & (asked > 0)
    if not over.any():
        return pouring.levels, 0.0, np.zeros(tree.limits, dtype=bool)
    reached = int(np.argmax(over.any(axis=1)))
    share = np.where(over[reached], _served(asked, room_w)[reached], np.inf)
    return reached, float(share.min()), share <= share.min() + 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Order of service: the useful floors class by class, the needs class by class, then spare power.

    Spare power goes first up to what a device needs while working, then to its highest limit. Where all devices may
    burst there is none.
    """

    count: int
    level: IntArray
    """Level of each piece, shape (devices, pieces)."""
    keeps_reserve: BoolArray
    """Levels that must leave the reserve free where bursts are allowed, shape (count, 1). These are the needs, which
    are what will be drawn, and the useful floors of all but the first class, which a row gives up before it exceeds its
    budget for a moment. Under hard limits none: no device draws more than its lease."""


def levels_of(tree: Tree, bursts: BoolArray) -> Levels:
    ranks = int(tree.rank.max(initial=-1)) + 1
    spare, pieces = np.full(tree.devices, 2 * ranks), [tree.rank, ranks + tree.rank]
    if not bursts.all():
        pieces += [spare, spare + 1]
    order = np.arange(2 * ranks + len(pieces) - 2)
    return Levels(len(order), np.column_stack(pieces), ((order >= 1) & (order < 2 * ranks) & bursts.any())[:, None])


def widths_w(
    tree: Tree,
    levels: Levels,
    base_w: FloatArray,
    need_w: FloatArray,
    usual_w: FloatArray,
    idle: BoolArray,
    bursts: BoolArray,
    governed: BoolArray,
) -> FloatArray:
    """Watts of each piece above `base_w`, shape (devices, pieces), the input of `pour`.

    A device that may burst gets no spare power, and no floor while idle: a burst carries it from its idle draw until
    its lease is raised. Power held by an idle device must first be seen to be released, which takes three control
    delays; unallocated power can be granted at once.
    """
    floors_w, rests = tree.table.devices.floor_w, idle & bursts
    floor_w = np.where(rests, base_w, np.maximum(floors_w, base_w))
    need_w = np.maximum(np.where(rests, need_w - floors_w + base_w, need_w), floor_w)
    pieces = levels.level.shape[1]
    width_w = np.empty((tree.devices, pieces))
    np.subtract(floor_w, base_w, out=width_w[:, 0])
    np.subtract(need_w, floor_w, out=width_w[:, 1])
    if pieces > 2:
        usual_w = np.where(bursts, need_w, np.maximum(usual_w, need_w))
        np.subtract(usual_w, need_w, out=width_w[:, 2])
        np.subtract(np.where(bursts, need_w, tree.table.devices.max_w), usual_w, out=width_w[:, 3])
    return width_w * governed[:, None]
