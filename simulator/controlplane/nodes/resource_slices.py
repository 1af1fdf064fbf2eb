"""ResourceSlices of simulated nodes, as a DRA driver on each of them would publish its GPUs."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from simulator.controlplane.nodes.connection import CONFLICT, Connection
from simulator.controlplane.nodes.node_objects import DRA_DRIVER, PRODUCT, Node

API = "/apis/resource.k8s.io/v1"
GPU = "nvidia.com/gpu"

log = structlog.get_logger()


def driver_of(node: Node) -> str:
    """Driver that publishes the node's GPUs; empty: they are counted in its capacity."""
    driver: str = node["metadata"].get("annotations", {}).get(DRA_DRIVER, "")
    return driver


def as_registered(node: Node) -> Node:
    """Node as its kubelet registers it: without the GPUs that a driver publishes."""
    if not driver_of(node):
        return node
    status = node["status"]
    counted = {part: {k: v for k, v in status[part].items() if k != GPU} for part in ("capacity", "allocatable")}
    return {**node, "status": {**status, **counted}}


def slice_of(node: Node, uid: str) -> Mapping[str, Any]:
    """One slice with all GPUs of the node.

    uid: of the Node object; the slice is removed with it, like those of real drivers.
    """
    name, driver = node["metadata"]["name"], driver_of(node)
    product = node["metadata"]["labels"].get(PRODUCT, "simulated")
    devices = [_device(name, product, number) for number in range(int(node["status"]["allocatable"].get(GPU, 0)))]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-{driver}", "ownerReferences": [owner]},
        "spec": {
            "driver": driver,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def _device(node: str, product: str, number: int) -> Mapping[str, Any]:
    attributes = {
        "type": {"string": "gpu"},
        "productName": {"string": product},
        "uuid": {"string": f"GPU-{node}-{number}"},
    }
    return {"name": f"gpu-{number}", "attributes": attributes}


def class_of(driver: str) -> Mapping[str, Any]:
    """DeviceClass of a driver's chart: its whole GPUs."""
    expression = f"device.driver == '{driver}' && device.attributes['{driver}'].type == 'gpu'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": driver},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


async def publish(connection: Connection, nodes: Sequence[Node]) -> None:
    """Publishes the slices of registered nodes, and the class of each driver. Existing ones stay."""
    publishing = [node for node in nodes if driver_of(node)]
    for driver in sorted({driver_of(node) for node in publishing}):
        await _make(connection, "deviceclasses", class_of(driver))
    await asyncio.gather(*(_publish(connection, node) for node in publishing))


async def _publish(connection: Connection, node: Node) -> None:
    answer = await connection.insist("GET", f"/api/v1/nodes/{node['metadata']['name']}")
    if answer.is_ok:
        uid = msgspec.json.decode(answer.body)["metadata"]["uid"]
        await _make(connection, "resourceslices", slice_of(node, uid))


async def _make(connection: Connection, resource: str, body: Mapping[str, Any]) -> None:
    answer = await connection.insist("POST", f"{API}/{resource}", body)
    if not answer.is_ok and answer.status != CONFLICT:
        log.error("not published", resource=resource, name=body["metadata"]["name"], answer=answer.body.decode()[:200])
