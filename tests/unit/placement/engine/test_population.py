"""Arrivals and departures as the difference of two snapshots."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cluster.arrays import Names
from cluster.snapshot import Snapshot
from placement.engine.live_packer import Changes, changes_between, has_other_nodes, is_other_fleet, population_of
from tests.builders.fleet import Node, Pod, node, pod, shape, world

NODES = [node("a", gpus=8), node("b", gpus=8)]


def changes(before: Sequence[Pod], now: Sequence[Pod], nodes: list[Node] = NODES) -> Changes:
    return changes_between(population_of(world(NODES, before)), population_of(world(nodes, now)))


def test_a_pod_that_waits_through_many_snapshots_arrives_once() -> None:
    waits = pod("w", gpus=1)

    assert changes([], [waits]) == Changes(arrived=(waits.shape,))
    assert changes([waits], [waits]) == Changes()


def test_a_pod_that_starts_neither_arrives_nor_departs() -> None:
    assert changes([pod("p", gpus=1)], [pod("p", gpus=1, on="a", devices=(0,))]) == Changes()


def test_a_pod_that_runs_when_it_is_first_seen_arrives() -> None:
    assert changes([], [pod("p", gpus=2, on="a", devices=(0, 1))]).arrived == (shape(2),)


def test_a_pod_that_ran_and_is_gone_departs() -> None:
    assert changes([pod("p", gpus=1, on="a", devices=(0,))], []) == Changes(departed=(shape(1),))


def test_a_pod_that_is_gone_without_having_run_is_no_departure() -> None:
    assert changes([pod("p", gpus=1)], []) == Changes()


def test_an_evicted_pod_of_the_same_name_goes_on_being_the_same_pod() -> None:
    assert changes([pod("p", gpus=1, on="a", devices=(0,))], [pod("p", gpus=1)]) == Changes()


def test_a_pod_of_other_requests_under_a_known_name_is_another_pod() -> None:
    before, now = [pod("p-0", gpus=1, on="a", devices=(0,))], [pod("p-0", gpus=4)]

    assert changes(before, now) == Changes(arrived=(shape(4),), departed=(shape(1),))


def test_a_pod_that_is_restricted_to_its_node_when_it_is_placed_arrives_once() -> None:
    waits = pod("p", gpus=1)
    runs = pod("p", gpus=1, selector={"kubernetes.io/hostname": "a"}, on="a", devices=(0,))

    assert changes([waits], [runs]) == Changes()


def test_pods_of_nodes_that_joined_or_left_neither_arrive_nor_depart() -> None:
    before = [pod("with-b", gpus=1, on="b", devices=(0,))]
    now = [pod("with-c", gpus=2, on="c", devices=(0, 1))]

    assert changes(before, now, [NODES[0], node("c", gpus=8)]) == Changes()


def test_the_same_pods_in_another_order_are_no_change() -> None:
    pods = [pod("p", gpus=1), pod("q", gpus=2), pod("r", gpus=1, on="a", devices=(0,))]

    assert changes(pods, pods[::-1]) == Changes()


def test_more_of_a_known_fleet_is_the_same_fleet_and_other_nodes_are_another() -> None:
    fleet = population_of(world(NODES))

    def other(*nodes: Node) -> bool:
        return is_other_fleet(fleet, population_of(world(nodes)))

    assert not other(*NODES, node("c", gpus=8))
    assert not other(NODES[0])
    assert other(NODES[0], *(node(f"n{n}") for n in range(4)))


def test_labels_of_nodes_matter_to_no_price_and_their_gpus_do() -> None:
    fleet = population_of(world(NODES))

    assert not has_other_nodes(fleet, population_of(world([replace(each, labels={"x": "y"}) for each in NODES])))
    assert has_other_nodes(fleet, population_of(world([NODES[0], replace(NODES[1], gpus=4)])))
    assert has_other_nodes(fleet, population_of(world([replace(each, gpu_type="L4") for each in NODES])))


def test_a_population_holds_no_memory_of_its_snapshot() -> None:
    snapshot: Snapshot = world(NODES, [pod("p", gpus=1)])
    seen = population_of(snapshot)

    columns = (snapshot.pods.shape, snapshot.pods.node, snapshot.nodes.gpus, snapshot.nodes.cpu_milli)

    assert not any(
        np.shares_memory(mine, theirs) for mine in (seen.shape, seen.node, seen.capacity) for theirs in columns
    )


def test_names_give_their_rows_all_at_once() -> None:
    assert Names("abc").rows("cxa").tolist() == [2, -1, 0]
