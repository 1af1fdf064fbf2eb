"""The limits that were there before us: remembered before the first change, restored when we leave. Pure rules."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from power.devices.backend import DeviceFacts

TOLERANCE_W = 1.0
"""Drivers round limits to whole watts or less."""
EARLIER = 7
"""More orders than a BMC is behind. Few: a limit of somebody else's that is like one of them passes for ours."""


@dataclass(frozen=True, slots=True)
class Previous:
    """What is remembered of one device. On disk before its limit is touched for the first time."""

    limit_w: float
    """The limit that was found, which stopping and uninstalling restore: not the default."""
    last_set_w: float | None = None
    """The last limit that we asked for; tells our own limit from somebody else's after a crash."""
    earlier_w: tuple[float, ...] = ()
    """Others of ours that it may have, newest first: asked for before, or made by it of what was asked. A crash may
    come before the last one is set, a device may refuse it or clamp it, a BMC may be some orders behind."""


def taken_over(known: Mapping[str, Previous], facts: DeviceFacts, found_w: float | None) -> Previous:
    """What to remember of a device when the agent starts. found_w: the limit that it has now, None if it will not say.

    After a crash our own limit is still in force: then what was remembered before stays. Any other limit was set by
    somebody else since, and is the one to restore. After a reboot the device has its default, which is theirs too.
    """
    before = known.get(facts.uuid)
    if found_w is None:
        return before or Previous(facts.default_w)
    return before if before is not None and any(_alike(found_w, each) for each in _ours(before)) else Previous(found_w)


def about_to_set(previous: Previous, limit_w: float, enforced_w: float | None = None) -> Previous:
    """What to write down before this limit is asked for. enforced_w: what the device was seen to enforce last.

    If that is ours it stays among ours, however many orders the device refuses.
    """
    ours = _ours(previous)
    kept = [each for each in ours if enforced_w is not None and _alike(each, enforced_w)]
    others = [each for each in dict.fromkeys((*kept, *ours)) if each != limit_w]
    return replace(previous, last_set_w=limit_w, earlier_w=tuple(others[:EARLIER]))


def made_of_it(previous: Previous, enforced_w: float) -> Previous:
    """What to write down when a device that was told a limit enforces this: one that clamps made it of ours."""
    if any(_alike(enforced_w, each) for each in _ours(previous)):
        return previous
    return replace(previous, earlier_w=(enforced_w, *previous.earlier_w)[:EARLIER])


def _ours(previous: Previous) -> tuple[float, ...]:
    """Limits that the device may have from us."""
    return () if previous.last_set_w is None else (previous.last_set_w, *previous.earlier_w)


def _alike(one_w: float, other_w: float) -> bool:
    return abs(one_w - other_w) <= TOLERANCE_W


def to_restore(previous: Previous, facts: DeviceFacts) -> float | None:
    """The limit to set when we leave; None when we never set one."""
    if previous.last_set_w is None:
        return None
    return min(max(previous.limit_w, facts.min_w), facts.max_w)
