"""Instances of services are seated together where one after the other would take each other's nodes."""

from cluster.actions import Bind
from cluster.plans import Plan
from placement.budget import Budget
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import Node, Pod, node, pod, world


def packed(nodes: list[Node], pods: list[Pod]) -> Plan:
    seen = world(nodes, pods)
    return pack(seen, Packer(seen, BestFit()), Budget(1e9))


def places(plan: Plan) -> dict[str, str]:
    return {action.pod: action.node for action in plan.actions if isinstance(action, Bind)}


def instance(name: str, gpus: int = 1, **rest: object) -> Pod:
    return pod(name, gpus, owner=f"ns/{name}", **rest)  # type: ignore[arg-type]


def test_an_instance_that_may_run_anywhere_leaves_the_only_node_of_another_to_it() -> None:
    nodes = [node("a", gpus=1, labels={"pool": "a"}), node("b", gpus=1, labels={"pool": "b"})]

    plan = packed(nodes, [instance("anywhere"), instance("picky", selector={"pool": "a"})])

    assert places(plan) == {"anywhere": "b", "picky": "a"}


def test_instances_share_nodes_so_that_cpu_suffices_for_all() -> None:
    """Two nodes of 10 cores hold 6 + 4 each; 4 + 4 on one would leave no room for the second 6."""
    nodes = [node("a", gpus=2, cpu_milli=10_000), node("b", gpus=2, cpu_milli=10_000)]
    small = [instance(f"small-{n}", cpu_milli=4000) for n in range(2)]
    large = [instance(f"large-{n}", cpu_milli=6000) for n in range(2)]

    assert len(places(packed(nodes, [*small, *large]))) == 4


def test_an_instance_of_higher_priority_is_not_left_out_for_more_of_lower_priority() -> None:
    nodes = [node("a", gpus=2)]

    plan = packed(nodes, [instance("high", gpus=2, priority=1), instance("x"), instance("y")])

    assert places(plan) == {"high": "a"}


def test_an_instance_without_any_seat_keeps_none_from_the_others() -> None:
    nodes = [node("a", gpus=1, labels={"pool": "a"}), node("b", gpus=1)]
    pods = [instance("anywhere"), instance("picky", selector={"pool": "a"}), instance("lost", selector={"pool": "c"})]

    plan = packed(nodes, pods)

    assert places(plan) == {"anywhere": "b", "picky": "a"}
    assert [each.workload for each in plan.unplaced] == ["Pod/lost"]


def test_instances_of_higher_priority_leave_seats_to_others_where_they_have_seats_elsewhere() -> None:
    """Two of two GPUs would fill the smaller node first, the only one for the instance of lower priority."""
    nodes = [node("a", gpus=4, labels={"zone": "a"}), node("b", gpus=6)]
    pods = [*(instance(f"high-{n}", gpus=2, priority=10) for n in range(2))]

    plan = packed(nodes, [*pods, instance("low", gpus=4, selector={"zone": "a"})])

    assert places(plan) == {"high-0": "b", "high-1": "b", "low": "a"}
