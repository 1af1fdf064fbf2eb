"""A domain's meter against the sum of its devices: who contradicts whom is named, and the larger of both counts.

A meter that shows more than all devices and the worst case of everything else together can draw has found watts that no
lease governs: devices that say less than they draw, or a load that nobody wrote down. They are taken from the domain's
budget (`step(..., budget_w=budget_w - meters.excess_w)`) for as long as they show. A meter that shows less than its
devices is wrong itself, and is named; watts are never given out on its word.
"""

from dataclasses import dataclass
from math import exp

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.power import NEVER_S, PowerReadings
from power.estimator import Estimate
from power.rules import PowerRules
from power.tree import Tree

AGREES, STALE, IMPOSSIBLE, WRONG_UNIT, SHOWS_LESS, SHOWS_MORE = range(6)
"""What can be between a meter and its devices; AGREES also where there is no meter."""

FAULTS = ("", "MeterStale", "MeterImpossible", "MeterWrongUnit", "MeterShowsLess", "MeterShowsMore")
"""Their names, as reasons in conditions and events."""

FAULT_WORDS = (
    "",
    "its meter was not heard for too long: its devices alone are believed",
    "its meter shows what nothing in it could draw: set aside",
    "its meter shows a thousand times too much or too little, as kilowatts taken for watts: set aside",
    "its meter shows less than its devices draw by their own word: they count, look after the meter",
    "its meter shows more than all that is known there can draw: look for devices that say too little, and other loads",
)

_SLACK_W = 20.0
"""Of a meter, besides its share: some steps of 10 W."""
_IMPOSSIBLE_SHARE = 1.5
"""Of everything at its worst: beyond that it is the meter, not a load that was forgotten."""
_FADES_S = 60.0
"""Time constant with which an excess that no longer shows is given back: some readings, no single one."""


@dataclass(frozen=True, slots=True, eq=False)
class Metering:
    """What stays the same from reading to reading."""

    tree: Tree
    surely: BoolArray
    """Shape (paths,): whether all that the device draws goes through that limit, not a part through another feed."""
    worst_w: FloatArray
    """Shape (limits,): everything at its highest."""


@dataclass(frozen=True, slots=True, eq=False)
class Meters:
    """What meters say, shape (limits,) each."""

    excess_w: FloatArray
    """Watts that no device and nothing known accounts for: the budget is smaller by them. Never negative."""
    fault: IntArray
    """AGREES, STALE, …"""
    at_s: float


def metering_of(tree: Tree) -> Metering:
    devices = tree.table.devices
    worst_w = tree.through(tree.burden * np.maximum(devices.max_w, devices.default_w)) + tree.other_w
    return Metering(tree, _surely(tree), worst_w)


def no_meters(metering: Metering) -> Meters:
    limits = metering.tree.limits
    return Meters(np.zeros(limits), np.full(limits, AGREES), NEVER_S)


def metered(
    metering: Metering, rules: PowerRules, before: Meters, seen: Estimate, readings: PowerReadings, now_s: float
) -> Meters:
    """What is between meters and devices now.

    seen: what is believed of the devices (`AllocatorState.estimate`); one that is not believed counts at its worst case
    above and at nothing below. readings: its meters' columns are used, one entry per domain of the table.
    """
    tree = metering.tree
    at_s, meter_w = readings.meter_at_s[tree.limit], readings.meter_w[tree.limit]
    most_w = tree.through(tree.overhead * seen.draw_w) + tree.other_w
    least_w = _through(metering, tree.overhead * np.where(seen.believed, seen.draw_w, 0.0))
    there = at_s > NEVER_S
    fresh = (at_s >= now_s - rules.stale_s) & (at_s <= now_s + rules.control_delay_s)
    possible = (meter_w >= 0) & (meter_w <= _IMPOSSIBLE_SHARE * metering.worst_w)
    more = meter_w > most_w * (1 + rules.tolerance_share) + _SLACK_W
    less = meter_w < least_w * (1 - rules.tolerance_share) - _SLACK_W
    unit = _is_unit(meter_w, least_w, most_w, rules.tolerance_share)
    cases = [~there, ~fresh, unit, ~possible, more, less]
    fault = np.select(cases, [AGREES, STALE, WRONG_UNIT, IMPOSSIBLE, SHOWS_MORE, SHOWS_LESS], AGREES)
    shown_w = np.where(fault == SHOWS_MORE, meter_w - most_w, 0.0)
    kept_w = before.excess_w * exp(-max(now_s - before.at_s, 0.0) / _FADES_S)
    return Meters(np.maximum(shown_w, np.where(kept_w >= 1.0, kept_w, 0.0)), fault, now_s)


def _is_unit(meter_w: FloatArray, least_w: FloatArray, most_w: FloatArray, tolerance_share: float) -> BoolArray:
    """Whether a thousand times more or less would agree with the devices, and the figure itself does not."""
    low, high = least_w * (1 - tolerance_share), most_w * (1 + tolerance_share) + _SLACK_W
    off = (meter_w > high) | (meter_w < low)
    scaled: BoolArray = ((meter_w / 1000 >= low) & (meter_w / 1000 <= high)) | (
        (meter_w * 1000 >= low) & (meter_w * 1000 <= high)
    )
    return off & scaled & (meter_w > 0) & (least_w > 0)


def _through(metering: Metering, watts: FloatArray) -> FloatArray:
    """Watts that surely go through each limit, shape (limits,), of watts at the feed per device."""
    tree = metering.tree
    carried = np.where(metering.surely, tree.path_share * watts[tree.path_device], 0.0)
    return np.asarray(np.bincount(tree.path_limit, carried, tree.limits), dtype=np.float64)


def _surely(tree: Tree) -> BoolArray:
    """For each path whether every domain between the device and the limit has one feed alone."""
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
