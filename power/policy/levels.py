"""Levels of power: what each device requests, piece by piece, and in which order the pieces are served."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from power.domains.tree import Tree


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Order of service: the useful floors class by class, the needs class by class, then spare power.

    Spare power goes first up to what a device needs while working, then to its highest limit.
    """

    count: int
    level: IntArray
    """Level of each piece, shape (devices, 4)."""
    keeps_reserve: BoolArray
    """Levels that must leave the reserve free where bursts are allowed, shape (count, 1). These are the needs, which
    are what will be drawn, and the useful floors of all but the first class, which a row gives up before it exceeds its
    budget for a moment. Under hard limits none: no device draws more than its lease."""


def levels_of(tree: Tree, bursts: BoolArray) -> Levels:
    ranks = int(tree.rank.max(initial=-1)) + 1
    spare = np.full(tree.devices, 2 * ranks)
    level = np.column_stack((tree.rank, ranks + tree.rank, spare, spare + 1))
    order = np.arange(2 * ranks + 2)
    return Levels(len(order), level, ((order >= 1) & (order < 2 * ranks) & bursts.any())[:, None])


def widths_w(
    tree: Tree,
    base_w: FloatArray,
    need_w: FloatArray,
    usual_w: FloatArray,
    idle: BoolArray,
    bursts: BoolArray,
    governed: BoolArray,
) -> FloatArray:
    """Watts of each piece above `base_w`, shape (devices, 4), the input of `pour`.

    A device that may burst gets no spare power, and no floor while idle: a burst carries it from its idle draw until
    its lease is raised. Power held by an idle device must first be seen to be released, which takes three control
    delays; unallocated power can be granted at once.
    """
    devices = tree.table.devices
    floor_w = np.where(idle & bursts, base_w, np.maximum(devices.floor_w, base_w))
    need_w = np.maximum(np.where(idle & bursts, need_w - devices.floor_w + base_w, need_w), floor_w)
    usual_w = np.where(bursts, need_w, np.maximum(usual_w, need_w))
    ends_w = (floor_w, need_w, usual_w, np.where(bursts, need_w, devices.max_w))
    return np.diff(np.column_stack(ends_w), axis=1, prepend=base_w[:, None]) * governed[:, None]
