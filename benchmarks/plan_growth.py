"""Plans of the same batch with more and more time: the price must never rise."""

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import click

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.plan_check import wrongs
from benchmarks.plan_heavy_cases import heavy_batch, random_case
from cluster.snapshot import Snapshot
from placement.batch.ladder import BatchPlan, BatchSettings, plan_batch
from placement.batch.lp.columns import Memory

TIMES_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0)
"""Planning times, from the lowest stage to the highest."""

Record = dict[str, Any]


@click.command(context_settings={"show_default": True})
@click.option("--seeds", callback=arguments.seeds, default="1-200", help="Seeds of the instances.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(seeds: tuple[int, ...], json_to: str | None) -> None:
    """Random small fleets with heavy tails, idle and in use. Exits with 1 where more time made a plan worse.

    A plan is worse that leaves out pods of a higher price, or as much and starts nodes of a higher price.
    """
    records = [measured(seed) for seed in seeds]
    if json_to:
        write_lines(json_to, records)
    worse = [record["seed"] for record in records if record["rises"]]
    better = sum(record["left_out_usd"][-1] < record["left_out_usd"][0] for record in records)
    cheaper = sum(record["node_usd"][-1] < record["node_usd"][0] - 1e-6 for record in records)
    click.echo(
        f"{len(records)} instances, {len(TIMES_S)} times each: {len(worse)} with a plan that is worse with more time "
        f"{worse[:10]}; from the shortest time to the longest {better} leave out less and {cheaper} start cheaper nodes"
    )
    if worse:
        raise SystemExit(1)


def measured(seed: int) -> Record:
    """Record of one instance at every time."""
    seen = heavy_batch(random_case(seed), seed)
    began_s = time.process_time()
    plans = plans_of(seen)
    costs = [plan.cost for plan in plans]
    return {
        "seed": seed,
        "pods": len(seen.pods.pending),
        "nodes": len(seen.nodes),
        "rungs": [plan.rung for plan in plans],
        "rounds": [plan.rounds for plan in plans],
        "left_out_usd": [round(cost.left_out_usd, 6) for cost in costs],
        "node_usd": [round(cost.node_usd, 6) for cost in costs],
        "rises": rises(plans),
        "cpu_s": round(time.process_time() - began_s, 2),
    }


def plans_of(seen: Snapshot) -> list[BatchPlan]:
    """Plan at each time, each from a cold start. Raises AssertionError for one that is not feasible."""
    plans = [plan_batch(seen, Memory(), BatchSettings(within_s=within_s)) for within_s in TIMES_S]
    for plan in plans:
        columns = (plan.seats.row.tolist(), plan.seats.node.tolist(), plan.seats.devices.tolist())
        if wrong := wrongs(seen, list(zip(*columns, strict=True))):
            raise AssertionError("; ".join(wrong[:5]))
    return plans


def rises(plans: Sequence[BatchPlan]) -> bool:
    """Whether some plan is worse than one with less time."""
    ranks = [plan.cost.rank for plan in plans]
    return any(later > earlier for earlier, later in pairwise(ranks))


if __name__ == "__main__":
    main()
