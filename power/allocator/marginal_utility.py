"""Marginal utility of power: each device requests pieces of power, each at the level at which losing it would hurt."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.power import PHASE_IDLE
from power.allocator.speed_curves import PHASES, speed_of, steepness
from power.domains.tree import Tree

NEED_PIECES = 3
"""Number of pieces into which the range from the useful floor to the highest limit is divided."""
STEEPNESS_LEVELS = 8
"""Levels of a class's present needs, from the steepest down: each covers half a power of two of loss per watt."""
ROOM_LEVELS = 6
"""Levels of each piece of room for spikes: each covers two powers of two of expected loss."""
_STEEPEST = 4.0
"""Steepness at the first level, in speed lost per fraction of the limit removed; the published curves start at about
3."""
_ROOM_PIECES = 3


@dataclass(frozen=True, slots=True, eq=False)
class Appetite:
    """Tables that map what devices do to levels. Levels in the order in which they are served:

    the useful floors, class by class; the present needs, class by class, within a class the steepest loss per watt
    first; room above the needs, for spikes, by expected loss over all classes.
    """

    tree: Tree
    levels: int
    first_room: int
    """First level of the room for spikes."""
    knot_w: FloatArray
    """Start of each piece of need in watts, shape (devices, NEED_PIECES)."""
    knot_width_w: FloatArray
    need_level: IntArray
    """Levels of the needs, shape (phases, devices, NEED_PIECES)."""
    floor_level: IntArray
    """Level of the piece up to the useful floor, shape (phases, devices)."""
    weight: FloatArray
    """Weight of a lost second by class, shape (devices,)."""
    bursts: BoolArray
    """Devices whose leases allow bursts above them, shape (devices,)."""
    base_w: FloatArray
    """Lowest limit, which every device always has; shape (devices,)."""
    floor_w: FloatArray
    most_w: FloatArray


def appetite_of(tree: Tree, bursts: BoolArray) -> Appetite:
    """The tables of a tree.

    bursts: shape (devices,), devices whose leases allow bursts above them: when idle they need no floor to start work.
    """
    devices = tree.table.devices
    ranks = int(tree.rank.max(initial=-1)) + 1
    edges = np.linspace(devices.floor_w, devices.max_w, NEED_PIECES + 1, axis=1)
    return Appetite(
        tree=tree,
        levels=ranks * (1 + STEEPNESS_LEVELS) + _ROOM_PIECES * ROOM_LEVELS,
        first_room=ranks * (1 + STEEPNESS_LEVELS),
        knot_w=edges[:, :-1].copy(),
        knot_width_w=np.diff(edges, axis=1),
        need_level=ranks + tree.rank[None, :, None] * STEEPNESS_LEVELS + _need_levels(tree, edges),
        floor_level=_floor_levels(tree, ranks, bursts),
        weight=np.array([each.weight for each in tree.table.classes])[devices.power_class],
        bursts=bursts,
        base_w=devices.min_w,
        floor_w=devices.floor_w,
        most_w=devices.max_w,
    )


def _floor_levels(tree: Tree, ranks: int, bursts: BoolArray) -> IntArray:
    """Levels of the floors, shape (phases, devices). Idle devices come last, in the first class only if they can burst.

    An idle device does not slow down below its floor; only the start of its next request does, and not even that where
    a burst carries it until its lease is raised. Power reserved for all idle devices would be taken from working ones.
    """
    made = np.tile(tree.rank, (len(PHASES), 1))
    made[PHASES.index(PHASE_IDLE), (tree.rank > 0) | bursts] = ranks * (1 + STEEPNESS_LEVELS)
    return made


def _need_levels(tree: Tree, edges_w: FloatArray) -> IntArray:
    """Levels of the needs, shape (phases, devices, pieces); 0 where one watt less costs the most speed."""
    table, made = tree.table, np.zeros((len(PHASES), *edges_w.shape), dtype=np.int64)[:, :, :-1]
    known: dict[tuple[int, int, float], IntArray] = {}
    for device, gpu_type in enumerate(table.devices.gpu_type.tolist()):
        share = edges_w[device] / edges_w[device, -1]
        for row, phase in enumerate(PHASES):
            key = (gpu_type, phase, float(share[0]))
            if key not in known:
                known[key] = _levels_of(steepness(speed_of(table.speeds, table.gpu_types[gpu_type], phase), share))
            made[row, device] = known[key]
    return made


def _levels_of(steep: FloatArray) -> IntArray:
    """Levels of pieces by steepness. Steepness falls from piece to piece, so levels rise."""
    level = np.round(2 * np.log2(_STEEPEST / np.maximum(steep, 1e-9)))
    return np.clip(level, 0, STEEPNESS_LEVELS - 1).astype(np.int64)


def pieces(
    appetite: Appetite, need_w: FloatArray, usual_w: FloatArray, phase: IntArray, rises_per_s: FloatArray
) -> tuple[FloatArray, IntArray]:
    """Widths in watts and levels of all pieces, both of shape (devices, pieces), the input of `pour`.

    need_w: shape (devices,), floor_w..most_w: what a device would draw now without a cap, with its margin.
    usual_w: what it needs while working. Room up to there is served before room beyond, in two halves, so that a class
    of low weight gets its first half before one of high weight gets its second.
    phase: PHASE_… per device. rises_per_s: how often a device was seen to need much more at once.
    """
    devices = len(need_w)
    width = np.empty((devices, 1 + NEED_PIECES + _ROOM_PIECES))
    level = np.empty((devices, 1 + NEED_PIECES + _ROOM_PIECES), dtype=np.int64)
    width[:, 0] = appetite.floor_w - appetite.base_w
    level[:, 0] = appetite.floor_level[phase, np.arange(devices)]
    above = need_w[:, None] - appetite.knot_w
    np.minimum(np.maximum(above, 0.0, out=above), appetite.knot_width_w, out=width[:, 1:-_ROOM_PIECES])
    level[:, 1:-_ROOM_PIECES] = appetite.need_level[phase, np.arange(devices)]
    usual_w = np.maximum(usual_w, need_w)
    near = (usual_w - need_w) / 2
    width[:, -3] = near
    width[:, -2] = near
    width[:, -1] = appetite.most_w - usual_w
    # A burst carries a device from its idle draw until its lease is raised. Unallocated power can be granted at once;
    # power held by an idle device must first be seen to be released, which takes three control delays.
    width[appetite.bursts, -_ROOM_PIECES:] = 0.0
    width[appetite.bursts & (phase == PHASE_IDLE), 0] = 0.0
    first = room_level(appetite, rises_per_s)
    level[:, -3] = first
    level[:, -2] = first + ROOM_LEVELS
    level[:, -1] = first + 2 * ROOM_LEVELS
    return width, level


_OFTEN_PER_S = 1 / 16.0
_SELDOM_PER_S = 1 / 4096.0


def room_level(appetite: Appetite, rises_per_s: FloatArray) -> IntArray:
    """Level of each device's room for spikes: the weight of a lost second times how often the device rises."""
    hurts = (
        appetite.weight
        * np.maximum(rises_per_s, _SELDOM_PER_S)
        / (_OFTEN_PER_S * max(1.0, appetite.weight.max(initial=1.0)))
    )
    level = np.clip(-0.5 * np.log2(hurts), 0, ROOM_LEVELS - 1)
    return np.asarray(appetite.first_room + level.astype(np.int64), dtype=np.int64)
