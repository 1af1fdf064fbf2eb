"""A large cluster under the operator as the chart installs it: `python -m benchmarks.operator.size`.

Duration of cycles, memory, and writes: while it fills, at rest, while pods come and go, and with pods that fit nowhere.
"""

import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import click
import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.binding_steady_state import cycles, resident_mb
from benchmarks.binding_tally import cpu_s
from benchmarks.binding_testbed import ANSWER_WITHIN_S, LEASE_S, pods_path
from benchmarks.operator.installation import Site, installed_on, operator_of
from benchmarks.operator.many_services import GPUS_PER_NODE, definitions, fleet, services
from benchmarks.schedulers import Running
from cluster.errors import ControlPlaneError
from controller.kube.connection import Connection, connect
from controller.kube.credentials import ApiAccess
from simulator.controlplane.binaries import control_plane_programs, progress_on
from simulator.controlplane.commands import HOST, ControlPlaneSettings, Folder
from simulator.controlplane.server import down, up

NAMESPACE, STUCK = "running", "stuck"
IN_FLIGHT = 32
"""Requests of this benchmark at a time."""
REST_S = 5.0
"""Time without a write after which all reports are done, seconds."""
SETTLING_MIN = 8
"""Most minutes at rest: services keep a mix for five minutes after a change, and may take a cheaper one then."""
QUIET_S = 60.0
"""Time without one more bound pod after which the fill is over, seconds."""
SAYS_EVERY_S = 10.0
"""Time between two lines of progress, seconds."""
SERVED_SHARE = 0.1
"""Of the fleet's dollars for the services, roughly."""
SETTINGS: Mapping[str, Any] = {"pools": [{"placer": "bind"}]}
"""Settings of the chart that are not its defaults: a mode in which pods may share devices."""
WRITTEN = re.compile(r'^tonnage_api_writes_total\{resource="([^"]+)",verb="(\w+)"\} (\S+)$', re.M)
DONE = re.compile(r'^tonnage_actions_total\{action="(\w+)",result="done"\} (\S+)$', re.M)
UNPLACED = re.compile(r"^tonnage_unplaced\{[^}]*\} (\S+)$", re.M)
EVENTS, LEASES = "events", "leases"
"""Resources that are counted by themselves: Events, and the renewals of the Lease."""

Object = dict[str, Any]
Record = dict[str, object]


@click.command(context_settings={"show_default": True})
@click.option("--nodes", type=click.IntRange(1), default=2000, help="Nodes of eight GPUs, of five types.")
@click.option("--pods", type=click.IntRange(1), default=20_000, help="Pods that run; most of them share devices.")
@click.option("--services", "count", type=click.IntRange(0), default=100, help="ModelServices.")
@click.option("--stuck", type=click.IntRange(0), default=1000, help="Pods that fit nowhere, in the last phase.")
@click.option(
    "--churn", type=click.IntRange(0), default=10, help="Pods that go and come per second in the third phase."
)
@click.option("--phase-s", type=click.IntRange(10), default=60, help="Length of each phase after the fill, seconds.")
@click.option("--seed", type=click.IntRange(0), default=42, help="Seed of the services.")
@click.option(
    "--within-min",
    type=click.IntRange(1),
    default=30,
    help="Longest time after the start of the fill, minutes; then it ends with the phases that it has.",
)
@click.option("--inline", is_flag=True, help="Plan in the operator's process instead of on its embedded Ray.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(json_to: str | None, **given: Any) -> None:
    """Fills a fleet, then measures it at rest, with pods that come and go, and with pods that fit nowhere."""
    records: list[Record] = []
    try:
        for record in measured(**given):
            records.append(record)
            click.echo(" ".join(f"{key}={value}" for key, value in record.items()), err=True)
    except ControlPlaneError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    finally:
        if json_to:
            write_lines(json_to, records)
        Console(stderr=bool(json_to), width=None if sys.stdout.isatty() else 160).print(table_of(records))


def measured(inline: bool, nodes: int, count: int, seed: int, within_min: int, **rest: int) -> Iterator[Record]:
    """Records of the phases. Raises ControlPlaneError, also when they take longer than they may."""
    programs = control_plane_programs(progress_on(sys.stderr))
    with tempfile.TemporaryDirectory(prefix="tonnage-size-", ignore_cleanup_errors=True) as path:
        folder, manifests = Folder(Path(path) / "server"), Path(path) / "nodes.yaml"
        manifests.write_text(yaml.dump_all(fleet(nodes), Dumper=yaml.CSafeDumper), encoding="utf-8")
        try:
            server = up(folder, ControlPlaneSettings(manifests=str(manifests), lease_s=LEASE_S), programs)
            site = installed_on(server, programs, {"settings": SETTINGS})
            made = [*definitions(), *(services(count, nodes * GPUS_PER_NODE, seed, SERVED_SHARE) if count else ())]
            site.kubectl("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": made})
            # Quiet cycles are debug lines.
            overrides = {**SETTINGS, "log_level": "debug", **({"brain": {"mode": "inline"}} if inline else {})}
            with operator_of(site, overrides) as (running, _), asyncio.Runner() as runner:
                over_at_s = time.monotonic() + 60.0 * within_min
                phases = _phases(site, running, nodes, **rest)
                while (record := runner.run(_next(phases, over_at_s))) is not None:
                    yield record
        finally:
            if folder.state.exists():
                down(folder, delete=True)


