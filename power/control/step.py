"""One control step, from readings to grants: what a policy wants, the safety layer grants or trims.

Whatever the readings are and whatever the policy wants, the worst cases of all grants that may still be held add up to
at most the budget of every domain, less the power drawn there by anything other than a leased device. Readings only
decide how the budget is divided. A reduced budget is the one exception, for as long as lowering takes.
"""

from dataclasses import replace

import numpy as np

from cluster.arrays import BoolArray, FloatArray, all_of, any_of
from cluster.power import NEVER_S, PowerReadings
from power.control.state import Allocator, AllocatorState, Grants
from power.policy.interface import PolicyInput, floors_first_w
from power.rules import MEANT_W
from power.safety import estimator
from power.safety.bursts import counted, restoring
from power.safety.commitments import GrantLedger, confirmed, granted
from power.tree import Tree
from power.watching import Braking, is_full, is_watched, repeated, watched


def granted_w(
    tree: Tree,
    trust: estimator.Trust,
    ledger: GrantLedger,
    seen: estimator.Estimate,
    awaited: BoolArray,
    wanted_w: FloatArray,
    room_w: FloatArray,
) -> FloatArray:
    """New cap of every device, shape (devices,).

    awaited: devices not heard yet by a new controller, which keep what they have; others that no grant may govern are
    sent to their safe floor. wanted_w: the policy's caps, trimmed to what devices accept and to the room. room_w: shape
    (limits,), what leased devices may draw at worst.
    """
    devices = tree.table.devices
    governed = is_governed(tree, seen)
    wanted_w = np.minimum(np.maximum(wanted_w, devices.min_w), devices.max_w)
    wanted_w = _fitting_caps(tree, governed, np.where(governed, wanted_w, seen.held_w), room_w)
    if not all_of(governed):
        wanted_w = np.where(governed, wanted_w, np.where(awaited, ledger.cap_w, devices.floor_w))
    held_w = np.where(devices.managed, seen.held_w, 0.0)
    left_w = room_w - tree.at_worst(held_w)
    lowered_w = np.where(devices.managed, np.minimum(wanted_w, ledger.cap_w), ledger.cap_w)
    if not trust.clean:
        # A device that keeps a higher limit than granted is granted that limit, once others made room. Only the record
        # changes: it enforces that limit already, and would be reported for ever as not obeying.
        clamped = (trust.least_w > ledger.cap_w) & (seen.held_w >= trust.least_w)
        clamped &= seen.believed & (seen.fault != estimator.OVER_CAP) & (tree.least(left_w) >= 0)
        lowered_w = np.where(clamped, np.minimum(trust.least_w, devices.max_w), lowered_w)
    may_rise = (ledger.ceiling_w <= ledger.cap_w) & seen.believed & (seen.fault == estimator.FINE) & devices.managed
    rise_w = np.where(may_rise, np.maximum(wanted_w - held_w, 0.0), 0.0)
    if not any_of(rise_w > 0):
        return lowered_w
    rise_w = _fitting_rises(tree, rise_w, left_w)
    return np.where(rise_w >= MEANT_W, held_w + np.floor(rise_w), lowered_w)


def is_governed(tree: Tree, seen: estimator.Estimate) -> BoolArray:
    """Devices that a new grant may govern, shape (devices,).

    Others count at what they may hold, whatever is granted.
    """
    if seen.clean:
        return tree.table.devices.managed
    return np.asarray(tree.table.devices.managed & (seen.fault != estimator.STALE) & (seen.fault != estimator.OVER_CAP))


def _fitting_caps(tree: Tree, governed: BoolArray, cap_w: FloatArray, room_w: FloatArray) -> FloatArray:
    """Caps that together fit every limit: where a policy wants too much, all above their lowest limits give alike."""
    devices = tree.table.devices
    leased_w = np.where(devices.managed, cap_w, 0.0)
    if all_of(tree.at_worst(leased_w) <= room_w):
        return cap_w
    base_w = np.where(governed, devices.min_w, leased_w)
    above_w = tree.at_worst(leased_w - base_w)
    share = np.minimum(np.maximum(room_w - tree.at_worst(base_w), 0.0) / np.maximum(above_w, 1e-9), 1.0)
    return np.where(governed, base_w + np.floor((leased_w - base_w) * np.minimum(tree.least(share), 1.0)), cap_w)


