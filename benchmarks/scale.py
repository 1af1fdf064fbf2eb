"""Time of a placement decision on partly used fleets of increasing size."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from cluster.arrays import IntArray, Names
from cluster.errors import ConfigError, Mistake
from cluster.nodes import NodeTable
from cluster.snapshot import PodTable, Snapshot
from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Knowledge
from placement.policies import POLICIES, policy_named
from simulator.openb.generator import generate, trace_of
from simulator.openb.trace_reader import read_trace
from simulator.packing.replay import gpu_milli_of, published_stream

Record = Mapping[str, object]


@click.command(context_settings={"show_default": True})
@click.option(
    "--nodes", type=click.Path(path_type=Path), help="Fleet, CSV in the openb format; default: a generated one."
)
@click.option("--pods", type=click.Path(path_type=Path), help="Pods, CSV in the openb format.")
@click.option("--policies", callback=arguments.words, default="bestfit,fgd,tonnage", help="Policies.")
@click.option("--sizes", callback=arguments.seeds, default="1213,5000,20000", help="Fleet sizes, nodes.")
@click.option("--loads", callback=arguments.seeds, default="50,90", help="Used GPUs during the measurement, percent.")
@click.option("--warm-up", type=click.IntRange(0), default=500, help="Decisions before the timed ones.")
@click.option("--decisions", type=click.IntRange(1), default=2000, help="Timed decisions.")
@click.option("--seed", type=click.IntRange(0), default=42, help="Seed of arrivals, order of equal nodes, and policy.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    nodes: Path | None,
    pods: Path | None,
    policies: tuple[str, ...],
    sizes: tuple[int, ...],
    loads: tuple[int, ...],
    warm_up: int,
    decisions: int,
    seed: int,
    json_to: str | None,
) -> None:
    """Times decisions one by one in one process.

    A policy fills the fleet of the trace up to the load; nodes and running pods are then repeated up to each size. Then
    pods arrive: `first` is the first decision with an empty cache; the warm-up is not counted; the rest is timed.
    """
    if unknown := [name for name in policies if name not in POLICIES]:
        raise ConfigError(tuple(Mistake(f"--policies {name}", f"choose of {', '.join(POLICIES)}") for name in unknown))
    if (nodes is None) != (pods is None):
        raise ConfigError(Mistake("--nodes and --pods", "only one is given", "give both, or neither"))
    trace = read_trace(nodes, pods) if nodes and pods else trace_of(generate(1213, seed=seed), {})
    records: list[Record] = []
    for policy in policies:
        for load in loads:
            used = filled(trace, policy, load, seed)
            for size in sizes:
                records.append(timed(used, policy, size, load, warm_up, decisions, seed))
                click.echo(f"{policy} on {size} nodes at {load} %: {records[-1]['decision_ms']}", err=True)
    if json_to:
        write_lines(json_to, records)
    Console(stderr=bool(json_to), width=None if sys.stdout.isatty() else 110).print(table_of(records))


def filled(trace: Snapshot, policy_name: str, load_pct: float, seed: int) -> Snapshot:
    """The trace's fleet with running pods up to this load of the GPUs, percent."""
    packer = _packer(trace, trace, policy_name, seed)
    _, gpu_milli = gpu_milli_of(trace.pods)
    most = load_pct * 10.0 * float(trace.nodes.gpus.sum())
    held: list[tuple[int, int, int]] = []
    in_use = 0
    for index in published_stream(trace, seed):
        shape = trace.pods.shapes[index]
        packer.policy.arrived(shape)
        packer.policy.upkeep(packer.ledger)
        choice = packer.choose(shape)
        if choice is None:
            continue
        packer.place(shape, choice)
        held.append((int(index), choice.node, choice.devices))
        in_use += int(gpu_milli[index])
        if in_use >= most:
            break
    columns = np.array(held, dtype=np.int64).reshape(-1, 3).T
    return replace(trace, pods=_running(trace.pods, columns[0], columns[1], columns[2]))


def _running(pods: PodTable, shape: IntArray, node: IntArray, devices: IntArray) -> PodTable:
    count = len(shape)
    return PodTable(
        names=Names(f"running/{number}" for number in range(count)),
        shape=shape,
        shapes=pods.shapes,
        node=node,
        devices=devices,
        priority=np.zeros(count, dtype=np.int64),
        gang=np.full(count, -1, dtype=np.int64),
        owner=("",) * count,
        movable=np.ones(count, dtype=bool),
    )


def repeated(used: Snapshot, size: int) -> Snapshot:
    """The fleet repeated up to `size` nodes, each with its running pods."""
    nodes, pods = used.nodes, used.pods
    row = np.arange(size) % len(nodes)
    copies = [np.flatnonzero(pods.node + start < size) for start in range(0, size, len(nodes))]
    held = np.concatenate(copies)
    at = np.concatenate([pods.node[copy] + turn * len(nodes) for turn, copy in enumerate(copies)])
    return replace(
        used,
        nodes=NodeTable(
            names=Names(f"node-{number:06d}" for number in range(size)),
            cpu_milli=nodes.cpu_milli[row],
            memory_bytes=nodes.memory_bytes[row],
            gpus=nodes.gpus[row],
            gpu_type=nodes.gpu_type[row],
            schedulable=nodes.schedulable[row],
            labels=tuple(nodes.labels[int(n)] for n in row),
            taints=tuple(nodes.taints[int(n)] for n in row),
        ),
        pods=_running(pods, pods.shape[held], at, pods.devices[held]),
    )


def timed(
    used: Snapshot, policy_name: str, size: int, load_pct: float, warm_up: int, decisions: int, seed: int
) -> Record:
    """Decision times on the repeated fleet. Arrivals are drawn from the running pods."""
    fleet = repeated(used, size)
    packer = _packer(fleet, used, policy_name, seed)
    chance = np.random.default_rng([seed, size])
    drawn = chance.choice(used.pods.shape, warm_up + decisions)
    spent_s = np.zeros(len(drawn))
    for number, index in enumerate(drawn):
        shape = used.pods.shapes[index]
        began = time.perf_counter()
        packer.policy.arrived(shape)
        choice = packer.choose(shape)
        if choice is not None:
            packer.place(shape, choice)
        spent_s[number] = time.perf_counter() - began
        packer.policy.upkeep(packer.ledger)
    times_ms = spent_s[warm_up:] * 1000.0
    return {
        "nodes": size,
        "policy": policy_name,
        "load_pct": load_pct,
        "decisions": decisions,
        "decision_ms": {
            "mean": round(float(times_ms.mean()), 4),
            "p50": round(float(np.quantile(times_ms, 0.5)), 4),
            "p99": round(float(np.quantile(times_ms, 0.99)), 4),
            "first": round(float(spent_s[0]) * 1000.0, 4),
        },
    }


def _packer(fleet: Snapshot, trace: Snapshot, policy_name: str, seed: int) -> Packer:
    expected = tuple(trace.pods.shapes[index] for index in trace.pods.shape)
    return Packer.of(fleet, policy_named(policy_name, Knowledge(fleet, expected, seed)), content_rank(fleet, seed))


def table_of(records: Sequence[Record]) -> Table:
    table = Table(title="Decision time, ms, one process")
    for heading in ("policy", "GPU in use", "nodes", "mean", "p50", "p99", "first"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for record in records:
        times: Any = record["decision_ms"]
        table.add_row(
            str(record["policy"]),
            f"{record['load_pct']} %",
            str(record["nodes"]),
            *(f"{times[part]:.3f}" for part in ("mean", "p50", "p99", "first")),
        )
    return table


if __name__ == "__main__":
    main()
