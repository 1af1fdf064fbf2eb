"""Pods that placement mode `gate` tied to a node are of the same shape as they were while they waited."""

from typing import Any

import pytest

from cluster.workloads import is_pinned, without_pin
from controller.api import core_v1
from controller.api.labels import PLACEMENT_GATE
from controller.api.structs import Pod, object_from
from controller.objects.read import Read
from controller.snapshot.nodes import TypeIndex
from controller.snapshot.pods import PodRow, pod_row

A_NODE = {"key": "metadata.name", "operator": "In", "values": ["a"]}
SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
GATES = [{"name": PLACEMENT_GATE}]


def row_of(spec: dict[str, Any], **annotations: str) -> PodRow:
    named = {f"tonnage.dev/{key}": value for key, value in annotations.items()}
    made = {"metadata": {"name": "p", "annotations": named}, "spec": spec}
    return pod_row(Read(object_from(made, Pod), core_v1.POD), TypeIndex((), (), {}))


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    ("waits", "tied"),
    [
        ({}, affinity({"matchFields": [A_NODE]})),
        (affinity({"matchExpressions": [SSD]}), affinity({"matchExpressions": [SSD], "matchFields": [A_NODE]})),
        ({}, {"nodeSelector": {"kubernetes.io/hostname": "a"}}),  # by an earlier version
    ],
)
@pytest.mark.parametrize("where", [{}, {"nodeName": "a"}])
def test_a_released_pod_is_of_its_former_shape_and_of_its_node_alone(
    waits: dict[str, Any], tied: dict[str, Any], where: dict[str, str]
) -> None:
    before, after = row_of({**waits, "schedulingGates": GATES}), row_of({**tied, **where}, node="a")

    assert is_pinned(after.shape.node_terms)
    assert without_pin(after.shape.node_terms) == before.shape.node_terms
    assert not after.matches_node_names, "names as labels would make all nodes different for every plan"


@pytest.mark.parametrize("spec", [{"schedulingGates": GATES}, {"schedulerName": "tonnage"}])
def test_a_pod_that_still_waits_is_tied_by_nobody_else(spec: dict[str, Any]) -> None:
    assert row_of({**affinity({"matchFields": [A_NODE]}), **spec}, node="a").matches_node_names


def test_a_released_pod_spreads_over_the_domains_that_it_could_choose_from() -> None:
    spread = {"topologySpreadConstraints": [{"topologyKey": "zone", "labelSelector": {}}]}
    before = row_of({**affinity({"matchExpressions": [SSD]}), **spread, "schedulingGates": GATES})
    after = row_of({**affinity({"matchExpressions": [SSD], "matchFields": [A_NODE]}), **spread}, node="a")

    assert before.shape.beside.rules
    assert after.shape.beside == before.shape.beside
