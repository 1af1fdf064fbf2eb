"""Binding side by side: Tonnage and kube-scheduler on one API server, and Tonnage with 10,000 pods running."""

import asyncio
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.binding_pods import Workload, crowd, fitting, overload
from benchmarks.binding_round import arrival_round, backlog_round
from benchmarks.binding_steady_state import running_record
from benchmarks.binding_testbed import Rig, rig_on, server_with, without_kubelets
from benchmarks.schedulers import CONTENDERS, Contender
from cluster.errors import ConfigError, ControlPlaneError, Mistake
from controller.kube.errors import KubeReadError
from simulator.controlplane.binaries.build_progress import progress_on
from simulator.controlplane.binaries.programs import Programs, control_plane_programs
from simulator.controlplane.folder import Folder
from simulator.controlplane.server import ControlPlane, down
from simulator.openb.generator import generate

Record = Mapping[str, object]
Round = Callable[[Rig, Contender, Workload], Awaitable[Record]]

PARTS = ("backlog", "arrival", "overload", "running")
USUAL = ("backlog", "overload", "running")
"""What fits into eight minutes on two quiet cores."""
PAIR = ("tonnage", "kube-scheduler")
SHOWN = {
    "contender": "",
    "bound": "bound",
    "binds_with_events_per_s": "binds/s with Events",
    "binds_per_s": "binds/s",
    "bound_s": "last bound, s",
    "told_s": "last Event, s",
    "events": "Events",
    "api_cpu_s": "API CPU s",
    "etcd_cpu_s": "etcd CPU s",
    "scheduler_cpu_s": "own CPU s",
    "allocated_pct": "GPUs allocated, %",
    "next_large": "8-GPU pods that still fit",
    "stranded_gpus": "stranded GPUs",
}
"""Columns of the tables of rounds."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be measured."""

    nodes: int
    waiting: Workload
    too_many: Workload
    crowd: Workload
    rounds: int
    churn_s: int
    churn: int
    parts: Sequence[str]
    seed: int


