"""Deployments of pools by phase: whose they are, their labels, and the template's variants for phase and GPU type."""

from typing import Any

from cluster.workloads import InstanceType
from controller.api.labels import GPU_TYPE_LABEL, PHASE_LABEL, SERVICE_LABEL
from controller.kube.cache import Cache
from controller.kube_world.cached_view import DEPLOYMENTS, CachedView
from controller.kube_world.deployments import Instances, content_of, deployment_writes
from controller.placers import NodePool, PlacementModes
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import gpu_type, node, pod, profile, service

VARIANTS = [
    {"phase": "decode", "gpuType": "a100", "image": "vllm:2", "args": ["-q"], "env": {"A": "2", "B": "3"}},
    {"phase": "prefill", "image": "vllm:3"},
]


def phased(**more: Any) -> dict[str, Any]:
    container = {"name": "server", "image": "vllm:1", "args": ["-m"], "env": [{"name": "A", "value": "1"}]}
    template = {"spec": {"containers": [container]}, "variants": VARIANTS}
    return service(template=template, **{"phases": {"prefill": {}, "decode": {}}, **more})


def seen(*objects: dict[str, Any]) -> tuple[CachedView, Instances]:
    live = LiveCluster([gpu_type(), node(), profile(), *objects])
    view = CachedView(live.observer, Cache(DEPLOYMENTS))
    instances = Instances(view, PlacementModes((NodePool("gate", {}),)), {})
    instances.observe(view.snapshot(), ())
    return view, instances


def test_a_pools_deployment_is_the_services_with_its_phase_and_the_variants_for_it() -> None:
    view, instances = seen(phased())
    instance = instances.instance(view.snapshot(), "default/chat-decode", InstanceType("a100"))
    assert instance is not None
    (write,) = deployment_writes(instance, 2, 7)

    metadata, spec = write.body["metadata"], write.body["spec"]
    labels = {SERVICE_LABEL: "chat", GPU_TYPE_LABEL: "a100", PHASE_LABEL: "decode"}
    assert (metadata["name"], metadata["ownerReferences"][0]["name"]) == ("chat-decode-a100", "chat")
    assert metadata["labels"] == spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"] == labels
    (container,) = spec["template"]["spec"]["containers"]
    assert (container["image"], container["args"]) == ("vllm:2", ["-m", "-q"])
    assert container["env"] == [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]


def test_instances_of_whole_requests_have_no_variant_of_a_phase() -> None:
    view, instances = seen(phased())
    of_whole, of_prefill = (
        instances.instance(view.snapshot(), name, InstanceType("a100"))
        for name in ("default/chat", "default/chat-prefill")
    )
    assert of_whole is not None
    assert of_prefill is not None
    (write,) = deployment_writes(of_whole, 1, 7)

    assert write.body["spec"]["template"]["spec"]["containers"][0]["image"] == "vllm:1"
    assert PHASE_LABEL not in write.body["metadata"]["labels"]
    assert content_of(of_whole) != content_of(of_prefill)


def test_a_pod_with_a_phase_is_of_its_services_pool() -> None:
    labels = {SERVICE_LABEL: "chat", PHASE_LABEL: "decode"}
    view, _ = seen(
        phased(), pod("chat-decode-1", labels=labels, gpus=1, nodeSelector={"nvidia.com/gpu.product": "A100"})
    )
    snapshot = view.snapshot()

    assert snapshot.pods.owner == ("default/chat-decode",)


def test_pools_count_their_instances_in_the_status_and_stay_until_they_have_none() -> None:
    """Where phases may be apart no more, the pools have no GPU type, so that they are scaled to none."""
    template = {"spec": {"containers": [{"name": "server", "image": "vllm:1"}]}}
    had = service(template=template) | {"status": {"replicas": {"a100": 1, "prefill/a100": 2}}}
    view, _ = seen(had)
    found = {each.name: (each.replicas, each.gpu_types) for each in view.snapshot().services}

    assert found == {
        "default/chat": ({InstanceType("a100"): 1}, ()),
        "default/chat-prefill": ({InstanceType("a100"): 2}, ("",)),
        "default/chat-decode": ({}, ("",)),
    }


def test_adapters_come_as_a_variable_and_as_arguments_in_its_place() -> None:
    args = ["--enable-lora", "--lora-modules", "$(TONNAGE_ADAPTERS)", "--port=8000"]
    template = {"spec": {"containers": [{"name": "server", "args": args}]}}
    contents = []
    for adapters in (["a=/a", "b=/b"], ["a=/a"]):
        view, instances = seen(service(template=template, adapters=adapters))
        instance = instances.instance(view.snapshot(), "default/chat", InstanceType("a100"))
        assert instance is not None
        (container,) = deployment_writes(instance, 1, 7)[0].body["spec"]["template"]["spec"]["containers"]
        assert container["args"] == ["--enable-lora", "--lora-modules", *adapters, "--port=8000"]
        assert container["env"] == [{"name": "TONNAGE_ADAPTERS", "value": " ".join(adapters)}]
        contents.append(instances.content(view.snapshot(), "default/chat", InstanceType("a100")))

    assert contents[0] != contents[1]


def test_a_caches_pods_name_their_cpu_as_a_quota_of_it_asks() -> None:
    view, instances = seen(service(template={"spec": {"containers": [{"name": "s"}]}}, cache={"memory": "1Ti"}))
    instance = instances.instance(view.snapshot(), "default/chat-cache", InstanceType("a100", 0))
    assert instance is not None
    (container,) = deployment_writes(instance, 1, 7)[0].body["spec"]["template"]["spec"]["containers"]

    assert container["resources"]["requests"] == container["resources"]["limits"] == {"cpu": "0", "memory": str(2**36)}
