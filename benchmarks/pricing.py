"""Benefit of pricing on several cores: plans by columns with node kinds priced in turn, and by actors on Ray."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input
from benchmarks.plan_cases import churned, fleet, odd_asks, with_batch
from cli.inputs.runs import machine_description
from cluster.arrays import IntArray
from cluster.snapshot import Snapshot
from controller.brain.on_ray.ray_start import EMBEDDED, joined
from placement.batch.ladder import BatchPlan, BatchSettings, Pools, one_pool, plan_batch
from placement.batch.lp.columns import Memory
from placement.batch.lp.pricing import Pricers, PricingAnswer, PricingTask, price_in_turn, price_pool
from placement.batch.problem import Batch

PATIENCE_S = 60.0
CHURN = 0.02


@dataclass(slots=True)
class Timed:
    """Pricing with its total time."""

    pricers: Pricers
    seconds: float = 0.0

    def __call__(self, tasks: Sequence[PricingTask]) -> Sequence[PricingAnswer]:
        began_s = time.perf_counter()
        answers = self.pricers(tasks)
        self.seconds += time.perf_counter() - began_s
        return answers


class PricerActor:
    """Ray actor that prices node kinds."""

    def price(self, task: PricingTask) -> PricingAnswer:
        return price_pool(task)


def pricers_on(ray: Any, workers: int) -> Pricers:
    """Pricing by `workers` actors, one task each; waits for their first answers, so that all are up."""
    actors = [ray.remote(num_cpus=1)(PricerActor).remote() for _ in range(workers)]

    def price(tasks: Sequence[PricingTask]) -> Sequence[PricingAnswer]:
        calls = [actors[n % workers].price.remote(task) for n, task in enumerate(tasks)]
        answers: Sequence[PricingAnswer] = ray.get(calls, timeout=PATIENCE_S)
        return answers

    ray.get([actor.__ray_ready__.remote() for actor in actors], timeout=PATIENCE_S)
    return price


def dealt_to(workers: int) -> Pools:
    """Node kinds dealt in turn to `workers` pools: about equal work, because neighbouring kinds are similar."""

    def dealt(batch: Batch) -> Sequence[IntArray]:
        kinds = np.arange(len(batch.kinds))
        return [kinds[n::workers] for n in range(min(workers, len(kinds)))]

    return dealt


def case(pods: int, seed: int, ray: Any, workers: int) -> dict[str, Any]:
    """A cold and a warm plan by both methods. `same`: whether both gave the same plans."""
    asks = odd_asks(seed)
    first = with_batch(fleet(pods // 10, asks), pods, seed, asks)
    later = churned(first, CHURN, seed, asks)
    here = _both(first, later, one_pool, price_in_turn)
    there = _both(first, later, dealt_to(workers), pricers_on(ray, workers))
    record: dict[str, Any] = {"pods": pods, "seed": seed, "workers": workers, "same": here[1] == there[1]}
    for way, (seconds, _) in (("in_turn", here), ("ray", there)):
        record |= {f"{way}_{name}": round(value, 3) for name, value in seconds.items()}
    return record | {"machine": machine_description()}


def _both(
    first: Snapshot, later: Snapshot, dealt: Pools, pricers: Pricers
) -> tuple[dict[str, float], list[tuple[float, float, list[int]]]]:
    """Seconds of both plans and of pricing in them, and the contents of both plans."""
    seconds: dict[str, float] = {}
    contents = []
    memory = Memory()
    for name, seen in (("cold_s", first), ("warm_s", later)):
        timed = Timed(pricers)
        began_s = time.perf_counter()
        plan = plan_batch(seen, memory, BatchSettings(), rung="columns", dealt=dealt, pricers=timed)
        seconds |= {name: time.perf_counter() - began_s, f"{name[:4]}_pricing_s": timed.seconds}
        contents.append(_content(plan))
        memory = plan.memory
    return seconds, contents


def _content(plan: BatchPlan) -> tuple[float, float, list[int]]:
    return plan.usd_per_hour, plan.bound_usd, [*plan.seats.row.tolist(), *plan.seats.node.tolist()]


@click.command(context_settings={"show_default": True})
@click.option(
    "--pods", "sizes", callback=arguments.seeds, default="1000,2000,10000,20000", help="Batch sizes; ten pods per node."
)
@click.option(
    "--seeds", callback=arguments.seeds, default="1-3", help="Seeds of cases whose requests divide no server evenly."
)
@click.option("--workers", type=click.IntRange(1), default=2, help="Actors that price.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line for each case instead of a table.")
@refusing_bad_input
def main(sizes: tuple[int, ...], seeds: tuple[int, ...], workers: int, as_json: bool) -> None:
    """Exit status 1 when a plan differs."""
    with joined(EMBEDDED, cores=workers) as ray:
        records = [case(pods, seed, ray, workers) for pods in sizes for seed in seeds]
    if as_json:
        for record in records:
            click.echo(json.dumps(record))
    else:
        table = Table(title=f"Cold and warm plans, seconds, priced in turn and by {workers} actors")
        names = [name for name in records[0] if name not in ("machine", "workers")]
        for name in names:
            table.add_column(name, justify="right")
        for record in records:
            table.add_row(*(str(record[name]) for name in names))
        Console(width=None if sys.stdout.isatty() else 150).print(table)
    sys.exit(not all(record["same"] for record in records))


if __name__ == "__main__":
    main()
