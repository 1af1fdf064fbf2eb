"""The allocator: one step from what is read to what is granted. Lower first, see it obeyed, then let others rise.

Whatever the readings say, in every domain the worst cases of all that was granted and may still be held add up to at
most the budget, less what draws power there without being a device under a lease. Readings only decide who has how
much of it. A budget that was cut is the one exception, for as long as lowering takes.
"""

from dataclasses import dataclass, replace
from math import exp

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, all_of, any_of
from cluster.power import (
    NEVER_S,
    PHASE_COMPUTE_BOUND,
    PHASE_IDLE,
    PHASE_MEMORY_BOUND,
    PHASE_UNKNOWN,
    PowerReadings,
    PowerTable,
)
from power.appetite import Appetite, appetite_of, pieces
from power.book import Book, confirmed, first_book, granted
from power.brake import Braking, is_full, is_watched, no_brake, watched
from power.burst import burst_of, suspected
from power.burst_room import BurstAccount, bounded, counted, first_account
from power.estimator import FINE, OVER_CAP, STALE, Estimate, Trust, distrusting, estimate, first_trust, heard_anew
from power.filling import Pouring, pour, pouring_of
from power.proof import Proof, begun, judged, no_proof, with_tests
from power.quiet import UNTIL_S, Quiet, in_order, may_wait, quiet_means_w, rests
from power.rules import PowerRules
from power.spike import Spikes, no_spikes, with_draw
from power.tree import Tree, tree_of
from power.waiting import Waited, mean_since, waited_on

