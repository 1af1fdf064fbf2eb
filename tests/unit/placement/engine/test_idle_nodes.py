"""Where idle nodes are given back, a pod starts one only where no node in use takes it, and the cheapest per pod."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cluster.actions import Bind
from cluster.snapshot import Snapshot
from cluster.workloads import GpuType
from placement.engine.explanation import explain
from placement.engine.idle_nodes import IdleNodes
from placement.engine.packer import Packer, content_rank
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import GIB, Node, Pod, daemon_pods, node, pod, world

TYPES = (GpuType("A100", 80 * GIB, 2.0), GpuType("T4", 16 * GIB, 0.3), GpuType("H100", 80 * GIB, 3.0))


SMALL: dict[str, Any] = {"cpu_milli": 4000, "memory_bytes": 8 * GIB}
"""A host of 15 cents."""


def fleet(nodes: Sequence[Node], pods: Sequence[Pod]) -> Snapshot:
    seen = world(nodes, pods)
    types = tuple(next(each for each in TYPES if each.name == kind.name) for kind in seen.gpu_types)
    return replace(seen, gpu_types=types)


def engine(seen: Snapshot) -> Packer:
    return Packer(seen, BestFit(), content_rank(seen), idle=IdleNodes(seen))


def places(nodes: Sequence[Node], pods: Sequence[Pod]) -> dict[str, str]:
    seen = fleet(nodes, pods)
    plan = pack(seen, engine(seen))
    return {action.pod: action.node for action in plan.actions if isinstance(action, Bind)}


def test_a_node_in_use_is_filled_before_an_idle_one_that_fits_better() -> None:
    """Best fit alone takes the small node: it leaves less there."""
    nodes = [node("big", 8, cpu_milli=96_000), node("small", 1, cpu_milli=8_000)]
    running = pod("ns/old", 1, on="big", devices=(0,))
    assert places(nodes, [running, pod("ns/new", 1)]) == {"ns/new": "big"}


def test_of_idle_nodes_the_one_that_costs_least_per_pod_starts() -> None:
    """One T4 costs $0.30 for a pod of its own, eight A100 $16 for eight: $2 each; beside it the H100 costs $3."""
    nodes = [node("a", 8), node("t", 1, "T4", **SMALL), node("h", 1, "H100", **SMALL)]
    assert places(nodes, [pod("ns/new", 1)]) == {"ns/new": "t"}
    assert places(nodes[::2], [pod("ns/new", 1)]) == {"ns/new": "a"}


def test_a_node_without_gpus_costs_its_cores_and_memory() -> None:
    """4 cores for $0.12 and 8 GiB for $0.03 hold 4 pods; 96 cores for $2.88 and 512 GiB for $2.05 hold 96."""
    nodes = [node("small", **SMALL), node("large")]
    assert places(nodes, [pod("ns/new")]) == {"ns/new": "small"}


def test_a_node_with_nothing_but_its_own_pods_is_idle() -> None:
    nodes = [node("a", 8), node("t", 1, "T4", **SMALL)]
    own = [replace(each, priority=0) for each in daemon_pods(["a"])]
    assert places(nodes, [*own, pod("ns/new", 1)]) == {"ns/new": "t"}
    assert places(nodes, [*daemon_pods(["a"]), pod("ns/new", 1)]) == {"ns/new": "t"}
    assert places(nodes, [pod("ns/other", on="a"), pod("ns/new", 1)]) == {"ns/new": "a"}


def test_a_node_is_idle_again_once_its_last_pod_is_removed_on_trial() -> None:
    seen = fleet([node("a", 8)], [pod("ns/new", 1)])
    packer, (asked,) = engine(seen), seen.pods.shapes
    before = packer.choose(asked)
    assert before is not None
    packer.place(asked, before)
    second = packer.choose(asked)
    assert second is not None
    assert second.cost < before.cost
    packer.remove(asked, before.node, before.devices)
    assert packer.choose(asked) == before


def test_an_explanation_names_the_price_of_starting_a_node() -> None:
    seen = fleet([node("a", 8), node("b", 8)], [pod("ns/old", 1, on="a", devices=(0,)), pod("ns/new", 1)])
    shape = seen.pods.shapes[seen.pods.shape[seen.pods.names.row("ns/new")]]
    used, idle = explain(engine(seen), shape).candidates
    assert used.terms["idle_node"] == 0
    assert idle.terms["idle_node"] > 0
