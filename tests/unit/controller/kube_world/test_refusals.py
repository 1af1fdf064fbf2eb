"""Where kube-scheduler or a kubelet refused a pod, others like it do not go for a while, each time twice as long."""

from dataclasses import replace
from typing import Any

import pytest

from cluster.workloads import OFF_SPOT, OWN_NODE, Gang, PodShape, Requirement
from controller.api.notation import instant
from controller.api.structs import object_from
from controller.kube.cluster_view import SeenRefusal
from controller.kube_world.refusals import (
    FIRST_S,
    LONGEST_S,
    LONGEST_WORDS,
    MOST,
    MOST_OF_NAMESPACE,
    FailedPod,
    Refusals,
    refusal_of,
    said,
    unplaced_shape,
)
from tests.builders.fleet import node, pod, world

DEVICES = "UnexpectedAdmissionError"
SHAPE = PodShape(cpu_milli=500, memory_bytes=2**30, gpus=1, gpu_milli=1000)


def refusal(at_s: float = 0.0, **changes: Any) -> SeenRefusal:
    made = SeenRefusal(f"uid-{at_s}", "ns", SHAPE, "a", "kube-scheduler says: no", at_s)
    return replace(made, **changes)


def remembered(*refusals: SeenRefusal) -> Refusals:
    found = Refusals()
    for each in refusals:
        found.take([each], each.at_s)
    return found


def closed_to(refusals: Refusals, at_s: float, name: str = "ns/p", shape: PodShape = SHAPE) -> tuple[str, ...]:
    """Nodes that refuse a pod of this name and shape at an instant."""
    waits = pod(name, cpu_milli=shape.cpu_milli, gpus=shape.gpus)
    pods = refusals.applied(world([node("a", gpus=1)], [waits], at_s=at_s)).pods
    return pods.shapes[int(pods.shape[0])].refused_on


def held_at(at_s: float, *refused_at_s: float) -> float:
    """How long node `a` is still held back for everybody at an instant, seconds."""
    found = remembered(*(refusal(each, is_of_node=True) for each in refused_at_s)).held_back(at_s)
    return found[0].until_s - at_s if found else 0.0


def test_each_refusal_after_a_pause_doubles_it_up_to_an_hour() -> None:
    at_s, refused, pauses = 0.0, list[float](), list[float]()
    for _ in range(8):
        refused.append(at_s)
        pauses.append(held_at(at_s, *refused))
        at_s += pauses[-1]

    assert pauses == [60, 120, 240, 480, 960, 1920, LONGEST_S, LONGEST_S]


def test_pods_that_were_on_their_way_when_the_pause_began_change_nothing() -> None:
    assert held_at(10.0, 0.0, 1.0, 5.0) == FIRST_S - 10.0


def test_a_node_that_took_pods_for_as_long_as_it_was_held_back_begins_anew() -> None:
    # Held back to 60 s; then as long without a refusal is until 120 s.
    assert held_at(119.0, 0.0, 119.0) == 2 * FIRST_S
    assert held_at(120.0, 0.0, 120.0) == FIRST_S


def test_a_refusal_of_a_clock_that_is_ahead_counts_as_now() -> None:
    refusals = Refusals()
    refusals.take([refusal(500.0)], 100.0)

    assert closed_to(refusals, 100.0 + FIRST_S - 1) == ("a",)
    assert closed_to(refusals, 100.0 + FIRST_S) == ()


def test_a_node_refuses_pods_of_the_same_shape_and_namespace_alone() -> None:
    """A tenant can make pods that a node refuses; they close it to nobody else."""
    refusals = remembered(refusal())

    assert closed_to(refusals, 1.0) == ("a",)
    assert closed_to(refusals, 1.0, name="other/p") == ()
    assert closed_to(refusals, 1.0, shape=replace(SHAPE, cpu_milli=100)) == ()
    assert refusals.held_back(1.0) == ()


def test_where_its_pods_were_refused_a_workload_is_told_in_whose_words() -> None:
    members = [pod(f"ns/{n}", cpu_milli=500, gpus=1, gang="ns/g") for n in range(2)]
    seen = world([node("a", gpus=1)], [pod("ns/p", cpu_milli=500, gpus=1), *members], gangs=[Gang("ns/g", 2)], at_s=1.0)
    words = "of b kube-scheduler says: no, and 1 other nodes refused it"

    told = remembered(refusal(), refusal(0.5, node="b")).applied(seen)

    assert told.refused == {"Pod/ns/p": words, "Gang/ns/g": words}


