"""Plans that the operator makes itself past the deadline: pods placed and CPU seconds, beside other planners."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.plan import PODS_PER_NODE
from benchmarks.plan_cases import fleet, odd_asks, with_batch
from cluster.actions import Bind
from cluster.clock import Clock
from cluster.errors import ConfigError, Mistake
from cluster.plans import Plan
from cluster.snapshot import PENDING, Snapshot
from controller.brain.remote import LATE_POLICY, LATE_S, late_decisions
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import PlanRequest, planned
from placement.batch.ladder import BatchSettings, plan_batch, seated
from placement.batch.lp.columns import Memory
from placement.batch.problem import SYSTEM_PRIORITY

PLANNERS: Mapping[str, Decisions] = {
    "fallback": late_decisions(Decisions()),
    "columns": Decisions(planner="columns", within_s=LATE_S, batch=BatchSettings(within_s=LATE_S)),
    "packing": Decisions(policy=LATE_POLICY, within_s=LATE_S),
}
"""fallback: what the operator takes past the deadline. columns, packing: the planners of these names, in the same time;
packing by best fit."""

Record = dict[str, Any]


@click.command(context_settings={"show_default": True})
@click.option("--pods", callback=arguments.seeds, default="10000,50000,200000", help="Numbers of pods, ten a node.")
@click.option("--waiting", type=click.FloatRange(0, 1), default=0.2, help="Fraction of the pods that are pending.")
@click.option("--priorities", type=click.IntRange(1), default=1, help="Number of priorities among the pending pods.")
@click.option("--impossible", type=click.IntRange(0), default=0, help="Pods of the highest priority that fit nowhere.")
@click.option("--planners", callback=arguments.words, default="fallback,columns,packing", help="Planners to compare.")
@click.option("--seed", type=int, default=1, help="Seed of the case.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    pods: tuple[int, ...],
    waiting: float,
    priorities: int,
    impossible: int,
    planners: tuple[str, ...],
    seed: int,
    json_to: str | None,
) -> None:
    """One process, one core. Seconds are CPU time of the process, from the snapshot to the plan with its reasons."""
    if unknown := [name for name in planners if name not in PLANNERS]:
        raise ConfigError(tuple(Mistake(f"--planners {name}", "is unknown") for name in unknown))
    records: list[Record] = []
    for count in pods:
        seen = running(count, waiting, priorities, impossible, seed)
        for name in planners:
            records.append(measured(name, seen))
            click.echo(str(records[-1]), err=True)
    if json_to:
        write_lines(json_to, records)
    Console(stderr=bool(json_to)).print(table_of(records))


def running(pods: int, waiting: float, priorities: int, impossible: int, seed: int) -> Snapshot:
    """A fleet on which all pods of a batch run but the fraction `waiting`, whole gangs of it."""
    asks = odd_asks(seed)
    seen = with_batch(fleet(pods // PODS_PER_NODE, asks), pods, seed, asks)
    plan = plan_batch(seen, Memory(), BatchSettings(), rung="best-fit")
    after = seated(seen, plan.seats)
    chance = np.random.default_rng([seed, pods])
    gang_waits = np.append(chance.random(len(seen.gangs)) < waiting, False)
    waits = np.where(seen.pods.gang >= 0, gang_waits[seen.pods.gang], chance.random(pods) < waiting)
    order = np.append(chance.integers(0, priorities, len(seen.gangs)), 0)
    priority = np.where(seen.pods.gang >= 0, order[seen.pods.gang], chance.integers(0, priorities, pods))
    node, devices = np.where(waits, PENDING, after.pods.node), np.where(waits, 0, after.pods.devices)
    shape = seen.pods.shape.copy()
    shapes = seen.pods.shapes
    if impossible:
        # All devices of a server: eligible nodes exist, and without their pods it would fit.
        shapes = (
            *shapes,
            replace(shapes[-1], cpu_milli=1000, memory_bytes=2**30, gpus=8, gpu_milli=1000, gpu_types=("H200",)),
        )
        chosen = np.flatnonzero(waits & (seen.pods.gang < 0))[:impossible]
        shape[chosen], priority[chosen] = len(shapes) - 1, priorities
    priority = np.where(waits, priority, min(priorities, SYSTEM_PRIORITY - 1))
    table = replace(after.pods, node=node, devices=devices, priority=priority, shape=shape, shapes=shapes)
    return replace(after, pods=table)


def measured(name: str, seen: Snapshot) -> Record:
    """Record of one plan: pods that it places, and its CPU seconds."""
    began_s = time.process_time()
    plan = _planned(seen, PLANNERS[name], time.process_time)
    took_s = time.process_time() - began_s
    binds = sum(isinstance(action, Bind) for action in plan.actions)
    return {
        "planner": name,
        "pods": len(seen.pods),
        "nodes": len(seen.nodes),
        "waiting": len(seen.pods.pending),
        "placed": binds,
        "cpu_s": round(took_s, 3),
        "cut_short": [reason.code for reason in plan.cut_short],
    }


def _planned(seen: Snapshot, decisions: Decisions, clock: Clock) -> Plan:
    return planned(seen, PlanRequest(decisions, LATE_S, clock))


def table_of(records: list[Record]) -> Table:
    table = Table(title=f"Plans within {LATE_S:g} s")
    for heading in ("pods", "nodes", "waiting", "planner", "placed", "CPU s"):
        table.add_column(heading, justify="left" if heading == "planner" else "right")
    for r in records:
        figures = (f"{r['pods']:,}", f"{r['nodes']:,}", f"{r['waiting']:,}", r["planner"], f"{r['placed']:,}")
        table.add_row(*figures, f"{r['cpu_s']:.2f}")
    return table


if __name__ == "__main__":
    main()