_MEANT_W = 1.0
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
    """Shape (levels, 1): which levels must leave the reserve alone: present needs, which are what will be drawn."""
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
    rises_per_s: FloatArray
    target_w: FloatArray
    """Where each cap should be, when everyone has confirmed."""
    mean_w: FloatArray
    """The draw, smoothed over some seconds."""
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
    """Joules that the device may draw above it (power/burst.py); 0: a hard limit."""
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
    return Allocator(
        tree=tree,
        rules=rules,
        appetite=appetite,
        pouring=pouring_of(tree, appetite.levels),
        fixed_w=tree.other_w + tree.at_worst(opted_out),
        keeps_reserve=((levels > int(tree.rank.max(initial=-1))) & (levels < appetite.first_room))[:, None],
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
        spikes=no_spikes(tree.limits),
        need_w=table.devices.max_w,
        usual_w=table.devices.floor_w,
        rises_per_s=np.zeros(tree.devices),
        target_w=book.cap_w,
        mean_w=np.zeros(tree.devices),
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


def step(
    allocator: Allocator,
    state: AllocatorState,
    readings: PowerReadings,
    now_s: float,
    budget_w: FloatArray | None = None,
) -> tuple[AllocatorState, Grants]:
    """What to grant now.

    readings: the newest of each device; call with the same ones again and nothing more is granted.
    now_s: seconds of the controller's clock that the readings' instants are on.
    budget_w: shape (limits,), in the order of `allocator.tree.limit`, when budgets differ from the table's.

    The result holds at every instant between two steps: the sum over each domain of the worst cases of what devices may
    hold is at most its budget, or falls towards it as fast as devices obey.
    """
    budget_w = allocator.tree.budget_w if budget_w is None else budget_w
    rules, quiet = allocator.rules, state.quiet
    drawn_w = allocator.tree.drawn(readings.draw_w)
    ended, lied = False, allocator.tree.nobody
    if state.proof.running:
        proof, ends, lied = judged(state.proof, allocator.tree, rules, readings, now_s)
        state, ended = replace(state, proof=proof), any_of(ends)
    if (
        quiet is not None
        and state.told is not None
        and not ended
        and not is_watched(state.braking, now_s)
        and may_wait(quiet, rules, readings, drawn_w, budget_w, now_s)
    ):
        told = _nothing_new(allocator, state, state.account)
        waited = waited_on(state.waited, readings.draw_w, drawn_w, now_s)
        return _still(state, state.spikes, state.mean_w, state.account, waited, state.at_s, told), told
    if state.at_s != NEVER_S and now_s - state.at_s > rules.stale_s:
        state = replace(state, trust=heard_anew(state.trust, now_s))
    draw_w = mean_since(state.waited, readings.draw_w)
    mean_w = _smoothed(allocator, state, draw_w, now_s)
    account, overdrew = counted(state.account, allocator.tree, rules, allocator.burst_j, readings, draw_w)
    braking = _braking(allocator, state, readings, drawn_w, budget_w, now_s)
    if braking is not state.braking:
        state = replace(state, braking=braking)
    if ended:
        overdrew = overdrew | lied
    if any_of(overdrew):
        state = replace(state, trust=distrusting(state.trust, overdrew, now_s + rules.distrust_s))
    elif (
        quiet is not None
        and not ended
        and rests(quiet, rules, readings, mean_w, budget_w, now_s)
        and not any_of(suspected(account.credit_j, allocator.burst_j))
    ):
        spikes = _measured(allocator, state, drawn_w, now_s)
        account = _bounded(
            allocator,
            account,
            spikes,
            readings.draw_w,
            drawn_w,
            readings,
            budget_w,
            state.book,
            state.usual_w,
            braking,
            now_s,
        )
        told = _nothing_new(allocator, state, account)
        return _still(state, spikes, mean_w, account, None, now_s, told), told
    return _decided(allocator, state, account, readings, now_s, budget_w, mean_w, drawn_w)


def _quiet(
    allocator: Allocator,
    book: Book,
    need_w: FloatArray,
    budget_w: FloatArray,
    far_w: FloatArray,
    now_s: float,
    *,
    settled: bool,
) -> Quiet | None:
    """While what nothing needs to be decided; None where every step must be taken in full.

    far_w: shape (limits,), draws of devices with which a domain is far from its budget.
    Caps may wait for the next look where everybody may burst and has been seen to obey, and where all grants fit: a
    budget that was cut waits for nothing.
    """
    tree = allocator.tree
    fit = all_of(tree.at_worst(book.ceiling_w) <= budget_w - allocator.fixed_w)
    may_wait = allocator.all_burst and fit and all_of(book.met)
    if not may_wait and not settled:
        return None
    return Quiet(
        least_draw_w=allocator.lowest_w,
        most_draw_w=np.where(book.burst, allocator.highest_w, book.cap_w),
        most_cap_w=book.ceiling_w + _MEANT_W,
        budget_w=budget_w.copy(),
        far_w=far_w if may_wait else None,
        look_s=now_s + allocator.rules.calm_look_s,
        mean_w=quiet_means_w(tree, allocator.rules, book, need_w) if settled else None,
        until_s=now_s + UNTIL_S,
    )


def _bounded(
    allocator: Allocator,
    account: BurstAccount,
    spikes: Spikes,
    draw_w: FloatArray,
    drawn_w: FloatArray,
    readings: PowerReadings,
    budget_w: FloatArray,
    book: Book,
    usual_w: FloatArray,
    braking: Braking,
    now_s: float,
) -> BurstAccount:
    """Bounds on bursts by what is drawn, or is about to be drawn by those that were just given more.

    drawn_w: shape (limits,), what these draws are through each.
    """
    tree, rules = allocator.tree, allocator.rules
    held_back = (draw_w >= rules.pinned_share * readings.cap_w) & (readings.phase != PHASE_IDLE)
    if any_of(held_back):
        soon_w = np.where(held_back, np.maximum(draw_w, np.minimum(book.cap_w, usual_w)), draw_w)
        drawn_w = tree.drawn(soon_w)
    return bounded(
        account,
        tree,
        rules,
        draw_w=draw_w,
        held_back=held_back,
        drawn_w=drawn_w + allocator.fixed_w,
        spike_w=spikes.spike_w,
        budget_w=budget_w,
        cap_w=book.cap_w,
        usual_w=usual_w,
        braked=braking.under if braking.holds else None,
        now_s=now_s,
    )


def _braking(
    allocator: Allocator,
    state: AllocatorState,
    readings: PowerReadings,
    drawn_w: FloatArray,
    budget_w: FloatArray,
    now_s: float,
) -> Braking:
    """Whether a hardware brake holds: by what devices at work draw, and what they usually draw under their leases."""
    drawn_w = drawn_w + allocator.fixed_w
    if not is_watched(state.braking, now_s) and not any_of(is_full(drawn_w, budget_w)):
        return state.braking
    usual_w = np.minimum(state.book.cap_w, state.usual_w / (1 + allocator.rules.margin_share))
    return watched(
        state.braking,
        allocator.tree,
        draw_w=readings.draw_w,
        at_work_w=np.where(readings.phase == PHASE_IDLE, 0.0, usual_w),
        drawn_w=drawn_w,
        budget_w=budget_w,
        let_go_s=allocator.rules.control_delay_s,
        now_s=now_s,
    )


def _decided(
    allocator: Allocator,
    state: AllocatorState,
    account: BurstAccount,
    readings: PowerReadings,
    now_s: float,
    budget_w: FloatArray,
    mean_w: FloatArray,
    drawn_w: FloatArray,
) -> tuple[AllocatorState, Grants]:
    """The step in full."""
    if any_of(np.isnan(readings.cap_w)):
        readings = replace(readings, cap_w=np.where(np.isnan(readings.cap_w), np.inf, readings.cap_w))
    if state.at_s == NEVER_S:
        state = _started(state, now_s)
    rules = allocator.rules
    fine = state.quiet is not None and in_order(state.quiet, rules, readings, now_s)
    trust, seen = estimate(allocator.tree, rules, state.trust, state.book, readings, now_s, in_order=fine)
    book = confirmed(state.book, readings.sequence, _obeyed(allocator, state.book, readings, seen))
    if seen.clean and book is not state.book:
        held_w = np.maximum(book.ceiling_w, readings.cap_w)
        seen = Estimate(seen.draw_w, held_w, seen.believed, seen.fault, clean=True)
    braking = state.braking
    spikes = _measured(allocator, state, drawn_w, now_s) if seen.clean else state.spikes
    need_w = _needs(allocator, book, seen, readings, mean_w, state)
    if braking.holds:
        need_w = np.where(braking.slowed, state.need_w, need_w)
    rises_per_s = state.rises_per_s if allocator.all_burst else _rises(allocator, state, need_w, now_s)
    room_w = budget_w - allocator.fixed_w
    usual_w = state.usual_w if braking.holds else _usual(allocator, state, need_w, readings, now_s)
    reserve_w = _reserve(allocator, spikes, seen, need_w)
    target_w = _all_needs(allocator, trust, seen, need_w, readings.phase, room_w - reserve_w)
    if target_w is None:
        width_w, level = pieces(allocator.appetite, need_w, usual_w, readings.phase, rises_per_s)
        target_w = _targets(allocator, trust, seen, width_w, level, room_w, reserve_w)
    if not all_of(book.met) and now_s < state.started_s + allocator.rules.stale_s:
        target_w = np.where(_awaited(allocator, book, seen, room_w), book.cap_w, target_w)
    pool_w = np.minimum(spikes.spike_w, allocator.rules.reserve_most_share * budget_w)
    clean = seen.clean and trust.clean
    far_w = rules.calm_look_share * budget_w - allocator.fixed_w
    calm = clean and all_of(drawn_w < far_w)
    asks_w = _without_work(allocator, need_w, readings.phase) if calm else need_w
    cap_w = _next_caps(allocator, trust, book, seen, asks_w, target_w, room_w, pool_w)
    if not all_of(state.book.met):
        cap_w = _as_found(allocator, state.book, book, readings, cap_w)
    tests_w = begun(
        state.proof,
        allocator.tree,
        rules,
        bursts=allocator.bursts,
        book=book,
        trust=trust,
        seen=seen,
        readings=readings,
        in_debt=suspected(account.credit_j, allocator.burst_j),
        now_s=now_s,
    )
    cap_w = _under_test(allocator, state.proof, tests_w, cap_w)
    burst = allocator.bursts if seen.clean else allocator.bursts & (seen.fault == FINE)
    changed = ((cap_w != book.cap_w) | (burst != book.burst)) & allocator.tree.table.devices.managed
    if tests_w is not None:
        changed |= tests_w < np.inf
    any_changed = any_of(changed)
    if any_changed:
        book = granted(book, cap_w, burst, changed, now_s)
    proof = state.proof if tests_w is None else with_tests(state.proof, tests_w, book, now_s)
    settled = not any_changed and book.settled and not proof.running
    quiet = _quiet(allocator, book, need_w, budget_w, far_w, now_s, settled=settled) if clean else None
    if not seen.clean:
        drawn_w = allocator.tree.drawn(seen.draw_w)
    account = _bounded(
        allocator, account, spikes, seen.draw_w, drawn_w, readings, budget_w, book, usual_w, braking, now_s
    )
    told = _grants(allocator, book, account, proof, changed)
    made = AllocatorState(
        book=book,
        trust=trust,
        spikes=spikes,
        need_w=need_w,
        usual_w=usual_w,
        rises_per_s=rises_per_s,
        target_w=target_w,
        mean_w=mean_w,
        estimate=seen,
        account=account,
        proof=proof,
        braking=state.braking,
        quiet=quiet,
        started_s=state.started_s,
        at_s=now_s,
        decided_s=now_s,
        waited=None,
        told=told,
    )
    return made, told


def _under_test(allocator: Allocator, proof: Proof, tests_w: FloatArray | None, cap_w: FloatArray) -> FloatArray:
    """Grants no higher than what is under test, or comes under test now."""
    if proof.running:
        cap_w = np.minimum(cap_w, np.maximum(proof.asked_w, allocator.appetite.base_w))
    return cap_w if tests_w is None else np.minimum(cap_w, tests_w)


def _grants(allocator: Allocator, book: Book, account: BurstAccount, proof: Proof, changed: BoolArray) -> Grants:
    burst_to_w = np.maximum(account.to_w, book.cap_w)
    return Grants(
        changed=changed,
        cap_w=book.cap_w,
        burst_j=allocator.burst_j if all_of(book.burst) else np.where(book.burst, allocator.burst_j, 0.0),
        burst_to_w=np.where(proof.asked_w < np.inf, book.cap_w, burst_to_w) if proof.running else burst_to_w,
        credit_back_s=account.back_s,
        sequence=book.sequence,
        safe_w=np.minimum(allocator.appetite.floor_w, book.cap_w),
        met=book.met,
    )


def _nothing_new(allocator: Allocator, state: AllocatorState, account: BurstAccount) -> Grants:
    told, before = state.told, state.account
    same = account.to_w is before.to_w and account.back_s is before.back_s
    if told is not None and same and told.changed is allocator.tree.nobody:
        return told
    return _grants(allocator, state.book, account, state.proof, allocator.tree.nobody)


def _started(state: AllocatorState, now_s: float) -> AllocatorState:
    """A first step: what was granted before counts as granted now, so nobody is late yet.

    Who was not heard by this controller yet keeps what it has for as long as a reading may be old: a controller that
    starts anew must not throw a row to its floors.
    """
    book = replace(state.book, granted_at_s=np.full(len(state.book.cap_w), now_s))
    return replace(state, book=book, started_s=now_s)


def _awaited(allocator: Allocator, book: Book, seen: Estimate, room_w: FloatArray) -> BoolArray:
    """Devices that a new controller has not heard yet and that may keep what they have: where that fits the budget."""
    tree = allocator.tree
    granted_w = np.where(tree.table.devices.managed, book.cap_w, 0.0)
    fits = tree.least(room_w - tree.at_worst(granted_w)) >= 0
    awaited: BoolArray = ~book.met & (seen.fault == STALE) & fits
    return awaited


def _as_found(allocator: Allocator, before: Book, book: Book, readings: PowerReadings, cap_w: FloatArray) -> FloatArray:
    """Grants no higher than what devices turn out to hold that are met for the first time.

    A controller before this one may have lowered them after they were found, and given the watts to others.
    """
    newly = book.met & ~before.met & (readings.cap_w > 0)
    holds_w = np.maximum(np.floor(readings.cap_w), allocator.appetite.base_w)
    return np.where(newly, np.minimum(cap_w, holds_w), cap_w)


def _still(
    state: AllocatorState,
    spikes: Spikes,
    mean_w: FloatArray,
    account: BurstAccount,
    waited: Waited | None,
    at_s: float,
    told: Grants,
) -> AllocatorState:
    """The state of a step in which nothing happened that moves a cap."""
    return AllocatorState(  # most steps end here: `replace` would cost more than all the rest of them
        book=state.book,
        trust=state.trust,
        spikes=spikes,
        need_w=state.need_w,
        usual_w=state.usual_w,
        rises_per_s=state.rises_per_s,
        target_w=state.target_w,
        mean_w=mean_w,
        estimate=state.estimate,
        account=account,
        proof=state.proof,
        braking=state.braking,
        quiet=state.quiet,
        started_s=state.started_s,
        at_s=at_s,
        decided_s=state.decided_s,
        waited=waited,
        told=told,
    )


def _smoothed(allocator: Allocator, state: AllocatorState, draw_w: FloatArray, now_s: float) -> FloatArray:
    """The mean draw that needs are made of; a first reading is its own mean.

    What no device can draw counts as the highest limit: one broken reading must not stay in the mean for ever.
    """
    draw_w = np.fmax(np.fmin(draw_w, allocator.appetite.most_w), 0.0)
    if state.at_s == NEVER_S:
        return draw_w
    part = 1 - exp(-max(now_s - state.at_s, 0.0) / allocator.rules.mean_s)
    return state.mean_w + part * (draw_w - state.mean_w)


def _measured(allocator: Allocator, state: AllocatorState, drawn_w: FloatArray, now_s: float) -> Spikes:
    """Spikes of what is believed alone: a device that falls silent counts for more at once, and draws no more.

    What a brake held down and lets go is no rise of needs.
    """
    rules, spikes = allocator.rules, state.spikes
    if state.braking.holds:
        return Spikes((), spikes.spike_w)
    for at_s, watts in state.waited.drawn_w if state.waited is not None else ():
        spikes = with_draw(spikes, watts, at_s, rules.control_delay_s, rules.spike_memory_s)
    return with_draw(spikes, drawn_w, now_s, rules.control_delay_s, rules.spike_memory_s)


def _obeyed(allocator: Allocator, book: Book, readings: PowerReadings, seen: Estimate) -> BoolArray:
    """Who was seen to keep the newest grant: says to enforce no more, draws no more, and is believed."""
    if book.settled:
        return seen.believed
    devices, rules = allocator.tree.table.devices, allocator.rules
    may_draw_w = np.where(book.burst, np.maximum(book.cap_w, devices.max_w), book.cap_w)
    worst_w = may_draw_w * ((1 + devices.overshoot_share) * (1 + rules.tolerance_share)) + 5.0
    says_so = (readings.cap_w <= book.cap_w + _MEANT_W) & (readings.at_s >= book.granted_at_s)
    obeyed: BoolArray = says_so & (readings.draw_w <= worst_w)
    return obeyed if seen.clean else obeyed & seen.believed & (seen.fault != OVER_CAP)


def _needs(
    allocator: Allocator,
    book: Book,
    seen: Estimate,
    readings: PowerReadings,
    mean_w: FloatArray,
    state: AllocatorState,
) -> FloatArray:
    """What each device would draw if it were let. One that its cap holds back is tried at what it usually needs when it
    works, or at more; one that begins to work is known to need that soon.

    Kept as it was while it moves little, so that a ripple of the draw moves no caps, and while the newest cap is too
    young to show in the readings: else a device that was just given more would seem not to want it.
    """
    rules, appetite, before_w = allocator.rules, allocator.appetite, state.need_w
    cap_w = np.where(readings.cap_w > 0, np.minimum(readings.cap_w, book.ceiling_w), book.cap_w)
    brief = seen.believed & book.burst & (readings.phase != PHASE_MEMORY_BOUND)
    draw_w = np.where(brief, mean_w, seen.draw_w)
    band_w = rules.band_share * appetite.most_w
    held_back = (draw_w >= rules.pinned_share * cap_w) & (readings.phase != PHASE_IDLE)
    computes = readings.phase == PHASE_COMPUTE_BOUND
    more_w = np.where(computes, 1.0, rules.probe_share) * appetite.most_w
    wants_w = np.where(held_back, np.maximum(cap_w + more_w, state.usual_w), draw_w * (1 + rules.margin_share))
    if any_of(begins := computes & brief):
        has_it = cap_w >= state.usual_w - band_w
        soon_w = np.where(has_it, np.minimum(cap_w, state.usual_w), state.usual_w)
        wants_w = np.where(begins, np.maximum(wants_w, soon_w), wants_w)
    wants_w = np.minimum(np.maximum(wants_w, appetite.floor_w), appetite.most_w)
    rises = (wants_w > before_w + band_w) | ((wants_w > before_w) & (draw_w > before_w))
    shows = readings.at_s > book.granted_at_s + 2 * rules.control_delay_s
    falls = (wants_w < before_w - band_w) & (shows | (draw_w < rules.pinned_share * book.before_w))
    return np.where(rises | falls, wants_w, before_w)


def _rises(allocator: Allocator, state: AllocatorState, need_w: FloatArray, now_s: float) -> FloatArray:
    """How often each device asks for much more at once: events per second, older ones forgotten."""
    if state.at_s == NEVER_S:
        return state.rises_per_s
    memory_s = allocator.rules.rise_memory_s
    kept = state.rises_per_s * exp(-max(now_s - state.at_s, 0.0) / memory_s)
    return kept + (need_w - state.need_w > 0.1 * allocator.appetite.most_w) / memory_s


def _usual(
    allocator: Allocator, state: AllocatorState, need_w: FloatArray, readings: PowerReadings, now_s: float
) -> FloatArray:
    """What each device needs when it works on tokens; where phases are not told, whatever it needs now.

    Its draw with its margin, unless its cap holds it back: a need is kept up while a cap is young.
    """
    rules, appetite, phase = allocator.rules, allocator.appetite, readings.phase
    if state.at_s == NEVER_S:
        return state.usual_w
    steady = (phase == PHASE_MEMORY_BOUND) | (phase == PHASE_UNKNOWN)
    part = 1 - exp(-max(now_s - state.at_s, 0.0) / (4 * rules.mean_s))
    free = readings.draw_w < rules.pinned_share * readings.cap_w
    wants_w = np.maximum(readings.draw_w * (1 + rules.margin_share), appetite.floor_w)
    shown_w = np.where(free, np.minimum(wants_w, need_w), need_w)
    return np.where(steady, state.usual_w + part * (shown_w - state.usual_w), state.usual_w)


def _reserve(allocator: Allocator, spikes: Spikes, seen: Estimate, need_w: FloatArray) -> FloatArray:
    """Watts at each limit that present needs leave alone: the measured spike, less what needs have over the draw."""
    tree, rules = allocator.tree, allocator.rules
    margin_w = tree.at_worst(need_w) - tree.drawn(seen.draw_w)
    most_w = rules.reserve_most_share * tree.budget_w
    return np.minimum(np.maximum(spikes.spike_w - np.maximum(margin_w, 0.0), 0.0), most_w)


def _all_needs(
    allocator: Allocator, trust: Trust, seen: Estimate, need_w: FloatArray, phase: IntArray, room_w: FloatArray
) -> FloatArray | None:
    """What `_targets` gives where every need fits, without pouring; None where it may not, or where room is poured too.

    room_w: shape (limits,), what present needs may take.
    """
    tree, base_w = allocator.tree, allocator.appetite.base_w
    if not (allocator.all_burst and trust.clean and seen.clean and allocator.all_managed):
        return None
    wants_w = _without_work(allocator, need_w, phase)
    if not all_of(tree.at_worst(wants_w) <= room_w):
        return None
    wants_w = base_w + np.floor((wants_w - base_w) / _MEANT_W + 1e-9) * _MEANT_W
    return np.minimum(wants_w, allocator.appetite.most_w)


def _without_work(allocator: Allocator, need_w: FloatArray, phase: IntArray) -> FloatArray:
    """Needs, of which an idle device that may burst does without its floor (`pieces`).

    It keeps the watts that it has while every domain is far from its budget, until others need them.
    """
    appetite = allocator.appetite
    idle = allocator.bursts & (phase == PHASE_IDLE)
    return np.where(idle, appetite.base_w + (need_w - appetite.floor_w), need_w)


def _targets(
    allocator: Allocator,
    trust: Trust,
    seen: Estimate,
    width_w: FloatArray,
    level: IntArray,
    room_w: FloatArray,
    reserve_w: FloatArray,
) -> FloatArray:
    """Where every cap should be once all obey; shape (devices,).

    What draws may rise by before others could be lowered for them is kept in reserve: present needs leave it alone.
    """
    tree, appetite = allocator.tree, allocator.appetite
    out = _ungoverned(tree, seen)
    base_w = appetite.base_w
    if not trust.clean:
        base_w = np.maximum(base_w, trust.least_w)
        width_w = _above(width_w, base_w - appetite.base_w)
    lowest_w = base_w
    if out.any():
        width_w = np.where(out[:, None], 0.0, width_w)
        base_w = np.where(out, np.where(tree.table.devices.managed, seen.held_w, 0.0), base_w)
    free_w = room_w - tree.at_worst(base_w)
    got_w = pour(allocator.pouring, width_w, level, free_w - allocator.keeps_reserve * reserve_w)
    target_w = np.minimum(lowest_w + np.floor(got_w / _MEANT_W + 1e-9) * _MEANT_W, appetite.most_w)
    return _kept_apart(allocator, seen, target_w) if out.any() else target_w


def _above(width_w: FloatArray, had_w: FloatArray) -> FloatArray:
    """What is left of the pieces of devices that have so many watts of them already."""
    end_w = np.maximum(np.cumsum(width_w, axis=1) - had_w[:, None], 0.0)
    return np.diff(end_w, axis=1, prepend=0.0)


def _ungoverned(tree: Tree, seen: Estimate) -> BoolArray:
    """Devices that a new cap does not govern for certain: they count at what they may hold, whatever they are told."""
    unmanaged = ~tree.table.devices.managed
    return unmanaged if seen.clean else unmanaged | (seen.fault == STALE) | (seen.fault == OVER_CAP)


def _kept_apart(allocator: Allocator, seen: Estimate, target_w: FloatArray) -> FloatArray:
    """Ungoverned devices: sent to the safe floor, or left alone when they opted out."""
    tree, appetite = allocator.tree, allocator.appetite
    out = _ungoverned(tree, seen)
    return np.where(out, np.where(tree.table.devices.managed, appetite.floor_w, appetite.most_w), target_w)


def _next_caps(
    allocator: Allocator,
    trust: Trust,
    book: Book,
    seen: Estimate,
    need_w: FloatArray,
    target_w: FloatArray,
    room_w: FloatArray,
    pool_w: FloatArray,
) -> FloatArray:
    """The newest grant of every device: lowered at once, raised as far as what others are seen to hold leaves room."""
    tree = allocator.tree
    managed = tree.table.devices.managed
    held_w = _governed(allocator, seen.held_w)
    left_w = room_w - tree.at_worst(held_w)
    wanted_w = _wanted(allocator, book.cap_w, need_w, target_w, room_w - pool_w)
    may_rise = book.ceiling_w <= book.cap_w
    lowered_w = np.minimum(wanted_w, book.cap_w)
    if not (seen.clean and allocator.all_managed):
        may_rise &= seen.believed & (seen.fault == FINE) & managed
        lowered_w = np.where(managed, lowered_w, book.cap_w)
    if not trust.clean:
        lowered_w = _as_clamped(allocator, trust, book, seen, lowered_w, left_w)
    rise_w = np.where(may_rise, np.maximum(wanted_w - held_w, 0.0), 0.0)
    if not any_of(rise_w > 0):
        return lowered_w
    rise_w = _fitting(tree, rise_w, np.maximum(np.minimum(need_w, wanted_w) - held_w, 0.0), left_w)
    return _floors_first(
        allocator, target_w, lowered_w, np.where(rise_w >= _MEANT_W, held_w + np.floor(rise_w), lowered_w)
    )


def _as_clamped(
    allocator: Allocator, trust: Trust, book: Book, seen: Estimate, cap_w: FloatArray, left_w: FloatArray
) -> FloatArray:
    """Devices that keep a higher limit than they were given are granted that limit, once others have made room for it.

    It changes nothing but the books: they hold it now. Asked for less in vain, they would be named for ever.
    """
    clamped = (trust.least_w > book.cap_w) & seen.believed & (seen.fault != OVER_CAP) & (seen.held_w >= trust.least_w)
    fits = allocator.tree.least(left_w) >= 0
    return np.where(clamped & fits, np.minimum(trust.least_w, allocator.appetite.most_w), cap_w)


def _wanted(
    allocator: Allocator, cap_w: FloatArray, need_w: FloatArray, target_w: FloatArray, room_w: FloatArray
) -> FloatArray:
    """Where caps are to go now: targets, except that nobody is moved for nothing.

    Who has what it needs keeps what it has above that until others need the watts; then those give first that have
    most too much. Who must do with less than it needs is lowered at once, and raised when it is worth it.
    """
    tree, rules, appetite = allocator.tree, allocator.rules, allocator.appetite
    band_w = rules.band_share * appetite.most_w
    squeezed = target_w < need_w - _MEANT_W
    content = ~squeezed & (cap_w >= need_w - _MEANT_W) & (cap_w >= target_w - 3 * band_w)
    near = squeezed & (cap_w <= target_w) & (cap_w >= target_w - band_w)
    keeps = (content | near) & tree.table.devices.managed
    wanted_w = np.where(keeps, cap_w, target_w)
    missing_w = tree.at_worst(_governed(allocator, wanted_w)) - room_w
    if all_of(missing_w <= 0):
        return wanted_w
    surplus_w = np.where(keeps, np.maximum(cap_w - target_w, 0.0), 0.0)
    return np.where(_givers(tree, surplus_w, missing_w), target_w, wanted_w)


def _governed(allocator: Allocator, cap_w: FloatArray) -> FloatArray:
    """Caps of managed devices, 0 for those that opted out."""
    return cap_w if allocator.all_managed else np.where(allocator.tree.table.devices.managed, cap_w, 0.0)


def _givers(tree: Tree, surplus_w: FloatArray, missing_w: FloatArray) -> BoolArray:
    """The few devices whose surplus together makes up for what is missing at every limit, the largest first."""
    if tree.only_share is not None:
        return _first_givers(tree.only_share * tree.burden * surplus_w, float(missing_w[0])) & (surplus_w > 0)
    chosen = np.zeros(tree.devices, dtype=bool)
    for limit in np.flatnonzero(missing_w > 0).tolist():
        on = tree.path_limit == limit
        device = tree.path_device[on]
        gives_w = tree.path_share[on] * tree.burden[device] * surplus_w[device]
        still_w = missing_w[limit] - gives_w[chosen[device]].sum()
        order = np.argsort(-np.where(chosen[device], 0.0, gives_w), kind="stable")
        count = int(np.searchsorted(np.cumsum(gives_w[order]), still_w)) + 1 if still_w > 0 else 0
        chosen[device[order[:count]]] = True
    return chosen & (surplus_w > 0)


def _first_givers(gives_w: FloatArray, missing_w: float) -> BoolArray:
    """The largest that together make up for what is missing at one limit."""
    order = (-gives_w).argsort(kind="stable")
    chosen = np.zeros(len(gives_w), dtype=bool)
    chosen[order[: int(gives_w[order].cumsum().searchsorted(missing_w)) + 1]] = True
    return chosen


def _fitting(tree: Tree, rise_w: FloatArray, needed_w: FloatArray, left_w: FloatArray) -> FloatArray:
    """As much of the rises as every limit has left: needs class by class, then the rest."""
    if all_of(tree.at_worst(rise_w) <= left_w):
        return rise_w
    needed_w = np.minimum(needed_w, rise_w)
    made = np.zeros(len(rise_w))
    parts = [np.where(tree.rank == rank, needed_w, 0.0) for rank in range(int(tree.rank.max()) + 1)]
    for part in (*parts, rise_w - needed_w):
        asked = tree.at_worst(part)
        share = np.minimum(np.maximum(left_w, 0.0) / np.maximum(asked, 1e-9), 1.0)
        given = part * np.minimum(tree.least(share), 1.0)
        left_w = left_w - tree.at_worst(given)
        made += given
    return made


def _floors_first(allocator: Allocator, target_w: FloatArray, before_w: FloatArray, cap_w: FloatArray) -> FloatArray:
    """Nobody rises above its useful floor while a higher class below the same limit waits for its own.

    Who is to have less than its floor, because it has no work, waits for nothing.
    """
    tree, floor_w = allocator.tree, allocator.appetite.floor_w
    waits = (cap_w < np.minimum(floor_w, target_w) - _MEANT_W) & tree.table.devices.managed
    if not any_of(waits):
        return cap_w
    first = np.full(tree.limits, np.iinfo(np.int64).max)
    waiting = waits[tree.path_device]
    np.minimum.at(first, tree.path_limit[waiting], tree.rank[tree.path_device[waiting]])
    ahead = np.full(tree.devices, np.iinfo(np.int64).max)
    np.minimum.at(ahead, tree.path_device, first[tree.path_limit])
    return np.where(ahead < tree.rank, np.minimum(cap_w, np.maximum(floor_w, before_w)), cap_w)
