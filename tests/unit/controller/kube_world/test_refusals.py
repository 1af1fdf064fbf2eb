"""Nodes whose kubelet refuses pods take no new ones for a while, each time twice as long."""

from typing import Any

import pytest

from cluster.actions import Bind
from controller.api.notation import instant
from controller.api.structs import object_from
from controller.kube_world.refusals import FIRST_S, LONGEST_S, FailedPod, PodRefusal, Refusals, held_back, refusal_of
from controller.kube_world.reservations import Reservations

CAUSE = "UnexpectedAdmissionError"


def failed(reason: str = CAUSE, uid: str = "1", asks: str = "nvidia.com/gpu", **changes: Any) -> FailedPod:
    made = {
        "metadata": {"name": "p", "uid": uid, "annotations": {"tonnage.dev/node": "a"}},
        "spec": {"nodeName": "a", "containers": [{"resources": {"limits": {asks: "1"}}}]},
        "status": {"reason": reason, "startTime": "2026-03-01T12:00:00Z"},
    }
    return object_from({**made, **changes}, FailedPod)


def held_at(at_s: float, *refused_at_s: float) -> float:
    """How long node `a` is still held back at an instant, seconds."""
    found = held_back([PodRefusal("a", CAUSE, each) for each in refused_at_s], at_s)
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


def test_a_refusal_to_come_counts_when_it_has() -> None:
    assert held_at(0.0, 50.0) == 0.0


@pytest.mark.parametrize(
    ("pod", "counts"),
    [
        (failed(), True),
        (failed("OutOfnvidia.com/gpu"), True),
        (failed("OutOfpods"), True),
        (failed("SysctlForbidden"), False),  # the pod's own fault
        (failed("OutOfexample.com/nic", asks="example.com/nic"), False),  # what no plan counts
        (failed(metadata={"name": "p", "uid": "1"}), False),  # whose owner named the node
        (failed(spec={"nodeName": "b"}), False),
        (failed(status={"reason": CAUSE, "startTime": "yesterday"}), False),
    ],
)
def test_only_what_tonnage_placed_and_the_node_lacks_is_a_refusal(pod: FailedPod, counts: bool) -> None:
    assert (refusal_of(pod) is not None) is counts


def test_a_refusal_is_remembered_when_the_pod_is_gone_and_forgotten_after_hours() -> None:
    at_s = instant("2026-03-01T12:00:00Z")
    refusals, placed = Refusals(), Reservations(is_guarded=False)
    placed.add("1", Bind("ns/p", "a", (0,)))
    refusals.take({"ns/p": failed(), "ns/forged": failed(uid="2")}, placed)
    refusals.take({"ns/p": None}, Reservations())

    assert [(each.node, each.refusals) for each in refusals.held_back(at_s + 59)] == [("a", 1)]
    assert refusals.held_back(at_s + 60) == ()
    refusals.held_back(at_s + 2 * LONGEST_S)
    assert refusals.held_back(at_s + 59) == ()
