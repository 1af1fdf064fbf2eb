"""A large cluster under an operator in phases: its cycles, writes, processor time and memory in each."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.request import urlopen

import click
import numpy as np

from controller.kube.connection import Connection
from simulator.controlplane.commands import HOST
from tests.builders.many_services import GPUS_PER_NODE
from tests.controlplane.installation import Site, api_of
from tests.controlplane.processes import cpu_s, resident_mb
from tests.controlplane.schedulers import Running, cycles
from tests.controlplane.testbed import pods_path, several_at_once, until_still

NAMESPACE, STUCK = "running", "stuck"
REST_S = 5.0
"""Time without a write after which all reports are done, seconds."""
SETTLING_MIN = 8
"""Most minutes at rest: services keep a mix for five minutes after a change, and may take a cheaper one then."""
SAYS_EVERY_S = 10.0
"""Time between two lines of progress, seconds."""
WRITTEN = re.compile(r'^tonnage_api_writes_total\{resource="([^"]+)",verb="(\w+)"\} (\S+)$', re.M)
DONE = re.compile(r'^tonnage_actions_total\{action="(\w+)",result="done"\} (\S+)$', re.M)
UNPLACED = re.compile(r"^tonnage_unplaced\{[^}]*\} (\S+)$", re.M)
EVENTS, LEASES = "events", "leases"
"""Resources that are counted by themselves: Events, and the renewals of the Lease."""
Object = dict[str, Any]


@dataclass
class _Meter:
    """One phase of an operator's process: its cycles, writes, processor time and memory."""

    name: str
    running: Running

    def __post_init__(self) -> None:
        self._cycles = len(cycles(self.running))
        self._written, self._cpu_s, self._began_s = (
            written(self.running),
            cpu_s(self.running.process.pid),
            time.time(),
        )

    def record(self, **more: object) -> Object:
        took_s = cycles(self.running)[self._cycles :]
        for_s, now = time.time() - self._began_s, written(self.running)
        more_written = {what: count - self._written.get(what, 0) for what, count in now.items()}
        return {
            "phase": self.name,
            "for_s": round(for_s, 1),
            "cycles": len(took_s),
            "cycle_p50_s": round(float(np.median(took_s)), 3) if took_s else None,
            "cycle_p99_s": round(float(np.percentile(took_s, 99)), 3) if took_s else None,
            "cycle_max_s": round(max(took_s), 3) if took_s else None,
            "cpu_pct": round(100 * (cpu_s(self.running.process.pid) - self._cpu_s) / for_s, 1),
            "rss_mb": round(resident_mb(self.running.process.pid), 1),
            "peak_mb": round(resident_mb(self.running.process.pid, "VmHWM"), 1),
            **told_apart(more_written, for_s),
            "unplaced": unplaced(self.running),
            **more,
        }


Written = Mapping[tuple[str, str], int]
"""Writes that the operator has sent, by resource (`pods/binding`) and verb."""


def told_apart(writes: Written, for_s: float) -> Object:
    """Writes a minute: Events, renewals of the Lease, and all others with what was written. `writes` counts all but the
    renewals."""
    by_resource: dict[str, int] = {}
    for (resource, _), count in writes.items():
        by_resource[resource] = by_resource.get(resource, 0) + count
    renewed, events = by_resource.pop(LEASES, 0), by_resource.pop(EVENTS, 0)
    others = sum(by_resource.values())
    named = sorted((f"{verb} {resource} {count}" for (resource, verb), count in writes.items()
                    if count and resource not in (EVENTS, LEASES)))  # fmt: skip
    return {
        "writes": events + others,
        "writes_per_min": round(60 * (events + others) / for_s, 1),
        "events_per_min": round(60 * events / for_s, 1),
        "others_per_min": round(60 * others / for_s, 1),
        "others": ", ".join(named),
        "lease_updates_per_min": round(60 * renewed / for_s, 1),
    }


def written(running: Running) -> dict[tuple[str, str], int]:
    """Writes that the operator has sent, by resource and verb."""
    return written_in(_metrics(running))


def written_in(metrics: str) -> dict[tuple[str, str], int]:
    """The same of an answer in Prometheus's text format."""
    return {(resource, verb): round(float(number)) for resource, verb, number in WRITTEN.findall(metrics)}


def done(running: Running, action: str) -> int:
    """Actions of a kind that were done."""
    return round(sum(float(number) for kind, number in DONE.findall(_metrics(running)) if kind == action))


def unplaced(running: Running) -> int:
    """Pods and gangs that wait for a place."""
    return round(sum(float(number) for number in UNPLACED.findall(_metrics(running))))


