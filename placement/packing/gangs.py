"""Placement of gangs: all members in as few topology domains as required, or none."""

from collections.abc import Callable, Sequence

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.workloads import PodShape
from placement.packing.draft import Draft, members_running
from placement.packing.pending_units import Unit

Seat = Callable[[int, BoolArray | None], bool]
"""Places one pod, in free resources or by preemption. Returns whether it did."""


def seat_unit(draft: Draft, unit: Unit, seat: Seat) -> bool:
    """Places at least `unit.need` of the unit's pods, or none. A gang's other pods follow as far as they fit."""
    if unit.gang < 0:
        return seat(unit.rows[0], None)
    wanted = draft.snapshot.gangs[unit.gang]
    if wanted.within is None:
        return _seat_near(draft, unit, seat, None, wanted.prefer_within)
    domain = draft.snapshot.nodes.domain(wanted.within)
    for value in _domains_to_try(draft, unit, domain):
        if _seat_near(draft, unit, seat, domain == value, wanted.prefer_within):
            return True
    return False


def _seat_near(draft: Draft, unit: Unit, seat: Seat, allowed: BoolArray | None, prefer: str | None) -> bool:
    """Places a gang inside `allowed`, in as few domains of the label `prefer` as can be found."""
    mark = draft.mark
    if prefer is None:
        placed = _seat_each(unit.rows, seat, allowed)
    else:
        placed = _seat_in_few(draft, unit, seat, allowed, draft.snapshot.nodes.domain(prefer))
    if placed >= unit.need:
        return True
    draft.roll_back(mark)
    return False


def _seat_each(rows: Sequence[int], seat: Seat, allowed: BoolArray | None) -> int:
    return sum(seat(row, allowed) for row in rows)


def _seat_in_few(draft: Draft, unit: Unit, seat: Seat, allowed: BoolArray | None, domain: IntArray) -> int:
    """Fills domains one after the other: the tightest that holds all remaining pods, else the roomiest.

    For equal pods, the roomiest-first order needs the fewest possible domains.
    """
    everywhere = np.ones(len(domain), dtype=bool) if allowed is None else allowed
    left = list(unit.rows)
    values = [int(v) for v in np.unique(domain[everywhere & (domain >= 0)])]
    while left and values:
        room = {value: _room(draft, left, everywhere & (domain == value)) for value in values}
        enough = [value for value in values if room[value] >= len(left)]
        best = min(enough, key=lambda v: (room[v], v)) if enough else max(values, key=lambda v: (room[v], -v))
        values.remove(best)
        left = [row for row in left if not seat(row, everywhere & (domain == best))]
    return len(unit.rows) - len(left) + _seat_each(left, seat, everywhere & (domain < 0))


def _domains_to_try(draft: Draft, unit: Unit, domain: IntArray) -> list[int]:
    """Values of the required label: the tightest that may suffice first, those that cannot suffice last.

    A gang that runs in part must stay in the domain where it runs.
    """
    running = members_running(draft, unit.gang)
    if running:
        return sorted({int(domain[draft.node[row]]) for row in running} - {-1})[:1]
    values = [int(v) for v in np.unique(domain[domain >= 0])]
    room = {value: _room(draft, unit.rows, domain == value) for value in values}
    return sorted(values, key=lambda v: (room[v] < unit.need, room[v], v))


def _room(draft: Draft, rows: Sequence[int], nodes: BoolArray) -> int:
    """Number of these pods that these nodes hold: exact for equal pods, an upper bound for unequal ones."""
    shapes = {draft.shape(row) for row in rows}
    return max(int(_copies(draft, shape)[nodes].sum()) for shape in shapes)


def _copies(draft: Draft, shape: PodShape) -> IntArray:
    """Number of pods of one shape that each node has resources for now. Shape (nodes,)."""
    ledger = draft.packer.ledger
    copies = np.full(len(ledger.cpu_milli), np.iinfo(np.int64).max)
    if shape.cpu_milli:
        copies = np.minimum(copies, ledger.cpu_milli // shape.cpu_milli)
    if shape.memory_bytes:
        copies = np.minimum(copies, ledger.memory_bytes // shape.memory_bytes)
    if shape.gpus:
        copies = np.minimum(copies, (ledger.gpu_milli // shape.gpu_milli).sum(axis=1) // shape.gpus)
    return np.where(draft.packer.eligible(shape), np.clip(copies, 0, 1 << 20), 0)
