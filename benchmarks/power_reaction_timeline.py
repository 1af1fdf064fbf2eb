"""Reaction times from a run of the reaction benchmark: changes of allowed power, and time until the budget is met."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

Change = tuple[float, float]
"""(time, total power that the devices of a node may draw from then on, watts)."""
Order = tuple[float, str, float]
"""(time, device, watts) of a limit that an agent set."""
NEVER = float("inf")


def orders_of(path: Path) -> tuple[Order, ...]:
    """All limits of an agent's simulated devices, in order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple((each["at_s"], each["uuid"], each["limit_w"]) for each in map(json.loads, lines))


def allowed_by(orders: Iterable[Order], highest_w: Mapping[str, float]) -> tuple[Change, ...]:
    """Allowed power of a node as its agent set it. highest_w: limit of each device before the first order, watts."""
    limit_w, found = dict(highest_w), []
    for at_s, uuid, watts in orders:
        limit_w[uuid] = watts
        found.append((at_s, sum(limit_w.values())))
    return tuple(found)


def answered(
    changes: Mapping[str, Sequence[Change]], highest_w: float, fits_w: float, breach_at_s: float
) -> tuple[float, float]:
    """Seconds from the breach to the first reduction of a node's power, and until all nodes together fit the budget.

    changes: by node, for all nodes that can be reduced. highest_w: limit of each node before the first order, watts.
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
    """Seconds until the first limit was lowered; NEVER if none was."""
    held: dict[str, float] = {}
    for order_s, uuid, limit_w in orders:
        if order_s >= at_s and limit_w < held.get(uuid, 0.0) - 1.0:
            return order_s - at_s
        held[uuid] = limit_w
    return NEVER


def at_floor_after(orders: Iterable[Order], floor_w: float, at_s: float) -> float:
    """Seconds until every device stayed at its floor; NEVER if one did not."""
    last: dict[str, tuple[float, float]] = {}
    for order_s, uuid, limit_w in orders:
        if uuid not in last or abs(last[uuid][1] - limit_w) > 1.0:
            last[uuid] = (order_s, limit_w)
    return max(
        (order_s - at_s if limit_w <= floor_w + 1.0 else NEVER for order_s, limit_w in last.values()), default=NEVER
    )