@click.command(context_settings={"show_default": True})
@click.option("--nodes", type=click.IntRange(1), default=1000, help="Nodes, generated with the openb fleet's kinds.")
@click.option("--pods", type=click.IntRange(1), default=4000, help="Pods that wait, of one or two whole GPUs each.")
@click.option("--rounds", type=click.IntRange(1), default=3, help="Rounds of each scheduler in `backlog`, alternating.")
@click.option("--overload-share", type=click.FloatRange(0.1), default=1.1, help="GPUs asked for over GPUs there.")
@click.option("--running", type=click.IntRange(1), default=10_000, help="Pods that run in the part `running`.")
@click.option("--churn-s", type=click.IntRange(1), default=45, help="How long pods then come and go.")
@click.option("--churn", type=click.IntRange(0), default=10, help="Pods that come, and that go, in a second of it.")
@click.option("--parts", callback=arguments.words, default=",".join(USUAL), help=f"Of {', '.join(PARTS)}.")
@click.option("--seed", type=click.IntRange(0), default=42, help="Of the fleet and of the pods.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(parts: tuple[str, ...], json_to: str | None, **given: Any) -> None:
    """Starts a control plane of its own and lets schedulers place the same pods on it, one after the other.

    \b
    backlog   all pods wait and were seen before the scheduler takes over; the clock runs from its Lease on
    arrival   it leads, and pods are created as fast as the API server takes them
    overload  more GPUs are asked for than there are; kube-scheduler also with its bin-packing strategy
    running   pods run on simulated kubelets; then all rests; then pods come and go
    """
    if unknown := [part for part in parts if part not in PARTS]:
        raise ConfigError(tuple(Mistake(f"--parts {part}", f"choose of {', '.join(PARTS)}") for part in unknown))
    signal.signal(signal.SIGTERM, _end)
    records: list[Record] = []
    failed: list[BaseException] = []
    try:
        for record in measured(_asked(parts, **given)):
            records.append(record)
            click.echo(" ".join(f"{key}={value}" for key, value in record.items()), err=True)
    except* (ControlPlaneError, KubeReadError) as several:  # watches and writers run beside each other
        failed += several.exceptions
    finally:
        if json_to:
            write_lines(json_to, records)
    console = Console(stderr=bool(json_to), width=None if sys.stdout.isatty() else 160)
    for part in parts:
        console.print(table_of(part, [record for record in records if record["part"] == part]))
    for error in failed:
        click.echo(f"error: {error}", err=True)
    if failed:
        sys.exit(1)


def _asked(
    parts: Sequence[str],
    nodes: int,
    pods: int,
    rounds: int,
    overload_share: float,
    running: int,
    churn_s: int,
    churn: int,
    seed: int,
) -> Asked:
    too_many = overload(generate(nodes, seed=seed).gpus, overload_share, seed)
    return Asked(nodes, fitting(pods, seed), too_many, crowd(running, seed), rounds, churn_s, churn, parts, seed)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """On SIGTERM: unwinds, so that the control plane is taken down."""
    del number, frame
    raise SystemExit(143)


def measured(asked: Asked) -> Iterator[Record]:
    """A record for each round. Raises ControlPlaneError."""
    programs = control_plane_programs(progress_on(sys.stderr))
    with tempfile.TemporaryDirectory(prefix="tonnage-binding-", ignore_cleanup_errors=True) as path:
        folder = Folder(Path(path))
        try:
            with_nodes = server_with(folder, programs, asked.nodes, asked.seed)
            bare = without_kubelets(with_nodes, programs)
            for part, work in _rounds(asked):
                yield {"part": part, **asyncio.run(_on(bare, programs, work))}
            if "running" in asked.parts:
                lively = server_with(folder, programs, asked.nodes, asked.seed)
                run = _running(asked)
                yield {"part": "running", "nodes": asked.nodes, **asyncio.run(_on(lively, programs, run))}
        finally:
            down(folder)


Work = Callable[[Rig], Awaitable[Record]]


async def _on(server: ControlPlane, programs: Programs, work: Work) -> Record:
    async with rig_on(server, programs) as rig:
        return await work(rig)


def _rounds(asked: Asked) -> Iterator[tuple[str, Work]]:
    """In the order in which they run: one and the other by turns, so that what drifts hits both."""
    if "backlog" in asked.parts:
        for _ in range(asked.rounds):
            for name in PAIR:
                yield "backlog", _work(backlog_round, name, asked.waiting)
    if "arrival" in asked.parts:
        for name in PAIR:
            yield "arrival", _work(arrival_round, name, asked.waiting)
    if "overload" in asked.parts:
        for name in CONTENDERS:
            yield "overload", _work(backlog_round, name, asked.too_many)


def _work(measure: Round, name: str, workload: Workload) -> Work:
    return lambda rig: measure(rig, CONTENDERS[name], workload)


def _running(asked: Asked) -> Work:
    return lambda rig: running_record(rig, asked.crowd, asked.churn_s, asked.churn)


def table_of(part: str, records: Sequence[Record]) -> Table:
    """The median of each scheduler's rounds, column by column."""
    table = Table(title=part)
    if part == "running":
        table.add_column("figure")
        table.add_column("tonnage", justify="right")
        for key, value in (records[0] if records else {}).items():
            table.add_row(key, str(value))
        return table
    for title in SHOWN.values():
        table.add_column(title, justify="right")
    for name in dict.fromkeys(str(record["contender"]) for record in records):
        mine = [record for record in records if record["contender"] == name]
        table.add_row(*(_middle([record[key] for record in mine]) for key in SHOWN))
    return table


def _middle(values: Sequence[object]) -> str:
    numbers = [value for value in values if isinstance(value, int | float)]
    return f"{median(numbers):,g}" if len(numbers) == len(values) else str(values[0])


if __name__ == "__main__":
    main()
