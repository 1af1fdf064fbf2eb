"""Estimate of what each device draws where its readings can be believed, and of its worst case where they cannot."""

from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, all_of, any_of
from cluster.power import NEVER_S, PowerDeviceTable, PowerReadings
from power.rules import ROUNDING_W, PowerRules
from power.safety.commitments import GrantLedger
from power.tree import Tree

FINE, STALE, IMPOSSIBLE, WRONG_UNIT, STUCK, OVER_CAP, NOT_ENFORCED = range(7)
"""Faults of a device's readings or of its limit."""
FAULTS = ("", "Stale", "Impossible", "WrongUnit", "Stuck", "OverCap", "NotEnforced")
"""Names of the faults, as reasons in conditions and events."""

FAULT_WORDS = (
    "",
    "has not been heard from for too long: it counts at the worst case of its last cap and goes to its safe floor",
    "reports a draw that no such device can have: the reading is ignored, it counts at the worst case of its cap",
    "is wrong by a factor of a thousand, as when milliwatts or kilowatts are taken for watts: ignored",
    "reports the same draw to the last digit although it works: ignored, it counts at the worst case of its cap",
    "drew more than its cap allows: it counts at its highest limit until it has complied for a long time",
    "does not enforce its cap: it counts at the limit that it does enforce",
)
"""Descriptions of the faults, in the order of their codes."""

IMPOSSIBLE_SHARE = 1.5
"""Fraction of the highest limit above which a reading is impossible: more than any limiter's overshoot, averaged over a
period."""
SMALLEST_SHARE = 0.2
"""Fraction of the idle draw below which a reading is an error of the meter."""
_SURE_SHARE = 0.25
"""Excess over a limit, as a fraction of it, of which no more counts in one reading."""
SLACK_W = 5.0
"""Tolerance for rounding by meters: this many watts over a cap do not count against a device."""


@dataclass(frozen=True, slots=True, eq=False)
class Trust:
    """Memory of each device's compliance."""

    distrusted_until_s: FloatArray
    least_w: FloatArray
    """Lowest limit that each device was seen to enforce when it was granted less; 0 where it obeys."""
    least_until_s: FloatArray
    over_s: FloatArray
    """Account of the draw above what an honest device shows: fractions of its limit times seconds, at `counted_s`."""
    counted_s: FloatArray
    """Instant of the last reading in that account."""
    reporting_since_s: FloatArray
    """Instant from which each device has been heard from without a gap; before it, the device could confirm nothing."""
    clean: bool = True
    """Whether no device is distrusted or clamped: the usual case, in which nothing needs attention."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Estimate at this step; shape (devices,) each."""

    draw_w: FloatArray
    """The reading where it is believed, else the worst case of what the device may hold."""
    held_w: FloatArray
    """Highest limit that the device may be enforcing: its ceiling, or more where it proved not to obey."""
    believed: BoolArray
    """Whether a fresh reading supports the estimate; the caps of other devices may not rise."""
    fault: IntArray
    """Fault of each device: FINE, STALE, …"""
    clean: bool
    """Whether every device is believed and without fault."""


def honest_w(tree: Tree, rules: PowerRules, limit_w: FloatArray) -> FloatArray:
    """Largest reading of a device that keeps a limit, its overshoot and the errors of meters included.

    limit_w: shape (devices,).
    """
    return limit_w * (tree.overshoot * (1 + rules.tolerance_share)) + SLACK_W


def first_trust(tree: Tree) -> Trust:
    never, nothing = np.full(tree.devices, NEVER_S), np.zeros(tree.devices)
    return Trust(never, nothing, never, nothing, never, reporting_since_s=never)


def distrusting(trust: Trust, found: BoolArray, until_s: float) -> Trust:
    """The memory after devices were found to draw more than their leases and bursts allow."""
    return replace(trust, distrusted_until_s=np.where(found, until_s, trust.distrusted_until_s), clean=False)


def reporting_again(trust: Trust, now_s: float) -> Trust:
    """The memory after a period without listening: silence of devices during it does not count against them."""
    return replace(trust, reporting_since_s=np.full(len(trust.reporting_since_s), now_s))


