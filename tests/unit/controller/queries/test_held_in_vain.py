"""Devices whose holders do not run are named, with their dollars worked out in the comments."""

import json
from pathlib import Path

import pytest

from controller.objects.manifests import read_manifests
from controller.queries.advice import Advice
from controller.queries.held_in_vain import held_in_vain
from controller.snapshot.from_manifests import snapshot_from
from tests.builders.manifests import Object, gpu_type, having, node, pod

CREATED, NOW_S = "2026-01-01T00:00:00Z", 1_767_225_600.0 + 3600.0
"""A pod's creation, and an hour later, seconds since the epoch."""


def advised(folder: Path, *objects: Object, at_s: float = NOW_S) -> tuple[Advice, ...]:
    file = folder / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [gpu_type(price=4.0), *objects]}))
    manifests = read_manifests([str(file)])
    return tuple(held_in_vain(manifests, snapshot_from(manifests, is_dump=True).snapshot, at_s))


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

    (found,) = advised(tmp_path, node("n1", gpus=8), pulls, sick, ends, held("well"))

    assert found.dollars_per_hour == pytest.approx(24.0)
    assert found.about == ("default/ends on n1", "default/pulls on n1", "default/sick on n1")
    assert all(why in found.headline for why in ("ImagePullBackOff", "being deleted", "not ready"))


def test_a_pod_that_has_just_been_bound_is_given_time(tmp_path: Path) -> None:
    pulls = held("pulls", phase="Pending", containerStatuses=[PULLING])

    assert advised(tmp_path, node("n1", gpus=8), pulls, at_s=NOW_S - 3600.0 + 60.0) == ()
