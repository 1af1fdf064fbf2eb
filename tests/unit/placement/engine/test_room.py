"""Room for further pods: free devices, nodes that accept none, power headroom."""

from dataclasses import replace

from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from placement.engine.explanation import Room, room_for
from tests.builders.fleet import node, pod, world
from tests.builders.power import Device, Domain, power_table

PAIR = PodShape(cpu_milli=1000, gpus=2, gpu_milli=1000)
HALF = PodShape(gpus=1, gpu_milli=500)


def test_the_free_devices_of_each_node_hold_pods_whole() -> None:
    # a: 8 devices of which 3 are taken, so two pairs; b: 3 devices, one pair; no node has GPUs of another type.
    fleet = world([node("a", 8), node("b", 3)], [pod("held", 3, on="a", devices=(0, 1, 2))])

    assert room_for(fleet, PAIR, 10) == Room(3, "stock")
    assert room_for(fleet, HALF, 100) == Room(16, "stock")
    assert room_for(fleet, replace(PAIR, gpu_types=("H100",)), 10) == Room(0, "stock")


def test_it_counts_no_further_than_asked() -> None:
    assert room_for(world([node("a", 8)]), PAIR, 2).pods == 2


def test_cpu_is_as_scarce_as_devices() -> None:
    assert room_for(world([node("a", 8, cpu_milli=2500)]), PAIR, 10) == Room(2, "stock")


def test_nodes_that_accept_no_pods_are_named_where_they_would_hold_more() -> None:
    fleet = world([node("a", 4), node("shut", 4, schedulable=False)])

    assert room_for(fleet, PAIR, 10) == Room(2, "health")


def fed(headroom_w: float) -> Snapshot:
    """Two nodes of four GPUs below one row; each device takes 140 W to its floor (tests/builders/power.py)."""
    domains = [Domain("row", 5e4, kind="row"), *(Domain(n, feeds={"row": 1.0}, kind="node") for n in ("n", "m"))]
    power = power_table(domains, [Device(f"{n}-{d}", n) for n in ("n", "m") for d in range(4)])
    return replace(world([node("n", 4), node("m", 4)]), power=replace(power, headroom_w={"row": headroom_w}))


def test_power_headroom_bounds_the_devices_of_all_nodes_below_it() -> None:
    # 700 W are the floors of five devices: two pairs, whichever nodes they are on.
    assert room_for(fed(700.0), PAIR, 10) == Room(2, "power")
    assert room_for(fed(5000.0), PAIR, 10) == Room(4, "stock")