def estimate(
    tree: Tree,
    rules: PowerRules,
    trust: Trust,
    ledger: GrantLedger,
    readings: PowerReadings,
    stuck: BoolArray,
    now_s: float,
) -> tuple[Trust, Estimate]:
    """The estimate of every device, and the memory to keep. stuck: shape (devices,), whose readings do not change.

    A device that is stale, impossible or stuck counts at the worst case of the cap that it may still enforce, never at
    its last value; a stale one that may hold a lease with bursts at its highest limit, since nobody may be left to end
    them. A device that drew more than its cap counts at its highest limit.
    """
    devices, draw_w = tree.table.devices, readings.draw_w
    held_w = np.maximum(ledger.ceiling_w, readings.cap_w)
    # An instant in the future means that clocks disagree: then the age of the reading is unknown.
    fresh = (readings.at_s >= now_s - rules.stale_s) & (readings.at_s <= now_s + rules.control_delay_s)
    possible = (draw_w >= SMALLEST_SHARE * devices.idle_w) & (draw_w <= IMPOSSIBLE_SHARE * devices.max_w)
    may_draw_w = np.where(ledger.burst | ledger.open, np.maximum(held_w, devices.max_w), held_w)
    obeys = draw_w <= honest_w(tree, rules, may_draw_w)
    enforces = readings.cap_w <= ledger.ceiling_w + SLACK_W
    if (
        all_of(fresh & possible & obeys & enforces & ~stuck)
        and trust.clean
        and all_of(trust.reporting_since_s < np.inf)
        and not (any_of(ledger.open) and any_of(_late(rules, trust, ledger, now_s)))
    ):
        return trust, Estimate(draw_w, held_w, fresh, np.zeros(tree.devices, dtype=np.int64), clean=True)
    limit_w = np.where(obeys, ledger.cap_w, may_draw_w)
    return _with_faults(
        tree, rules, trust, ledger, readings, now_s, held_w, limit_w, stuck, fresh, possible, obeys, enforces
    )


def obeyed(
    tree: Tree, rules: PowerRules, ledger: GrantLedger, readings: PowerReadings, seen: Estimate
) -> tuple[BoolArray, BoolArray]:
    """Devices seen to obey the newest grant, and devices seen to obey the largest since the mark (`GrantLedger`).

    Obeying means: the device reports an enforced limit no higher, draws no more, and is believed.
    """
    if ledger.settled:
        return seen.believed, seen.believed
    newest = _keeps(tree, rules, ledger.cap_w, ledger.burst, readings) & (readings.at_s >= ledger.granted_at_s)
    since_mark = _keeps(tree, rules, ledger.since_mark_w, ledger.held_burst, readings)
    if seen.clean:
        return newest, since_mark
    honest = seen.believed & (seen.fault != OVER_CAP)
    return newest & honest, since_mark & honest


def _keeps(tree: Tree, rules: PowerRules, cap_w: FloatArray, bursts: BoolArray, readings: PowerReadings) -> BoolArray:
    may_draw_w = np.where(bursts, np.maximum(cap_w, tree.table.devices.max_w), cap_w)
    draws_no_more = readings.draw_w <= honest_w(tree, rules, may_draw_w)
    return np.asarray((readings.cap_w <= cap_w + ROUNDING_W) & draws_no_more)


def _late(rules: PowerRules, trust: Trust, ledger: GrantLedger, now_s: float) -> BoolArray:
    """Reachable devices that, for longer than allowed, were seen to obey neither their grant nor a lower one."""
    return ledger.open & (
        now_s - np.maximum(ledger.due_since_s, trust.reporting_since_s) >= rules.culprit_periods * rules.control_delay_s
    )


