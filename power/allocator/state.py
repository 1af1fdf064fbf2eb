"""What the allocator knows: what stays the same from step to step, what is remembered between them, what is granted."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, any_of
from cluster.power import NEVER_S, PowerTable
from power.allocator.deadband import Quiet
from power.allocator.marginal_utility import Appetite, appetite_of
from power.allocator.reading_accumulator import Waited
from power.allocator.water_filling import Pouring, pouring_of
from power.bursts.burst_credit import burst_of
from power.bursts.burst_limits import BurstAccount, first_account
from power.domains.tree import Tree, tree_of
from power.estimation.brake import Braking, no_brake
from power.estimation.commitments import Book, first_book
from power.estimation.compliance import Proof, no_proof
from power.estimation.estimator import STALE, Estimate, Trust, first_trust
from power.estimation.known_need import KnownNeed, nothing_known
from power.estimation.spike import Spikes, no_spikes
from power.rules import PowerRules

MEANT_W = 1.0
"""Caps are whole watts above the lowest limit, and differences below one watt are none."""


@dataclass(frozen=True, slots=True, eq=False)
class Allocator:
    """What stays the same from step to step: the tree in the forms that the step needs."""

    tree: Tree
    rules: PowerRules
    appetite: Appetite
    pouring: Pouring
    fixed_w: FloatArray
    """Shape (limits,): watts that no lease governs: servers besides devices, and devices that opted out."""
    keeps_reserve: BoolArray
    """Shape (levels, 1): which levels must leave the reserve alone where bursts are allowed: present needs, which are
    what will be drawn, and the useful floors of all but the first class: a row gives these up before it is over its
    budget for a moment. Under hard limits none."""
    burst_j: FloatArray
    """Shape (devices,): joules above its lease, for a device that may burst."""
    bursts: BoolArray
    """Shape (devices,): whose burst_j is not 0."""
    all_burst: bool
    highest_w: FloatArray
    """Shape (devices,): what each can draw at its highest limit, overshoot included."""
    lowest_w: FloatArray
    """Shape (devices,): less than this no device draws that is in order."""
    all_managed: bool


@dataclass(frozen=True, slots=True, eq=False)
class AllocatorState:
    """What is remembered between steps. Data: it can be kept anywhere, and two steps from it do the same."""

    book: Book
    trust: Trust
    spikes: Spikes
    """Of the draw through each limit."""
    need_w: FloatArray
    """What each device would draw if it were let, with its margin; shape (devices,)."""
    usual_w: FloatArray
    """What each device needs when it works."""
    known: KnownNeed
    """What devices without bursts were seen to be content with."""
    rises_per_s: FloatArray
    target_w: FloatArray
    """Where each cap should be, when everyone has confirmed."""
    mean_w: FloatArray
    """The draw, smoothed over some seconds."""
    prompts: FloatArray
    """Of the readings at work, so many hit a prompt (power/estimation/phases.py); shape (devices,)."""
    estimate: Estimate
    account: BurstAccount
    proof: Proof
    braking: Braking
    quiet: Quiet | None
    """While readings stay within these bounds nothing is to be decided; None: something is under way."""
    started_s: float
    """When this controller took its first step."""
    at_s: float
    """Of the last look: a step that did more than wait."""
    decided_s: float
    """When caps were last worked out in full."""
    waited: Waited | None
    """Readings that nobody looked at yet; None after a look."""
    told: "Grants | None"
    """What the last step granted; the very same object is told again while nothing changes."""


@dataclass(frozen=True, slots=True, eq=False)
class Grants:
    """What is to be sent now; shape (devices,) each."""

    changed: BoolArray
    cap_w: FloatArray
    """The newest grant of every device, changed or not."""
    burst_j: FloatArray
    """Joules that the device may draw above it (power/bursts/burst_credit.py); 0: a hard limit."""
    burst_to_w: FloatArray
    """The highest limit of a burst that begins now."""
    credit_back_s: FloatArray
    """In so long credit that was used up comes back."""
    sequence: IntArray
    safe_w: FloatArray
    """Where the agent falls when its lease ends."""
    met: BoolArray
    """Whether the device was ever seen to obey a grant of this controller: until then it may only be lowered."""


def allocator_of(table: PowerTable, rules: PowerRules | None = None) -> Allocator:
    """Raises ConfigError with every mistake in the table."""
    tree = tree_of(table)
    devices = table.devices
    opted_out = np.where(devices.managed, 0.0, np.maximum(devices.max_w, devices.default_w))
    rules = rules or PowerRules()
    burst_j = burst_of(tree, rules.burst_share)
    appetite = appetite_of(tree, burst_j > 0)
    levels = np.arange(appetite.levels)
    # Under hard limits nobody draws more than its lease: nothing is kept from those who need it.
    first_kept = 1 if any_of(burst_j > 0) else appetite.first_room
    return Allocator(
        tree=tree,
        rules=rules,
        appetite=appetite,
        pouring=pouring_of(tree, appetite.levels),
        fixed_w=tree.other_w + tree.at_worst(opted_out),
        keeps_reserve=((levels >= first_kept) & (levels < appetite.first_room))[:, None],
        burst_j=burst_j,
        bursts=burst_j > 0,
        all_burst=bool((burst_j > 0).all()),
        highest_w=devices.max_w * (1 + devices.overshoot_share),
        lowest_w=0.5 * devices.idle_w,
        all_managed=bool(devices.managed.all()),
    )


def first_state(allocator: Allocator) -> AllocatorState:
    """Where a controller starts, from the leases and readings in the table: nothing has been confirmed to it."""
    tree, table = allocator.tree, allocator.tree.table
    book = first_book(table.leases)
    nothing = np.zeros(tree.devices, dtype=bool)
    unknown = Estimate(book.ceiling_w, book.ceiling_w, nothing, np.full(tree.devices, STALE), clean=False)
    return AllocatorState(
        book=book,
        trust=first_trust(tree),
        spikes=no_spikes(allocator.rules.first_spike_share * tree.budget_w),
        need_w=table.devices.max_w,
        usual_w=table.devices.floor_w,
        known=nothing_known(tree.devices),
        rises_per_s=np.zeros(tree.devices),
        target_w=book.cap_w,
        mean_w=np.zeros(tree.devices),
        prompts=np.zeros(tree.devices),
        estimate=unknown,
        account=first_account(tree, allocator.rules, allocator.burst_j),
        proof=no_proof(tree.devices),
        braking=no_brake(tree),
        quiet=None,
        started_s=NEVER_S,
        at_s=NEVER_S,
        decided_s=NEVER_S,
        waited=None,
        told=None,
    )
