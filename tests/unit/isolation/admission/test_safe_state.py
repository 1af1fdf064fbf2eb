"""Safe state: whether all admitted calls can still finish."""

from itertools import permutations

import numpy as np
import pytest

from isolation.admission import is_safe
from isolation.ledger import MIB, MemoryLedger, Reservation
from tests.builders.sandboxes import sandbox


def ledger(budget_mib: int, *calls: tuple[str, str, int, int], **guaranteed_mib: int) -> MemoryLedger:
    """Ledger with calls as (name, sandbox, claim MiB, lease MiB); sandboxes are made as they are named."""
    book = MemoryLedger(budget_mib * MIB)
    for name in {call[1] for call in calls} | set(guaranteed_mib):
        book = book.with_sandbox(sandbox(name, guaranteed_mib=guaranteed_mib.get(name, 0)))
    for name, owner, claim, lease in calls:
        book = book.with_reservation(Reservation(name, owner, claim * MIB, lease * MIB))
    return book


def test_claims_beyond_the_budget_are_safe_while_one_after_the_other_can_finish() -> None:
    # 100 free: b needs 90 and then gives back 200, with which a gets its 250.
    assert is_safe(ledger(400, ("a", "s", 350, 100), ("b", "s", 290, 200)))


def test_two_calls_that_each_need_what_the_other_holds_are_not_safe() -> None:
    # 50 free, and each needs 60: the dead-lock that admission must never let happen.
    assert not is_safe(ledger(350, ("a", "s", 210, 150), ("b", "s", 210, 150)))


def test_a_ledger_over_its_budget_is_not_safe() -> None:
    assert not is_safe(ledger(100, ("a", "s", 101, 101)))


def test_a_guarantee_is_free_for_its_own_sandbox_only() -> None:
    # 100 of 200 are kept for `high`, whose call needs 100; the low one needs 100 and finds 50 free.
    high, low = ("h", "high", 100, 0), ("l", "low", 150, 50)
    assert is_safe(ledger(200, high, high=100))
    assert not is_safe(ledger(200, low, high=100))
    assert is_safe(ledger(200, low))


def test_a_call_never_grows_past_the_budget_of_its_sandbox() -> None:
    book = MemoryLedger(1000 * MIB).with_sandbox(sandbox("s", budget_mib=100, agent_mib=40))
    assert not is_safe(book.with_reservation(Reservation("a", "s", 61 * MIB, 0)))
    assert is_safe(book.with_reservation(Reservation("a", "s", 60 * MIB, 0)))


def test_no_order_counts_on_the_end_of_a_stuck_call() -> None:
    book = ledger(400, ("a", "s", 350, 100), ("b", "s", 290, 200))
    assert not is_safe(book, stuck=frozenset({"b"}))


@pytest.mark.parametrize("seed", range(200))
def test_the_greedy_order_finds_one_wherever_any_order_exists(seed: int) -> None:
    chance = np.random.default_rng(seed)
    calls = []
    for index in range(chance.integers(1, 5)):
        claim = int(chance.integers(1, 100))
        calls.append((f"c{index}", f"s{chance.integers(2)}", claim, int(chance.integers(0, claim + 1))))
    book = ledger(int(chance.integers(50, 250)), *calls, s0=int(chance.integers(0, 60)), s1=0)
    for name in ("s0", "s1"):
        book = book.with_sandbox(sandbox(name, budget_mib=int(chance.integers(60, 200)), guaranteed_mib=0))

    some_order = any(finishes(book, order) for order in permutations(book.reservations))
    assert is_safe(book) == (book.free_bytes >= 0 and some_order)


def finishes(book: MemoryLedger, order: tuple[str, ...]) -> bool:
    """Whether the calls can finish in this order, by the ledger's own arithmetic."""
    for name in order:
        kept = book.reservations[name]
        if kept.need_bytes > book.free_for(kept.sandbox):
            return False
        book = book.without_call(name)
    return True
