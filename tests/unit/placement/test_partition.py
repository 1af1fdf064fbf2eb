"""Shards of a cluster that can be packed apart."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from cluster.actions import Bind
from cluster.nodes import NODE_NAME_FIELD, eligible_nodes
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from controller.brain.on_ray.actors import Planner
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import decide
from placement.partition import shares_of
from tests.builders.arbitrary_fleets import fleets
from tests.builders.fleet import Node, daemon_pods, node, pod, world
from tests.builders.planners import plan_apart
from tests.builders.snapshot_content import plain


def pools(*names: str) -> list[Node]:
    return [node(f"{name}{n}", 4, labels={"pool": name}) for name in names for n in range(2)]


def names(share: Snapshot) -> tuple[list[str], list[str]]:
    return list(share.nodes.names), list(share.pods.names)


def test_pools_that_share_no_pod_are_apart() -> None:
    seen = world(pools("a", "b"), [pod("p", 1, selector={"pool": "a"}), pod("q", 1, selector={"pool": "b"})])

    assert [names(share) for share in shares_of(seen, 8)] == [(["a0", "a1"], ["p"]), (["b0", "b1"], ["q"])]


def test_a_pod_that_may_run_anywhere_keeps_all_together() -> None:
    seen = world(pools("a", "b"), [pod("p", 1, selector={"pool": "a"}), pod("q", 1)])

    assert shares_of(seen, 8) == (seen,)


def test_a_gang_in_two_pools_keeps_them_together() -> None:
    pods = [pod("p", 1, selector={"pool": "a"}, gang="g"), pod("q", 1, selector={"pool": "b"}, gang="g")]
    pods.append(pod("r", 1, selector={"pool": "c"}))
    seen = world(pools("a", "b", "c"), pods, [Gang("g", 2)])

    apart = shares_of(seen, 8)

    assert [names(share)[1] for share in apart] == [["p", "q"], ["r"]]
    assert [len(share.gangs) for share in apart] == [1, 0]


def test_a_pod_that_runs_where_it_may_no_longer_start_stays_with_its_node() -> None:
    pods = [pod("p", 1, selector={"pool": "a"}, on="b1", devices=(2,)), pod("q", 1, selector={"pool": "b"})]
    seen = world(pools("a", "b"), pods)

    assert shares_of(seen, 8) == (seen,)


def test_the_pods_of_a_daemon_set_keep_nothing_together() -> None:
    nodes = pools("a", "b")
    daemons = daemon_pods([each.name for each in nodes])
    pods = [pod("p", 1, selector={"pool": "a"}), pod("q", 1, selector={"pool": "b"}), *daemons]

    apart = [set(names(share)[1]) for share in shares_of(world(nodes, pods), 8)]

    assert apart == [{"p", "daemon-a0", "daemon-a1"}, {"q", "daemon-b0", "daemon-b1"}]


def test_a_pending_pod_of_a_daemon_set_belongs_to_its_node() -> None:
    nodes = [replace(each, labels={**each.labels, NODE_NAME_FIELD: each.name}) for each in pools("a", "b")]
    pods = [pod(f"pending-{each.name}", selector={NODE_NAME_FIELD: each.name}) for each in nodes]

    apart = [names(share) for share in shares_of(world(nodes, pods), 8)]

    assert apart == [([each.name], [f"pending-{each.name}"]) for each in nodes]


def test_a_pod_that_no_node_may_take_is_not_lost() -> None:
    pods = [pod("p", 1, selector={"pool": "a"}), pod("q", 1, selector={"pool": "b"}), pod("x", 1, gpu_types=["H100"])]

    assert [names(share)[1] for share in shares_of(world(pools("a", "b"), pods), 8)] == [["p", "x"], ["q"]]


def test_there_are_no_more_shares_than_wanted_and_their_work_is_alike() -> None:
    pods = [pod(f"{pool}{n}", 1, selector={"pool": pool}) for pool in "abcd" for n in range(4)]

    shares = shares_of(world(pools("a", "b", "c", "d"), pods), 2)

    assert [len(share.pods) for share in shares] == [8, 8]


@given(fleets())
@settings(max_examples=100, deadline=None)
def test_shards_hold_everything_once_and_no_pod_may_run_outside_of_its_own(seen: Snapshot) -> None:
    shares = shares_of(seen, 4)

    assert sorted(n for share in shares for n in share.nodes.names) == sorted(seen.nodes.names)
    assert sorted(p for share in shares for p in share.pods.names) == sorted(seen.pods.names)
    for share in shares:
        inside = set(share.nodes.names)
        for row in range(len(share.pods)):
            may = eligible_nodes(share.pods.shapes[share.pods.shape[row]], seen.nodes, seen.gpu_type_names)
            if inside & {seen.nodes.names[int(n)] for n in np.flatnonzero(may)}:
                assert {seen.nodes.names[int(n)] for n in np.flatnonzero(may)} <= inside


@given(fleets())
@settings(max_examples=50, deadline=None)
def test_planners_that_divide_the_work_make_the_plan_of_one(seen: Snapshot) -> None:
    decisions = Decisions(shares=4)
    planners = [Planner(decisions, lambda: 0.0) for _ in range(3)]

    apart = plan_apart(planners, seen, 60.0)

    assert plain(apart) == plain(decide(seen, decisions, deadline_s=60.0, clock=lambda: 0.0))


@pytest.mark.parametrize(("room_in_b", "seated"), [(4, 6), (1, 1)])
def test_a_gang_that_spans_pools_is_placed_whole_or_not_at_all_in_any_partition(room_in_b: int, seated: int) -> None:
    """Two members choose pool a, three pool b, all five are needed; a pod in pool c is not affected."""
    nodes = [node("a", 4, labels={"pool": "a"}), node("b", room_in_b, labels={"pool": "b"})]
    nodes.append(node("c", 4, labels={"pool": "c"}))
    members = [pod(f"m{n}", 1, selector={"pool": "ab"[n > 1]}, gang="g") for n in range(5)]
    seen = world(nodes, [*members, pod("r", 1, selector={"pool": "c"})], [Gang("g", 5)])
    planners = [Planner(Decisions(shares=4), lambda: 0.0) for _ in range(2)]

    plan = plan_apart(planners, seen, 60.0)

    assert len(shares_of(seen, 4)) == 2
    assert sum(isinstance(action, Bind) for action in plan.actions) == seated


def test_what_is_packed_apart_fits_as_well_as_together() -> None:
    pods = [pod(f"{pool}{n}", 1, selector={"pool": pool}) for pool in "ab" for n in range(9)]
    seen = world(pools("a", "b"), pods)

    plan = decide(seen, Decisions(shares=2), deadline_s=60.0, clock=lambda: 0.0)

    assert sum(isinstance(action, Bind) for action in plan.actions) == 16  # 2 pools × 2 nodes × 4 GPUs
