"""etcd, an API server and the objects of a fleet, for several schedulers in turn, and watches that count."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from cluster.errors import ControlPlaneError
from controller.api.crds import crd
from controller.api.kinds import OWN_KINDS
from controller.kube.connection import Connection, connect
from controller.kube.credentials import ApiAccess
from controller.kube.request import KubeWriteError
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import API_SERVER, ETCD, ControlPlaneSettings, Folder
from simulator.controlplane.server import ControlPlane, up
from tests.builders.whole_gpu_pods import GPU_MODELS, Workload, gpu_type_objects, pod_object

IN_FLIGHT = 32
"""Concurrent writes; more do not make an API server faster."""
LEASE_S = 7200
"""Lease duration of simulated nodes, seconds; long, because their renewals are not measured."""
ANSWER_WITHIN_S = 300.0
"""Request timeout, seconds; deleting thousands of pods is one request."""
Object = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rig:
    """Control plane with its nodes."""

    server: ControlPlane
    programs: Programs
    api: Connection


def server_with(folder: Folder, programs: Programs, nodes: int, seed: int) -> ControlPlane:
    """etcd, the API server and `nodes` simulated nodes with their kubelets; no scheduler, no controllers."""
    only = Programs({name: programs[name] for name in (ETCD, API_SERVER)}, {})
    return up(folder, ControlPlaneSettings(nodes=nodes, seed=seed, lease_s=LEASE_S), only)


def without_kubelets(server: ControlPlane, programs: Programs) -> ControlPlane:
    """The same server without kubelets: nodes remain as objects, and bound pods stay pending."""
    only = Programs({name: programs[name] for name in (ETCD, API_SERVER)}, {})
    return up(server.folder, ControlPlaneSettings(), only)


@asynccontextmanager
async def rig_on(server: ControlPlane, programs: Programs) -> AsyncIterator[Rig]:
    """Testbed with Tonnage's kinds, one GPUType per model, and the namespace of its Lease."""
    access = ApiAccess(kubeconfig=str(server.kubeconfig), request_timeout_s=ANSWER_WITHIN_S)
    async with await connect(access, time.monotonic) as api:
        await put(api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", [crd(kind) for kind in OWN_KINDS])
        await put(api, "/api/v1/namespaces", [{"metadata": {"name": "tonnage-system"}}])
        await put(api, "/apis/tonnage.dev/v1alpha1/gputypes", gpu_type_objects(GPU_MODELS))
        yield Rig(server, programs, api)


async def put(api: Connection, path: str, objects: Iterable[Object]) -> None:
    """Create these objects, unless they exist; waits until the API server serves the kind."""
    for each in objects:
        while True:
            try:
                await api.write("POST", path, each)
                break
            except KubeWriteError as error:
                if error.refusal.status == 409:
                    break
                if error.refusal.status != 404:  # a new CRD is served a moment after its creation
                    raise
                await asyncio.sleep(0.1)


async def create_pods(api: Connection, workload: Workload, namespace: str, scheduler: str) -> None:
    """Create the pods in order, several at a time."""
    made = (pod_object(number, shape, namespace, scheduler) for number, shape in enumerate(workload.shapes))
    await several_at_once(made, lambda pod: api.write("POST", pods_path(namespace), pod))


async def several_at_once(what: Iterable[T], call: Callable[[T], Awaitable[object]]) -> None:
    """Calls for each in order, several at a time."""
    queue = iter(what)

    async def worker() -> None:
        for each in queue:
            await call(each)

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(worker())


async def until_still(count: Callable[[], Awaitable[int]], pause_s: float, within_s: float) -> None:
    """Wait until a count of writes stays the same for a pause. Raises ControlPlaneError."""
    over_at_s, before = time.monotonic() + within_s, -1
    while (now := await count()) != before:
        if time.monotonic() > over_at_s:
            raise ControlPlaneError(f"after {within_s:.0f} s there are still writes although nothing changes")
        before = now
        await asyncio.sleep(pause_s)


async def delete_pods(api: Connection, namespace: str) -> None:
    """Delete all pods, and wait until they are gone."""
    await api.write("DELETE", pods_path(namespace), {"gracePeriodSeconds": 0})
    while await items(api, pods_path(namespace), {"limit": "1"}):
        await asyncio.sleep(0.2)


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


async def items(api: Connection, path: str, query: Mapping[str, str] | None = None) -> list[Object]:
    found: list[Object] = msgspec.json.decode(await api.read(path, query))["items"] or []
    return found


IDLE_S = 600.0


@dataclass(slots=True)
class Tally:
    """Count of objects in a watch."""

    count: int = 0
    last_at_s: float = 0.0
    """Time of the last one, seconds since the epoch; 0 before the first."""

    def take(self, kind: str) -> None:
        if kind == "ADDED":
            self.count += 1
            self.last_at_s = time.time()

    def quiet_s(self, since_s: float) -> float:
        """Seconds since the last one, or since `since_s` if that is later."""
        return time.time() - max(self.last_at_s, since_s)


@asynccontextmanager
async def tallied(api: Connection, *watches: tuple[str, Mapping[str, str]]) -> AsyncIterator[list[Tally]]:
    """One count per path and query, from now on.

    Raises KubeReadError or ControlPlaneError (in a group) when a watch breaks, because the counts are then invalid.
    """
    tallies = [Tally() for _ in watches]
    started = [asyncio.Event() for _ in watches]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_follow(api, path, query, tally, event))
            for (path, query), tally, event in zip(watches, tallies, started, strict=True)
        ]
        for event in started:
            await event.wait()
        yield tallies
        for task in tasks:
            task.cancel()


async def _follow(api: Connection, path: str, query: Mapping[str, str], tally: Tally, started: asyncio.Event) -> None:
    listed = msgspec.json.decode(await api.read(path, {"limit": "1", **query}))
    version = str(listed["metadata"]["resourceVersion"])
    started.set()  # the watch delivers all later versions
    while True:  # the server may end a watch at any time
        since = {"resourceVersion": version, "timeoutSeconds": "3600"}
        async with aclosing(api.watch(path, {**query, **since}, idle_s=IDLE_S)) as lines:
            async for line in lines:
                event = _LINE.decode(line)
                if event.type == "ERROR":
                    raise ControlPlaneError(f"watching {path}: {line.decode()}")
                version = event.object.metadata.resource_version
                tally.take(event.type)


class _Meta(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: _Object


_LINE = msgspec.json.Decoder(_Line)


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds of processes."""

    api: float
    etcd: float
    scheduler: float

    def since(self, before: "Cpu") -> "Cpu":
        return Cpu(self.api - before.api, self.etcd - before.etcd, self.scheduler - before.scheduler)
