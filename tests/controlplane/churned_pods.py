"""Pods of a stream that come to an installed operator and leave it, and its fleet as manifests."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.arrays import IntArray
from cluster.errors import ControlPlaneError
from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from controller.api.labels import GPU_TYPES_ANNOTATION, PLACEMENT_GATE
from controller.kube.connection import Connection
from simulator.openb.trace_reader import MIB
from tests.builders.whole_gpu_pods import GPU, pod_object
from tests.controlplane.testbed import items, pods_path, several_at_once

Object = Mapping[str, Any]


NAMESPACE = "default"
QUIET_S = 4.0
"""Time without a bind after which the remaining pods of a batch count as unplaced, seconds: several cycles."""
BATCH_WITHIN_S = 120.0


def node_objects(trace: Snapshot) -> Iterable[Object]:
    """Node manifests of a fleet."""
    nodes = trace.nodes
    for row, name in enumerate(nodes.names):
        gpus, kind = int(nodes.gpus[row]), int(nodes.gpu_type[row])
        labels = {"nvidia.com/gpu.product": trace.gpu_type_names[kind]} if gpus else {}
        has = {"cpu": f"{nodes.cpu_milli[row]}m", "memory": f"{nodes.memory_bytes[row] // MIB}Mi"}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
            "status": {"allocatable": has | ({GPU: str(gpus)} if gpus else {})},
        }


def pod_of(number: int, shape: PodShape, placer: str) -> Object:
    """Pod as a user writes it for this placement mode."""
    pod = dict(pod_object(number, shape, NAMESPACE, "tonnage" if placer == "bind" else "default-scheduler"))
    types = {GPU_TYPES_ANNOTATION: ",".join(kind.lower() for kind in shape.gpu_types)} if shape.gpu_types else {}
    pod["metadata"] = {**pod["metadata"], "annotations": pod["metadata"]["annotations"] | types}
    if placer == "gate":
        pod["spec"] = {**pod["spec"], "schedulingGates": [{"name": PLACEMENT_GATE}]}
    return pod


@dataclass(slots=True)
class ChurnedPods:
    """Pods of the run on the API server."""

    api: Connection
    trace: Snapshot
    placer: str
    running: dict[str, PodShape] = field(default_factory=dict)
    """Shapes of the pods with a node, by name."""
    leaving: dict[int, list[str]] = field(default_factory=dict)
    """Names of running pods, by the position in the stream at which they leave."""

    async def arrive(self, positions: range, shapes: IntArray) -> dict[str, PodShape]:
        """Creates pods; returns those that got a node. The others are deleted."""
        made = {pod_name(n): self.trace.pods.shapes[int(shapes[n])] for n in positions}
        objects = [pod_of(n, self.trace.pods.shapes[int(shapes[n])], self.placer) for n in positions]
        await several_at_once(objects, lambda each: self.api.write("POST", pods_path(NAMESPACE), each))
        bound = await self._bound(set(made))
        await self.delete(made.keys() - bound)
        placed = {name: shape for name, shape in made.items() if name in bound}
        self.running |= placed
        return placed

    async def _bound(self, names: set[str]) -> set[str]:
        """Pods that have a node, once all do or none got one for a while."""
        bound: set[str] = set()
        last_at_s = began_s = time.monotonic()
        while len(bound) < len(names):
            found = await items(self.api, pods_path(NAMESPACE), {"fieldSelector": "status.phase!=Running"})
            waits = {each["metadata"]["name"] for each in found if not each["spec"].get("nodeName")}
            now_bound = names - waits
            if len(now_bound) > len(bound):
                bound, last_at_s = now_bound, time.monotonic()
            if time.monotonic() - last_at_s > QUIET_S:
                break
            if time.monotonic() - began_s > BATCH_WITHIN_S:
                raise ControlPlaneError(f"a batch was not placed within {BATCH_WITHIN_S:g} s")
            await asyncio.sleep(0.2)
        return bound

    async def delete(self, names: Iterable[str]) -> None:
        now = {"gracePeriodSeconds": 0}
        await several_at_once(list(names), lambda name: self.api.write("DELETE", f"{pods_path(NAMESPACE)}/{name}", now))
        for name in names:
            self.running.pop(name, None)

    @property
    def gpu_milli(self) -> int:
        return sum(shape.total_gpu_milli for shape in self.running.values())


def pod_name(number: int) -> str:
    return f"pod-{number:05d}"
