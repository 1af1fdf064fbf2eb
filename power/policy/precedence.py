"""Precedence of useful floors: what safety grants goes to the floors of higher classes first."""

import numpy as np

from cluster.arrays import FloatArray, any_of
from power.domains.tree import Tree
from power.rules import MEANT_W


def floors_first_w(tree: Tree, wanted_w: FloatArray, before_w: FloatArray, cap_w: FloatArray) -> FloatArray:
    """Caps in which no device rises above its useful floor while a higher class below the same limit waits for its
    floor, watts, shape (devices,); never above `cap_w`.

    before_w: caps of the last step, which nothing here lowers. A device of which less than its floor is wanted, because
    it has no work, waits for nothing.
    """
    devices = tree.table.devices
    waits = (cap_w < np.minimum(devices.floor_w, wanted_w) - MEANT_W) & devices.managed
    rises = cap_w > before_w
    if not any_of(waits) or not any_of(rises):
        return cap_w
    first = np.full(tree.limits, np.iinfo(np.int64).max)
    waiting = waits[tree.path_device]
    np.minimum.at(first, tree.path_limit[waiting], tree.rank[tree.path_device[waiting]])
    ahead = np.full(tree.devices, np.iinfo(np.int64).max)
    np.minimum.at(ahead, tree.path_device, first[tree.path_limit])
    held_back = rises & (ahead < tree.rank)
    return np.where(held_back, np.minimum(cap_w, np.maximum(devices.floor_w, before_w)), cap_w)
