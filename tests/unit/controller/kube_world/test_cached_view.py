"""Pods as the cached view shows them."""

from typing import Any

from controller.kube.structs import Pod, object_from
from controller.kube_world.cached_view import seen_pod


def released(placed_at: str, created_at: str) -> float | None:
    manifest: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "creationTimestamp": created_at,
            "annotations": {"tonnage.dev/node": "a", "tonnage.dev/placed-at": placed_at},
        },
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    return seen_pod("default/p", object_from(manifest, Pod)).placed_at_s


def test_the_instant_of_a_release_is_on_the_pod() -> None:
    assert released("1970-01-01T00:02:00Z", "1970-01-01T00:01:00Z") == 120.0


def test_an_instant_from_before_the_pod_was_copied_from_another_one() -> None:
    assert released("1970-01-01T00:00:30Z", "1970-01-01T00:01:00Z") is None


def test_an_instant_that_is_no_timestamp_counts_as_none() -> None:
    assert released("yesterday", "1970-01-01T00:01:00Z") is None
