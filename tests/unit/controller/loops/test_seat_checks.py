"""Answers to Kueue's admission checks: seats for all pods of a workload, beside all that waits, and their price."""

from typing import Any

from cluster.snapshot import Snapshot
from cluster.workloads import GpuType
from controller.deciders.decisions import Decisions
from controller.loops.seat_checks import answers, pods_of
from controller.snapshot.nodes import TypeIndex
from controller.snapshot.pods import PodRow
from tests.builders.fleet import node, pod, world

GPU = "nvidia.com/gpu"
TYPES = TypeIndex((GpuType("A100", 80 * 2**30, 1.5),), (GPU,), {("product", "a100"): (0,)})
DECISIONS = Decisions(policy="bestfit")


def asked(
    name: str, count: int, gpus: int, labels: dict[str, str] | None = None, **spec: Any
) -> dict[str, list[PodRow]]:
    """A workload of so many pods, with a flavor of these labels."""
    limits = {"resources": {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}}}
    template = {"spec": {"containers": [{"name": "main", **limits}], **spec}}
    status = {"admission": {"podSetAssignments": [{"name": "main", "flavors": {GPU: "one"}}]}}
    flavors = {"one": {"nodeLabels": labels or {}}}
    sets = {"podSets": [{"name": "main", "count": count, "template": template}]}
    return {name: pods_of(name, sets, status, flavors, TYPES)}


def fleet(*pods: Any) -> Snapshot:
    nodes = [node("a", gpus=8, labels={"pool": "x"}), node("b", gpus=8)]
    return world(nodes, pods, prices={"A100": 1.5})


def test_a_workload_has_a_seat_where_all_its_pods_have() -> None:
    assert answers(fleet(), asked("t/fits", 4, 4), DECISIONS) == {
        "t/fits": (True, "16 devices on 2 nodes, $24.00 an hour")
    }
    is_seated, words = answers(fleet(), asked("t/wide", 3, 8), DECISIONS)["t/wide"]
    assert not is_seated
    assert words.startswith("no seat: ")


def test_two_workloads_are_not_told_of_the_same_seat() -> None:
    found = answers(fleet(), asked("t/one", 2, 8) | asked("t/two", 1, 1), DECISIONS)

    assert [each[0] for each in found.values()] == [True, False]


def test_what_waits_already_comes_first() -> None:
    waits = [pod("t/waits", 8, priority=5)]

    assert not answers(fleet(*waits), asked("t/asks", 2, 8), DECISIONS)["t/asks"][0]


def test_the_flavor_says_which_nodes() -> None:
    found = answers(fleet(), asked("t/a", 1, 8, {"pool": "x"}) | asked("t/b", 1, 8, {"pool": "x"}), DECISIONS)

    assert [each[0] for each in found.values()] == [True, False]


def test_pods_with_another_gate_have_no_seat_yet() -> None:
    gated = asked("t/gated", 1, 1, schedulingGates=[{"name": "example.com/gate"}])

    assert answers(fleet(), gated, DECISIONS)["t/gated"][1] == (
        "no seat: its scheduling gate example.com/gate is another controller's to remove"
    )
