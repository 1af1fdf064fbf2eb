"""Meters of whole domains: contradictions are reported, the larger value counts, and a meter never adds power."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.power import NEVER_S, PowerTable
from power.control.state import allocator_of, first_state
from power.control.step import step
from power.rules import PowerRules
from power.watching import FAULTS, Meters, metered, metering_of, no_meters
from tests.builders.power import Device, Domain, power_table, row_of

STRICT = PowerRules(burst_share=0.0)
THREE = [Device(name, node, floor_w=150.0) for name, node in (("a", "n1"), ("b", "n2"), ("c", "n3"))]


class World:
    """Devices that draw and obey, and meters with the values that the test sets."""

    def __init__(self, table: PowerTable, demand_w: float = 300.0) -> None:
        self.allocator = allocator_of(table, STRICT)
        self.metering = metering_of(self.allocator.tree)
        self.state = first_state(self.allocator)
        self.meters: Meters = no_meters(self.metering)
        self.cap_w, self.demand_w = table.devices.max_w, demand_w
        self.heard = self.state.ledger.sequence
        self.now_s = 0.0

    def passes(self, for_s: float, *, age_s: float = 0.0, **shown_w: float) -> None:
        """Every two seconds a step. shown_w: by domain, what its meter shows, as old as that."""
        names = self.allocator.tree.table.domains.names
        for _ in range(int(for_s / 2)):
            meter_at_s, meter_w = np.full(len(names), NEVER_S), np.zeros(len(names))
            for name, watts in shown_w.items():
                meter_at_s[names.row(name)], meter_w[names.row(name)] = self.now_s - age_s, watts
            readings = replace(
                self.allocator.tree.table.readings,
                at_s=np.full(len(self.cap_w), self.now_s),
                draw_w=np.minimum(self.demand_w, self.cap_w),
                cap_w=self.cap_w,
                sequence=self.heard,
                meter_at_s=meter_at_s,
                meter_w=meter_w,
            )
            seen = self.state.estimate
            self.meters = metered(self.metering, STRICT, self.meters, seen, readings, self.now_s)
            budget_w = self.allocator.tree.budget_w - self.meters.excess_w
            self.state, grants = step(self.allocator, self.state, readings, self.now_s, budget_w)
            self.cap_w, self.heard = grants.cap_w, grants.sequence
            self.now_s += 2.0

    @property
    def fault(self) -> str:
        """Result of the first domain, which is the row."""
        return FAULTS[self.meters.fault[0]]

    @property
    def excess_w(self) -> float:
        return float(self.meters.excess_w[0])


def test_a_meter_that_agrees_changes_nothing() -> None:
    world, without = World(row_of(THREE, 1200.0, other_w=100.0)), World(row_of(THREE, 1200.0, other_w=100.0))

    world.passes(60.0, row=960.0)
    without.passes(60.0)

    assert (world.fault, world.excess_w) == ("", 0.0)
    assert world.cap_w.tolist() == without.cap_w.tolist()


def test_watts_that_nothing_accounts_for_are_named_and_count_against_the_budget() -> None:
    """Three devices report 300 W each, and 100 W of servers are known; the meter shows 200 W more than that."""
    world = World(row_of(THREE, 1200.0, other_w=100.0))
    world.passes(20.0)
    before_w = world.cap_w.sum()
    world.passes(2.0, row=1200.0)
    now = world.excess_w
    world.passes(2.0, row=1200.0)

    assert (world.fault, now) == ("MeterShowsMore", 200.0)
    assert before_w > 900.0
    # 1200 W of budget, less 100 W known and 200 W unknown.
    assert world.cap_w.sum() <= 900.0


def test_an_error_of_some_per_cent_is_no_contradiction() -> None:
    world = World(row_of(THREE, 1200.0, other_w=100.0))
    world.passes(20.0, row=1060.0)  # 1000 W, 5 % and 20 W: 1070 W

    assert (world.fault, world.excess_w) == ("", 0.0)


def test_watts_that_a_nodes_meter_finds_are_taken_from_the_budget_above_it() -> None:
    """A node has no budget of its own; an unknown load in it still draws through the row."""
    world = World(row_of(THREE, 1200.0, other_w=100.0))
    world.passes(20.0)
    world.passes(4.0, n1=450.0, n2=300.0)

    # n1's device reports 300 W, and nothing else is known there; n2's meter agrees.
    faults = dict(zip(world.allocator.tree.table.domains.names, world.meters.fault.tolist(), strict=True))
    assert {name: FAULTS[fault] for name, fault in faults.items() if fault} == {"n1": "MeterShowsMore"}
    assert world.excess_w == 150.0
    # 1200 W of budget, less 100 W known and 150 W unknown.
    assert world.cap_w.sum() <= 950.0


def test_the_same_watts_at_a_nodes_meter_and_at_the_rows_count_once() -> None:
    world = World(row_of(THREE, 1200.0, other_w=100.0))
    world.passes(20.0)
    world.passes(4.0, n1=450.0, row=1150.0)

    assert world.excess_w == 150.0


def test_a_meter_that_lags_behind_a_draw_that_fell_contradicts_nobody_until_it_must_have_followed() -> None:
    world = World(row_of(THREE, 1200.0))
    world.passes(20.0, row=900.0)
    world.demand_w = 100.0
    world.passes(28.0, row=900.0)
    at_first = world.fault
    world.passes(60.0, row=900.0)

    assert (at_first, world.fault) == ("", "MeterShowsMore")
    assert world.excess_w == pytest.approx(600.0)


def test_what_no_longer_shows_is_given_back_slowly() -> None:
    world = World(row_of(THREE, 1200.0, other_w=100.0))
    world.passes(20.0)
    world.passes(2.0, row=1200.0)
    shown_w = world.excess_w
    world.passes(60.0, row=1000.0)
    later_w = world.excess_w
    world.passes(600.0, row=1000.0)

    assert shown_w == 200.0
    assert later_w == pytest.approx(200.0 / np.e, rel=0.05)
    assert world.excess_w == 0.0


def test_a_meter_that_shows_less_than_its_devices_is_named_and_gives_nobody_anything() -> None:
    world, without = World(row_of(THREE, 1200.0)), World(row_of(THREE, 1200.0))

    world.passes(90.0, row=500.0)
    without.passes(90.0)

    assert (world.fault, world.excess_w) == ("MeterShowsLess", 0.0)
    assert world.cap_w.tolist() == without.cap_w.tolist()


@pytest.mark.parametrize(
    ("shown_w", "age_s", "fault"),
    [
        (1800.0, 11.0, "MeterStale"),
        (1800.0, -60.0, "MeterStale"),
        (900_000.0, 0.0, "MeterWrongUnit"),
        (0.9, 0.0, "MeterWrongUnit"),
        (9000.0, 0.0, "MeterImpossible"),
        (-5.0, 0.0, "MeterImpossible"),
        (float("nan"), 0.0, "MeterImpossible"),
        (float("inf"), 0.0, "MeterImpossible"),
    ],
)
def test_a_meter_that_cannot_be_believed_is_named_and_set_aside(shown_w: float, age_s: float, fault: str) -> None:
    world = World(row_of(THREE, 1200.0))
    world.passes(20.0)

    world.passes(4.0, age_s=age_s, row=shown_w)

    assert (world.fault, world.excess_w) == (fault, 0.0)


def test_one_meter_of_two_feeds_may_show_a_part_of_a_rack_that_is_fed_twice() -> None:
    """Each feed must be able to carry the rack whole; while both are up each carries half."""
    domains = [Domain("feed-a", 2000.0), Domain("feed-b", 2000.0), Domain("n", feeds={"feed-a": 1.0, "feed-b": 1.0})]
    world = World(power_table(domains, [replace(each, node="n") for each in THREE]))

    world.passes(20.0, **{"feed-a": 450.0, "feed-b": 450.0})

    assert {FAULTS[fault] for fault in world.meters.fault} == {""}


def test_an_excess_in_a_rack_is_taken_from_the_rack_and_from_what_feeds_it() -> None:
    domains = [Domain("row", 2000.0), Domain("r0", 700.0, {"row": 1.0}), Domain("r1", 700.0, {"row": 1.0})]
    devices = [Device(f"g{n}", f"r{n // 2}", floor_w=150.0) for n in range(4)]
    world = World(power_table(domains, devices))
    world.passes(20.0)
    world.passes(4.0, r0=750.0, row=1350.0)

    # 600 W by the devices' word and 750 W by the rack's meter; the row's shows the same 150 W.
    assert dict(zip(("row", "r0", "r1"), world.meters.excess_w.tolist(), strict=True)) == {
        "row": pytest.approx(150.0),
        "r0": pytest.approx(150.0),
        "r1": 0.0,
    }
    assert world.cap_w[:2].sum() <= 550.0
    assert world.cap_w[2:].sum() > 600.0
