"""Watt leases hold under any loss, delay, doubling, reordering, clamping, lying and restarts.

`pytest tests/properties/test_power_leases.py --hypothesis-profile=long -m ""` runs 10,000 examples of each.
"""

from dataclasses import dataclass

import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

from cluster.power import PowerTable
from power.tree import Tree, tree_of
from tests.pretend_power import Controller, Fleet, Weather
from tests.watts import Device, Domain, power_table

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
    """Of the devices or nodes, modulo their number."""


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
def tables(draw: st.DrawFn) -> PowerTable:
    """Two racks, one of them fed twice, whose floors fit and whose highest limits do not."""
    devices = [
        Device(
            f"g{n}",
            f"n{n // 2}",
            draw(st.sampled_from(("high", "low"))),
            floor_w=draw(st.sampled_from((120.0, 150.0, 200.0))),
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
            epoch = max(controller.book.epoch for controller in fleet.controllers) + 1
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


@given(table=tables(), weather=weathers, happening=events, seed=st.integers(0, 10_000))
def test_leases_never_add_up_to_more_than_any_budget(
    table: PowerTable, weather: Weather, happening: list[Event], seed: int
) -> None:
    fleet, tree, lasting = Fleet(table, weather, seed), tree_of(table), set[str]()
    demand_w = dict.fromkeys(fleet.hardware, 400.0)

    for _ in range(45):
        for event in happening:
            if event.at_s == fleet.now_s:
                happen(fleet, event, demand_w, lasting)
        change_work(fleet, demand_w)
        fleet.second(tree.budget_w, demand_w)

        honest = np.array([name not in lasting for name in table.devices.names])
        drawn = through(tree, np.where(honest, fleet.enforced_w(), fleet.leased_w()))
        note(f"{fleet.now_s} s: leased {fleet.leased_w()}, enforced {fleet.enforced_w()}")
        assert (through(tree, fleet.leased_w()) <= tree.budget_w + 1e-6).all()
        assert (drawn <= tree.budget_w + 1e-6).all()
