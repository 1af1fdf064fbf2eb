"""A backlog of pending pods that one scheduler binds: what it did, and what it took."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from cluster.errors import ControlPlaneError
from controller.kube.connection import Connection
from controller.kube.request import MERGE_PATCH, KubeReadError, KubeWriteError
from simulator.controlplane import processes
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import API_SERVER, ETCD
from simulator.controlplane.server import ControlPlane
from tests.builders.whole_gpu_pods import Workload
from tests.controlplane import testbed
from tests.controlplane.packed import packed
from tests.controlplane.processes import cpu_s, process_of
from tests.controlplane.schedulers import Contender, Running

QUIET_S = 8.0
"""Time without a bind after which a scheduler is done, seconds: the remaining pods fit nowhere."""
TOLD_S = 3.0
"""Time without an Event after which its reports are done, once it is done with binding, seconds."""
LIMIT_S = 240.0
IDLE_SHARE = 0.1
"""Fraction of a core below which a scheduler has processed what it observed."""
US = "benchmark"
"""Holder of the Lease until the scheduler may begin."""


async def backlog_round(
    server: ControlPlane, programs: Programs, contender: Contender, workload: Workload
) -> dict[str, Any]:
    """Round in which all pods are pending and observed before the scheduler leads, as after a change of leader."""
    async with testbed.rig_on(server, programs) as rig:
        await hold(rig.api, contender.lease)
        async with begun(rig, contender) as (running, namespace):
            await testbed.create_pods(rig.api, workload, namespace, contender.scheduler)
            await digested(running)
            async with testbed.tallied(rig.api, *watches(namespace)) as (bound, events):
                before = cpu_now(rig, running)
                await release(rig.api, contender.lease)
                start_s = await taken_at_s(rig.api, contender.lease)
                await until_done(bound, events, len(workload.shapes), start_s)
                used = cpu_now(rig, running).since(before)
            return await record_of(rig, contender, workload, namespace, start_s, bound, events, used)


@asynccontextmanager
async def begun(rig: testbed.Rig, contender: Contender) -> AsyncIterator[tuple[Running, str]]:
    """The scheduler's process, and a namespace that is emptied afterwards."""
    made = await rig.api.write("POST", "/api/v1/namespaces", {"metadata": {"generateName": "round-"}})
    namespace = str(msgspec.json.decode(made)["metadata"]["name"])
    running = await asyncio.to_thread(contender.start, rig.server, rig.programs)
    try:
        yield running, namespace
    finally:
        await asyncio.to_thread(processes.stop, running.process)
    await testbed.delete_pods(rig.api, namespace)


def watches(namespace: str) -> tuple[tuple[str, Mapping[str, str]], ...]:
    """(path, query) of the watches for bound pods and Events."""
    events = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    return (testbed.pods_path(namespace), {"fieldSelector": "spec.nodeName!="}), (events, {})


async def until_done(bound: testbed.Tally, events: testbed.Tally, pods: int, start_s: float) -> None:
    """Wait until the scheduler is done. Raises ControlPlaneError when nothing is bound, or after the time limit."""
    while bound.count < pods and bound.quiet_s(start_s) < QUIET_S and time.time() - start_s < LIMIT_S:
        await asyncio.sleep(0.05)
    if not bound.count or time.time() - start_s >= LIMIT_S:
        raise ControlPlaneError(f"{bound.count} of {pods} pods were bound in {time.time() - start_s:.0f} s")
    while events.count < pods and events.quiet_s(bound.last_at_s) < TOLD_S:  # one per pod, placed or not
        await asyncio.sleep(0.05)


async def record_of(
    rig: testbed.Rig,
    contender: Contender,
    workload: Workload,
    namespace: str,
    start_s: float,
    bound: testbed.Tally,
    events: testbed.Tally,
    used: testbed.Cpu,
) -> dict[str, Any]:
    """Record of the counts, and of the packing according to the API server's objects."""
    nodes, pods = (
        await testbed.items(rig.api, "/api/v1/nodes"),
        await testbed.items(rig.api, testbed.pods_path(namespace)),
    )
    found = packed(nodes, pods)
    bound_s = bound.last_at_s - start_s
    told_s = max(bound_s, events.last_at_s - start_s)
    return {
        "contender": contender.name,
        "nodes": len(nodes),
        "pods": len(workload.shapes),
        "bound": found.bound,
        "bound_s": round(bound_s, 2),
        "told_s": round(told_s, 2),
        "binds_per_s": round(found.bound / bound_s, 1),
        "binds_with_events_per_s": round(found.bound / told_s, 1),
        "events": events.count,
        "api_cpu_s": round(used.api, 2),
        "etcd_cpu_s": round(used.etcd, 2),
        "scheduler_cpu_s": round(used.scheduler, 2),
        "gpus": found.gpus,
        "gpus_wanted": workload.gpus,
        "allocated_pct": round(100 * found.allocated_share, 2),
        "next_large": found.next_large,
        "stranded_gpus": round(found.stranded_gpus, 1),
        "over_committed": list(found.over_committed),
    }


def cpu_now(rig: testbed.Rig, running: Running) -> testbed.Cpu:
    folder = rig.server.folder
    return testbed.Cpu(
        api=cpu_s(process_of(folder, API_SERVER).pid),
        etcd=cpu_s(process_of(folder, ETCD).pid),
        scheduler=cpu_s(running.process.pid),
    )


async def digested(running: Running) -> None:
    """Wait until the scheduler is idle: it has observed the pods and may not act."""
    before_s, pause_s = cpu_s(running.process.pid), 0.5
    while True:
        await asyncio.sleep(pause_s)
        now_s = cpu_s(running.process.pid)
        if now_s - before_s < IDLE_SHARE * pause_s:
            return
        before_s = now_s


async def hold(api: Connection, lease: tuple[str, str]) -> None:
    """Take a Lease for the benchmark, whichever process held it."""
    await free(api, lease)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": lease[0], "name": lease[1]},
        "spec": {"holderIdentity": US, "leaseDurationSeconds": 7200, "acquireTime": now, "renewTime": now},
    }
    await api.write("POST", leases_path(lease), body)


async def free(api: Connection, lease: tuple[str, str]) -> None:
    try:
        await api.write("DELETE", f"{leases_path(lease)}/{lease[1]}")
    except KubeWriteError as error:
        if error.refusal.status != 404:
            raise


async def release(api: Connection, lease: tuple[str, str]) -> None:
    """Release a Lease as an ending leader does."""
    released = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
    await api.write("PATCH", f"{leases_path(lease)}/{lease[1]}", released, content_type=MERGE_PATCH)


async def taken_at_s(api: Connection, lease: tuple[str, str]) -> float:
    """Time at which a scheduler became the leader, according to its Lease, seconds since the epoch."""
    over_at_s = time.time() + LIMIT_S
    while time.time() < over_at_s:
        try:
            spec = msgspec.json.decode(await api.read(f"{leases_path(lease)}/{lease[1]}"))["spec"]
        except KubeReadError as error:
            if error.refusal.status != 404:
                raise
            spec = {}
        if spec.get("holderIdentity") not in (None, "", US):
            return datetime.fromisoformat(spec["acquireTime"]).timestamp()
        await asyncio.sleep(0.05)
    raise ControlPlaneError(f"no scheduler took the Lease {'/'.join(lease)}")


def leases_path(lease: tuple[str, str]) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{lease[0]}/leases"
