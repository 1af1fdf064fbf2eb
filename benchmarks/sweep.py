"""Speed-up of a what-if sweep: one by one, in processes and on an embedded Ray."""

import json
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from cli.inputs.runs import cores, machine_description
from cli.printing.tables import table
from simulator.openb.generator import generate, trace_of
from simulator.openb.trace_reader import OPENB_PRICES
from simulator.packing.policy_comparison import ReplayRules, play
from simulator.packing.replay import Replay
from simulator.sweep.on_ray import SweepOnRay
from simulator.sweep.runner import Executor, PolicyRun, Swept, WorkerProcesses, one_by_one, runs_of, sweep

POLICIES = ("bestfit", "fgd", "tonnage", "tonnage-learning")


@click.command()
@click.option(
    "--runs", default=200, show_default=True, help="Number of replays; a multiple of 4, one per policy and seed."
)
@click.option("--nodes", default=100, show_default=True, help="Nodes of the generated fleet.")
@click.option("--jobs", default=cores(), show_default=True, help="Concurrent runs.")
@click.option("--seed", default=1, show_default=True, help="The first seed.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line per executor instead of a table.")
def main(*, runs: int, nodes: int, jobs: int, seed: int, as_json: bool) -> None:
    """Times include the start and stop of workers or Ray."""
    trace = f"generated-{nodes}"
    traces = {trace: trace_of(generate(nodes), OPENB_PRICES)}
    asked = runs_of((trace,), POLICIES, range(seed, seed + runs // len(POLICIES)))
    executors: dict[str, Executor] = {
        "one by one": one_by_one,
        "processes": WorkerProcesses(jobs),
        "ray": SweepOnRay(jobs=jobs),
    }
    records: list[dict[str, Any]] = []
    first: Swept[PolicyRun, Replay] | None = None
    for name, way in executors.items():
        began = time.perf_counter()
        swept = sweep(asked, partial(play, traces=traces, rules=ReplayRules()), way=way)
        took_s = time.perf_counter() - began
        if swept.stopped:
            raise click.ClickException(f"{name}: {swept.stopped}")
        first = first or swept
        records.append({"way": name, "runs": len(swept.done), "seconds": took_s, "same": _same(first, swept)})
    alone_s = records[0]["seconds"]
    for record in records:
        record |= {"speed_up": alone_s / record["seconds"], "jobs": jobs, "nodes": nodes, "seed": seed}
        record |= {"machine": machine_description(), "at": datetime.now(UTC).isoformat(timespec="seconds")}
        if as_json:
            click.echo(json.dumps(record))
    if not as_json:
        rows = [
            (str(r["way"]), str(r["runs"]), f"{r['seconds']:.1f}", f"{r['speed_up']:.2f}", "yes" if r["same"] else "NO")
            for r in records
        ]
        click.echo(table(("EXECUTOR", "RUNS", "SECONDS", "SPEED-UP", "SAME RESULTS"), rows), nl=False)


def _same(one: Swept[PolicyRun, Replay], other: Swept[PolicyRun, Replay]) -> bool:
    """Whether two sweeps placed the same pods."""
    return all(
        mine.curve.allocation_pct.tolist() == theirs.curve.allocation_pct.tolist() and mine.unplaced == theirs.unplaced
        for (_, mine), (_, theirs) in zip(one.done, other.done, strict=True)
    )


if __name__ == "__main__":
    main()