def _fitting_rises(tree: Tree, rise_w: FloatArray, left_w: FloatArray) -> FloatArray:
    """Rises reduced to the room that every limit has left, class by class."""
    made = np.zeros(len(rise_w))
    for rank in range(int(tree.rank.max()) + 1):
        part = np.where(tree.rank == rank, rise_w, 0.0)
        share = np.minimum(np.maximum(left_w, 0.0) / np.maximum(tree.at_worst(part), 1e-9), 1.0)
        given = part * np.minimum(tree.least(share), 1.0)
        left_w = left_w - tree.at_worst(given)
        made += given
    return made


def as_found_w(
    tree: Tree, before: GrantLedger, ledger: GrantLedger, readings: PowerReadings, cap_w: FloatArray
) -> FloatArray:
    """Caps limited to the enforced limits of devices that are seen to obey for the first time.

    An earlier controller may have lowered them since their limits were first read, and granted the power to others.
    """
    newly = ledger.met & ~before.met & (readings.cap_w > 0)
    holds_w = np.maximum(np.floor(readings.cap_w), tree.table.devices.min_w)
    return np.where(newly, np.minimum(cap_w, holds_w), cap_w)


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
    tree, rules = allocator.tree, allocator.rules
    budget_w = tree.budget_w if budget_w is None else budget_w
    unknown = np.isnan(readings.cap_w)
    if any_of(unknown):  # an unknown limit counts as none
        readings = replace(readings, cap_w=np.where(unknown, np.inf, readings.cap_w))
    if state.at_s == NEVER_S:  # earlier grants count as granted now, so that no device is late yet
        now: FloatArray = np.full(len(state.ledger.cap_w), now_s)
        state = replace(state, ledger=replace(state.ledger, granted_at_s=now, due_since_s=now), started_s=now_s)
    elif now_s - state.at_s > rules.stale_s:  # nor is silence during a pause held against any
        state = replace(state, trust=estimator.reporting_again(state.trust, now_s))

    # Safety: what is believed, and what each device may still hold.
    account, overdrew = counted(state.account, tree, rules, allocator.burst_j, readings)
    trust = state.trust
    if any_of(overdrew):
        trust = estimator.distrusting(trust, overdrew, now_s + rules.distrust_s)
    repetition = repeated(state.repetition, rules, readings, tree.table.devices.idle_w, now_s)
    trust, seen = estimator.estimate(tree, rules, trust, state.ledger, readings, repetition.stuck, now_s)
    seen = seen if seen.clean else estimator.with_wrong_units(seen, tree.table.devices, readings.draw_w)
    ledger = confirmed(state.ledger, readings.sequence, *estimator.obeyed(tree, rules, state.ledger, readings, seen))
    if seen.clean and ledger is not state.ledger:
        held_w = np.maximum(ledger.ceiling_w, readings.cap_w)
        seen = estimator.Estimate(seen.draw_w, held_w, seen.believed, seen.fault, clean=True)
    drawn_w = tree.drawn(seen.draw_w) + allocator.fixed_w
    braking = state.braking
    if is_watched(braking, now_s) or any_of(is_full(drawn_w, budget_w)):
        # Whether a hardware brake is engaged is judged by the draw of devices against what they need.
        usual_w = np.minimum(state.ledger.cap_w, state.need_w / (1 + rules.margin_share))
        braking = watched(
            braking,
            tree,
            draw_w=readings.draw_w,
            at_work_w=np.where(state.need_w <= tree.table.devices.floor_w, 0.0, usual_w),
            drawn_w=drawn_w,
            budget_w=budget_w,
            let_go_s=rules.control_delay_s,
            now_s=now_s,
        )

    # Policy: what is wanted.
    room_w = budget_w - allocator.fixed_w
    shown = _seen(allocator, state, trust, ledger, seen, readings, braking, now_s, drawn_w, budget_w, room_w)
    memory, wants = allocator.policy.wants(state.memory, shown)

    # Safety: what of it is granted now.
    awaited = _awaited(allocator, ledger, seen, room_w, now_s - state.started_s)
    cap_w = granted_w(tree, trust, ledger, seen, awaited, wants.cap_w, room_w)
    cap_w = floors_first_w(tree, wants.cap_w, ledger.cap_w, cap_w)
    burst = allocator.plant.bursts if seen.clean else allocator.plant.bursts & (seen.fault == estimator.FINE)
    if not all_of(state.ledger.met):
        cap_w = as_found_w(tree, state.ledger, ledger, readings, cap_w)
    changed = ((cap_w != ledger.cap_w) | (burst != ledger.burst)) & tree.table.devices.managed
    if any_of(changed):
        ledger = granted(ledger, cap_w, burst, changed, now_s)
    account = restoring(account, tree, rules, drawn_w, budget_w, now_s, braked=braking.holds)
    to_w = np.maximum(wants.burst_to_w, ledger.cap_w)
    return AllocatorState(
        ledger=ledger,
        trust=trust,
        repetition=repetition,
        estimate=seen,
        account=account,
        braking=braking,
        memory=memory,
        started_s=state.started_s,
        at_s=now_s,
    ), Grants(
        changed=changed,
        cap_w=ledger.cap_w,
        burst_j=np.where(ledger.burst, allocator.burst_j, 0.0),
        # Below an engaged brake no device exceeds its lease.
        burst_to_w=np.where(braking.under, ledger.cap_w, to_w) if braking.holds else to_w,
        credit_back_s=account.back_s,
        sequence=ledger.sequence,
        safe_w=np.minimum(tree.table.devices.floor_w, ledger.cap_w),
        met=ledger.met,
    )


