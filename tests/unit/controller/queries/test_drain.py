"""Drain of a node: pods that leave, pods that block it, and where each would start again."""

from typing import Any

import pytest

from cluster.workloads import Gang
from controller.deciders.decisions import Decisions
from controller.deciders.packing import packer_for
from controller.queries.drain import Consent, NodePod, drain_preview, pods_of_node
from tests.builders.fleet import node, pod, world

OWNED = {"ownerReferences": [{"kind": "ReplicaSet", "controller": True}]}


def on_node(name: str = "p", spec: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", **metadata}, "spec": spec or {}, "status": status or {}}


def fate(obj: dict[str, Any], **consent: bool) -> str:
    (guest,) = pods_of_node([obj], Consent(**consent))
    return guest.fate


DAEMON = on_node(ownerReferences=[{"kind": "DaemonSet", "controller": True}])
KEEPER = on_node(spec={"volumes": [{"name": "scratch", "emptyDir": {}}]}, **OWNED)


@pytest.mark.parametrize(
    ("obj", "consent", "expected"),
    [
        (on_node(**OWNED), {}, "leaves"),
        (on_node(), {}, "blocks"),
        (on_node(), {"force": True}, "leaves"),
        (DAEMON, {}, "blocks"),
        (DAEMON, {"ignore_daemonsets": True}, "stays"),
        (DAEMON, {"force": True}, "blocks"),
        (KEEPER, {}, "blocks"),
        (KEEPER, {"delete_emptydir_data": True}, "leaves"),
        (on_node(annotations={"kubernetes.io/config.mirror": "x"}), {"force": True}, "stays"),
        (on_node(status={"phase": "Succeeded"}), {}, "leaves"),
    ],
)
def test_a_pod_leaves_stays_or_blocks_by_the_rules_of_kubectl(
    obj: dict[str, Any], consent: dict[str, bool], expected: str
) -> None:
    assert fate(obj, **consent) == expected


def guest(name: str, **rest: Any) -> NodePod:
    return NodePod("ns", name, "uid", "leaves", **rest)


def would(now: Any, *leaving: NodePod) -> Any:
    return drain_preview(now, "a", leaving, lambda seen: packer_for(seen, Decisions(policy="bestfit")))


def test_what_leaves_starts_where_the_packer_puts_it_and_never_on_the_node_again() -> None:
    now = world([node("a", gpus=8), node("b", gpus=8)], [pod("ns/p", gpus=2, on="a", devices=(0, 1))])

    (seat,) = would(now, guest("p"))[0]

    assert (seat.node, len(seat.devices)) == ("b", 2)


def test_what_fits_nowhere_says_why() -> None:
    now = world([node("a", gpus=8), node("b", gpus=1)], [pod("ns/p", gpus=2, on="a", devices=(0, 1))])

    (seat,) = would(now, guest("p"))[0]

    assert seat.node is None
    assert seat.why


@pytest.mark.parametrize("key", ["kubernetes.io/hostname", "metadata.name"])
def test_a_pod_that_tonnage_tied_to_the_node_is_replaced_by_one_that_is_free(key: str) -> None:
    fleet = [node(name, gpus=8, labels={key: name}) for name in "ab"]
    now = world(fleet, [pod("ns/p", gpus=1, on="a", devices=(0,), selector={key: "a"})])

    assert would(now, guest("p"))[0][0].node is None
    assert would(now, guest("p", is_pinned=True))[0][0].node == "b"


def test_gangs_and_services_are_told_what_they_lose() -> None:
    members = [pod(f"ns/t{n}", gpus=1, on=where, devices=(0,), gang="ns/train") for n, where in enumerate("ab")]
    now = world([node("a", gpus=8), node("b", gpus=8)], members, gangs=[Gang("ns/train", 2)])

    (words,) = would(now, guest("t0", gang="ns/train"))[1]

    assert words == "Gang/ns/train loses 1 members of 2 that run, 2 must run together; 1 of them can start elsewhere"


def test_a_pod_that_has_ended_is_evicted_and_needs_no_seat() -> None:
    assert would(world([node("a", gpus=8)]), guest("done"))[0] == []