def _metrics(running: Running) -> str:
    with urlopen(f"http://{HOST}:{running.metrics_port}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
    return text


async def phases(
    site: Site, running: Running, nodes: int, pods: int, stuck: int, churn: int, phase_s: int, quiet_s: float
) -> AsyncIterator[Object]:
    async with api_of(site) as api:
        for name in (NAMESPACE, STUCK):
            await api.write("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        meter = _Meter("fill", running)
        await _create(api, [pod(number, NAMESPACE) for number in range(pods)])
        bound = await _filled(running, quiet_s)
        yield meter.record(nodes=nodes, pods=pods, binds=bound)
        await _at_rest(running)
        for minute in range(1, SETTLING_MIN + 1):
            meter = _Meter(f"rest, minute {minute}", running)
            await asyncio.sleep(phase_s)
            record = meter.record()
            yield record
            if not record["writes"]:
                break
        meter = _Meter("churn", running)
        await _come_and_go(api, pods, churn, phase_s)
        yield meter.record(pods_per_s=churn)
        await _at_rest(running)
        meter = _Meter("stuck, first minute", running)
        began_s, before = time.monotonic(), await _event_versions(api, STUCK)
        await _create(api, [pod(number, STUCK, gpus=GPUS_PER_NODE + 1) for number in range(stuck)])
        await asyncio.sleep(max(0.0, began_s + phase_s - time.monotonic()))
        after = await _event_versions(api, STUCK)
        yield meter.record(stuck=stuck, events_of_stuck=len(after.items() - before.items()))
        meter = _Meter("stuck, then", running)
        await asyncio.sleep(phase_s)
        last = await _event_versions(api, STUCK)
        yield meter.record(stuck=stuck, events_of_stuck=len(last.items() - after.items()))


async def _event_versions(api: Connection, namespace: str) -> dict[str, str]:
    """resourceVersion of each Event of a namespace. One is written once a minute at most, so that those that are new or
    changed since a minute ago are its writes."""
    answer = await api.read(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    metadata = (each["metadata"] for each in json.loads(answer)["items"])
    return {each["name"]: each["resourceVersion"] for each in metadata}


SHAPES = ((1, 0.3), (2, 0.1))
"""(whole GPUs, share of the pods); the others have a quarter of a device each. 20,000 pods hold 13,000 GPUs."""


def pod(number: int, namespace: str, gpus: int | None = None) -> Object:
    """Pod that waits for Tonnage. gpus: whole devices; None: as its number says."""
    turn = (number * 7 % 10) / 10
    one, two = SHAPES[0][1], SHAPES[0][1] + SHAPES[1][1]
    whole = gpus if gpus is not None else 1 if turn < one else 2 if turn < two else 0
    has = {"nvidia.com/gpu": str(whole)} if whole else {}
    annotations = {} if whole else {"tonnage.dev/gpu-milli": "250"}
    container = {"name": "main", "image": "example.com/none", "resources": {"limits": {"cpu": "1", **has}}}
    metadata = {"name": f"pod-{number:05d}", "namespace": namespace, "annotations": annotations}
    spec = {"schedulerName": "tonnage", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def _create(api: Connection, objects: Sequence[Object]) -> None:
    await several_at_once(objects, lambda each: api.write("POST", pods_path(each["metadata"]["namespace"]), each))


async def _filled(running: Running, quiet_s: float) -> int:
    """Placements that were made once none was for a while."""
    bound = -1
    last_at_s = says_at_s = time.monotonic()
    while time.monotonic() - last_at_s < quiet_s:
        now = done(running, "Bind")
        if now != bound:
            bound, last_at_s = now, time.monotonic()
        if time.monotonic() >= says_at_s:
            says_at_s = time.monotonic() + SAYS_EVERY_S
            click.echo(f"{bound} pods are bound", err=True)
        await asyncio.sleep(2.0)
    return bound


async def _at_rest(running: Running) -> None:
    """Wait until the operator writes nothing for a while. Raises ControlPlaneError."""

    async def others() -> int:
        return sum(count for (resource, _), count in written(running).items() if resource != LEASES)

    await until_still(others, REST_S, within_s=900.0)


async def _come_and_go(api: Connection, pods: int, churn: int, for_s: int) -> None:
    """Each second the oldest pods are deleted and as many of the same sizes are created."""
    began_s = time.monotonic()
    for second in range(for_s):
        turn = range(second * churn, min((second + 1) * churn, pods))
        for number in turn:
            await api.write("DELETE", f"{pods_path(NAMESPACE)}/pod-{number:05d}")
        # Numbers that differ by a multiple of ten mean the same size.
        await _create(api, [pod(number + (pods + 9) // 10 * 10, NAMESPACE) for number in turn])
        await asyncio.sleep(max(0.0, began_s + second + 1 - time.monotonic()))
