"""One allocator step, from readings to grants: caps are lowered first, and others are raised once that is confirmed.

Whatever the readings are, the worst cases of all grants that may still be held add up to at most the budget of every
domain, less the power drawn there by anything other than a leased device. Readings only decide how the budget is
divided. A reduced budget is the one exception, for as long as lowering takes.
"""

from dataclasses import replace

import numpy as np

from cluster.arrays import BoolArray, FloatArray, all_of, any_of
from cluster.power import NEVER_S, PHASE_IDLE, PowerReadings
from power.allocator.burst_bounds import with_bounds
from power.allocator.deadband import UNTIL_S, Quiet, in_order, may_wait, quiet_means_w, rests
from power.allocator.grants import grants, nothing_new, still
from power.allocator.marginal_utility import pieces
from power.allocator.next_caps import as_found, next_caps
from power.allocator.reading_accumulator import mean_since, waited_on
from power.allocator.state import MEANT_W, Allocator, AllocatorState, Grants
from power.allocator.targets import all_needs, targets
from power.allocator.uncapped_demand import measured, needs, obeyed, rises, smoothed, usual, without_work
from power.bursts.burst_limits import BurstAccount, counted
from power.bursts.headroom import counted_excess_w, reserve
from power.estimation.brake import Braking, is_full, is_watched, watched
from power.estimation.commitments import Book, confirmed, granted
from power.estimation.estimator import FINE, STALE, Estimate, distrusting, estimate, heard_again
from power.estimation.phases import lasting, prompts_share, rest_after_w


