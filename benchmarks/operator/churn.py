"""The operator as the chart installs it while pods arrive and leave: `python -m benchmarks.operator.churn`.

Its GPU allocation beside that of its loop in one process, and of the replay of its policy alone, on the same arrivals.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
import yaml

from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.binding_pods import GPU, gpu_type_objects, pod_object
from benchmarks.binding_testbed import ANSWER_WITHIN_S, IN_FLIGHT, LEASE_S, items, pods_path
from benchmarks.operator.installation import Site, chart_settings, installed_on, operator_of
from cluster.arrays import IntArray
from cluster.errors import ControlPlaneError
from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from controller.api.labels import GPU_TYPES_ANNOTATION, PLACEMENT_GATE
from controller.brain.inline import InlineBrain
from controller.deciders.decisions import Decisions
from controller.kube.connection import Connection, connect
from controller.kube.credentials import ApiAccess
from placement.budget import stopped
from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Knowledge
from placement.policies import policy_named
from simulator.controlplane.binaries import control_plane_programs, progress_on
from simulator.controlplane.commands import ControlPlaneSettings, Folder
from simulator.controlplane.server import down, up
from simulator.openb.generator import MIB, generate, trace_of
from simulator.openb.trace_reader import read_trace
from simulator.packing.churn import Churn, ChurningStream, churning_stream, mean_allocation_pct, operated
from simulator.packing.replay import Conditions, gpu_milli_of, replay

NAMESPACE = "default"
QUIET_S = 4.0
"""Time without a bind after which the remaining pods of a batch count as unplaced, seconds: several cycles."""
BATCH_WITHIN_S = 120.0

Object = Mapping[str, Any]


@click.command(context_settings={"show_default": True})
@click.option("--nodes", type=click.Path(path_type=Path), help="Fleet, CSV in the openb format; default: generated.")
@click.option("--pods", type=click.Path(path_type=Path), help="Pods to draw from, CSV in the openb format.")
@click.option("--fleet", type=click.IntRange(1), default=1213, help="Nodes of the generated fleet.")
@click.option("--load", type=click.FloatRange(0, min_open=True), default=1.0, help="Offered load; 1: all GPUs.")
@click.option("--warm-up", type=click.FloatRange(0), default=0.0, help="Mean stays before the measurement.")
@click.option("--measured", type=click.FloatRange(0, min_open=True), default=0.5, help="Mean stays that are averaged.")
@click.option("--batch", type=click.IntRange(1), default=100, help="Arrivals at a time.")
@click.option(
    "--placer", type=click.Choice(("gate", "bind")), default="gate", help="Placement mode; the chart's: gate."
)
@click.option("--seed", type=click.IntRange(0), default=42, help="Seed of the arrivals.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    nodes: Path | None,
    pods: Path | None,
    fleet: int,
    load: float,
    warm_up: float,
    measured: float,
    batch: int,
    placer: str,
    seed: int,
    json_to: str | None,
) -> None:
    """Fills a fleet on a control plane of its own, then lets pods leave and as many arrive; nothing is retried.

    The allocation is averaged over batches after the warm-up. A pod that has no place a few cycles after it arrived is
    deleted, as a replay drops it.
    """
    trace = read_trace(nodes, pods) if nodes and pods else trace_of(generate(fleet, seed=seed), {})
    stream = churning_stream(trace, seed, Churn(load, "exponential", warm_up, measured))
    records: list[Mapping[str, object]] = []
    try:
        allocated_pct = _on_a_server(trace, stream, batch, placer)
        for name, pct in (("operator", allocated_pct), *compared(trace, stream, batch, seed)):
            records.append({"measured": name, "load": load, "pods": len(stream.pods), "allocation_pct": round(pct, 2)})
            click.echo(f"{name}: {pct:.2f} % allocated")
    except ControlPlaneError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    if json_to:
        write_lines(json_to, records)


def compared(trace: Snapshot, stream: ChurningStream, batch: int, seed: int) -> Iterable[tuple[str, float]]:
    """Mean allocation of the loop in this process, and of the replay of its policy alone, percent."""
    brain = InlineBrain(Decisions(awaits_pods=True), stopped)
    loop = operated(trace, stream.pods, brain, stopped, per_cycle=batch, stay=stream.stay)
    yield "loop in process", loop.mean_allocation_pct(stream.measured_from_pct)
    policy = policy_named("tonnage-learning", Knowledge(trace, seed=seed))
    packer = Packer.of(trace, policy, content_rank(trace, seed))
    played = replay(trace, stream.pods, packer, stopped, seed, Conditions(stay=stream.stay))
    yield "replay", mean_allocation_pct(played, stream)


def _on_a_server(trace: Snapshot, stream: ChurningStream, batch: int, placer: str) -> float:
    programs = control_plane_programs(progress_on(sys.stderr))
    with tempfile.TemporaryDirectory(prefix="tonnage-churn-", ignore_cleanup_errors=True) as path:
        folder, manifests = Folder(Path(path) / "server"), Path(path) / "nodes.yaml"
        manifests.write_text(yaml.dump_all(node_objects(trace), Dumper=yaml.CSafeDumper), encoding="utf-8")
        try:
            server = up(folder, ControlPlaneSettings(manifests=str(manifests), lease_s=LEASE_S), programs)
            site = installed_on(server, programs)
            site.kubectl("apply", "--server-side", "-f", "-", stdin=_list(gpu_type_objects(trace.gpu_type_names)))
            # Lists have shares of GPUs, which the chart's pool does not place: its nodes may have another scheduler.
            overrides = {"pools": [{"placer": placer, **({"shares": True} if placer == "gate" else {})}]}
            click.echo(f"settings: {chart_settings() | overrides}", err=True)
            with operator_of(site, overrides):
                return asyncio.run(_churn(site, trace, stream, batch, placer))
        finally:
            if folder.state.exists():
                down(folder, delete=True)


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
class _Cluster:
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
        made = {_name(n): self.trace.pods.shapes[int(shapes[n])] for n in positions}
        objects = [pod_of(n, self.trace.pods.shapes[int(shapes[n])], self.placer) for n in positions]
        await _each(objects, lambda each: self.api.write("POST", pods_path(NAMESPACE), each))
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
        await _each(list(names), lambda name: self.api.write("DELETE", f"{pods_path(NAMESPACE)}/{name}", now))
        for name in names:
            self.running.pop(name, None)

    @property
    def gpu_milli(self) -> int:
        return sum(shape.total_gpu_milli for shape in self.running.values())


async def _churn(site: Site, trace: Snapshot, stream: ChurningStream, batch: int, placer: str) -> float:
    """Mean allocation over the batches after the fill, percent of the fleet's GPUs."""
    capacity_milli, readings = 1000 * int(trace.nodes.gpus.sum()), []
    requested_milli = np.cumsum(gpu_milli_of(trace.pods)[1][stream.pods])
    async with _api(site) as api:
        cluster = _Cluster(api, trace, placer)
        for first in range(0, len(stream.pods), batch):
            positions = range(first, min(first + batch, len(stream.pods)))
            await cluster.delete([name for n in positions for name in cluster.leaving.pop(n, ())])
            placed = await cluster.arrive(positions, stream.pods)
            for n in positions:
                if _name(n) in placed:
                    cluster.leaving.setdefault(max(n + int(stream.stay[n]), positions[-1] + 1), []).append(_name(n))
            allocated_pct = 100.0 * cluster.gpu_milli / capacity_milli
            click.echo(f"{positions[-1] + 1}/{len(stream.pods)}: {allocated_pct:.2f} %", err=True)
            if 100.0 * requested_milli[positions[-1]] >= stream.measured_from_pct * capacity_milli:
                readings.append(allocated_pct)
    return float(np.mean(readings))


@asynccontextmanager
async def _api(site: Site) -> AsyncIterator[Connection]:
    access = ApiAccess(kubeconfig=str(site.server.kubeconfig), request_timeout_s=ANSWER_WITHIN_S)
    async with await connect(access, time.monotonic) as api:
        yield api


async def _each(what: Iterable[Any], call: Any) -> None:
    """Calls several at a time."""
    queue = iter(what)

    async def worker() -> None:
        for each in queue:
            await call(each)

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(worker())


def _name(number: int) -> str:
    return f"pod-{number:05d}"


def _list(objects: Iterable[Object]) -> Object:
    return {"apiVersion": "v1", "kind": "List", "items": [*objects]}


if __name__ == "__main__":
    main()
