"""Watt leases hold under any loss, delay, doubling, reordering, clamping, lying and restarts.

`pytest tests/properties/test_power_leases.py --hypothesis-profile=long` runs 10,000 examples of each.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cluster.arrays import FloatArray
from cluster.power import PowerTable
from power.tree import Tree, tree_of
from tests.builders.power import Device, Domain, power_table
from tests.properties.fake_power_fleet import STRICT, Controller, Fleet, Weather

pytestmark = pytest.mark.slow

many = settings(max_examples=max(250, settings.default.max_examples if settings.default else 0))

weathers = st.builds(
    Weather,
    loss=st.sampled_from((0.0, 0.1, 0.3, 0.8)),
    doubled=st.sampled_from((0.0, 0.5)),
    longest_delay_s=st.sampled_from((0, 1, 4, 7, 15)),
    actuation_s=st.integers(0, 3),
)


@dataclass(frozen=True)
class Event:
    """Something that happens at one second."""

    at_s: int
    what: str
    which: int
    """Number of the device or node, modulo their count."""


events = st.lists(
    st.builds(
        Event,
        at_s=st.integers(1, 40),
        what=st.sampled_from(
            (
                "forgets",
                "restarts",
                "lies",
                "clamps",
                "sticks",
                "heals",
                "busy",
                "idle",
                "new controller",
                "second controller",
            )
        ),
        which=st.integers(0, 7),
    ),
    max_size=10,
)


@st.composite
def tables(draw: st.DrawFn, floors_w: tuple[float, ...] = (120.0, 150.0, 200.0)) -> PowerTable:
    """Two racks, one of them fed twice, whose floors fit and whose highest limits do not."""
    devices = [
        Device(
            f"g{n}",
            f"n{n // 2}",
            draw(st.sampled_from(("high", "low"))),
            floor_w=draw(st.sampled_from(floors_w)),
            overshoot_share=draw(st.sampled_from((0.0, 0.03))),
            managed=n != 5,
        )
        for n in range(6)
    ]
    share = draw(st.sampled_from((0.5, 1.0)))
    # Floors: at most 5 · 206 W and 400 W of the one that opted out; highest limits: 2,400 W.
    site = Domain("site", draw(st.sampled_from((1500.0, 1800.0))), other_w=50.0)
    domains = [
        site,
        Domain("a", 1500.0, {"site": 1.0}),
        Domain("b", 1480.0, {"site": 1.0}),
        Domain("r1", draw(st.sampled_from((500.0, 900.0))), {"a": 1.0}),
        Domain("r2", feeds={"a": share, "b": share}),
        *(Domain(f"n{n}", feeds={"r1" if n == 0 else "r2": 1.0}, kind="node") for n in range(3)),
    ]
    return power_table(domains, devices)


def happen(fleet: Fleet, event: Event, demand_w: dict[str, float], lasting: set[str]) -> None:
    """Let one event happen. `lasting`: names of devices whose hardware does not obey, or did not."""
    nodes, names = list(fleet.agents), list(fleet.hardware)
    agent, name = fleet.agents[nodes[event.which % len(nodes)]], names[event.which % len(names)]
    match event.what:
        case "forgets" | "restarts":
            agent.restart(fleet.now_s, event.which, keeps_record=event.what == "restarts")
        case "lies" | "clamps" | "sticks":
            fleet.hardware[name].manner = {"lies": "lying", "clamps": "clamped", "sticks": "stuck"}[event.what]
            lasting.add(name)
        case "heals":
            fleet.hardware[name].manner = "honest"
        case "busy" | "idle":
            demand_w[name] = 400.0 if event.what == "busy" else 60.0
        case "new controller" | "second controller":
            epoch = max(controller.ledger.epoch for controller in fleet.controllers) + 1
            kept = fleet.controllers[-1:] if event.what == "second controller" else []
            fleet.controllers = [*kept, Controller(fleet.table, fleet.rules, epoch, float(100 * event.which))]


def change_work(fleet: Fleet, demand_w: dict[str, float]) -> None:
    """Work comes and goes, so that watts wander from device to device."""
    for name in demand_w:
        if fleet.chance.random() < 0.15:
            demand_w[name] = fleet.chance.choice((60.0, 60.0, 250.0, 400.0))


def through(tree: Tree, watts: np.ndarray) -> np.ndarray:
    """Worst case at every limit of caps, with everything that draws there besides managed devices."""
    opted_out_w = np.where(tree.table.devices.managed, watts, tree.table.devices.max_w)
    return tree.through(tree.burden * opted_out_w) + tree.other_w


def assert_budgets_hold(fleet: Fleet, tree: Tree, lasting: set[str]) -> None:
    honest = np.array([name not in lasting for name in tree.table.devices.names])
    leased_w = fleet.leased_w()
    drawn = through(tree, np.where(honest, fleet.enforced_w(), leased_w))
    now = f"{fleet.now_s} s"  # arrays are printed on failure alone: printing them took a tenth of the time
    assert (through(tree, leased_w) <= tree.budget_w + 1e-6).all(), f"{now}: leases above a budget: {leased_w}"
    assert (drawn <= tree.budget_w + 1e-6).all(), f"{now}: devices may draw more than a budget: {fleet.enforced_w()}"


def assert_rises_were_believed(fleet: Fleet, before: dict[int, FloatArray]) -> None:
    """before: caps of each controller one second ago."""
    for controller in fleet.controllers:
        if controller.state is not None and id(controller) in before:
            rose = controller.state.ledger.cap_w > before[id(controller)]
            assert controller.state.estimate.believed[rose].all(), "a cap rose on a stale reading"


def assert_leases_keep_to_their_devices(fleet: Fleet) -> None:
    devices = fleet.table.devices
    for lease in fleet.leases[-6:]:
        for name, cap_w in lease.caps_w.items():
            row = devices.names.row(name)
            assert row is not None
            assert devices.managed[row], "a device that opted out was leased"
            assert devices.min_w[row] <= lease.safe_w[name] <= cap_w <= devices.max_w[row]


@many
@given(
    table=tables(),
    weather=weathers,
    happening=events,
    seed=st.integers(0, 10_000),
    burst_share=st.sampled_from((0.0, 1.0)),
)
def test_leases_never_exceed_a_budget_rise_on_a_stale_reading_or_leave_their_devices(
    table: PowerTable, weather: Weather, happening: list[Event], seed: int, burst_share: float
) -> None:
    rules = replace(STRICT, burst_share=burst_share)
    fleet, tree, lasting = Fleet(table, weather, seed, rules), tree_of(table), set[str]()
    demand_w = dict.fromkeys(fleet.hardware, 400.0)

    for _ in range(45):
        for event in happening:
            if event.at_s == fleet.now_s:
                happen(fleet, event, demand_w, lasting)
        change_work(fleet, demand_w)
        before = {id(c): c.state.ledger.cap_w for c in fleet.controllers if c.state is not None}
        fleet.second(tree.budget_w, demand_w)

        assert_budgets_hold(fleet, tree, lasting)
        assert_rises_were_believed(fleet, before)
        assert_leases_keep_to_their_devices(fleet)
    assert fleet.hardware["g5"].cap_w == table.devices.previous_w[5]


CUT_S, BACK_S = 15, 32


@many
@given(table=tables(floors_w=(120.0,)), weather=weathers, happening=events, seed=st.integers(0, 10_000))
def test_a_budget_that_is_cut_is_kept_one_lease_later_and_giving_it_back_brings_no_storm(
    table: PowerTable, weather: Weather, happening: list[Event], seed: int
) -> None:
    fleet, tree = Fleet(table, weather, seed), tree_of(table)
    demand_w = dict.fromkeys(fleet.hardware, 400.0)
    after_the_lease_s = CUT_S + fleet.rules.lease_s + 1

    for _ in range(45):
        for event in happening:
            if event.at_s == fleet.now_s:
                happen(fleet, event, demand_w, set())
        change_work(fleet, demand_w)
        budget_w = tree.budget_w * (0.8 if CUT_S <= fleet.now_s < BACK_S else 1.0)
        fleet.second(budget_w, demand_w)

        allowed_w = budget_w if fleet.now_s >= after_the_lease_s else tree.budget_w
        assert (through(tree, fleet.leased_w()) <= allowed_w + 1e-6).all()
