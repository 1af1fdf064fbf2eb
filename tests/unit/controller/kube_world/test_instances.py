"""What Deployments of services cost each cycle: their owners decide how many there are and how large a template is."""

from typing import Any

from cluster.workloads import InstanceType
from controller.kube.cache import Cache
from controller.kube.cluster_view import SeenDeployment
from controller.kube_world.cached_view import DEPLOYMENTS, CachedView
from controller.kube_world.deployments import Instance, Instances, content_of
from controller.placers import NodePool, PlacementModes
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import gpu_type, having, node, profile, service

MADE_BY_HAND = tuple(SeenDeployment("default/chat", InstanceType("a100", 1 + n % 2), 0, "x") for n in range(100))


def templated(image: str) -> dict[str, Any]:
    return service(template={"spec": {"containers": [{"name": "server", "image": image}]}})


def test_content_is_computed_once_for_each_type_until_the_template_changes() -> None:
    live, hashed = LiveCluster([gpu_type(), node(), profile(), templated("first")]), list[Instance]()

    def counted(instance: Instance) -> str:
        hashed.append(instance)
        return content_of(instance)

    view = CachedView(live.observer, Cache(DEPLOYMENTS))
    pools = (NodePool("bind", {"pool": "bind"}, shares=False), NodePool("gate", {}, shares=False))
    instances = Instances(view, PlacementModes(pools), {}, counted)

    def contents() -> set[str | None]:
        snapshot = view.snapshot()
        instances.observe(snapshot, MADE_BY_HAND)
        return {instances.content(snapshot, each.service, each.instance_type) for each in MADE_BY_HAND}

    first, again = contents(), contents()
    assert (first, len(first), len(hashed)) == (again, 2, 2)

    live.put(templated("second"))
    assert contents().isdisjoint(first)
    assert len(hashed) == 4


def test_a_service_is_read_once_until_it_changes() -> None:
    live = LiveCluster([gpu_type(), node(), profile(), templated("first")])
    view = CachedView(live.observer, Cache(DEPLOYMENTS))

    before = view.service("default/chat")
    assert view.generations() == {"default/chat": 1}
    assert view.service("default/chat") is before

    live.put(templated("second"))
    after = view.service("default/chat")
    assert after is not None
    assert after.template != (before.template if before else None)

    live.remove(templated("second"))
    assert (view.generations(), view.service("default/chat")) == ({}, None)


def test_a_pool_is_read_as_its_service_also_where_that_has_the_name_of_another_phase() -> None:
    named = [having(templated("first"), "metadata.name", name) for name in ("x", "x-decode")]
    view = CachedView(LiveCluster([gpu_type(), node(), profile(), *named]).observer, Cache(DEPLOYMENTS))

    found = {
        name: view.service(f"default/{name}") for name in ("x-prefill", "x-decode", "x-decode-prefill", "y-decode")
    }

    assert {name: each and each.name for name, each in found.items()} == {
        "x-prefill": "default/x",
        "x-decode": "default/x-decode",
        "x-decode-prefill": "default/x-decode",
        "y-decode": None,
    }
