"""Simulated nodes with a DRA driver: their ResourceSlices, and the start of pods with claims."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from simulator.controlplane.nodes.client import InsistentClient, ServerResponse
from simulator.controlplane.nodes.node_objects import as_registered, generated_nodes, node_object, slice_of
from simulator.controlplane.nodes.pod_lifecycle import KubeletPod, PreparedClaims

DRIVER = "gpu.nvidia.com"
NODE = node_object(
    "a",
    {"nvidia.com/gpu.product": "H100"},
    {"cpu": "8", "nvidia.com/gpu": "2"},
    annotations={"simulated.tonnage.dev/dra-driver": DRIVER},
)


def test_gpus_are_published_or_counted_and_never_both() -> None:
    spec = slice_of(NODE, "uid")["spec"]

    assert [device["name"] for device in spec["devices"]] == ["gpu-0", "gpu-1"]
    assert spec["devices"][0]["attributes"]["productName"] == {"string": "H100"}
    assert "nvidia.com/gpu" not in as_registered(NODE)["status"]["allocatable"]
    plain = node_object("b", {}, {"cpu": "8", "nvidia.com/gpu": "2"})
    assert as_registered(plain) == plain


def test_a_generated_fleet_publishes_when_a_driver_is_set() -> None:
    (node,) = generated_nodes(1, seed=0, dra_driver=DRIVER)

    assert slice_of(node, "uid")["spec"]["driver"] == DRIVER


class Claims(InsistentClient):
    """An API server that has these claims."""

    def __init__(self, **claims: Any) -> None:
        self.claims = claims

    async def insist(self, method: str, path: str, *_: Any) -> ServerResponse:
        found = self.claims.get(path.rpartition("/")[2])
        return ServerResponse(200 if found else 404, json.dumps(found or {}).encode())


def claim(uid: str, device: str, *pods: str) -> dict[str, Any]:
    results = [{"request": "gpus", "driver": DRIVER, "pool": "a", "device": device}]
    consumers = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": consumers}
    return {"metadata": {"name": "c", "uid": uid}, "status": status}


def pod(name: str, claim_name: str) -> KubeletPod:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1"}
    spec = {"containers": [], "resourceClaims": [{"name": "gpus", "resourceClaimName": claim_name}]}
    return msgspec.convert({"metadata": meta, "spec": spec}, KubeletPod)


@pytest.mark.parametrize(
    "found",
    [{}, {"c": {"metadata": {"name": "c", "uid": "u"}, "status": {}}}, {"c": claim("u", "gpu-0", "another")}],
    ids=["not there", "not allocated", "not reserved for it"],
)
def test_a_pod_starts_only_once_its_claim_is_allocated_and_reserved_for_it(found: dict[str, Any]) -> None:
    assert not asyncio.run(PreparedClaims(Claims(**found)).prepare(pod("p", "c")))
    assert asyncio.run(PreparedClaims(Claims(c=claim("u", "gpu-0", "p"))).prepare(pod("p", "c")))


def test_a_device_is_prepared_for_one_claim_until_its_last_pod_has_gone() -> None:
    prepared = PreparedClaims(Claims(c=claim("u", "gpu-0", "p", "q"), d=claim("v", "gpu-0", "r")))

    async def scene() -> list[bool]:
        said = [await prepared.prepare(pod(name, "c")) for name in ("p", "q")]
        said.append(await prepared.prepare(pod("r", "d")))
        prepared.release("uid-p")
        said.append(await prepared.prepare(pod("r", "d")))
        prepared.release("uid-q")
        return [*said, await prepared.prepare(pod("r", "d"))]

    assert asyncio.run(scene()) == [True, True, False, False, True]
