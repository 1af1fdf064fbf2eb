"""Power headroom during planning: every limit above a node is charged, and the tightest one decides."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.power_floors import PowerFloors
from cluster.snapshot import Snapshot
from tests.builders.fleet import Pod, node, pod, world
from tests.builders.power import Device, Domain, power_table

RISE_W = 140.0
"""From rest, 60 W, to the floor, 200 W (tests/builders/power.py)."""


def fed(*pods: Pod, site_w: float, row_w: float, gpus: int = 4, managed: bool = True) -> Snapshot:
    """A node with four GPUs below a row below a site."""
    domains = [
        Domain("site", 9e4),
        Domain("row", 5e4, {"site": 1.0}, kind="row"),
        Domain("n", feeds={"row": 1.0}, kind="node"),
    ]
    power = power_table(domains, [Device(f"n-{d}", "n", managed=managed) for d in range(gpus)])
    return replace(world([node("n", gpus)], pods), power=replace(power, headroom_w={"site": site_w, "row": row_w}))


def floors(seen: Snapshot) -> PowerFloors:
    made = PowerFloors.of(seen)
    assert made is not None
    return made


@pytest.mark.parametrize(("site_w", "row_w"), [(150.0, 900.0), (900.0, 150.0)])
def test_the_tightest_limit_above_a_node_decides(site_w: float, row_w: float) -> None:
    made = floors(fed(site_w=site_w, row_w=row_w))

    assert made.left_w(0) == 150.0
    assert made.tightest(0) == ("site" if site_w < row_w else "row")
    assert [made.bears(0, held) for held in (0, 1, 2)] == [True, True, False]
    assert made.allows(1).tolist() == [True]
    assert made.allows(2).tolist() == [False]


def test_a_device_that_starts_is_charged_to_every_limit_above_it_and_given_back() -> None:
    made = floors(fed(site_w=1000.0, row_w=500.0))

    made.follow((0,), np.array([2]))
    after = [made.headroom_w(limit) for limit in range(2)]
    made.follow((0,), np.array([0]))

    assert dict(zip(made.limits, after, strict=True)) == {"site": 1000.0 - 2 * RISE_W, "row": 500.0 - 2 * RISE_W}
    assert [made.headroom_w(limit) for limit in range(2)] == [1000.0, 500.0]


def test_a_running_pod_reserves_its_floor_from_the_start() -> None:
    made = floors(fed(pod("p", 1, on="n", devices=(0,)), site_w=1000.0, row_w=500.0))

    assert made.left_w(0) == 500.0 - RISE_W


def test_a_device_that_opted_out_takes_nothing_more() -> None:
    made = floors(fed(site_w=1000.0, row_w=10.0, managed=False))

    assert made.bears(0, 4)
