"""Derived facts of a snapshot, and the snapshot after some actions."""

import numpy as np
import pytest

from cluster.actions import Bind, Evict, Move, Scale
from cluster.arrays import column
from cluster.demand import Demand, LengthGrid, Slo
from cluster.errors import ActionError
from cluster.nodes import NodeTaint, eligible_nodes
from cluster.workloads import ModelService, Toleration
from tests.builders.fleet import GIB, node, pod, shape, world
from tests.builders.mix import of_types


def test_free_is_what_bound_pods_leave_on_each_device() -> None:
    seen = world(
        [node("a", gpus=2, cpu_milli=8000)],
        [pod("p", gpus=1, gpu_milli=300, on="a", devices=(1,)), pod("q", gpus=1, gpu_milli=300)],
    )

    free = seen.free()

    assert free.gpu_milli.tolist() == [[1000, 700]]  # the pending q holds nothing
    assert free.cpu_milli.tolist() == [7000]


def test_after_shows_what_an_obedient_world_would_show() -> None:
    seen = world([node("a", gpus=1), node("b", gpus=1)], [pod("p", gpus=1), pod("q", gpus=1, on="a", devices=(0,))])

    later = seen.after([Move("q", "a", "b", (0,)), Bind("p", "a", (0,))])

    assert later.pods.node.tolist() == [0, 1]
    assert seen.pods.node.tolist() == [-1, 0]  # the old snapshot did not change
    assert later.after([Evict("p", "a")]).pods.pending.tolist() == [0]


def test_a_pod_that_a_scale_adds_can_be_bound_by_the_next_action() -> None:
    grid = LengthGrid((100,), (100,))
    service = ModelService("default/chat", "m", Demand(1.0, grid, column([[1.0]], np.float64)), Slo(0.04))
    seen = world([node("a", gpus=1)], services=[service])

    later = seen.after([Scale("default/chat", of_types({"A100": 1})), Bind("default/chat-a100-0", "a", (0,))])

    assert list(later.pods.names) == ["default/chat-a100-0"]
    assert later.pods.node.tolist() == [0]


def test_pods_that_are_added_and_removed_keep_their_names_shapes_and_owners() -> None:
    grid = LengthGrid((100,), (100,))
    services = [
        ModelService(f"default/{name}", "m", Demand(1.0, grid, column([[1.0]], np.float64)), Slo(0.04)) for name in "ab"
    ]
    seen = world([node("n", gpus=8)], [pod("p", gpus=2), pod("q", gpus=1)], services=services)
    assert seen.pods.names.row("q") == 1  # the index is built, and grows with the names

    two = seen.after([Scale("default/a", of_types({"A100": 1})), Scale("default/b", of_types({"A100": 2}))])
    one = two.after([Scale("default/b", of_types({"A100": 1})), Scale("default/a", of_types({"A100": 0}))])

    assert list(two.pods.names) == ["p", "q", "default/a-a100-0", "default/b-a100-0", "default/b-a100-1"]
    assert [two.pods.names.row(name) for name in two.pods.names] == [0, 1, 2, 3, 4]
    assert seen.pods.names.row("default/a-a100-0") is None
    assert [two.pods.shapes[each].gpus for each in two.pods.shape] == [2, 1, 1, 1, 1]
    assert len(set(two.pods.shapes)) == len(two.pods.shapes)
    assert list(one.pods.names) == ["p", "q", "default/b-a100-0"]
    assert one.pods.owner == ("", "", "default/b")


def test_rows_of_a_table_keep_all_that_is_known_of_their_pods() -> None:
    seen = world(
        [node("n", gpus=8)], [pod("p", gpus=2, on="n", devices=(0, 1)), pod("q", gpus=1, priority=7), pod("r")]
    )

    some = seen.pods.only(np.array([2, 0]))

    assert list(some.names) == ["r", "p"]
    assert (some.node.tolist(), some.devices.tolist(), some.priority.tolist()) == ([-1, 0], [0, 3], [0, 0])
    assert [some.shapes[each].gpus for each in some.shape] == [0, 2]


def test_pods_that_get_one_other_shape_share_it() -> None:
    seen = world([node("n", gpus=8)], [pod("p", gpus=2), pod("q", gpus=2), pod("r", gpus=2)])
    wide = shape(gpus=4)

    now = seen.pods.reshaped({0: wide, 2: wide})

    assert [now.shapes[each].gpus for each in now.shape] == [4, 2, 4]
    assert now.shape[0] == now.shape[2]


def test_an_action_on_something_unknown_is_refused_by_name() -> None:
    seen = world([node("a", gpus=1)], [pod("p", gpus=1)])

    with pytest.raises(ActionError, match="ghost"):
        seen.after([Bind("p", "ghost", (0,))])


def test_a_taint_keeps_away_all_pods_that_do_not_tolerate_it() -> None:
    seen = world([node("plain", gpus=1), node("spot", gpus=1, taints=(NodeTaint("spot", "yes"),))])
    names = seen.gpu_type_names

    shy, brave = shape(gpus=1), shape(gpus=1, tolerations=(Toleration("spot", "Exists"),))

    assert eligible_nodes(shy, seen.nodes, names).tolist() == [True, False]
    assert eligible_nodes(brave, seen.nodes, names).tolist() == [True, True]


def test_a_selector_and_a_gpu_model_narrow_the_nodes() -> None:
    seen = world([node("a", gpus=8), node("b", gpus=8, gpu_type="H100", labels={"zone": "z1"}), node("c")])
    names = seen.gpu_type_names

    assert eligible_nodes(shape(gpus=1, gpu_types=["A100"]), seen.nodes, names).tolist() == [True, False, False]
    assert eligible_nodes(shape(selector={"zone": "z1"}), seen.nodes, names).tolist() == [False, True, False]
    assert np.all(eligible_nodes(shape(memory_bytes=GIB), seen.nodes, names))


def test_scaling_down_removes_pending_instances_first_and_then_the_newest() -> None:
    one = {"owner": "ns/chat", "gpu_types": ["A100"]}
    service = ModelService("ns/chat", "m", None, Slo(0.04))
    seen = world(
        [node("a", gpus=4)],
        [
            pod("waits", 1, **one),
            pod("old", 1, on="a", devices=(0,), **one),
            pod("new", 1, on="a", devices=(1,), **one),
            pod("waits-too", 1, **one),
        ],
        services=[service],
    )

    left = [list(seen.after([Scale("ns/chat", of_types({"A100": count}))]).pods.names) for count in (2, 1)]

    assert left == [["old", "new"], ["old"]]


def test_memory_and_cpu_of_running_pods_are_not_free() -> None:
    seen = world([node("a", cpu_milli=8000, memory_bytes=8 * GIB)], [pod("p", on="a"), pod("q")])

    assert seen.free().cpu_milli.tolist() == [7000]
    assert seen.free().memory_bytes.tolist() == [7 * GIB]
