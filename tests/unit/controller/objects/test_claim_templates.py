"""Claims that Kubernetes makes for pods in files."""

from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ConfigError
from cluster.nodes import eligible_nodes
from cluster.snapshot import Snapshot
from tests.builders.manifests import having, node, observed, pod
from tests.builders.storage import bound, claim, storage_class, volume, written
from tests.builders.watch_events import Object

ZONE = "topology.kubernetes.io/zone"
TEMPLATE = {"metadata": {"name": "data"}, "spec": {"storageClassName": "made", "accessModes": ["ReadWriteOnce"]}}
MADE = written(storage_class("made", provisioner="x.example", allowedTopologies=[
    {"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]))  # fmt: skip


def zoned(zone: str) -> Object:
    made = node(f"n-{zone}", gpus=0)
    made["metadata"]["labels"] = {ZONE: zone}
    return made


def stateful_set(replicas: int = 2) -> Object:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    spec = {
        "replicas": replicas,
        "template": {"spec": {"containers": containers}},
        "volumeClaimTemplates": [TEMPLATE],
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec}


def nodes_of(seen: Snapshot) -> dict[str, list[str]]:
    """Waiting pod → nodes where it may run."""
    found = {}
    for name, shape in zip(seen.pods.names, seen.pods.shape, strict=True):
        allowed = eligible_nodes(seen.pods.shapes[shape], seen.nodes, seen.gpu_type_names)
        found[name] = [each for each, may in zip(seen.nodes.names, allowed, strict=True) if may]
    return found


def codes(seen: Snapshot) -> dict[str, str]:
    return {each.pod: each.code for each in seen.left_out}


def test_each_pod_of_a_stateful_set_gets_a_claim_of_each_template(tmp_path: Path) -> None:
    seen = observed(tmp_path, zoned("a"), zoned("b"), MADE, stateful_set()).snapshot
    assert nodes_of(seen) == {"default/db-0": ["n-b"], "default/db-1": ["n-b"]}


def test_a_claim_that_is_written_counts_instead_of_the_one_that_would_be_made(tmp_path: Path) -> None:
    there = (written(bound("data-db-0")), written(volume(nodes={ZONE: ["a"]}, phase="Bound")))
    seen = observed(tmp_path, zoned("a"), zoned("b"), MADE, *there, stateful_set()).snapshot
    assert nodes_of(seen) == {"default/db-0": ["n-a"], "default/db-1": ["n-b"]}


def test_an_ephemeral_volume_gets_a_claim_of_its_pods_own(tmp_path: Path) -> None:
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": TEMPLATE["spec"]}}}]
    seen = observed(tmp_path, zoned("a"), zoned("b"), MADE, pod("p", volumes=volumes)).snapshot
    assert nodes_of(seen) == {"default/p": ["n-b"]}


def test_a_pod_whose_claim_is_in_no_file_is_left_out_with_the_fields_path(tmp_path: Path) -> None:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "gone"}}]
    seen = observed(tmp_path, zoned("a"), pod("p", volumes=volumes)).snapshot
    assert codes(seen) == {"default/p": "ClaimMissing"}


def test_a_claim_that_is_yet_to_be_applied_is_planned_as_it_will_be_bound(tmp_path: Path) -> None:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    ours = having(written(claim(phase="", storageClassName="made")), "status", {})
    seen = observed(tmp_path, zoned("a"), zoned("b"), MADE, ours, pod("p", volumes=volumes)).snapshot
    assert nodes_of(seen) == {"default/p": ["n-b"]}


def test_an_object_of_a_wrong_type_is_a_mistake_of_its_own(tmp_path: Path) -> None:
    wrong: Any = having(written(claim()), "spec", {"accessModes": "ReadWriteOnce"})
    noted = observed(tmp_path, zoned("a"), pod("p"), wrong).notes
    assert "PersistentVolumeClaim/default/data" in {each.about for each in noted if each.reason.code == "LeftOut"}
    del wrong["metadata"]["uid"]  # written by a person, who can mend it
    with pytest.raises(ConfigError, match="PersistentVolumeClaim/default/data"):
        observed(tmp_path, zoned("a"), pod("p"), wrong)
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": []}
    with pytest.raises(ConfigError, match="PodDisruptionBudget/default/web: cannot be read"):
        observed(tmp_path, zoned("a"), pod("p"), budget)
