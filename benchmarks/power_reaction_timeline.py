"""What is read off a run of the reaction benchmark: who was allowed what from when on, and how soon it was enough."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

Change = tuple[float, float]
"""(when, watts that all devices of a node together may draw from then on)."""
Order = tuple[float, str, float]
"""(when, device, watts): a limit that an agent set."""
NEVER = float("inf")


def orders_of(path: Path) -> tuple[Order, ...]:
    """Every limit that an agent's pretend devices were given, in order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple((each["at_s"], each["uuid"], each["limit_w"]) for each in map(json.loads, lines))


def allowed_by(orders: Iterable[Order], highest_w: Mapping[str, float]) -> tuple[Change, ...]:
    """A node's allowance as its agent set it. highest_w: what each device may draw before it is told anything."""
    limit_w, found = dict(highest_w), []
    for at_s, uuid, watts in orders:
        limit_w[uuid] = watts
        found.append((at_s, sum(limit_w.values())))
    return tuple(found)


def answered(
    changes: Mapping[str, Sequence[Change]], highest_w: float, fits_w: float, breach_at_s: float
) -> tuple[float, float]:
    """Seconds from the breach to the first node that is allowed less, and until all nodes together fit.

    changes: by node, of all that give way. highest_w: what each may draw before it is told anything.
    """
    now_w = dict.fromkeys(changes, highest_w)
    first_s = enough_s = NEVER
    for at_s, node, watts in sorted((at_s, node, watts) for node, each in changes.items() for at_s, watts in each):
        is_lower, now_w[node] = watts < now_w[node], watts
        if at_s <= breach_at_s:
            continue
        if is_lower:
            first_s = min(first_s, at_s - breach_at_s)
        if sum(now_w.values()) <= fits_w:
            enough_s = min(enough_s, at_s - breach_at_s)
    return first_s, enough_s


def lowered_after(orders: Iterable[Order], at_s: float) -> float:
    """Seconds until the first device was given less than it had; NEVER where none was."""
    held: dict[str, float] = {}
    for order_s, uuid, limit_w in orders:
        if order_s >= at_s and limit_w < held.get(uuid, 0.0) - 1.0:
            return order_s - at_s
        held[uuid] = limit_w
    return NEVER


def at_floor_after(orders: Iterable[Order], floor_w: float, at_s: float) -> float:
    """Seconds until every device had its floor and kept it; NEVER where one did not."""
    last: dict[str, tuple[float, float]] = {}
    for order_s, uuid, limit_w in orders:
        if uuid not in last or abs(last[uuid][1] - limit_w) > 1.0:
            last[uuid] = (order_s, limit_w)
    return max(
        (order_s - at_s if limit_w <= floor_w + 1.0 else NEVER for order_s, limit_w in last.values()), default=NEVER
    )
