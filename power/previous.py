"""The limits that were there before us: remembered before the first change, restored when we leave. Pure rules."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from power.devices import DeviceFacts

TOLERANCE_W = 1.0
"""Drivers round limits to whole watts or less."""


@dataclass(frozen=True, slots=True)
class Previous:
    """What is remembered of one device. On disk before its limit is touched for the first time."""

    limit_w: float
    """The limit that was found, which stopping and uninstalling restore: not the default."""
    last_set_w: float | None = None
    """The last limit that we asked for; tells our own limit from somebody else's after a crash."""


def taken_over(known: Mapping[str, Previous], facts: DeviceFacts, found_w: float | None) -> Previous:
    """What to remember of a device when the agent starts. found_w: the limit that it has now, None if it will not say.

    After a crash our own limit is still in force: then what was remembered before stays. Any other limit was set by
    somebody else since, and is the one to restore. After a reboot the device has its default, which is theirs too.
    """
    before = known.get(facts.uuid)
    if found_w is None:
        return before or Previous(facts.default_w)
    is_ours = before is not None and before.last_set_w is not None and abs(found_w - before.last_set_w) <= TOLERANCE_W
    return before if before is not None and is_ours else Previous(found_w)


def about_to_set(previous: Previous, limit_w: float) -> Previous:
    """What to write down before this limit is asked for."""
    return replace(previous, last_set_w=limit_w)


def to_restore(previous: Previous, facts: DeviceFacts) -> float | None:
    """The limit to set when we leave; None when we never set one."""
    if previous.last_set_w is None:
        return None
    return min(max(previous.limit_w, facts.min_w), facts.max_w)
