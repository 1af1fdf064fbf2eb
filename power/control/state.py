"""Data of the control step: what stays constant between steps, what is remembered, and what is granted."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from cluster.arrays import Array, BoolArray, FloatArray, IntArray
from cluster.power import NEVER_S, PowerTable
from power.policy.by_class import ByClass, ByClassMemory
from power.policy.interface import Plant
from power.rules import PowerRules
from power.safety.bursts import BurstAccount, burst_of, first_account
from power.safety.commitments import GrantLedger, first_ledger
from power.safety.estimator import STALE, Estimate, Trust, first_trust
from power.tree import Tree, tree_of
from power.watching import Braking, Repetition, no_brake, no_repetition


@dataclass(frozen=True, slots=True, eq=False)
class Allocator:
    """Constant data: the tree in the forms that a step needs, and the policy."""

    tree: Tree
    rules: PowerRules
    plant: Plant
    policy: ByClass
    fixed_w: FloatArray
    """Power that no lease governs, shape (limits,): servers apart from their devices, and devices that opted out."""
    burst_j: FloatArray
    """Energy in joules that a device may draw above its lease, shape (devices,); 0 where it may not burst."""


@dataclass(frozen=True, slots=True, eq=False)
class AllocatorState:
    """State between steps. It is plain data: it can be stored anywhere, and two steps from the same state give the same
    result.
    """

    ledger: GrantLedger
    trust: Trust
    repetition: Repetition
    estimate: Estimate
    account: BurstAccount
    braking: Braking
    memory: ByClassMemory
    """What the policy remembers."""
    started_s: float
    """Instant of this controller's first step."""
    at_s: float
    """Instant of the last step."""

    @property
    def need_w(self) -> FloatArray:
        """What each device would draw without its cap, with a margin; shape (devices,)."""
        return self.memory.need_w

    @property
    def spike_w(self) -> FloatArray:
        """How far the draw through each limit may rise before a grant takes effect; shape (limits,)."""
        return self.memory.spike_w


@dataclass(frozen=True, slots=True, eq=False)
class Grants:
    """Grants to send now; shape (devices,) each."""

    changed: BoolArray
    cap_w: FloatArray
    """Newest grant of every device, changed or not."""
    burst_j: FloatArray
    """Energy in joules that the device may draw above its cap (power/safety/bursts.py); 0: a hard limit."""
    burst_to_w: FloatArray
    """Highest limit of a burst that begins now."""
    credit_back_s: FloatArray
    """Time in which used burst credit is restored."""
    sequence: IntArray
    safe_w: FloatArray
    """Limit to which the agent falls when its lease ends."""
    met: BoolArray
    """Whether the device was ever seen to obey a grant of this controller; until then it may only be lowered."""


def allocator_of(table: PowerTable, rules: PowerRules | None = None) -> Allocator:
    """The allocator of a power table. Raises ConfigError with every error in the table."""
    tree = tree_of(table)
    devices, rules = table.devices, rules or PowerRules()
    opted_out_w = np.where(devices.managed, 0.0, np.maximum(devices.max_w, devices.default_w))
    fixed_w = tree.other_w + tree.at_worst(opted_out_w)
    burst_j = burst_of(tree, rules.burst_share)
    plant = Plant(tree, rules, fixed_w, burst_j > 0)
    return Allocator(tree, rules, plant, ByClass(plant), fixed_w, burst_j)


def first_state(allocator: Allocator) -> AllocatorState:
    """Initial state of a controller, from the leases and readings in the table: no device has confirmed any yet."""
    tree, table = allocator.tree, allocator.tree.table
    ledger = first_ledger(table.leases)
    nothing = np.zeros(tree.devices, dtype=bool)
    return AllocatorState(
        ledger=ledger,
        trust=first_trust(tree),
        repetition=no_repetition(tree),
        estimate=Estimate(ledger.ceiling_w, ledger.ceiling_w, nothing, np.full(tree.devices, STALE), clean=False),
        account=first_account(tree, allocator.rules, allocator.burst_j),
        braking=no_brake(tree),
        memory=allocator.policy.first(),
        started_s=NEVER_S,
        at_s=NEVER_S,
    )


def carried(before: Allocator, state: AllocatorState, after: Allocator, fresh: AllocatorState) -> AllocatorState:
    """The state for `after`, with what was granted to and learnt of unchanged devices.

    Distrust of a device that misreported is kept too. Other devices start as in `fresh`. Limits keep, by name, their
    measured spikes and when they were full.
    """
    then, now = before.tree.table, after.tree.table
    device = np.full(len(now.devices), -1)  # rows in the earlier table; -1 where new, moved, or with other limits
    for row, name in enumerate(now.devices.names):
        old = then.devices.names.row(name)
        if old is not None and _facts(then, old) == _facts(now, row):
            device[row] = old
    known = {then.domains.names[int(row)]: number for number, row in enumerate(before.tree.limit)}
    limit = np.array([known.get(now.domains.names[int(row)], -1) for row in after.tree.limit], dtype=np.int64)

    def columns(old: Any, new: Any) -> Any:
        """What is remembered in a dataclass of columns; everything but these as in the fresh one."""
        made = {each.name: value for each in fields(new) if isinstance(value := getattr(new, each.name), np.ndarray)}
        for name, column in made.items():
            made[name] = _column(getattr(old, name), column, limit if name in _OF_LIMITS else device)
        return replace(new, **made)

    return replace(
        fresh,
        ledger=columns(state.ledger, fresh.ledger),
        estimate=columns(state.estimate, fresh.estimate),
        trust=replace(columns(state.trust, fresh.trust), clean=state.trust.clean),
        repetition=replace(columns(state.repetition, fresh.repetition), looked_at_s=state.repetition.looked_at_s),
        account=columns(state.account, fresh.account),
        # The smoothed draw starts again: a new device is no swing.
        memory=replace(columns(state.memory, fresh.memory), smooth_w=fresh.memory.smooth_w),
        # Devices held down by a brake are found from the next readings, in domains that were full a short while ago.
        braking=replace(fresh.braking, full_s=_column(state.braking.full_s, fresh.braking.full_s, limit)),
        started_s=state.started_s,
        at_s=state.at_s,
    )


_OF_LIMITS = ("exceeded_s", "smooth_w", "swing_w", "spike_w")
"""Columns with one entry per limit among columns with one per device."""


def _facts(table: PowerTable, row: int) -> tuple[object, ...]:
    """What makes a device the same in another table."""
    devices = table.devices
    domain = table.domains.names[int(devices.domain[row])]
    return domain, float(devices.min_w[row]), float(devices.max_w[row]), bool(devices.managed[row])


def _column(old: Array, new: Array, row: IntArray) -> Array:
    made = new.copy()
    known = row >= 0
    made[known] = old[row[known]]
    return made
