"""Tonnage on a cluster with thousands of running pods: memory, duration of cycles, and writes of idle cycles."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.binding_pods import Workload, pod_object
from benchmarks.binding_round import LIMIT_S, free, taken_at_s
from benchmarks.binding_tally import Tally, cpu_s, tallied
from benchmarks.binding_testbed import Rig, create_pods, pods_path
from benchmarks.schedulers import CONTENDERS, Running
from cluster.errors import ControlPlaneError
from simulator.controlplane import processes

NAMESPACE = "running"
IDLE_S = 20.0
"""Duration of the idle phase, in which writes are counted, seconds."""
REST_S = 3.0
"""Time without a write after which all reports of the last pod are done, seconds."""
RESYNC_S = 2.0
"""Interval of idle cycles, seconds; with the default of 30 s hardly any cycle would fall into the idle phase."""
WRITES = re.compile(r'^apiserver_request_total\{([^}]*verb="(?:POST|PUT|PATCH|DELETE|APPLY)"[^}]*)\} (\S+)$', re.M)


async def running_record(rig: Rig, workload: Workload, churn_s: int, churn: int) -> Mapping[str, object]:
    """Record of one run: Tonnage places pods, simulated kubelets start them; an idle phase; then churn."""
    await free(rig.api, CONTENDERS["tonnage"].lease)
    await rig.api.write("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    async with operator(rig) as running, tallied(rig.api, runs()) as (started,):
        await taken_at_s(rig.api, CONTENDERS["tonnage"].lease)
        await create_pods(rig.api, workload, NAMESPACE, "tonnage")
        await until_count(started, len(workload.shapes))
        await at_rest(rig)
        filled_mb, since = resident_mb(running), len(cycles(running))
        before, cpu_before_s = await writes(rig), cpu_s(running.process.pid)
        await asyncio.sleep(IDLE_S)
        idle_cpu_s = cpu_s(running.process.pid) - cpu_before_s
        idle_writes, idle_cycles = await writes(rig) - before, len(cycles(running)) - since
        since, cpu_before_s = len(cycles(running)), cpu_s(running.process.pid)
        await come_and_go(rig, workload, churn_s, churn)
        churn_cpu_s = cpu_s(running.process.pid) - cpu_before_s
        took_s = cycles(running)[since:]
        return {
            "contender": "tonnage",
            "pods": len(workload.shapes),
            "filled_mb": round(filled_mb, 1),
            "rss_mb": round(resident_mb(running), 1),
            "peak_mb": round(resident_mb(running, "VmHWM"), 1),
            "idle_cycles": idle_cycles,
            "idle_writes": idle_writes,
            "idle_cpu_pct": round(100 * idle_cpu_s / IDLE_S, 1),
            "churn_per_s": churn,
            "churn_s": churn_s,
            "churn_cycles": len(took_s),
            "churn_cpu_pct": round(100 * churn_cpu_s / churn_s, 1),
            "cycle_p50_s": round(float(np.median(took_s)), 3),
            "cycle_p99_s": round(float(np.percentile(took_s, 99)), 3),
            "cycle_max_s": round(max(took_s), 3),
        }


@asynccontextmanager
async def operator(rig: Rig) -> AsyncIterator[Running]:
    settings = {"resync_s": RESYNC_S, "log_level": "debug"}  # quiet cycles are debug lines
    running = await asyncio.to_thread(CONTENDERS["tonnage"].start, rig.server, rig.programs, settings)
    try:
        yield running
    finally:
        await asyncio.to_thread(processes.stop, running.process)


def runs() -> tuple[str, Mapping[str, str]]:
    return pods_path(NAMESPACE), {"fieldSelector": "status.phase=Running"}


async def until_count(started: Tally, count: int) -> None:
    begin_s = time.time()
    while started.count < count:
        if started.quiet_s(begin_s) > LIMIT_S:
            raise ControlPlaneError(f"{started.count} of {count} pods run, and no more for {LIMIT_S:.0f} s")
        await asyncio.sleep(0.1)


async def at_rest(rig: Rig) -> None:
    """Wait until nothing is written. Raises ControlPlaneError when writes do not end."""
    over_at_s, before = time.monotonic() + LIMIT_S, -1
    while (now := await writes(rig)) != before:
        if time.monotonic() > over_at_s:
            raise ControlPlaneError(f"after {LIMIT_S:.0f} s there are still writes although all pods run")
        before = now
        await asyncio.sleep(REST_S)


async def come_and_go(rig: Rig, workload: Workload, churn_s: int, churn: int) -> None:
    """Churn: each second the oldest pods are deleted and as many of the same shapes are created."""
    shapes, count = workload.shapes, len(workload.shapes)
    begin_s = time.monotonic()
    for second in range(churn_s):
        for number in range(second * churn, (second + 1) * churn):
            old, new = number, number + count
            await rig.api.write("DELETE", f"{pods_path(NAMESPACE)}/pod-{old:05d}")
            pod = pod_object(new, shapes[old % count], NAMESPACE, "tonnage")
            await rig.api.write("POST", pods_path(NAMESPACE), pod)
        await asyncio.sleep(max(0.0, begin_s + second + 1 - time.monotonic()))


async def writes(rig: Rig) -> int:
    """Number of writes that the API server has accepted, without renewals of Leases."""
    text = (await rig.api.read("/metrics")).decode()
    return round(sum(float(count) for labels, count in WRITES.findall(text) if 'resource="leases"' not in labels))


def cycles(running: Running) -> list[float]:
    """Duration of each cycle, the sum of its stages, from the operator's log, seconds."""
    took_s = []
    for line in running.log.read_bytes().splitlines():
        if b'"cycle done"' in line:
            said = msgspec.json.decode(line)
            took_s.append(sum(value for key, value in said.items() if key.endswith("_s")))
    return took_s


def resident_mb(running: Running, kind: str = "VmRSS") -> float:
    """Current (VmRSS) or peak (VmHWM) resident memory of a process, MB."""
    status = Path(f"/proc/{running.process.pid}/status").read_text(encoding="utf-8")
    found = re.search(rf"^{kind}:\s+(\d+) kB", status, re.M)
    return int(found[1]) * 1024 / 1e6 if found else float("nan")
