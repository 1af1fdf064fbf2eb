"""Timestamps as Kubernetes writes them (`2026-03-01T12:00:00Z`), converted to seconds since the epoch."""

from datetime import UTC, datetime


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


def rfc3339(at_s: float) -> str:
    """The timestamp in UTC, to the second, as conditions have it."""
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
