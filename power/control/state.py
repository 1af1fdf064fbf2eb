"""Data of the control step: what stays constant between steps, what is remembered, and what is granted."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.power import NEVER_S, PowerTable
from power.domains.tree import Tree, tree_of
from power.policy.by_class import ByClass
from power.policy.interface import MakePolicy, Plant, Policy, Wants
from power.rules import PowerRules
from power.safety.burst_account import BurstAccount, first_account
from power.safety.burst_credit import burst_of
from power.safety.commitments import Book, first_book
from power.safety.estimator import STALE, Estimate, Trust, first_trust
from power.watching.brake import Braking, no_brake
from power.watching.repetition import Repetition, no_repetition


@dataclass(frozen=True, slots=True, eq=False)
class Allocator:
    """Constant data: the tree in the forms that a step needs, and the policy."""

    tree: Tree
    rules: PowerRules
    plant: Plant
    policy: Policy
    fixed_w: FloatArray
    """Power that no lease governs, shape (limits,): servers apart from their devices, and devices that opted out."""
    burst_j: FloatArray
    """Energy in joules that a device may draw above its lease, shape (devices,); 0 where it may not burst."""


@dataclass(frozen=True, slots=True, eq=False)
class AllocatorState:
    """State between steps. It is plain data: it can be stored anywhere, and two steps from the same state give the same
    result.
    """

    book: Book
    trust: Trust
    repetition: Repetition
    estimate: Estimate
    account: BurstAccount
    braking: Braking
    memory: Any
    """What the policy remembers."""
    wants: Wants | None
    """What the policy wanted last; None before the first step."""
    started_s: float
    """Instant of this controller's first step."""
    at_s: float
    """Instant of the last step."""
    told: "Grants | None"
    """Grants of the last step; the same object is returned while nothing changes."""

    @property
    def need_w(self) -> FloatArray:
        """What each device would draw without its cap, with a margin; shape (devices,)."""
        need_w: FloatArray = self.memory.need_w
        return need_w

    @property
    def spike_w(self) -> FloatArray:
        """How far the draw through each limit may rise before a grant takes effect; shape (limits,)."""
        spike_w: FloatArray = self.memory.spike_w
        return spike_w


@dataclass(frozen=True, slots=True, eq=False)
class Grants:
    """Grants to send now; shape (devices,) each."""

    changed: BoolArray
    cap_w: FloatArray
    """Newest grant of every device, changed or not."""
    burst_j: FloatArray
    """Energy in joules that the device may draw above its cap (power/safety/burst_credit.py); 0: a hard limit."""
    burst_to_w: FloatArray
    """Highest limit of a burst that begins now."""
    credit_back_s: FloatArray
    """Time in which used burst credit is restored."""
    sequence: IntArray
    safe_w: FloatArray
    """Limit to which the agent falls when its lease ends."""
    met: BoolArray
    """Whether the device was ever seen to obey a grant of this controller; until then it may only be lowered."""


def allocator_of(table: PowerTable, rules: PowerRules | None = None, policy: MakePolicy = ByClass) -> Allocator:
    """The allocator of a power table. Raises ConfigError with every error in the table."""
    tree = tree_of(table)
    devices, rules = table.devices, rules or PowerRules()
    opted_out_w = np.where(devices.managed, 0.0, np.maximum(devices.max_w, devices.default_w))
    fixed_w = tree.other_w + tree.at_worst(opted_out_w)
    burst_j = burst_of(tree, rules.burst_share)
    plant = Plant(tree, rules, fixed_w, burst_j > 0, all_burst=bool((burst_j > 0).all()))
    return Allocator(tree, rules, plant, policy(plant), fixed_w, burst_j)


def first_state(allocator: Allocator) -> AllocatorState:
    """Initial state of a controller, from the leases and readings in the table: no device has confirmed any yet."""
    tree, table = allocator.tree, allocator.tree.table
    book = first_book(table.leases)
    nothing = np.zeros(tree.devices, dtype=bool)
    return AllocatorState(
        book=book,
        trust=first_trust(tree),
        repetition=no_repetition(tree),
        estimate=Estimate(book.ceiling_w, book.ceiling_w, nothing, np.full(tree.devices, STALE), clean=False),
        account=first_account(tree, allocator.rules, allocator.burst_j),
        braking=no_brake(tree),
        memory=allocator.policy.first(),
        wants=None,
        started_s=NEVER_S,
        at_s=NEVER_S,
        told=None,
    )