def _with_faults(
    tree: Tree,
    rules: PowerRules,
    trust: Trust,
    ledger: GrantLedger,
    readings: PowerReadings,
    now_s: float,
    held_w: FloatArray,
    limit_w: FloatArray,
    stuck: BoolArray,
    fresh: BoolArray,
    possible: BoolArray,
    obeys: BoolArray,
    enforces: BoolArray,
) -> tuple[Trust, Estimate]:
    """The estimate in the unusual case: the fault of each device is determined; of several, the gravest is reported.

    limit_w: shape (devices,), the limit that a device must have kept.
    """
    devices = tree.table.devices
    since_s = np.where(trust.reporting_since_s == np.inf, now_s, trust.reporting_since_s)
    trust = replace(trust, reporting_since_s=np.where(fresh, since_s, np.inf))
    late = _late(rules, trust, ledger, now_s)
    ignores = late & (readings.sequence >= ledger.sequence) & enforces & ~ledger.burst
    ignores &= readings.draw_w > honest_w(tree, rules, ledger.cap_w)
    offends = fresh & possible & (~obeys | ignores) & devices.managed
    trust, found = _counted(tree, rules, trust, readings, offends, limit_w)
    until_s = np.where(found, now_s + rules.distrust_s, trust.distrusted_until_s)
    distrusted = until_s > now_s
    fault = np.zeros(tree.devices, dtype=np.int64)
    fault[fresh & (~enforces | late)] = NOT_ENFORCED
    fault[distrusted] = OVER_CAP
    fault[stuck] = STUCK
    fault[~possible] = IMPOSSIBLE
    fault[~fresh] = STALE
    fault[~devices.managed & (fault == NOT_ENFORCED)] = FINE
    worst_w = np.maximum(devices.max_w, devices.default_w)
    held_w = np.minimum(held_w, np.maximum(worst_w, ledger.ceiling_w))
    held_w = np.where(distrusted | (~fresh & ledger.held_burst), np.maximum(held_w, worst_w), held_w)
    believed = fresh & possible & ~stuck
    draw_w = np.where(believed, readings.draw_w, held_w * tree.overshoot)
    # Limits that devices kept although granted less are forgotten after a while.
    above = fresh & ~enforces
    least_until_s = np.where(above, now_s + rules.retry_s, trust.least_until_s)
    kept_w = np.where(least_until_s > now_s, trust.least_w, 0.0)
    least_w = np.where(above, np.minimum(readings.cap_w, worst_w), kept_w)
    trust = replace(
        trust,
        distrusted_until_s=until_s,
        least_w=least_w,
        least_until_s=least_until_s,
        clean=not (distrusted.any() or least_w.any()),
    )
    return trust, Estimate(draw_w, held_w, believed, fault, clean=not fault.any())


def _counted(
    tree: Tree, rules: PowerRules, trust: Trust, readings: PowerReadings, offends: BoolArray, limit_w: FloatArray
) -> tuple[Trust, BoolArray]:
    """The account of draws above the limit, and the devices that drew too much for too long to be an error of meters.

    offends: devices whose readings are above what an honest one shows. One reading proves nothing: meters err. The
    account rises by the excess times the time that the reading stands for, and falls by half the tolerance at any time
    (a cumulative sum, Page 1954). A device that draws a quarter more is found after one and a half control delays, one
    that draws a tenth more after some seconds, and rare errors never add up.
    """
    since_s = np.maximum(readings.at_s - trust.counted_s, 0.0)
    left = np.maximum(trust.over_s - 0.5 * rules.tolerance_share * since_s, 0.0)
    limit_w = np.maximum(limit_w * tree.overshoot, 1.0)
    excess = np.minimum(np.where(offends, readings.draw_w / limit_w - 1, 0.0), _SURE_SHARE)
    over_s = np.where(offends, left + excess * np.minimum(since_s, rules.control_delay_s), trust.over_s)
    counted_s = np.where(offends, readings.at_s, trust.counted_s)
    found = offends & (over_s >= 1.5 * _SURE_SHARE * rules.control_delay_s)
    return replace(trust, over_s=over_s, counted_s=counted_s), found


def with_wrong_units(seen: Estimate, devices: PowerDeviceTable, reading_w: FloatArray) -> Estimate:
    """The estimate, in which impossible readings that another unit explains have that fault. reading_w: (devices,)."""
    low, high = SMALLEST_SHARE * devices.idle_w, IMPOSSIBLE_SHARE * devices.max_w
    scaled = is_scaled(reading_w, low, high) & (seen.fault == IMPOSSIBLE)
    return replace(seen, fault=np.where(scaled, WRONG_UNIT, seen.fault)) if scaled.any() else seen


def is_scaled(reading_w: FloatArray, low_w: FloatArray, high_w: FloatArray) -> BoolArray:
    """Whether a reading would lie within the bounds if it were a thousand times larger or smaller."""
    milli, kilo = reading_w / 1000, reading_w * 1000
    found: BoolArray = ((milli >= low_w) & (milli <= high_w)) | ((kilo >= low_w) & (kilo <= high_w))
    return found & (reading_w > 0)
