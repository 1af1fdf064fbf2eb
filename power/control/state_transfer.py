"""Transfer of an allocator's state to a changed table, so that what was learnt of devices survives the change."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from cluster.arrays import Array, FloatArray, IntArray
from power.control.state import Allocator, AllocatorState

Columns = TypeVar("Columns")


def carried(before: Allocator, state: AllocatorState, after: Allocator, fresh: AllocatorState) -> AllocatorState:
    """The state for `after`, with what was granted to and learnt of unchanged devices.

    Distrust of a device that misreported is kept too. Other devices start as in `fresh`. Limits keep, by name, their
    measured spikes and when they were full. The next step asks the policy anew.
    """
    row = _rows_before(before, after)
    kept = {
        field.name: value
        for field in fields(fresh)
        if field.name not in _OWN
        and (value := _carried(getattr(state, field.name), getattr(fresh, field.name), row)) is not None
    }
    trust = replace(kept.pop("trust"), clean=state.trust.clean)
    repetition = replace(kept.pop("repetition"), looked_at_s=state.repetition.looked_at_s)
    account = kept.pop("account")

    def limits(old: FloatArray, new: FloatArray) -> FloatArray:
        return _of_limits(before, old, after, new)

    return replace(
        fresh,
        **kept,
        trust=trust,
        repetition=repetition,
        account=replace(account, over_s=limits(state.account.over_s, fresh.account.over_s)),
        memory=after.policy.carried(fresh.memory, state.memory, lambda old, new: _column(old, new, row), limits),
        # Devices held down by a brake are found from the next readings, in domains that were full a short while ago.
        braking=replace(fresh.braking, full_s=limits(state.braking.full_s, fresh.braking.full_s)),
        started_s=state.started_s,
        at_s=state.at_s,
    )


_OF_LIMITS = ("over_s",)
"""Columns with one entry per limit among columns with one per device."""
_OWN = ("memory", "wants", "braking", "told", "started_s", "at_s")
"""Fields that are not per device. All others are columns, or dataclasses of columns."""


def _carried(old: Any, new: Any, row: IntArray) -> Any:
    """A transferred column, or all columns of a dataclass; None for anything else, which stays as in `fresh`."""
    if isinstance(new, np.ndarray):
        return _column(old, new, row)
    return _columns(old, new, row) if is_dataclass(new) else None


def _rows_before(before: Allocator, after: Allocator) -> IntArray:
    """Row of each device in the earlier table; -1 where the device is new, moved, or has different limits."""
    then, now = before.tree.table, after.tree.table
    made = np.full(len(now.devices), -1)
    for row, name in enumerate(now.devices.names):
        old = then.devices.names.row(name)
        if old is not None and _same(before, old, after, row):
            made[row] = old
    return made


def _same(before: Allocator, old: int, after: Allocator, new: int) -> bool:
    then, now = before.tree.table, after.tree.table
    was, is_ = then.devices, now.devices
    return (
        then.domains.names[int(was.domain[old])] == now.domains.names[int(is_.domain[new])]
        and was.min_w[old] == is_.min_w[new]
        and was.max_w[old] == is_.max_w[new]
        and bool(was.managed[old]) == bool(is_.managed[new])
    )


def _column(old: Array, new: Array, row: IntArray) -> Array:
    made = new.copy()
    known = row >= 0
    made[known] = old[row[known]]
    return made


def _columns(old: Columns, new: Columns, row: IntArray) -> Columns:
    """All arrays of a dataclass, one entry per device; everything else as in `new`."""
    arrays = {
        field.name: _column(getattr(old, field.name), value, row)
        for field in fields(new)  # type: ignore[arg-type]  # both are dataclasses of columns
        if field.name not in _OF_LIMITS and isinstance(value := getattr(new, field.name), np.ndarray)
    }
    return replace(new, **arrays)  # type: ignore[type-var]


def _of_limits(before: Allocator, old: FloatArray, after: Allocator, new: FloatArray) -> FloatArray:
    """A transferred column of limits, shape (limits,), matched by the names of their domains."""
    then, now = before.tree, after.tree
    known = {then.table.domains.names[int(row)]: limit for limit, row in enumerate(then.limit)}
    rows = [known.get(now.table.domains.names[int(row)], -1) for row in now.limit]
    return _column(old, new, np.array(rows, dtype=np.int64))