def step(
    allocator: Allocator,
    state: AllocatorState,
    readings: PowerReadings,
    now_s: float,
    budget_w: FloatArray | None = None,
) -> tuple[AllocatorState, Grants]:
    """The grants to send now, and the state after this step.

    readings: the newest of each device; a second call with the same ones grants nothing more.
    now_s: seconds of the controller's clock, the one that the readings' instants are on.
    budget_w: shape (limits,), in the order of `allocator.tree.limit`, when budgets differ from the table's.

    At every instant between two steps, the sum over each domain of the worst cases that devices may hold is at most its
    budget, or falls towards it as fast as devices obey.
    """
    budget_w = allocator.tree.budget_w if budget_w is None else budget_w
    rules, quiet = allocator.rules, state.quiet
    drawn_w = allocator.tree.drawn(readings.draw_w)
    if (
        quiet is not None
        and state.told is not None
        and not is_watched(state.braking, now_s)
        and may_wait(quiet, rules, readings, drawn_w, budget_w, now_s)
    ):
        told = nothing_new(allocator, state, state.account)
        waited = waited_on(state.waited, readings.draw_w, drawn_w, now_s)
        return still(state, state.spikes, state.mean_w, state.account, waited, state.at_s, told), told
    if state.at_s != NEVER_S and now_s - state.at_s > rules.stale_s:
        state = replace(state, trust=heard_again(state.trust, now_s))
    prompts = prompts_share(state.prompts, readings.phase, now_s - state.at_s)
    rest_w = rest_after_w(state.rest_w, readings, now_s - state.at_s, allocator.tree.table.devices.max_w)
    state, readings = replace(state, prompts=prompts, rest_w=rest_w), lasting(prompts, readings, rest_w)
    draw_w = mean_since(state.waited, readings.draw_w)
    mean_w = smoothed(allocator, state, draw_w, now_s)
    account, overdrew = counted(state.account, allocator.tree, rules, allocator.burst_j, readings, draw_w)
    braking = _braking(allocator, state, readings, drawn_w, budget_w, now_s)
    if braking is not state.braking:
        state = replace(state, braking=braking)
    if any_of(overdrew):
        state = replace(state, trust=distrusting(state.trust, overdrew, now_s + rules.distrust_s))
    elif quiet is not None and rests(quiet, rules, readings, mean_w, budget_w, now_s):
        spikes = measured(allocator, state, drawn_w, now_s)
        account = with_bounds(
            allocator,
            account,
            spikes,
            counted_excess_w(allocator.tree, rules, spikes, state.prompts, readings),
            readings,
            budget_w,
            state.book,
            braking,
            draw_w=readings.draw_w,
            drawn_w=drawn_w,
            usual_w=state.usual_w,
            short=state.target_w < state.need_w - MEANT_W,
            now_s=now_s,
        )
        told = nothing_new(allocator, state, account)
        return still(state, spikes, mean_w, account, None, now_s, told), told
    return _decided(allocator, state, account, readings, now_s, budget_w, mean_w, drawn_w)


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
    """The full step, taken where the deadband does not apply."""
    if any_of(np.isnan(readings.cap_w)):
        readings = replace(readings, cap_w=np.where(np.isnan(readings.cap_w), np.inf, readings.cap_w))
    if state.at_s == NEVER_S:
        state = _started(state, now_s)
    rules = allocator.rules
    fine = state.quiet is not None and in_order(state.quiet, rules, readings, now_s)
    trust, seen = estimate(allocator.tree, rules, state.trust, state.book, readings, now_s, in_order=fine)
    book = confirmed(state.book, readings.sequence, *obeyed(allocator, state.book, readings, seen))
    if seen.clean and book is not state.book:
        held_w = np.maximum(book.ceiling_w, readings.cap_w)
        seen = Estimate(seen.draw_w, held_w, seen.believed, seen.fault, clean=True)
    braking = state.braking
    spikes = measured(allocator, state, drawn_w, now_s) if seen.clean else state.spikes
    excess_w = counted_excess_w(allocator.tree, rules, spikes, state.prompts, readings)
    need_w, known = needs(allocator, book, seen, readings, mean_w, state)
    if braking.holds:
        need_w = np.where(braking.slowed, state.need_w, need_w)
    rises_per_s = state.rises_per_s if allocator.all_burst else rises(allocator, state, need_w, now_s)
    room_w = budget_w - allocator.fixed_w
    usual_w = state.usual_w if braking.holds else usual(allocator, state, need_w, readings, now_s)
    reserve_w = reserve(
        allocator.tree,
        rules,
        spikes,
        excess_w,
        draw_w=seen.draw_w,
        mean_w=mean_w,
        need_w=need_w,
    )
    target_w = all_needs(allocator, trust, seen, need_w, readings.phase, room_w - reserve_w)
    if target_w is None:
        width_w, level = pieces(allocator.appetite, need_w, usual_w, readings.phase, rises_per_s)
        target_w = targets(allocator, trust, seen, width_w, level, room_w, reserve_w)
    if not all_of(book.met) and now_s < state.started_s + allocator.rules.stale_s:
        target_w = np.where(_awaited(allocator, book, seen, room_w), book.cap_w, target_w)
    pool_w = np.minimum(spikes.spike_w, allocator.rules.reserve_most_share * budget_w)
    clean = seen.clean and trust.clean
    far_w = rules.calm_look_share * budget_w - allocator.fixed_w
    calm = clean and all_of(drawn_w < far_w)
    asks_w = without_work(allocator, need_w, readings.phase) if calm else need_w
    cap_w = next_caps(allocator, trust, book, seen, asks_w, target_w, room_w, pool_w)
    if not all_of(state.book.met):
        cap_w = as_found(allocator, state.book, book, readings, cap_w)
    burst = allocator.bursts if seen.clean else allocator.bursts & (seen.fault == FINE)
    changed = ((cap_w != book.cap_w) | (burst != book.burst)) & allocator.tree.table.devices.managed
    any_changed = any_of(changed)
    if any_changed:
        book = granted(book, cap_w, burst, changed, now_s)
    settled = not any_changed and book.settled
    quiet = _quiet(allocator, book, need_w, usual_w, budget_w, far_w, now_s, settled=settled) if clean else None
    if not seen.clean:
        drawn_w = allocator.tree.drawn(seen.draw_w)
    account = with_bounds(
        allocator,
        account,
        spikes,
        excess_w,
        readings,
        budget_w,
        book,
        braking,
        draw_w=seen.draw_w,
        drawn_w=drawn_w,
        usual_w=usual_w,
        short=target_w < need_w - MEANT_W,
        now_s=now_s,
    )
    told = grants(allocator, book, account, changed)
    made = AllocatorState(
        book=book,
        trust=trust,
        spikes=spikes,
        need_w=need_w,
        usual_w=usual_w,
        known=known,
        rises_per_s=rises_per_s,
        target_w=target_w,
        mean_w=mean_w,
        prompts=state.prompts,
        rest_w=state.rest_w,
        estimate=seen,
        account=account,
        braking=state.braking,
        quiet=quiet,
        started_s=state.started_s,
        at_s=now_s,
        decided_s=now_s,
        waited=None,
        told=told,
    )
    return made, told


