"""GPU allocation of each packing policy on a trace, and its decision time."""

import csv
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input
from benchmarks.packing_runs import Record, Setup, play
from benchmarks.trace_sweeps import NODES, finish, output_options, pods_option
from cluster.errors import ConfigError, Mistake
from placement.policies import POLICIES
from simulator.openb.trace_reader import read_trace
from simulator.packing.replay import POINTS_PCT
from simulator.sweep.runner import PolicyRun, SweepProgress, WorkerProcesses, runs_of, sweep

PUBLISHED_NAMES = {"gpuclustering": "clustering", "gpupacking": "packing"}
"""Names of two policies in the published results."""


@click.command(context_settings={"show_default": True})
@NODES
@pods_option("Pods")
@click.option("--policies", callback=arguments.words, default=",".join(POLICIES), help="Policies, in this order.")
@click.option(
    "--seeds", callback=arguments.seeds, default="42-51", help="Seeds of arrivals, order of equal nodes, and policy."
)
@click.option("--rename-nodes", is_flag=True, help="Permute the nodes' names at random for every seed.")
@click.option(
    "--move-share", type=click.FloatRange(0, 1), default=0.0, help="Maximum fraction of placed pods that are moved."
)
@click.option(
    "--shares", type=click.Choice(["trace", "learned"]), default="trace", help="Source of the class fractions."
)
@click.option(
    "--prices",
    callback=arguments.prices,
    default="",
    help="US dollars per hour of each GPU type, for the cost of the used GPUs.",
)
@click.option("--published", type=click.Path(path_type=Path), help="CSV of published means for comparison.")
@click.option("--bound/--no-bound", default=True, help="Compute the proven bound for each.")
@output_options("Processes; times are measured within each.")
@refusing_bad_input
def main(
    nodes: Path,
    pods: tuple[Path, ...],
    policies: tuple[str, ...],
    seeds: tuple[int, ...],
    rename_nodes: bool,
    move_share: float,
    shares: str,
    prices: Mapping[str, float],
    published: Path | None,
    bound: bool,
    jobs: int,
    json_to: str | None,
) -> None:
    """Replays a trace under each policy and seed, as the FGD paper does.

    Arrivals: the shuffled trace, then samples of it until 130 % of the fleet's GPUs are requested; no departures; a pod
    that does not fit is dropped. Mean allocations are percent of all GPUs, at each percentage of arrived GPU requests.
    """
    setup = Setup(
        nodes=nodes,
        traces=tuple((path.stem, path) for path in pods),
        prices=tuple(sorted(prices.items())),
        tell_shares=shares == "trace",
        rename_nodes=rename_nodes,
        move_share=move_share,
        with_bound=bound,
        jobs=jobs,
    )
    reference = read_published(published) if published else {}
    check_inputs(nodes, pods, policies)
    names = [name for name, _ in setup.traces]
    runs = runs_of(names, policies, seeds)
    swept = sweep(runs, partial(play, setup=setup), way=WorkerProcesses(jobs), on_done=_tell)
    finish(
        swept,
        json_to,
        lambda records: [means_table(name, [r for r in records if r["pods"] == name], reference) for name in names],
    )


def check_inputs(nodes: Path, pods: Sequence[Path], policies: Sequence[str]) -> None:
    """Raises ConfigError with the errors of policies and of all files, before the first run."""
    known = ", ".join(POLICIES)
    mistakes = [
        Mistake(f"--policies {name}", "is not a policy", f"choose of {known}")
        for name in policies
        if name not in POLICIES
    ]
    for path in pods:
        try:
            read_trace(nodes, path)
        except ConfigError as error:
            mistakes.extend(error.mistakes)
    if mistakes:
        raise ConfigError(tuple(dict.fromkeys(mistakes)))


def read_published(path: Path) -> dict[tuple[str, str, str], float]:
    """Published mean allocation by (trace, policy, percent arrived)."""
    needed = ("workload", "sc_policy", "mean", "arrived_pct")
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines)
            if missing := [name for name in needed if name not in (reader.fieldnames or ())]:
                raise ConfigError(
                    tuple(Mistake(f"{path.name}, line 1, column {name}", "is missing") for name in missing)
                )
            return {
                (row["workload"], _policy_of(row["sc_policy"]), row["arrived_pct"]): float(row["mean"])
                for row in reader
            }
    except OSError as error:
        raise ConfigError(Mistake(str(path), f"cannot be read ({error.strerror})", "check the path")) from error
    except ValueError as error:
        raise ConfigError(Mistake(str(path), f"contains a mean that is not a number ({error})")) from error


def _policy_of(published: str) -> str:
    name = published.rpartition("-")[2].lower()
    return PUBLISHED_NAMES.get(name, name)


def means_table(trace: str, records: Sequence[Record], reference: Mapping[tuple[str, str, str], float]) -> Table:
    """Means over seeds for each policy with the published mean, and the closed fraction of the gap to the bound."""
    table = Table(title=f"{trace}: GPU allocation %, means over seeds")
    for heading in (
        "policy",
        "seeds",
        *(f"{pct} %" for pct in POINTS_PCT),
        "sd",
        "publ.",
        "diff",
        "bound",
        "gap closed",
    ):
        table.add_column(heading, justify="left" if heading == "policy" else "right", no_wrap=True)
    for heading in ("frag % of idle", "ms mean", "p50", "p99", "moved", "upkeep s"):
        table.add_column(heading, justify="right")
    groups: dict[str, list[Any]] = {}
    for record in records:
        groups.setdefault(str(record["policy"]), []).append(record)
    base = reference.get((trace, "fgd", "100"))
    if "fgd" in groups:
        base = _mean(groups["fgd"], "allocation_pct", "100")
    for policy, mine in groups.items():
        at_100 = [one["allocation_pct"]["100"] for one in mine]
        published = reference.get((trace, policy, "100"))
        bound = _mean(mine, "bound_pct", "100") if mine[0]["bound_pct"] else None
        closed = (np.mean(at_100) - base) / (bound - base) if bound is not None and base is not None else None
        table.add_row(
            policy,
            str(len(mine)),
            *(f"{_mean(mine, 'allocation_pct', str(pct)):.2f}" for pct in POINTS_PCT),
            f"{np.std(at_100, ddof=1):.2f}" if len(mine) > 1 else "",
            _shown(published),
            _shown(None if published is None else float(np.mean(at_100)) - published, sign="+"),
            _shown(bound),
            "" if closed is None or closed < 0 else f"{closed:.0%}",
            f"{_mean(mine, 'fragmentation_pct', '100'):.1f}",
            *(f"{_mean(mine, 'decision_ms', part):.3f}" for part in ("mean", "p50", "p99")),
            f"{np.mean([one['moved'] for one in mine]):.0f}",
            f"{np.mean([one['upkeep_s'] for one in mine]):.1f}",
        )
    return table


def _mean(records: Sequence[Any], field: str, part: str) -> float:
    return float(np.mean([record[field][part] for record in records]))


def _shown(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{value:{sign}.2f}"


def _tell(progress: SweepProgress[PolicyRun, Record]) -> None:
    record: Any = progress.result
    click.echo(
        f"[{progress.done}/{progress.total}] {record['pods']} {record['policy']} seed {record['seed']}: "
        f"{record['allocation_pct']['100']} % at 100 %, {record['decision_ms']['mean']} ms a decision",
        err=True,
    )


if __name__ == "__main__":
    main()
