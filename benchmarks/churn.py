"""GPU allocation of packing policies on a fleet whose pods leave, at several offered loads."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input
from benchmarks.churn_runs import ChurnRun, ChurnSetup, Record, churn_runs, play
from benchmarks.packing import check_inputs
from benchmarks.trace_sweeps import NODES, finish, output_options, pods_option, with_error
from cluster.arrays import FloatArray
from simulator.packing.churn import STAYS
from simulator.sweep.runner import SweepProgress, WorkerProcesses, sweep


@click.command(context_settings={"show_default": True})
@NODES
@pods_option("Pods to draw from")
@click.option("--loads", callback=arguments.fractions, default="0.9,1.0,1.05", help="Offered loads; 1: all GPUs.")
@click.option(
    "--policies",
    callback=arguments.words,
    default="bestfit,fgd,tonnage-learning",
    help="Policies; the last is compared with each of the others.",
)
@click.option("--stays", type=click.Choice(tuple(STAYS)), default="exponential", help="Distribution of stays.")
@click.option("--warm-up", type=click.FloatRange(0), default=3.0, help="Mean stays before the measurement.")
@click.option("--measured", type=click.FloatRange(0, min_open=True), default=2.0, help="Mean stays that are averaged.")
@click.option(
    "--seeds", callback=arguments.seeds, default="42-45", help="Seeds of arrivals, stays, order of equal nodes, policy."
)
@output_options()
@refusing_bad_input
def main(
    nodes: Path,
    pods: tuple[Path, ...],
    loads: tuple[float, ...],
    policies: tuple[str, ...],
    stays: str,
    warm_up: float,
    measured: float,
    seeds: tuple[int, ...],
    jobs: int,
    json_to: str | None,
) -> None:
    """Replays arrivals and departures in a steady state under each policy, load and seed. Simulated.

    Pods are drawn from a list with replacement; a pod that does not fit is dropped. As many pods as run in the mean at
    the offered load are placed first, with the rest of their stays. The allocation, percent of all GPUs, is averaged
    over readings at each percent of the fleet's GPUs requested, after the warm-up. All policies meet the same arrivals
    and stays: the error of a difference is that of the paired differences over seeds.
    """
    setup = ChurnSetup(nodes, tuple((path.stem, path) for path in pods), stays, warm_up, measured)
    check_inputs(nodes, pods, policies)
    runs = churn_runs([name for name, _ in setup.traces], loads, seeds, policies)
    swept = sweep(runs, partial(play, setup=setup), way=WorkerProcesses(jobs), on_done=_tell)
    finish(swept, json_to, lambda records: [churn_table(records, policies)])


def churn_table(records: Sequence[Any], policies: Sequence[str]) -> Table:
    """Means over seeds by list and load, and the last policy's paired difference from each of the others."""
    *others, ours = policies
    table = Table(title="mean GPU allocation % under churn (simulated)")
    for heading in ("pods", "load", "seeds", *policies, *(f"{ours} - {other}" for other in others)):
        table.add_column(heading, justify="left" if heading == "pods" else "right")
    means: list[FloatArray] = []
    for name, load, allocation in _cells(records, policies):
        means.append(allocation.mean(axis=1))
        differences = (with_error(allocation[-1] - row) for row in allocation[:-1])
        figures = (f"{mean:.2f}" for mean in means[-1])
        table.add_row(name, f"{load:g}", str(allocation.shape[1]), *figures, *differences)
    if len(means) > 1:
        overall = np.mean(means, axis=0)
        differences = (f"{overall[-1] - one:+.2f}" for one in overall[:-1])
        table.add_row("mean", "", "", *(f"{mean:.2f}" for mean in overall), *differences, end_section=True)
    return table


def _cells(records: Sequence[Any], policies: Sequence[str]) -> Iterator[tuple[str, float, FloatArray]]:
    """Trace, load and allocation of shape (policies, seeds), over the seeds that every policy has finished."""
    found: dict[tuple[str, float], dict[str, dict[int, float]]] = {}
    for record in records:
        cell = found.setdefault((record["pods"], record["load"]), {policy: {} for policy in policies})
        cell[record["policy"]][record["seed"]] = record["allocation_pct"]
    for (name, load), cell in found.items():
        seeds = sorted(set.intersection(*(set(of_seed) for of_seed in cell.values())))
        if seeds:
            yield name, load, np.array([[cell[policy][seed] for seed in seeds] for policy in policies])


def _tell(progress: SweepProgress[ChurnRun, Record]) -> None:
    record: Any = progress.result
    click.echo(
        f"[{progress.done}/{progress.total}] {record['pods']} load {record['load']:g} {record['policy']} "
        f"seed {record['seed']}: {record['allocation_pct']:.2f} %",
        err=True,
    )


if __name__ == "__main__":
    main()