async def _next(phases: AsyncIterator[Record], over_at_s: float) -> Record | None:
    """The next record; None when there is none. over_at_s: monotonic. Raises ControlPlaneError at that instant."""
    try:
        async with asyncio.timeout(over_at_s - time.monotonic()) as limit:
            return await anext(phases, None)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise ControlPlaneError("the time for all phases has passed; --within-min allows more") from error


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

    def record(self, **more: object) -> Record:
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
            "rss_mb": round(resident_mb(self.running), 1),
            "peak_mb": round(resident_mb(self.running, "VmHWM"), 1),
            **told_apart(more_written, for_s),
            "unplaced": unplaced(self.running),
            **more,
        }


Written = Mapping[tuple[str, str], int]
"""Writes that the operator has sent, by resource (`pods/binding`) and verb."""


def told_apart(writes: Written, for_s: float) -> Record:
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


async def _phases(
    site: Site, running: Running, nodes: int, pods: int, stuck: int, churn: int, phase_s: int
) -> AsyncIterator[Record]:
    async with _api(site) as api:
        for name in (NAMESPACE, STUCK):
            await api.write("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        meter = _Meter("fill", running)
        await _create(api, [pod(number, NAMESPACE) for number in range(pods)])
        bound = await _filled(running)
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
        await asyncio.sleep(max(0.0, began_s + 60.0 - time.monotonic()))
        after = await _event_versions(api, STUCK)
        yield meter.record(stuck=stuck, events_of_stuck=len(after.items() - before.items()))
        meter = _Meter("stuck, then", running)
        await asyncio.sleep(60.0)
        last = await _event_versions(api, STUCK)
        yield meter.record(stuck=stuck, events_of_stuck=len(last.items() - after.items()))


async def _event_versions(api: Connection, namespace: str) -> dict[str, str]:
    """resourceVersion of each Event of a namespace. One is written once a minute at most, so that those that are new or
    changed since a minute ago are its writes."""
    answer = await api.read(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    metadata = (each["metadata"] for each in json.loads(answer)["items"])
    return {each["name"]: each["resourceVersion"] for each in metadata}


@asynccontextmanager
async def _api(site: Site) -> AsyncIterator[Connection]:
    access = ApiAccess(kubeconfig=str(site.server.kubeconfig), request_timeout_s=ANSWER_WITHIN_S)
    async with await connect(access, time.monotonic) as api:
        yield api


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


async def _create(api: Connection, objects: list[Object]) -> None:
    queue, says_at_s = iter(enumerate(objects, start=1)), time.monotonic() + SAYS_EVERY_S

    async def worker() -> None:
        nonlocal says_at_s
        for number, each in queue:
            await api.write("POST", pods_path(each["metadata"]["namespace"]), each)
            if time.monotonic() >= says_at_s:
                says_at_s = time.monotonic() + SAYS_EVERY_S
                click.echo(f"{number} of {len(objects)} pods are created", err=True)

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(worker())


async def _filled(running: Running) -> int:
    """Placements that were made once none was for a while."""
    bound = -1
    last_at_s = says_at_s = time.monotonic()
    while time.monotonic() - last_at_s < QUIET_S:
        now = done(running, "Bind")
        if now != bound:
            bound, last_at_s = now, time.monotonic()
        if time.monotonic() >= says_at_s:
            says_at_s = time.monotonic() + SAYS_EVERY_S
            click.echo(f"{bound} pods are bound", err=True)
        await asyncio.sleep(2.0)
    return bound


async def _at_rest(running: Running, within_s: float = 900.0) -> None:
    """Wait until the operator writes nothing for a while. Raises ControlPlaneError."""
    over_at_s, before = time.monotonic() + within_s, -1
    while (now := sum(count for (resource, _), count in written(running).items() if resource != LEASES)) != before:
        if time.monotonic() > over_at_s:
            raise ControlPlaneError(f"after {within_s:.0f} s the operator still writes although nothing changes")
        before = now
        await asyncio.sleep(REST_S)


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


def table_of(records: list[Record]) -> Table:
    """Table with a row per phase."""
    table = Table(title="operator, size")
    columns = list(dict.fromkeys(key for record in records for key in record))
    for column in columns:
        table.add_column(column)
    for record in records:
        table.add_row(*("" if record.get(key) is None else str(record.get(key)) for key in columns))
    return table


if __name__ == "__main__":
    main()
