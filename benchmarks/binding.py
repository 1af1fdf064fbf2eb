"""Binding compared: Tonnage and kube-scheduler on one API server, and Tonnage with 10,000 running pods."""

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
from controller.kube.request import KubeReadError
from simulator.controlplane.binaries import Programs, control_plane_programs, progress_on
from simulator.controlplane.commands import Folder
from simulator.controlplane.server import ControlPlane, down
from simulator.openb.generator import generate

Record = Mapping[str, object]
Round = Callable[[Rig, Contender, Workload], Awaitable[Record]]

PARTS = ("backlog", "arrival", "overload", "running")
USUAL = ("backlog", "overload", "running")
"""Default parts, which take eight minutes on two idle cores."""
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
class BindingSetup:
    """Sizes and parts of a measurement."""

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
@click.option("--pods", type=click.IntRange(1), default=4000, help="Pending pods, of one or two whole GPUs each.")
@click.option("--rounds", type=click.IntRange(1), default=3, help="Rounds of each scheduler in `backlog`, alternating.")
@click.option("--overload-share", type=click.FloatRange(0.1), default=1.1, help="Requested GPUs over existing GPUs.")
@click.option("--running", type=click.IntRange(1), default=10_000, help="Running pods in the part `running`.")
@click.option("--churn-s", type=click.IntRange(1), default=45, help="Duration of the churn then, s.")
@click.option("--churn", type=click.IntRange(0), default=10, help="Pods created and deleted per second of churn.")
@click.option("--parts", callback=arguments.words, default=",".join(USUAL), help=f"Of {', '.join(PARTS)}.")
@click.option("--seed", type=click.IntRange(0), default=42, help="Seed of the fleet and of the pods.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(parts: tuple[str, ...], json_to: str | None, **given: Any) -> None:
    """Starts its own control plane and lets schedulers place the same pods on it, one after the other.

    \b
    backlog   all pods are pending and observed before the scheduler leads; time runs from its Lease
    arrival   the scheduler leads, and pods are created as fast as the API server accepts them
    overload  more GPUs are requested than exist; kube-scheduler also with its bin-packing strategy
    running   pods run on simulated kubelets; then an idle phase; then churn
    """
    if unknown := [part for part in parts if part not in PARTS]:
        raise ConfigError(tuple(Mistake(f"--parts {part}", f"choose of {', '.join(PARTS)}") for part in unknown))
    signal.signal(signal.SIGTERM, _end)
    records: list[Record] = []
    failed: list[BaseException] = []
    try:
        for record in measured(_setup(parts, **given)):
            records.append(record)
            click.echo(" ".join(f"{key}={value}" for key, value in record.items()), err=True)
    except* (ControlPlaneError, KubeReadError) as several:  # watches and writers run concurrently
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


def _setup(
    parts: Sequence[str],
    nodes: int,
    pods: int,
    rounds: int,
    overload_share: float,
    running: int,
    churn_s: int,
    churn: int,
    seed: int,
) -> BindingSetup:
    too_many = overload(generate(nodes, seed=seed).gpus, overload_share, seed)
    return BindingSetup(nodes, fitting(pods, seed), too_many, crowd(running, seed), rounds, churn_s, churn, parts, seed)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM handler: unwinds, so that the control plane is stopped."""
    del number, frame
    raise SystemExit(143)


def measured(setup: BindingSetup) -> Iterator[Record]:
    """One record per round. Raises ControlPlaneError."""
    programs = control_plane_programs(progress_on(sys.stderr))
    with tempfile.TemporaryDirectory(prefix="tonnage-binding-", ignore_cleanup_errors=True) as path:
        folder = Folder(Path(path))
        try:
            with_nodes = server_with(folder, programs, setup.nodes, setup.seed)
            bare = without_kubelets(with_nodes, programs)
            for part, work in _rounds(setup):
                yield {"part": part, **asyncio.run(_on(bare, programs, work))}
            if "running" in setup.parts:
                lively = server_with(folder, programs, setup.nodes, setup.seed)
                run = _running(setup)
                yield {"part": "running", "nodes": setup.nodes, **asyncio.run(_on(lively, programs, run))}
        finally:
            down(folder)


Work = Callable[[Rig], Awaitable[Record]]


async def _on(server: ControlPlane, programs: Programs, work: Work) -> Record:
    async with rig_on(server, programs) as rig:
        return await work(rig)


def _rounds(setup: BindingSetup) -> Iterator[tuple[str, Work]]:
    """Rounds in order of execution: the schedulers alternate, so that drift affects both."""
    if "backlog" in setup.parts:
        for _ in range(setup.rounds):
            for name in PAIR:
                yield "backlog", _work(backlog_round, name, setup.waiting)
    if "arrival" in setup.parts:
        for name in PAIR:
            yield "arrival", _work(arrival_round, name, setup.waiting)
    if "overload" in setup.parts:
        for name in CONTENDERS:
            yield "overload", _work(backlog_round, name, setup.too_many)


def _work(measure: Round, name: str, workload: Workload) -> Work:
    return lambda rig: measure(rig, CONTENDERS[name], workload)


def _running(setup: BindingSetup) -> Work:
    return lambda rig: running_record(rig, setup.crowd, setup.churn_s, setup.churn)


def table_of(part: str, records: Sequence[Record]) -> Table:
    """Medians of each scheduler's rounds, by column."""
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
