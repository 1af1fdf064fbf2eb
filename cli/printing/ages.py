"""Durations as kubectl writes them: at most two parts, less precise as they grow."""

from datetime import datetime

MINUTE, HOUR, DAY = 60, 3600, 86_400
UNKNOWN = "<unknown>"


def since(instant: str | None, now_s: float) -> str:
    """Age of an instant of an object, such as `4m7s`. now_s: seconds since the epoch."""
    at_s = epoch_s(instant)
    return UNKNOWN if at_s is None else human_duration(now_s - at_s)


def epoch_s(instant: str | None) -> float | None:
    """Seconds since the epoch of an RFC 3339 instant; None for anything else."""
    try:
        return datetime.fromisoformat(instant).timestamp() if instant else None
    except ValueError:
        return None


def human_duration(for_s: float) -> str:
    """`95s`, `4m7s`, `3h5m`, `2d`. Source: apimachinery's duration.HumanDuration.

    for_s: seconds; negative values, which differing clocks produce, count as 0.
    """
    whole = max(0, int(for_s))
    if whole < 2 * MINUTE:
        return f"{whole}s"
    if whole < 10 * MINUTE:
        return _two(whole, MINUTE, "m", 1, "s")
    if whole < 3 * HOUR:
        return f"{whole // MINUTE}m"
    if whole < 8 * HOUR:
        return _two(whole, HOUR, "h", MINUTE, "m")
    if whole < 2 * DAY:
        return f"{whole // HOUR}h"
    if whole < 8 * DAY:
        return _two(whole, DAY, "d", HOUR, "h")
    if whole < 2 * 365 * DAY:
        return f"{whole // DAY}d"
    if whole < 8 * 365 * DAY:
        return _two(whole, 365 * DAY, "y", DAY, "d")
    return f"{whole // (365 * DAY)}y"


def _two(whole: int, unit_s: int, unit: str, part_s: int, part: str) -> str:
    rest = whole % unit_s // part_s
    return f"{whole // unit_s}{unit}" + (f"{rest}{part}" if rest else "")
