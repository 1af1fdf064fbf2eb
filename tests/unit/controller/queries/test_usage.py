"""Usage of a fleet: allocated, stranded and free."""

from dataclasses import replace

import numpy as np
import pytest

from controller.placers import NodePool
from controller.queries import usage
from tests.builders.fleet import node, pod, world

FLEET = (
    node("a", gpus=8, labels={"pool": "train"}),
    node("starved", gpus=4, cpu_milli=500),
    node("shut", gpus=4, schedulable=False),
    node("cpu"),
)
"""16 A100 at 3 $/h. `p` holds 2 on `a`; on `starved` there is no CPU left for a pod like it."""
NOW = world(FLEET, [pod("ns/p", gpus=2, on="a", devices=(0, 1))], prices={"A100": 3.0, "H100": 9.0})


def test_devices_are_used_free_stranded_or_closed_and_add_up() -> None:
    total = usage.total(usage.of_nodes(NOW))

    assert (total.gpus, total.used, total.free, total.stranded, total.closed) == (16, 2.0, 6.0, 4.0, 4.0)


def test_idle_devices_cost_what_nobody_uses() -> None:
    """14 of 16 devices are idle: 42 of 48 $/h."""
    total = usage.total(usage.of_types(NOW))

    assert (total.cost_per_hour, total.idle_cost_per_hour) == (48.0, 42.0)


def test_types_without_nodes_are_shown_empty() -> None:
    assert {each.name: each.gpus for each in usage.of_types(NOW)} == {"A100": 16, "H100": 0}


def test_a_node_counts_in_the_first_pool_that_has_it() -> None:
    pools = (NodePool("bind", {"pool": "train"}), NodePool("gate", {}))

    assert {each.name: each.nodes for each in usage.of_pools(NOW, pools)} == {
        "bind: pool=train": 1,
        "gate: every node": 3,
    }


def test_nodes_in_no_pool_are_told() -> None:
    assert usage.of_pools(NOW, (NodePool("bind", {"pool": "train"}),))[-1].name == "(in no pool)"


def test_every_way_of_counting_finds_the_same_devices() -> None:
    ways = (usage.of_nodes(NOW), usage.of_types(NOW), usage.of_pools(NOW, (NodePool("gate", {}),)))

    assert len({usage.total(way).gpus for way in ways}) == 1
    assert [usage.total(way).used for way in ways] == pytest.approx([2.0] * 3)


def test_cores_that_pods_hold_are_part_of_the_devices_that_they_are_of() -> None:
    """A pod holds 24 of 32 cores: 4 of 16 devices are left."""
    cores = "aws.amazon.com/neuroncore"
    fleet = world([node("a", gpus=16)], [pod("p", on="a")])
    (asked,) = fleet.pods.shapes
    pods = replace(fleet.pods, shapes=(replace(asked, others=((cores, 24),)),))
    fleet = replace(fleet, pods=pods, nodes=replace(fleet.nodes, others={cores: np.array([32])}))

    assert [(each.used, each.free) for each in usage.of_nodes(fleet)] == [(12.0, 4.0)]