def _seen(
    allocator: Allocator,
    state: AllocatorState,
    trust: estimator.Trust,
    ledger: GrantLedger,
    seen: estimator.Estimate,
    readings: PowerReadings,
    braking: Braking,
    now_s: float,
    drawn_w: FloatArray,
    budget_w: FloatArray,
    room_w: FloatArray,
) -> PolicyInput:
    """What the policy is shown. Devices that no grant may govern are subtracted at what they may hold."""
    tree, rules = allocator.tree, allocator.rules
    governed, free_w = is_governed(tree, seen), room_w
    if not all_of(governed):
        free_w = room_w - tree.at_worst(np.where(tree.table.devices.managed & ~governed, seen.held_w, 0.0))
    limit_w = np.where(readings.cap_w > 0, np.minimum(readings.cap_w, ledger.ceiling_w), ledger.cap_w)
    base_w = tree.table.devices.min_w
    return PolicyInput(
        for_s=now_s - state.at_s if state.at_s != NEVER_S else 0.0,
        draw_w=seen.draw_w,
        shown_w=readings.draw_w,
        phase=readings.phase,
        limit_w=limit_w,
        lease_w=ledger.cap_w,
        shows=(readings.at_s > ledger.granted_at_s + 2 * rules.control_delay_s)
        | (seen.draw_w < rules.pinned_share * ledger.before_w),
        governed=governed,
        base_w=base_w if trust.clean else np.maximum(base_w, trust.least_w),
        free_w=free_w,
        drawn_w=drawn_w,
        budget_w=budget_w,
        is_clean=seen.clean and trust.clean,
        slowed=braking.slowed if braking.holds else None,
    )


def _awaited(
    allocator: Allocator, ledger: GrantLedger, seen: estimator.Estimate, room_w: FloatArray, for_s: float
) -> BoolArray:
    """Devices not yet heard by a new controller that may keep what they have, because it fits the budget.

    For as long as a reading may be old: a restart of the controller must not send a row to its floors. for_s: time
    since the restart.
    """
    tree = allocator.tree
    if for_s >= allocator.rules.stale_s or all_of(ledger.met):
        return tree.nobody
    leased_w = np.where(tree.table.devices.managed, ledger.cap_w, 0.0)
    fits = tree.least(room_w - tree.at_worst(leased_w)) >= 0
    awaited: BoolArray = ~ledger.met & (seen.fault == estimator.STALE) & fits
    return awaited
