"""Safe-state check: whether all admitted calls can still finish, in some order, each with its whole claim.

Banker's algorithm (Dijkstra, EWD 623) with two resources, the node's memory and the sandbox's, and guarantees: memory
of a guarantee is free for its own sandbox only. Ending a call never reserves more, so the greedy order is exact: a
call that can finish first may finish first.
"""

from isolation.ledger import Ledger, Reservation


def is_safe(ledger: Ledger, *, stuck: frozenset[str] = frozenset()) -> bool:
    """Whether every call can get its whole claim at some time. `stuck` calls keep their lease and never end."""
    return finishing_order(ledger, stuck=stuck) is not None


def finishing_order(ledger: Ledger, *, stuck: frozenset[str] = frozenset()) -> tuple[str, ...] | None:
    """Order in which all calls but the stuck ones can finish; None where there is none, or the budget is exceeded."""
    held = {name: sandbox.agent_bytes for name, sandbox in ledger.sandboxes.items()}
    for kept in ledger.reservations.values():
        held[kept.sandbox] += kept.lease_bytes
    guaranteed = ledger.guarantees()
    free = ledger.budget_bytes - sum(max(held[name], guaranteed[name]) for name in held)
    if free < 0:
        return None
    waiting = sorted(
        (kept for kept in ledger.reservations.values() if kept.call not in stuck),
        key=lambda kept: (kept.need_bytes, kept.call),
    )
    order: list[str] = []
    while waiting:
        left: list[Reservation] = []
        for kept in waiting:
            name = kept.sandbox
            grown = held[name] + kept.need_bytes
            before = max(held[name], guaranteed[name])
            if grown > ledger.sandboxes[name].budget_bytes or max(grown, guaranteed[name]) - before > free:
                left.append(kept)
                continue
            held[name] -= kept.lease_bytes
            free += before - max(held[name], guaranteed[name])
            order.append(kept.call)
        if len(left) == len(waiting):
            return None
        waiting = left
    return tuple(order)