def _quiet(
    allocator: Allocator,
    book: Book,
    need_w: FloatArray,
    usual_w: FloatArray,
    budget_w: FloatArray,
    far_w: FloatArray,
    now_s: float,
    *,
    settled: bool,
) -> Quiet | None:
    """Bounds within which nothing needs to be decided; None where every step must be taken in full.

    far_w: shape (limits,), draws of devices below which a domain is far from its budget.
    Caps may wait for the next full step where all devices may burst and have been seen to obey, and where all grants
    fit: a reduced budget never waits. Outstanding grants are checked once per control delay, since disobedience must be
    detected within the deadline.
    """
    rules = allocator.rules
    wait_s = rules.calm_look_s if book.settled else min(rules.calm_look_s, rules.control_delay_s)
    tree = allocator.tree
    fit = all_of(tree.at_worst(book.ceiling_w) <= budget_w - allocator.fixed_w)
    may_wait = allocator.all_burst and fit and all_of(book.met)
    if not may_wait and not settled:
        return None
    return Quiet(
        least_draw_w=allocator.lowest_w,
        most_draw_w=np.where(book.burst, allocator.highest_w, book.cap_w),
        most_cap_w=book.ceiling_w + MEANT_W,
        budget_w=budget_w.copy(),
        far_w=far_w if may_wait else None,
        look_s=now_s + wait_s,
        lacks=book.cap_w < usual_w - rules.band_share * allocator.appetite.most_w,
        mean_w=quiet_means_w(tree, allocator.rules, book, need_w) if settled else None,
        until_s=now_s + UNTIL_S,
    )


def _braking(
    allocator: Allocator,
    state: AllocatorState,
    readings: PowerReadings,
    drawn_w: FloatArray,
    budget_w: FloatArray,
    now_s: float,
) -> Braking:
    """Whether a hardware brake is engaged, judged by active devices' draw against their usual draw."""
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


def _started(state: AllocatorState, now_s: float) -> AllocatorState:
    """The state at the first step: earlier grants count as granted now, so that no device is late yet.

    A device not yet heard by this controller keeps what it has for as long as a reading may be old: a controller
    restart must not send a row to its floors.
    """
    now: FloatArray = np.full(len(state.book.cap_w), now_s)
    book = replace(state.book, granted_at_s=now, due_since_s=now)
    return replace(state, book=book, started_s=now_s)


def _awaited(allocator: Allocator, book: Book, seen: Estimate, room_w: FloatArray) -> BoolArray:
    """Devices not yet heard by a new controller that may keep what they have, because it fits the budget."""
    tree = allocator.tree
    granted_w = np.where(tree.table.devices.managed, book.cap_w, 0.0)
    fits = tree.least(room_w - tree.at_worst(granted_w)) >= 0
    awaited: BoolArray = ~book.met & (seen.fault == STALE) & fits
    return awaited
