"""Instants as Kubernetes writes them (`2026-03-01T12:00:00Z`), seconds since the epoch here."""

from datetime import UTC, datetime


def instant(written: object) -> float:
    """Seconds since the epoch; a float is that already.

    An instant without its zone is refused, for it means another time to every reader.
    Raises ValueError in words that stand behind the name of a field.
    """
    if isinstance(written, float) and written >= 0:
        return written
    try:
        read = datetime.fromisoformat(written) if isinstance(written, str) and "T" in written.upper() else None
    except ValueError:
        read = None
    if read is None or read.tzinfo is None:
        raise ValueError(f"should be an instant like 2026-03-01T12:00:00Z, not {written!r}")
    return read.timestamp()


def rfc3339(at_s: float) -> str:
    """The instant in UTC, to the second, as conditions carry it."""
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
