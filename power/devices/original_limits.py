"""Original limits of devices: recorded before the first change and restored on exit. Pure rules."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from power.devices.backend import DeviceFacts

TOLERANCE_W = 1.0
"""Tolerance for rounding: drivers round limits to whole watts or less."""
EARLIER = 7
"""Number of earlier limits remembered: more orders than a BMC may lag behind. Few, because a foreign limit similar to
one of them is mistaken for ours."""


@dataclass(frozen=True, slots=True)
class OriginalLimit:
    """Record of one device. Written to disk before its limit is changed for the first time."""

    limit_w: float
    """Limit that was found, which stopping and uninstalling restore: not the default."""
    last_set_w: float | None = None
    """Last limit that Tonnage requested; distinguishes it from a foreign limit after a crash."""
    earlier_w: tuple[float, ...] = ()
    """Other limits of ours that the device may have, newest first: requested earlier, or derived by the device from a
    request. A crash may come before the last one is set, a device may refuse or clamp it, and a BMC may lag some orders
    behind."""


def original_limit_of(known: Mapping[str, OriginalLimit], facts: DeviceFacts, found_w: float | None) -> OriginalLimit:
    """The record of a device when the agent starts. found_w: its present limit, None if it does not report one.

    After a crash our own limit is still in force: then the earlier record stays. Any other limit was set by something
    else since, and is the one to restore. After a reboot the device has its default, which is likewise restored.
    """
    before = known.get(facts.uuid)
    if found_w is None:
        return before or OriginalLimit(facts.default_w)
    return (
        before
        if before is not None and any(_alike(found_w, each) for each in _ours(before))
        else OriginalLimit(found_w)
    )


def before_setting(previous: OriginalLimit, limit_w: float, enforced_w: float | None = None) -> OriginalLimit:
    """The record to write before this limit is requested. enforced_w: the limit that the device was seen to enforce
    last.

    If that is ours it stays in the record, however many orders the device refuses.
    """
    ours = _ours(previous)
    kept = [each for each in ours if enforced_w is not None and _alike(each, enforced_w)]
    others = [each for each in dict.fromkeys((*kept, *ours)) if each != limit_w]
    return replace(previous, last_set_w=limit_w, earlier_w=tuple(others[:EARLIER]))


def after_setting(previous: OriginalLimit, enforced_w: float) -> OriginalLimit:
    """The record to write when a device enforces this limit after a request: a clamping device derived it from ours."""
    if any(_alike(enforced_w, each) for each in _ours(previous)):
        return previous
    return replace(previous, earlier_w=(enforced_w, *previous.earlier_w)[:EARLIER])


def tell_the_same(known: Mapping[str, OriginalLimit], now: Mapping[str, OriginalLimit]) -> bool:
    """Whether an agent that finds `known` restores the same as with `now`, and takes at least its limits for ours."""
    return known.keys() == now.keys() and all(
        known[uuid].limit_w == each.limit_w
        and (known[uuid].last_set_w is None) == (each.last_set_w is None)
        and set(_ours(each)) <= set(_ours(known[uuid]))
        for uuid, each in now.items()
    )


def _ours(previous: OriginalLimit) -> tuple[float, ...]:
    """Limits of ours that the device may have."""
    return () if previous.last_set_w is None else (previous.last_set_w, *previous.earlier_w)


def _alike(one_w: float, other_w: float) -> bool:
    return abs(one_w - other_w) <= TOLERANCE_W


def limit_to_restore(previous: OriginalLimit, facts: DeviceFacts) -> float | None:
    """The limit to restore on exit; None if none was ever set."""
    if previous.last_set_w is None:
        return None
    return min(max(previous.limit_w, facts.min_w), facts.max_w)
