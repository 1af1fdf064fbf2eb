"""What readings tell of the power system: brakes that engage, meters that are stuck or contradict their devices."""

from dataclasses import dataclass, replace
from math import exp

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, all_of, any_of
from cluster.power import NEVER_S, PHASE_IDLE, PowerReadings
from power.rules import PowerRules
from power.safety.estimator import Estimate, is_scaled
from power.tree import Tree

_FULL_SHARE = 0.95
"""Fraction of the budget below which no brake can be engaged: a brake engages at the budget, so the row must have been
near it."""
_LASTS_S = 300.0
"""Longest time after the row was full for which a brake may be assumed. Brakes hold for a minute; a lower draw that
lasts longer is the present work."""
_SLOWED_SHARE = 0.75
"""Fraction of a device's working draw under its lease below which it is held down. A brake leaves less than half."""
_MOST_SHARE = 0.5
"""Fraction of the working draw of all active devices that must be held down at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Braking:
    """Brakes that are engaged, and the devices that they hold down."""

    full_s: FloatArray
    """Instant when the draw was last near the budget, shape (limits,)."""
    held_s: FloatArray
    """Instant when most of the draw was last held down, shape (limits,)."""
    holding: BoolArray
    """Limits whose brake is engaged, shape (limits,)."""
    under: BoolArray
    """Devices that draw through a limit whose brake is engaged, shape (devices,)."""
    slowed: BoolArray
    """Those of them that are held down by it, shape (devices,)."""
    holds: bool


def no_brake(tree: Tree) -> Braking:
    never_s, nowhere = np.full(tree.limits, NEVER_S), np.zeros(tree.limits, dtype=bool)
    return Braking(never_s, never_s, nowhere, tree.nobody, tree.nobody, holds=False)


def is_watched(braking: Braking, now_s: float) -> bool:
    """Whether a brake is or may be engaged: some domain was full a short while ago."""
    return braking.holds or any_of(braking.full_s > now_s - _LASTS_S)


def is_full(drawn_w: FloatArray, budget_w: FloatArray) -> BoolArray:
    """Limits so near to their budgets that a brake may engage; shape (limits,)."""
    return np.asarray(drawn_w >= _FULL_SHARE * budget_w)


def watched(
    before: Braking,
    tree: Tree,
    *,
    draw_w: FloatArray,
    at_work_w: FloatArray,
    drawn_w: FloatArray,
    budget_w: FloatArray,
    let_go_s: float,
    now_s: float,
) -> Braking:
    """The brakes detected now, each limit separately.

    at_work_w: shape (devices,), working draw of each device under its lease; 0 for idle devices.
    drawn_w, budget_w: shape (limits,). let_go_s: time for which a brake counts as engaged after it was last detected,
    until the draws that it held down are visible.
    """
    full = is_full(drawn_w, budget_w)
    full_s = np.where(full, now_s, before.full_s) if any_of(full) else before.full_s
    lately = full_s > now_s - _LASTS_S
    if not (lately.any() or before.holds):
        return before if full_s is before.full_s else replace(before, full_s=full_s)
    slowed = draw_w < _SLOWED_SHARE * at_work_w
    low_w, all_w = tree.through(np.where(slowed, at_work_w, 0.0)), tree.through(at_work_w)
    there = lately & (low_w > _MOST_SHARE * all_w)
    held_s = np.where(there, now_s, before.held_s)
    holding = now_s - held_s <= let_go_s
    return Braking(
        full_s, held_s, holding, _through(tree, holding), slowed & _through(tree, there), holds=any_of(holding)
    )


def _through(tree: Tree, which: BoolArray) -> BoolArray:
    """Devices that draw through any of these limits. which: shape (limits,)."""
    made = np.zeros(tree.devices, dtype=bool)
    made[tree.path_device[which[tree.path_limit]]] = True
    return made


AGREES, STALE, IMPOSSIBLE, WRONG_UNIT, SHOWS_LESS, SHOWS_MORE = range(6)
"""Results of comparing a meter with its devices; AGREES also where there is no meter."""

FAULTS = ("", "MeterStale", "MeterImpossible", "MeterWrongUnit", "MeterShowsLess", "MeterShowsMore")
"""Names of the results, as reasons in conditions and events."""

FAULT_WORDS = (
    "",
    "has not been heard from for too long: only its devices' readings are used",
    "shows more than everything behind it could draw: ignored",
    "is wrong by a factor of a thousand, as when kilowatts are taken for watts: ignored",
    "shows less than its devices report: their readings are used, check the meter",
    "shows more than everything known there can draw: look for devices that report too little, and for other loads",
)

_SLACK_W = 20.0
"""Absolute tolerance of a meter, in addition to the relative one: some steps of 10 W."""
_IMPOSSIBLE_SHARE = 1.5
"""Fraction of the worst case of everything; a reading above it is an error of the meter, not a forgotten load."""
_LAG_S = 30.0
"""Lag of meters. Chosen: BMCs average over up to 20 s and are polled every 5 s."""
_FADES_S = 60.0
"""Time constant with which an excess that is no longer shown is released: over several readings, not by a single
one."""


@dataclass(frozen=True, slots=True, eq=False)
class Metering:
    """Data that stays constant from reading to reading."""

    tree: Tree
    metered: BoolArray
    """Domains whose meters are used here, shape (domains,): nodes with devices, and domains with a budget."""
    surely: BoolArray
    """Whether all that the device draws goes through that limit, and no part through another feed; shape (paths,)."""
    worst_w: FloatArray
    """Worst case of everything in each domain, shape (domains,)."""
    node: IntArray
    """Node with devices, a row of the domain table, for each limit that it draws through; shape (feeds of nodes,)."""
    limit: IntArray
    share: FloatArray
    """Fraction of the node's power that the limit must be able to carry."""


