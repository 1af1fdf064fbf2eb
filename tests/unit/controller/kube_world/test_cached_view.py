"""Pods as the cached view shows them."""

from typing import Any

from cluster.workloads import InstanceType
from controller.api.structs import Pod, object_from
from controller.kube.cache import Cache
from controller.kube_world.cached_view import DEPLOYMENTS, CachedView, seen_pod
from controller.kube_world.deployments import Instance, content_of
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import service
from tests.builders.mix import service as planned_service
from tests.unit.controller.kube.fake_cluster_view import A100


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


def test_a_null_in_a_template_means_an_absent_field() -> None:
    template: dict[str, Any] = {
        "metadata": {"labels": None},
        "spec": {"containers": [{"name": "s", "resources": None}], "schedulingGates": None, "affinity": None},
    }
    made = instance_of(template)

    assert content_of(made) == content_of(instance_of({"spec": {"containers": [{"name": "s"}]}}))


def instance_of(template: dict[str, Any]) -> Instance:
    """Instance of the service default/chat, whose object has this template."""
    cluster = LiveCluster([service(template=template)])
    seen = CachedView(cluster.observer, Cache(DEPLOYMENTS)).service("default/chat")
    assert seen is not None
    return Instance(planned_service("default/chat"), seen, InstanceType("A100"), A100, "gate")
