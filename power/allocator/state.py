"""Data of the allocator: what stays constant between steps, what is remembered, and what is granted."""

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
from power.estimation.estimator import STALE, Estimate, Trust, first_trust
from power.estimation.known_need import KnownNeed, nothing_known
from power.estimation.phases import highest_rest_w
from power.estimation.spike import Spikes, no_spikes
from power.rules import PowerRules

MEANT_W = 1.0
"""Resolution of caps: whole watts above the lowest limit; differences below one watt do not count."""


@dataclass(frozen=True, slots=True, eq=False)
class Allocator:
    """Constant data: the tree in the forms that a step needs."""

    tree: Tree
    rules: PowerRules
    appetite: Appetite
    pouring: Pouring
    fixed_w: FloatArray
    """Power that no lease governs, shape (limits,): servers apart from their devices, and devices that opted out."""
    keeps_reserve: BoolArray
    """Levels that must leave the reserve free where bursts are allowed, shape (levels, 1). These are present needs,
    which are what will be drawn, and the useful floors of all but the first class, which a row gives up before it
    exceeds its budget for a moment. Under hard limits: none."""
    burst_j: FloatArray
    """Energy in joules that a device may draw above its lease, shape (devices,); 0 where it may not burst."""
    bursts: BoolArray
    """Devices whose burst_j is not 0, shape (devices,)."""
    all_burst: bool
    highest_w: FloatArray
    """Draw at the highest limit, overshoot included, shape (devices,)."""
    lowest_w: FloatArray
    """Lowest plausible draw of a working device, shape (devices,)."""
    all_managed: bool


@dataclass(frozen=True, slots=True, eq=False)
class AllocatorState:
    """State between steps. It is plain data: it can be stored anywhere, and two steps from the same state give the same
    result.
    """

    book: Book
    trust: Trust
    spikes: Spikes
    """Spikes of the draw through each limit."""
    need_w: FloatArray
    """What each device would draw without its cap, with its margin; shape (devices,)."""
    usual_w: FloatArray
    """What each device needs while working."""
    known: KnownNeed
    """Power that devices without bursts were seen to be content with."""
    rises_per_s: FloatArray
    target_w: FloatArray
    """Target of each cap, to be reached when all devices have confirmed."""
    mean_w: FloatArray
    """Draw smoothed over some seconds."""
    prompts: FloatArray
    """Fraction of the readings during work that hit a prompt (power/estimation/phases.py); shape (devices,)."""
    rest_w: FloatArray
    """Draw while idle (power/estimation/phases.py); shape (devices,)."""
    estimate: Estimate
    account: BurstAccount
    braking: Braking
    quiet: Quiet | None
    """Bounds within which nothing needs to be decided; None while a change is in progress."""
    started_s: float
    """Instant of this controller's first step."""
    at_s: float
    """Instant of the last step that did more than wait."""
    decided_s: float
    """Instant of the last full computation of caps."""
    waited: Waited | None
    """Readings since the last full step; None right after one."""
    told: "Grants | None"
    """Grants of the last step; the same object is returned while nothing changes."""


@dataclass(frozen=True, slots=True, eq=False)
class Grants:
    """Grants to send now; shape (devices,) each."""

    changed: BoolArray
    cap_w: FloatArray
    """Newest grant of every device, changed or not."""
    burst_j: FloatArray
    """Energy in joules that the device may draw above its cap (power/bursts/burst_credit.py); 0: a hard limit."""
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
    devices = table.devices
    opted_out = np.where(devices.managed, 0.0, np.maximum(devices.max_w, devices.default_w))
    rules = rules or PowerRules()
    burst_j = burst_of(tree, rules.burst_share)
    appetite = appetite_of(tree, burst_j > 0)
    levels = np.arange(appetite.levels)
    # Under hard limits no device exceeds its lease, so nothing needs to be reserved.
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
    """Initial state of a controller, from the leases and readings in the table: no device has confirmed any yet."""
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
        rest_w=highest_rest_w(table.devices.max_w),
        estimate=unknown,
        account=first_account(tree, allocator.rules, allocator.burst_j),
        braking=no_brake(tree),
        quiet=None,
        started_s=NEVER_S,
        at_s=NEVER_S,
        decided_s=NEVER_S,
        waited=None,
        told=None,
    )