@dataclass(frozen=True, slots=True, eq=False)
class Meters:
    """Result of comparing all meters with their devices."""

    excess_w: FloatArray
    """Power that no device and no known load accounts for, shape (limits,), found by the limit's own meter or by those
    of the nodes that draw through it. The budget is reduced by it. Never negative."""
    own_w: FloatArray
    """The same by each domain's own meter, shape (domains,)."""
    fault: IntArray
    """Result per domain, shape (domains,): AGREES, STALE, …"""
    at_s: float
    span: "_Span"


@dataclass(frozen=True, slots=True, eq=False)
class _Span:
    """Largest and smallest recent draws of devices, shape (domains,), in two windows of `_LAG_S` each."""

    since_s: float
    most_w: FloatArray
    least_w: FloatArray
    former_most_w: FloatArray
    former_least_w: FloatArray


def metering_of(tree: Tree) -> Metering:
    devices, domains = tree.table.devices, len(tree.table.domains)
    metered = np.zeros(domains, dtype=np.bool_)
    metered[tree.limit] = metered[devices.domain] = True
    # All devices of a node draw through the same limits, so the first one represents it.
    _, first = np.unique(devices.domain, return_index=True)
    of_nodes = np.isin(tree.path_device, first)
    worst_w = _drawn_w(tree, tree.burden * np.maximum(devices.max_w, devices.default_w))
    return Metering(
        tree=tree,
        metered=metered,
        surely=_surely(tree),
        worst_w=worst_w,
        node=devices.domain[tree.path_device[of_nodes]],
        limit=tree.path_limit[of_nodes],
        share=tree.path_share[of_nodes],
    )


def no_meters(metering: Metering) -> Meters:
    domains, limits = len(metering.worst_w), metering.tree.limits
    nothing, all_w = np.zeros(domains), np.full(domains, np.inf)
    span = _Span(NEVER_S, nothing, all_w, nothing, all_w)
    return Meters(np.zeros(limits), nothing, np.full(domains, AGREES), NEVER_S, span)


