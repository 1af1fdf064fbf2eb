"""Levels of power: what each device requests, piece by piece, and in which order the pieces are served."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from power.domains.tree import Tree


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
