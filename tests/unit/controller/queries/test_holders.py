"""Devices whose holders do not run are named, with their dollars worked out in the comments."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller.objects.manifests import read_manifests
from controller.queries.holders import DeviceHolder, holders
from controller.snapshot.from_manifests import snapshot_from
from tests.builders.manifests import Object, gpu_type, having, node, pod

CREATED, NOW_S = "2026-01-01T00:00:00Z", 1_767_225_600.0 + 3600.0
"""A pod's creation, and an hour later, seconds since the epoch."""


def advised(folder: Path, *objects: Object, at_s: float = NOW_S, **known: Any) -> tuple[DeviceHolder, ...]:
    """Those that hold devices in vain."""
    file = folder / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [gpu_type(price=4.0), *objects]}))
    manifests = read_manifests([str(file)])
    found = holders(manifests.pods, snapshot_from(manifests, is_dump=True).snapshot, at_s, **known)
    return tuple(each for each in found if each.use != "works")


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

    found = advised(tmp_path, node("n1", gpus=8), pulls, sick, ends, held("well"))

    assert sum(each.dollars_per_hour for each in found) == pytest.approx(24.0)
    assert {each.name: each.why for each in found} == {
        "default/ends": "being deleted",
        "default/pulls": "ImagePullBackOff",
        "default/sick": "not ready",
    }


DAY_S = 86_400.0


def waiting(reason: str) -> list[Object]:
    return [{"name": "c", "state": {"waiting": {"reason": reason}}}]


ENDED = {"name": "c", "restartCount": 0, "state": {"terminated": {"exitCode": 0, "finishedAt": CREATED}}}
LOOPS = {"name": "c", "restartCount": 40, "state": {"terminated": {"exitCode": 1, "finishedAt": CREATED}}}


@pytest.mark.parametrize(
    ("why", "changed", "age_s"),
    [
        ("CreateContainerConfigError", {"containerStatuses": waiting("CreateContainerConfigError")}, 3600.0),
        ("Init:ErrImagePull", {"initContainerStatuses": waiting("Init:ErrImagePull")}, 3600.0),
        ("its container has ended", {"containerStatuses": [ENDED]}, 3600.0),
        ("CrashLoopBackOff", {"containerStatuses": [LOOPS]}, 3600.0),
        ("phase Unknown", {"phase": "Unknown"}, 3600.0),
        ("phase Pending", {"phase": "Pending", "containerStatuses": waiting("ContainerCreating")}, 3600.0),
        ("no controller", {}, 8 * DAY_S),
    ],
)  # fmt: skip
def test_each_way_to_hold_devices_in_vain_is_told(tmp_path: Path, why: str, changed: Object, age_s: float) -> None:
    (found,) = advised(tmp_path, node("n1", gpus=8), held("odd", **changed), at_s=NOW_S - 3600.0 + age_s)

    assert (found.name, found.why) == ("default/odd", why)


def test_a_pod_that_only_waits_for_a_shell_is_asked_about_after_a_day(tmp_path: Path) -> None:
    sleeps = having(held("sleeps"), "spec.containers.0.command", ["sh", "-c", "sleep infinity"])
    fleet = node("n1", gpus=8)

    assert [each.why for each in advised(tmp_path, fleet, sleeps, at_s=NOW_S + 2 * DAY_S)] == ["its command only waits"]
    assert advised(tmp_path, fleet, sleeps) == ()


def test_what_is_known_of_its_use_decides_about_an_old_pod(tmp_path: Path) -> None:
    fleet, late_s = node("n1", gpus=8), NOW_S + 30 * DAY_S

    (idle,) = advised(tmp_path, fleet, held("p"), at_s=late_s, used_share={"default/p": 0.01})
    assert (idle.use, idle.why) == ("unused", "1 % used")
    assert advised(tmp_path, fleet, held("p"), at_s=late_s, used_share={"default/p": 0.6}) == ()


def test_a_pod_that_has_just_been_bound_is_given_time(tmp_path: Path) -> None:
    pulls = held("pulls", phase="Pending", containerStatuses=[PULLING])

    assert advised(tmp_path, node("n1", gpus=8), pulls, at_s=NOW_S - 3600.0 + 60.0) == ()
