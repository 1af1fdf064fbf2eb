"""Rows of events.k8s.io Events: time, type, reason, object, message. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from cli.printing.ages import UNKNOWN, epoch_s, human_duration, since
from controller.api.labels import API_VERSION
from controller.report.events import REPORTER

Event = dict[str, Any]

HEADERS = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")


def is_ours(event: Event) -> bool:
    """Whether Tonnage reported the event, or its object is of one of Tonnage's kinds."""
    group = API_VERSION.partition("/")[0]
    about = str(event.get("regarding", {}).get("apiVersion", ""))
    return event.get("reportingController") == REPORTER or about.startswith(f"{group}/")


def last_seen(event: Event) -> str | None:
    """Time of the last occurrence; equal events are stored as one series."""
    series = event.get("series") or {}
    instants = (
        series.get("lastObservedTime"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return next((str(instant) for instant in instants if instant), None)


def in_order(events: Iterable[Event]) -> list[Event]:
    """Events, oldest first; at the same instant by name."""
    return sorted(events, key=lambda e: (epoch_s(last_seen(e)) or 0.0, e["metadata"]["name"]))


def row(event: Event, now_s: float, *, namespaces: bool = False) -> Sequence[str]:
    about = event.get("regarding", {})
    before = [str(about.get("namespace") or event["metadata"].get("namespace", ""))] if namespaces else []
    return (
        *before,
        _seen(event, now_s),
        str(event.get("type", "")),
        str(event.get("reason", "")),
        f"{about.get('kind', '')}/{about.get('name', '')}",
        " ".join(str(event.get("note") or "").split()),
    )


def _seen(event: Event, now_s: float) -> str:
    """Age and, for a series, its count: `12s`, or `12s (x4 over 3m)`."""
    seen = since(last_seen(event), now_s)
    count = int((event.get("series") or {}).get("count") or event.get("deprecatedCount") or 1)
    first_s = epoch_s(event.get("deprecatedFirstTimestamp") or event.get("eventTime"))
    if count < 2 or first_s is None or seen == UNKNOWN:
        return seen
    return f"{seen} (x{count} over {human_duration(now_s - first_s)})"
