"""Placement modes on Kubernetes: which pods Tonnage places, and the one write that places a pod."""

import json
from dataclasses import replace
from typing import Any

import pytest

from cluster.actions import Bind
from cluster.errors import ActionError
from controller.api.labels import PLACEMENT_GATE
from controller.api.structs import SelectorTerm, object_from
from controller.kube.cluster_view import SeenPod
from controller.kube.sender import Stamp
from controller.placers import NodePool, placing_writes, pool_mode, requested_mode

BOUND_BY_US = SeenPod("ns/p", "u1", "7", scheduler_name="tonnage")
GATED = SeenPod("ns/p", "u1", "7", gates=(PLACEMENT_GATE,))
STAMP = Stamp(5, 1_772_366_400.0)
LABELS = {"kubernetes.io/hostname": "host-a", "pool": "x"}


@pytest.mark.parametrize(
    ("pod", "mode"),
    [
        (BOUND_BY_US, "bind"),
        (GATED, "gate"),
        (SeenPod("ns/p", "u1", "7"), None),
        (replace(BOUND_BY_US, node="a"), None),
        (replace(BOUND_BY_US, is_ending=True), None),
        (replace(BOUND_BY_US, gates=("other/gate",)), None),
        (replace(GATED, gates=(PLACEMENT_GATE, "other/gate")), None),
        (replace(GATED, is_ending=True), None),
        (replace(GATED, scheduler_name="tonnage"), None),
    ],
)
def test_only_pods_that_wait_for_tonnage_alone_are_placed(pod: SeenPod, mode: str | None) -> None:
    assert requested_mode(pod) == mode


def test_a_binding_names_the_very_pod_that_was_seen_and_carries_its_devices() -> None:
    (write,) = placing_writes(BOUND_BY_US, Bind("ns/p", "a", (3, 0)), LABELS, [NodePool("bind", {})], STAMP)

    assert (write.method, write.path) == ("POST", "/api/v1/namespaces/ns/pods/p/binding")
    assert write.body is not None
    metadata = write.body["metadata"]
    assert (metadata["uid"], metadata["resourceVersion"]) == ("u1", "7")
    assert metadata["annotations"] == {
        "tonnage.dev/devices": "0,3",
        "tonnage.dev/node": "a",
        "tonnage.dev/epoch": "5",
        "tonnage.dev/placed-at": "2026-03-01T12:00:00Z",
    }
    assert write.body["target"]["name"] == "a"


@pytest.mark.parametrize("pod", [BOUND_BY_US, GATED])
def test_a_pod_of_a_ray_cluster_is_told_the_labels_of_its_node(pod: SeenPod) -> None:
    mode, labels = "bind" if pod is BOUND_BY_US else "gate", {**LABELS, "rack": "r1"}
    of_ray = replace(pod, controller="RayCluster/ns/train")
    node_labels = {**labels, "ray.io/node-group": "mine"}  # with which no node of Ray would start
    (write,) = placing_writes(of_ray, Bind("ns/p", "a", (1,)), node_labels, [NodePool(mode, {})], STAMP)

    assert write.body is not None
    assert json.loads(write.body["metadata"]["annotations"]["tonnage.dev/node-labels"]) == labels


PIN = {"key": "metadata.name", "operator": "In", "values": ["a"]}


def terms_after(*before: Any) -> list[Any]:
    """Required node affinity of a gated pod with these terms once it is released to node a."""
    seen = replace(GATED, required_terms=tuple(object_from(term, SelectorTerm) for term in before))
    (write,) = placing_writes(seen, Bind("ns/p", "a", (1,)), {}, [NodePool("gate", {})], STAMP)
    assert write.body is not None
    (required,) = write.body["spec"]["affinity"]["nodeAffinity"].values()
    terms: list[Any] = required["nodeSelectorTerms"]
    return terms


def test_a_gate_goes_together_with_the_name_of_the_node() -> None:
    (write,) = placing_writes(GATED, Bind("ns/p", "a", (1,)), {}, [NodePool("gate", {})], STAMP)

    assert write.method == "PATCH"
    assert write.body is not None
    assert write.body["spec"]["schedulingGates"] == []
    assert write.body["metadata"]["resourceVersion"] == "7"
    assert terms_after() == [{"matchFields": [PIN]}]


def test_every_alternative_of_the_pod_keeps_what_it_requires_and_gets_the_node() -> None:
    ssd = {"key": "disk", "operator": "In", "values": ["ssd"]}
    there = {"key": "gpu", "operator": "Exists"}
    other = {"key": "metadata.name", "operator": "NotIn", "values": ["b"]}

    terms = terms_after({"matchExpressions": [ssd, there]}, {"matchFields": [other]})

    assert terms == [{"matchExpressions": [ssd, there], "matchFields": [PIN]}, {"matchFields": [other, PIN]}]


def test_an_alternative_that_no_node_meets_stays_one() -> None:
    assert terms_after({}, {"matchFields": [PIN]}) == [{}, {"matchFields": [PIN, PIN]}]


def test_the_first_pool_that_has_the_node_tells_how() -> None:
    pools = [NodePool("bind", {"pool": "x"}), NodePool("gate", {})]

    assert (pool_mode(pools, LABELS), pool_mode(pools, {})) == ("bind", "gate")


@pytest.mark.parametrize("pools", [[NodePool("gate", {})], [NodePool("bind", {"pool": "other"})]])
def test_a_pod_and_a_node_of_different_ways_are_not_brought_together(pools: list[NodePool]) -> None:
    with pytest.raises(ActionError):
        placing_writes(BOUND_BY_US, Bind("ns/p", "a", (1,)), LABELS, pools, STAMP)
