"""Validation of a power table: every error in one pass."""

from collections.abc import Iterator

import numpy as np

from cluster.arrays import BoolArray
from cluster.errors import Mistake
from cluster.power import BreakerCurve, PowerTable, SpeedUnderCap


def mistakes_in(table: PowerTable) -> tuple[Mistake, ...]:
    """Every error, in the order of the table. An empty result means that the arrays are consistent."""
    shape = tuple(_indexes(table))
    return shape or (*_domains(table), *_feeds(table), *_devices(table), *_curves(table), *_speeds(table))


def _indexes(table: PowerTable) -> Iterator[Mistake]:
    """References to rows that do not exist; nothing else can be checked before these are correct."""
    domains, devices, feeds = table.domains, table.devices, table.feeds
    columns = (
        ("feeds.child", feeds.child, len(domains), 0),
        ("feeds.parent", feeds.parent, len(domains), 0),
        ("devices.domain", devices.domain, len(domains), 0),
        ("devices.power_class", devices.power_class, len(table.classes), 0),
        ("devices.gpu_type", devices.gpu_type, len(table.gpu_types), 0),
        ("domains.curve", domains.curve, len(table.curves), -1),
    )
    for place, column, rows, lowest in columns:
        for entry in np.flatnonzero((column < lowest) | (column >= rows)).tolist():
            yield Mistake(f"{place}[{entry}]", f"names row {int(column[entry])} of {rows}", "correct the reference")


def _domains(table: PowerTable) -> Iterator[Mistake]:
    domains = table.domains
    for row in np.flatnonzero(~(domains.budget_w > 0)).tolist():
        problem = f"has a budget of {domains.budget_w[row]:g} W"
        yield Mistake(f"power domain {domains.names[row]}", problem, "set a budget above 0 W, or omit it")
    for row in np.flatnonzero(~(domains.other_w >= 0)).tolist():
        problem = f"assumes a draw of {domains.other_w[row]:g} W by equipment other than devices"
        yield Mistake(f"power domain {domains.names[row]}", problem, "give 0 W or more")
    yield from _twice("power domain", tuple(domains.names))
    yield from _twice("power class", tuple(each.name for each in table.classes))
    yield from _twice("device", tuple(table.devices.names))


def _twice(what: str, names: tuple[str, ...]) -> Iterator[Mistake]:
    for name in sorted({name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()):
        yield Mistake(f"{what} {name}", "is defined more than once", "rename one of them")


def _feeds(table: PowerTable) -> Iterator[Mistake]:
    feeds, names = table.feeds, table.domains.names
    for edge in np.flatnonzero(~((feeds.share > 0) & (feeds.share <= 1))).tolist():
        place = f"power domain {names[int(feeds.child[edge])]}, feed from {names[int(feeds.parent[edge])]}"
        yield Mistake(place, f"has a share of {feeds.share[edge]:g}", "set a share above 0 and at most 1")
    for child in _in_circles(table):
        yield Mistake(f"power domain {names[child]}", "draws through itself", "remove one feed of the cycle")


def _in_circles(table: PowerTable) -> list[int]:
    """Domains that cannot be reached from the roots; empty when the feeds have no cycle."""
    feeds, left = table.feeds, np.ones(len(table.domains), dtype=bool)
    while True:
        blocked = np.zeros(len(left), dtype=bool)
        blocked[feeds.child[left[feeds.parent]]] = True
        if not (free := left & ~blocked).any():
            return [int(row) for row in np.flatnonzero(left)]
        left &= ~free


def _devices(table: PowerTable) -> Iterator[Mistake]:
    d = table.devices
    rules: tuple[tuple[BoolArray, str, str], ...] = (
        (d.min_w > 0, "has no lowest limit above 0 W", "enter what the device reports"),
        (d.max_w >= d.min_w, "has a highest limit below its lowest", "enter what the device reports"),
        (d.default_w > 0, "has no default limit", "enter what the device reports"),
        ((d.floor_w >= d.min_w) & (d.floor_w <= d.max_w), "has a useful floor outside its limits", "move it inside"),
        (d.idle_w >= 0, "has a negative idle draw", "give 0 W or more"),
        (d.overshoot_share >= 0, "has a negative overshoot", "give 0 or more"),
        (d.overhead_share >= 0, "has a negative overhead", "give 0 or more"),
    )
    for holds, problem, remedy in rules:
        for row in np.flatnonzero(~holds).tolist():
            yield Mistake(f"device {d.names[row]}", problem, remedy)


def _curves(table: PowerTable) -> Iterator[Mistake]:
    for row, curve in enumerate(table.curves):
        if why := _wrong_in(curve):
            yield Mistake(
                f"breaker curve {row}", why, "copy the points from the breaker's data sheet, least load first"
            )


def _wrong_in(curve: BreakerCurve) -> str:
    if len(curve.over) != len(curve.for_s) or not curve.over:
        return "needs as many times as loads, and at least one"
    if curve.over[0] <= 1 or any(b <= a for a, b in zip(curve.over, curve.over[1:], strict=False)):
        return "needs loads above 1, rising"
    if min(curve.for_s) <= 0 or any(b >= a for a, b in zip(curve.for_s, curve.for_s[1:], strict=False)):
        return "needs times above 0 s, falling"
    return "" if curve.cooling_s > 0 else "needs a cooling time above 0 s"


def _speeds(table: PowerTable) -> Iterator[Mistake]:
    for row, speed in enumerate(table.speeds):
        if not _rises_to_one(speed):
            place = f"speed under a cap {row} ({speed.gpu_type})"
            yield Mistake(place, "must rise to speed 1 at share 1", "normalise speeds to that at the highest limit")


def _rises_to_one(speed: SpeedUnderCap) -> bool:
    shares, speeds = np.array(speed.cap_share), np.array(speed.speed)
    if shares.shape != speeds.shape or shares.size < 2 or shares[0] <= 0 or speeds[0] < 0:
        return False
    return bool((np.diff(shares) > 0).all() and (np.diff(speeds) >= 0).all() and shares[-1] == 1 and speeds[-1] == 1)