def metered(
    metering: Metering, rules: PowerRules, before: Meters, seen: Estimate, readings: PowerReadings, now_s: float
) -> Meters:
    """Result of comparing meters and devices now.

    seen: estimate of the devices (`AllocatorState.estimate`). A device that is not believed counts at its worst case in
    the upper bound and at nothing in the lower one. readings: only its meter columns are used, one entry per domain of
    the table.

    Meters lag: they average, and are read seconds after the devices. So a meter contradicts its devices only where it
    disagrees with every instant of the last `_LAG_S`.
    """
    tree, at_s, meter_w = metering.tree, readings.meter_at_s, readings.meter_w
    there = metering.metered & (at_s > NEVER_S)
    if not there.any() and not before.own_w.any():
        return replace(before, fault=np.full(len(there), AGREES), at_s=now_s)
    most_w = _drawn_w(tree, tree.overhead * seen.draw_w)
    # What certainly passes through each domain that may have a meter.
    watts = tree.overhead * np.where(seen.believed, seen.draw_w, 0.0)
    least_w: FloatArray = np.bincount(tree.table.devices.domain, watts, len(tree.table.domains)).astype(np.float64)
    carried = np.where(metering.surely, tree.path_share * watts[tree.path_device], 0.0)
    least_w[tree.limit] = np.bincount(tree.path_limit, carried, tree.limits)
    span = before.span
    if now_s - span.since_s >= _LAG_S:
        span = _Span(now_s, most_w, least_w, span.most_w, span.least_w)
    else:
        span = replace(span, most_w=np.maximum(span.most_w, most_w), least_w=np.minimum(span.least_w, least_w))
    high_w, low_w = np.maximum(span.most_w, span.former_most_w), np.minimum(span.least_w, span.former_least_w)
    fresh = (at_s >= now_s - rules.stale_s) & (at_s <= now_s + rules.control_delay_s)
    possible = (meter_w >= 0) & (meter_w <= _IMPOSSIBLE_SHARE * metering.worst_w)
    more = meter_w > high_w * (1 + rules.tolerance_share) + _SLACK_W
    less = meter_w < low_w * (1 - rules.tolerance_share) - _SLACK_W
    # Wrong by its unit: it disagrees with the devices, but a thousand times larger or smaller it would agree.
    lower_w, upper_w = least_w * (1 - rules.tolerance_share), most_w * (1 + rules.tolerance_share) + _SLACK_W
    unit = ((meter_w > upper_w) | (meter_w < lower_w)) & is_scaled(meter_w, lower_w, upper_w) & (least_w > 0)
    cases = [~there, ~fresh, unit, ~possible, more, less]
    fault = np.select(cases, [AGREES, STALE, WRONG_UNIT, IMPOSSIBLE, SHOWS_MORE, SHOWS_LESS], AGREES)
    shown_w = np.where(fault == SHOWS_MORE, meter_w - high_w, 0.0)
    kept_w = before.own_w * exp(-max(now_s - before.at_s, 0.0) / _FADES_S)
    own_w = np.maximum(shown_w, np.where(kept_w >= 1.0, kept_w, 0.0))
    # A node's meter and the row's show the same power, so the larger value counts.
    of_nodes = np.bincount(metering.limit, metering.share * own_w[metering.node], tree.limits)
    excess_w = np.asarray(np.maximum(of_nodes, own_w[tree.limit]), dtype=np.float64)
    return Meters(excess_w, own_w, fault, now_s, span)


def _drawn_w(tree: Tree, watts: FloatArray) -> FloatArray:
    """Power through each domain that may have a meter, shape (domains,), for watts at the feed per device, with
    everything else there at its worst case.
    """
    domains = tree.table.domains
    made = np.bincount(tree.table.devices.domain, watts, len(domains)) + domains.other_w
    made[tree.limit] = tree.through(watts) + tree.other_w
    return np.asarray(made, dtype=np.float64)


def _surely(tree: Tree) -> BoolArray:
    """Whether every domain between the device and the limit has a single feed, for each path."""
    table = tree.table
    feeds = np.bincount(table.feeds.child, minlength=len(table.domains))
    only_parent = np.full(len(table.domains), -1)
    only_parent[table.feeds.child] = table.feeds.parent
    only_parent[feeds != 1] = -1
    above: list[frozenset[int]] = []
    for domain in range(len(table.domains)):
        found, here = set[int](), domain
        while here >= 0:
            found.add(here)
            here = int(only_parent[here])
        above.append(frozenset(found))
    pairs = zip(table.devices.domain[tree.path_device].tolist(), tree.limit[tree.path_limit].tolist(), strict=True)
    return np.array([limit in above[domain] for domain, limit in pairs], dtype=np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class Repetition:
    """Memory of the check; shape (devices,) each."""

    looked_at_w: FloatArray
    """Draw at the last check whether readings change at all."""
    looked_at_s: float
    moved: BoolArray
    """Whether a reading has differed from that since."""
    stuck: BoolArray


def no_repetition(tree: Tree) -> Repetition:
    return Repetition(np.full(tree.devices, -1.0), NEVER_S, tree.everyone, tree.nobody)


def repeated(
    before: Repetition, rules: PowerRules, readings: PowerReadings, idle_w: FloatArray, now_s: float
) -> Repetition:
    """The memory with the check whether readings change, made once per `stuck_s`: an unchanged working device is stuck.

    A device held back by its cap may well draw the same for long; believing its reading means taking it at its worst
    case.
    """
    if rules.stuck_s == 0:
        return before
    due = now_s - before.looked_at_s >= rules.stuck_s
    if not due and all_of(before.moved) and not any_of(before.stuck):
        return before
    moved = before.moved | (readings.draw_w != before.looked_at_w)
    if not due:
        return Repetition(before.looked_at_w, before.looked_at_s, moved, before.stuck & ~moved)
    works = (readings.phase != PHASE_IDLE) & (readings.draw_w > 1.1 * idle_w)
    held_back = readings.draw_w >= rules.pinned_share * readings.cap_w
    return Repetition(readings.draw_w.copy(), now_s, np.zeros_like(moved), ~moved & works & ~held_back)