def test_a_pod_that_still_waits_for_its_node_keeps_it_closed_to_others_of_its_kind() -> None:
    refusals, waits = remembered(), refusal(0.0, stands=True)
    for at_s in (0.0, 500.0, 1000.0):
        refusals.take([waits], at_s)

    assert closed_to(refusals, 1000.0 + FIRST_S - 1) == ("a",)
    assert closed_to(refusals, 1000.0 + FIRST_S) == ()


def test_a_refusal_that_is_seen_again_counts_once() -> None:
    refusals = remembered(refusal(is_of_node=True))
    refusals.take([refusal(is_of_node=True)], FIRST_S)

    assert refusals.held_back(FIRST_S) == ()


def test_a_namespace_takes_its_own_part_of_the_memory_only() -> None:
    refusals = remembered(refusal(namespace="quiet", uid="q"))
    loud = [refusal(n / 1000, namespace="loud", node=f"n{n}") for n in range(MOST_OF_NAMESPACE + 1)]

    refusals.take(loud, 1.0)

    assert closed_to(refusals, 1.0, name="quiet/p") == ("a",)
    closed = closed_to(refusals, 1.0, name="loud/p")
    assert len(closed) == MOST_OF_NAMESPACE
    assert "n0" not in closed, "the oldest is forgotten first"
    assert MOST > MOST_OF_NAMESPACE


def failed(reason: str = DEVICES, asks: str = "nvidia.com/gpu", **changes: Any) -> FailedPod:
    made = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "1", "annotations": {"tonnage.dev/node": "a"}},
        "spec": {"nodeName": "a", "containers": [{"resources": {"limits": {asks: "1"}}}]},
        "status": {"reason": reason, "message": "no", "startTime": "2026-03-01T12:00:00Z"},
    }
    return object_from({**made, **changes}, FailedPod)


@pytest.mark.parametrize(
    ("pod", "is_of"),
    [
        (failed(), "node"),
        (failed(asks="example.com/nic"), "shape"),  # the plugin of another device
        (failed(asks="cpu"), "shape"),
        (failed("OutOfnvidia.com/gpu"), "shape"),
        (failed("OutOfexample.com/nic", asks="example.com/nic"), "shape"),
        (failed("OutOfpods"), "shape"),
        (failed("NodeAffinity"), "shape"),
        (failed("TopologyAffinityError"), "shape"),
        (failed("SysctlForbidden"), ""),  # the pod's own fault
        (failed(""), ""),
        (
            failed(
                spec={
                    "nodeName": "a",
                    "initContainers": [{"resources": {"limits": {"example.com/nic": "1", "nvidia.com/gpu": "1"}}}],
                }
            ),
            "shape",
        ),
        (failed(metadata={"name": "p", "uid": "1"}), ""),  # whose owner named the node
        (failed(spec={"nodeName": "b"}), ""),
        (failed(status={"reason": DEVICES, "startTime": "yesterday"}), ""),
        (failed(status={"reason": "Evicted", "containerStatuses": [{"name": "main"}]}), ""),  # it was admitted
    ],
)
def test_what_a_kubelet_did_not_admit_is_refused_to_its_shape_and_dead_devices_to_everybody(
    pod: FailedPod, is_of: str
) -> None:
    found = refusal_of(pod, lambda _: SHAPE)

    assert ("" if found is None else "node" if found.is_of_node else "shape") == is_of


def test_a_refusal_has_the_instant_and_the_words_of_the_kubelet() -> None:
    found = refusal_of(failed(), lambda _: SHAPE)

    assert found is not None
    assert found.at_s == instant("2026-03-01T12:00:00Z")
    assert found.words == "its kubelet says: UnexpectedAdmissionError: no"


def test_others_words_are_one_line_of_bounded_length() -> None:
    assert said("x", "a\x1b[31m\n b") == "x says: a [31m b"
    assert len(said("", "y" * 10**6)) == len(" says: ") + LONGEST_WORDS


def test_a_tied_pod_has_the_shape_of_those_that_still_wait() -> None:
    own, ssd = Requirement("metadata.name", "In", (OWN_NODE,)), Requirement("disk", "In", ("ssd",))

    assert unplaced_shape(replace(SHAPE, node_terms=((own, *OFF_SPOT),), refused_on=("a",))) == SHAPE
    tied = replace(SHAPE, node_terms=((ssd, own), (own,)))
    assert unplaced_shape(tied) == SHAPE, "one of its alternatives is any node"
    assert unplaced_shape(replace(SHAPE, node_terms=((ssd, own),))).node_terms == ((ssd,),)
