"""The ledger: what fits into the node's memory and into a sandbox's, beside what is kept for others."""

import pytest

from isolation.ledger import MIB, MemoryLedger, Reservation
from tests.builders.sandboxes import sandbox


def ledger(budget_mib: int, lease_mib: int, *, agent_mib: int = 0, owner: str = "s") -> MemoryLedger:
    """A sandbox `s` of 100 MiB beside `kept`, for which 50 are kept; `owner` has a call with this lease."""
    book = MemoryLedger(budget_mib * MIB).with_sandbox(sandbox("s", budget_mib=100, agent_mib=agent_mib))
    book = book.with_sandbox(sandbox("kept", guaranteed_mib=50))
    return book.with_reservation(Reservation("a", owner, lease_mib * MIB)) if lease_mib else book


@pytest.mark.parametrize(
    ("book", "fits"),
    [
        (ledger(150, 100), True),
        (ledger(149, 100), False),
        (ledger(150, 100, owner="kept"), True),
        (ledger(150, 151, owner="kept"), False),
        (ledger(500, 101), False),
        (ledger(500, 90, agent_mib=11), False),
        # An agent alone meets its container's limit, and none of ours.
        (ledger(500, 0, agent_mib=101), True),
    ],
)
def test_leases_fit_within_the_node_and_the_sandbox_beside_what_is_kept_for_others(
    book: MemoryLedger, fits: bool
) -> None:
    assert book.fits("kept" if book.reservations and book.reservations["a"].sandbox == "kept" else "s") == fits
