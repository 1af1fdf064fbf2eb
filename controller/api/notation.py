"""Quantities and durations as Kubernetes writes them: `500m`, `1.5`, `16Gi`, `1e3`, `40ms`."""

import re
from datetime import UTC, datetime
from decimal import Decimal, DecimalException
from functools import lru_cache
from math import ceil

QUANTITY_PATTERN = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?$"
DURATION_PATTERN = r"^(\d+(\.\d+)?(ns|us|ms|s|m|h))+$"

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i))?", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h)", re.ASCII)
_DURATION = re.compile(DURATION_PATTERN, re.ASCII)

_SUFFIX = {
    "": Decimal(1),
    **{name: Decimal(10) ** power for name, power in zip("num", (-9, -6, -3), strict=True)},
    **{name: Decimal(1000) ** power for power, name in enumerate("kMGTPE", start=1)},
    **{f"{name}i": Decimal(1024) ** power for power, name in enumerate("KMGTPE", start=1)},
}
_SECONDS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}

LONGEST_DURATION = 32
"""Maximum characters of a duration; sensible ones are shorter."""
_MOST_SECONDS = 2**63 / 1e9
"""292 years, the most that the API server's nanoseconds in 64 bits can hold."""

LARGEST = Decimal(2**50)
"""One pebibyte: no node has more of anything, and sums over thousands of such pods still fit into 64 bits."""


class TooLargeError(ValueError):
    """The quantity is larger than `LARGEST`."""


def quantity(written: object) -> Decimal:
    """Exact value of a Kubernetes quantity, in its base unit (cores, bytes, devices).

    Raises ValueError, whose message continues a sentence that starts with the field's name.
    """
    if isinstance(written, bool) or not isinstance(written, str | int | float | Decimal):
        raise ValueError("should be a quantity like 500m, 1.5 or 16Gi")
    return _parsed(str(written))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Decimal:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"should be a quantity like 500m, 1.5 or 16Gi, not {text!r}")
    number, exponent, suffix = match.groups()
    try:
        value = Decimal(number + (exponent or "")) * _SUFFIX[suffix or ""]
    except DecimalException:  # an exponent that no Decimal holds
        raise TooLargeError(f"is too large: {text!r}") from None
    if value < 0:
        raise ValueError(f"should not be negative, not {text!r}")
    if value > LARGEST:
        raise TooLargeError(f"is too large: {text!r}")
    return value


def amount(written: object) -> Decimal:
    """Value of a quantity of a pod, as `quantity`; at most `LARGEST`.

    The API server admits larger ones, and counts the largest as 64 bits.
    """
    try:
        return quantity(written)
    except TooLargeError:
        return LARGEST


def milli(value: Decimal) -> int:
    """Thousandths, rounded up as Kubernetes does, so that nothing is allocated twice; at most `LARGEST`, too, so that
    sums fit."""
    return min(ceil(value * 1000), int(LARGEST))


def whole(value: Decimal) -> int:
    """Whole units, rounded up."""
    return ceil(value)


def whole_or_zero(written: object) -> int:
    """Whole units of a quantity; 0 where there is none, or none that can be read, which is said of its object."""
    try:
        return whole(quantity(written))
    except ValueError:
        return 0


def seconds(written: object) -> float:
    """Seconds of a duration such as `40ms` or `1m30s`.

    A bare number is refused, because its unit could be seconds or milliseconds. Raises ValueError.
    """
    if not isinstance(written, str) or len(written) > LONGEST_DURATION or _DURATION.fullmatch(written) is None:
        raise ValueError(f"should be a duration with its unit, like 40ms or 30s, not {written!r}")
    parts = (Decimal(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(written))
    total = float(sum(parts, Decimal(0)))
    if total == 0:
        raise ValueError("should be longer than zero")
    if total >= _MOST_SECONDS:
        raise ValueError(f"is too long: {written!r}")
    return total


def duration(for_s: float) -> str:
    """Text of a duration: `40ms` below a second, `30s` from there on."""
    # Without the 12 digits, a fortnight would be written with an exponent, which no duration has.
    return f"{for_s * 1000:.12g}ms" if for_s < 1 else f"{for_s:.12g}s"


def instant(written: object) -> float:
    """Seconds since the epoch; a float is returned unchanged.

    A timestamp without a time zone is refused as ambiguous, and one before 1970 as a zero value of some program.
    Raises ValueError, whose message continues a sentence that starts with the field's name.
    """
    if isinstance(written, float) and written >= 0:
        return written
    try:
        read = datetime.fromisoformat(written) if isinstance(written, str) and "T" in written.upper() else None
    except ValueError:
        read = None
    if read is None or read.tzinfo is None or read.year < 1970:
        raise ValueError(f"should be a timestamp like 2026-03-01T12:00:00Z, not {written!r}")
    return read.timestamp()


def instant_or_none(written: object) -> float | None:
    """Seconds since the epoch; None where nothing is written, or no instant."""
    try:
        return None if written is None else instant(written)
    except ValueError:
        return None


def rfc3339(at_s: float) -> str:
    """The timestamp in UTC, to the second, as conditions have it."""
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def microtime(at_s: float) -> str:
    """The timestamp in UTC, to the microsecond, as Events and Leases have it."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
