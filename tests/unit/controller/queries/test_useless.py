"""Devices that are paid for and of no use are named, with their dollars worked out in the comments."""

import json
from pathlib import Path

import pytest

from controller.objects.manifests import read_manifests
from controller.queries.advice import Advice
from controller.queries.useless import useless_devices
from controller.snapshot.from_manifests import snapshot_from
from tests.builders.manifests import Object, gpu_type, having, node, pod

CREATED, NOW_S = "2026-01-01T00:00:00Z", 1_767_225_600.0 + 3600.0
"""A pod's creation, and an hour later, seconds since the epoch."""


def useless(folder: Path, *objects: Object, at_s: float = NOW_S) -> tuple[Advice, ...]:
    file = folder / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [gpu_type(price=4.0), *objects]}))
    manifests = read_manifests([str(file)])
    return useless_devices(manifests, snapshot_from(manifests, is_dump=True).snapshot, at_s)


def offering(name: str, *, have: int, offered: int) -> Object:
    made = node(name, gpus=offered)
    made["metadata"]["labels"] |= {"nvidia.com/gpu.product": "A100"}
    made["status"]["allocatable"] |= {"nvidia.com/gpu": str(offered)}
    return having(made, "status.capacity", {**made["status"]["allocatable"], "nvidia.com/gpu": str(have)})


def test_a_plugin_that_offers_fewer_devices_than_the_node_has_wastes_the_others(tmp_path: Path) -> None:
    """Eight of eight at $4, and four of eight: $48. The one that wastes most comes first."""
    (found,) = useless(tmp_path, offering("half", have=8, offered=4), offering("none", have=8, offered=0))

    assert found.dollars_per_hour == pytest.approx(48.0)
    assert found.about == ("none", "half")


def test_a_node_without_driver_is_known_by_its_labels(tmp_path: Path) -> None:
    bare = node("bare", gpus=0)
    bare["metadata"]["labels"] |= {"nvidia.com/gpu.product": "A100", "nvidia.com/gpu.count": "8"}

    (found,) = useless(tmp_path, bare)

    assert (found.dollars_per_hour, found.about) == (pytest.approx(32.0), ("bare",))


def test_a_node_whose_devices_may_be_in_slices_is_not_accused(tmp_path: Path) -> None:
    bare = node("bare", gpus=0)
    bare["metadata"]["labels"] |= {"nvidia.com/gpu.product": "A100"}
    claims = having(pod("p", on="bare"), "spec.resourceClaims", [{"name": "c", "resourceClaimName": "c"}])

    assert useless(tmp_path, bare, claims) == ()


def held(name: str, **status: object) -> Object:
    made = having(pod(name, gpus=2, on="n1"), "status", {"phase": "Running", **status})
    made = having(made, "metadata.uid", name)
    return having(made, "metadata.creationTimestamp", CREATED)


PULLING = {"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff"}}}


def test_pods_that_hold_devices_and_do_not_run_are_named_with_their_reason(tmp_path: Path) -> None:
    """Two devices each at $4: $24 in all."""
    pulls = held("pulls", phase="Pending", containerStatuses=[PULLING])
    sick = held("sick", conditions=[{"type": "Ready", "status": "False", "lastTransitionTime": CREATED}])
    ends = having(held("ends"), "metadata.deletionTimestamp", CREATED)

    (found,) = useless(tmp_path, node("n1", gpus=8), pulls, sick, ends, held("well"))

    assert found.dollars_per_hour == pytest.approx(24.0)
    assert found.about == ("default/ends on n1", "default/pulls on n1", "default/sick on n1")
    assert all(why in found.headline for why in ("ImagePullBackOff", "being deleted", "not ready"))


def test_a_pod_that_has_just_been_bound_is_given_time(tmp_path: Path) -> None:
    pulls = held("pulls", phase="Pending", containerStatuses=[PULLING])

    assert useless(tmp_path, node("n1", gpus=8), pulls, at_s=NOW_S - 3600.0 + 60.0) == ()
