"""A hardware brake is seen by what it does, so that it is not taken for calm, and the row comes back bit by bit."""

import numpy as np
import pytest

from cluster.arrays import FloatArray
from power.rules import PowerRules
from power.tree import Tree, tree_of
from power.watching import Braking, no_brake, watched
from tests.builders.power import Device, Domain, power_table, row_of

RULES = PowerRules()
COUNT, BUDGET_W, LEASE_W, BRAKED_W = 10, 3000.0, 300.0, 120.0


def tree() -> Tree:
    return tree_of(row_of([Device(f"g{n}", f"n{n}", "high" if n < 5 else "low") for n in range(COUNT)], BUDGET_W))


def after(before: Braking, draw_w: FloatArray, now_s: float, *, idle: int = 0) -> Braking:
    """Brakes detected when devices with a working draw of 300 W under their leases draw this, except for some idle
    ones.
    """
    at_work_w = np.where(np.arange(COUNT) < idle, 0.0, LEASE_W)
    return watched(
        before,
        tree(),
        draw_w=draw_w,
        at_work_w=at_work_w,
        drawn_w=np.array([draw_w.sum()]),
        budget_w=np.array([BUDGET_W]),
        let_go_s=6.0,
        now_s=now_s,
    )


def full() -> Braking:
    return after(no_brake(tree()), np.full(COUNT, LEASE_W), 100.0)


def test_a_brake_holds_when_a_row_that_was_full_draws_far_less_at_the_same_work() -> None:
    seen = after(full(), np.full(COUNT, BRAKED_W), 110.0)

    assert seen.holds
    assert seen.holding.all()
    assert seen.under.all()
    assert seen.slowed.all()


@pytest.mark.parametrize(
    ("case", "draw_w", "idle"),
    [
        ("work ended", np.full(COUNT, BRAKED_W), COUNT),
        ("some draw less", np.where(np.arange(COUNT) < 4, BRAKED_W, LEASE_W), 0),
        ("all draw a little less", np.full(COUNT, 0.8 * LEASE_W), 0),
    ],
)
def test_what_is_no_brake_is_not_taken_for_one(case: str, draw_w: FloatArray, idle: int) -> None:
    assert not after(full(), draw_w, 110.0, idle=idle).holds, case


def test_a_row_that_was_not_full_lately_has_no_brake() -> None:
    assert not after(no_brake(tree()), np.full(COUNT, BRAKED_W), 110.0).holds
    assert not after(full(), np.full(COUNT, BRAKED_W), 100.0 + 301.0).holds


def test_a_brake_counts_as_holding_until_all_that_it_held_down_shows() -> None:
    braked = after(full(), np.full(COUNT, BRAKED_W), 110.0)

    soon = after(braked, np.full(COUNT, LEASE_W), 114.0)
    later = after(soon, np.full(COUNT, LEASE_W), 118.0)

    assert soon.holds
    assert not soon.slowed.any()
    assert not later.holds


def test_a_brake_is_told_of_the_limit_that_it_holds_and_lets_go_there_alone() -> None:
    """Two racks of 1500 W in a row that is never full: both were full, and are braked 5 s apart."""
    racks = [Domain("row", 10_000.0), *(Domain(name, 1500.0, {"row": 1.0}) for name in ("a", "b"))]
    two = tree_of(power_table(racks, [Device(f"g{n}", "a" if n < 5 else "b") for n in range(COUNT)]))
    is_a = np.arange(COUNT) < 5

    def seen(before: Braking, draw_w: FloatArray, now_s: float) -> Braking:
        at_work_w, drawn_w = np.full(COUNT, LEASE_W), two.drawn(draw_w)
        return watched(
            before, two, draw_w=draw_w, at_work_w=at_work_w, drawn_w=drawn_w, budget_w=two.budget_w, let_go_s=6.0,
            now_s=now_s,
        )  # fmt: skip

    at_work = seen(no_brake(two), np.full(COUNT, LEASE_W), 100.0)
    first = seen(at_work, np.where(is_a, BRAKED_W, LEASE_W), 110.0)
    second = seen(first, np.where(is_a, LEASE_W, BRAKED_W), 115.0)
    third = seen(second, np.where(is_a, LEASE_W, BRAKED_W), 120.0)

    assert [each.holding.tolist() for each in (at_work, first, second, third)] == [
        [False, False, False],
        [False, True, False],
        [False, True, True],
        [False, False, True],
    ]
    assert (first.under == is_a).all()
    assert second.under.all()
    assert (second.slowed == ~is_a).all()
    assert (third.under == ~is_a).all()


def test_a_brake_is_assumed_only_on_the_row_that_was_full() -> None:
    """Devices of both rows draw far less than usual; only the first row was full."""
    rows = [Domain(name, 1500.0, kind="row") for name in ("full", "half")]
    nodes = [Domain(f"n{n}", feeds={"full" if n < 5 else "half": 1.0}, kind="node") for n in range(COUNT)]
    two = tree_of(power_table(rows + nodes, [Device(f"g{n}", f"n{n}") for n in range(COUNT)]))
    braked_w, budget_w = np.full(COUNT, BRAKED_W), np.full(2, 1500.0)

    def seen(before: Braking, draw_w: FloatArray, drawn_w: FloatArray, now_s: float) -> Braking:
        return watched(
            before,
            two,
            draw_w=draw_w,
            at_work_w=np.full(COUNT, LEASE_W),
            drawn_w=drawn_w,
            budget_w=budget_w,
            let_go_s=6.0,
            now_s=now_s,
        )

    before = seen(no_brake(two), np.full(COUNT, LEASE_W), np.array([1500.0, 800.0]), 100.0)
    after = seen(before, braked_w, np.array([600.0, 600.0]), 110.0)

    assert after.holding.tolist() == [True, False]
    assert after.under.tolist() == after.slowed.tolist() == [True] * 5 + [False] * 5
