"""Planning of batches: cost above the proven bound and time, cold, warm and best-fit only, by size and with
baselines."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.plan_baselines import Outcome, best_fit_decreasing, direct_model
from benchmarks.plan_cases import ASKS, Ask, churned, fleet, odd_asks, with_batch
from benchmarks.plan_check import Seat, usd_per_hour, wrongs
from cluster.clock import Clock
from cluster.errors import ConfigError, Mistake
from cluster.snapshot import Snapshot
from placement.batch.ladder import BatchPlan, BatchSettings, Rung, plan_batch
from placement.batch.lp.columns import Memory
from placement.batch.problem import batch_of
from placement.batch.proposal import proposed, reason_of

PODS_PER_NODE = 10
CHURN_SHARE = 0.02
RIVALS: Mapping[str, Callable[[Snapshot, float], Outcome]] = {
    "bfd": lambda seen, _: best_fit_decreasing(batch_of(seen)),
    "cbc": lambda seen, limit_s: direct_model(batch_of(seen), "CBC", limit_s),
    "highs": lambda seen, limit_s: direct_model(batch_of(seen), "HiGHS", limit_s),
}

Record = dict[str, Any]
T = TypeVar("T")


@click.command(context_settings={"show_default": True})
@click.option("--pods", callback=arguments.seeds, default="1000,2000,5000,10000,20000,50000", help="Batch sizes.")
@click.option(
    "--mixes", callback=arguments.words, default="even,odd", help="Requests that divide servers evenly, or not."
)
@click.option("--seeds", callback=arguments.seeds, default="1", help="Seeds of the cases.")
@click.option(
    "--churns", type=click.IntRange(0), default=40, help="Number of warm plans, each after 2 % of the pods changed."
)
@click.option(
    "--rivals", callback=arguments.words, default="", help="Baselines: bfd, cbc, highs; they take seconds to minutes."
)
@click.option(
    "--limit-s", type=click.FloatRange(0.1), default=10.0, help="Time limit of solvers, without building the model."
)
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    pods: tuple[int, ...],
    mixes: tuple[str, ...],
    seeds: tuple[int, ...],
    churns: int,
    rivals: tuple[str, ...],
    limit_s: float,
    json_to: str | None,
) -> None:
    """One process, one core. Ten pods per node, eight GPU types and CPU servers, gangs, some of them within a rack.

    Every plan is verified by code that is independent of the planner; an invalid one ends the run. A plan's time is CPU
    time from the snapshot to the assignment of pods; `as plan` adds the binds with their reasons.
    """
    unknown = [f"--mixes {m}" for m in mixes if m not in ("even", "odd")] + [
        f"--rivals {r}" for r in rivals if r not in RIVALS
    ]
    if unknown:
        raise ConfigError(tuple(Mistake(each, "is unknown") for each in unknown))
    records: list[Record] = []
    for mix in mixes:
        for count in pods:
            for seed in seeds:
                asks = ASKS if mix == "even" else odd_asks(seed)
                records.append(measured(mix, count, seed, asks, churns, rivals, limit_s))
                click.echo(f"{mix} {count} pods, seed {seed}: {records[-1]['cold']}", err=True)
    if json_to:
        write_lines(json_to, records)
    console = Console(stderr=bool(json_to), width=None if sys.stdout.isatty() else 130)
    for table in (table_of(records), *([rivals_of(records)] if rivals else [])):
        console.print(table)


def measured(
    mix: str, pods: int, seed: int, asks: Sequence[Ask], churns: int, rivals: Sequence[str], limit_s: float
) -> Record:
    """Record of one case: best-fit only, cold, warm, and by baselines."""
    first = with_batch(fleet(pods // PODS_PER_NODE, asks), pods, seed, asks)
    haste_s, hasty = _timed(first, Memory(), "best-fit", times=7)
    cold_s, cold = _timed(first, Memory(), "columns")
    as_plan_s, _ = timed(lambda: proposed(first, cold.seats, reason_of(cold)))
    warm_s, gaps, seen, memory = [], [], first, cold.memory
    for turn in range(churns):
        seen = churned(seen, CHURN_SHARE, 1000 * seed + turn, asks)
        took_s, plan = _timed(seen, memory, "columns")
        warm_s.append(took_s)
        gaps.append(plan.gap)
        memory = plan.memory
    record: Record = {
        "mix": mix,
        "pods": pods,
        "nodes": len(first.nodes),
        "gangs": len(first.gangs),
        "seed": seed,
        "best_fit": {"ms": round(haste_s * 1e3, 1), "gap_pct": _pct(hasty.usd_per_hour, cold.bound_usd)},
        "cold": _figures(cold, cold_s) | {"as_plan_s": round(cold_s + as_plan_s, 3)},
    }
    if churns:
        record["warm"] = {
            "p50_ms": round(float(np.quantile(warm_s, 0.5)) * 1e3, 1),
            "p95_ms": round(float(np.quantile(warm_s, 0.95)) * 1e3, 1),
            "mean_gap_pct": round(float(np.mean(gaps)) * 100, 3),
            "worst_gap_pct": round(float(np.max(gaps)) * 100, 3),
        }
    for rival in rivals:
        # Solvers may run in processes of their own, so their seconds are elapsed time.
        took_s, outcome = timed(lambda name=rival: RIVALS[name](first, limit_s), time.perf_counter)  # type: ignore[misc]
        record[rival] = {"seconds": round(took_s, 2), "status": outcome.status, "usd_per_hour": outcome.usd_per_hour}
        if outcome.usd_per_hour is not None:
            record[rival]["gap_pct"] = _pct(outcome.usd_per_hour, cold.bound_usd)
    return record


def _timed(seen: Snapshot, memory: Memory, rung: Rung, times: int = 1) -> tuple[float, BatchPlan]:
    """(median seconds of `times` runs, plan), after verification."""
    took = [timed(lambda: plan_batch(seen, memory, BatchSettings(), rung=rung)) for _ in range(times)]
    plan = took[0][1]
    columns = (plan.seats.row.tolist(), plan.seats.node.tolist(), plan.seats.devices.tolist())
    seats: list[Seat] = list(zip(*columns, strict=True))
    wrong = wrongs(seen, seats)
    if not len(plan.waiting) and abs(usd_per_hour(seen, seats) - plan.usd_per_hour) > 0.01:
        wrong.append(f"it costs {usd_per_hour(seen, seats):.2f} $ per hour and reports {plan.usd_per_hour:.2f}")
    if wrong:
        raise ConfigError(Mistake("the plan", "; ".join(wrong[:5]), "this is a bug of the planner: please report it"))
    return float(np.median([seconds for seconds, _ in took])), plan


def timed(work: Callable[[], T], clock: Clock = time.process_time) -> tuple[float, T]:
    """(seconds, result): CPU seconds of this process, which other work on the machine changes little."""
    began = clock()
    done = work()
    return clock() - began, done


def _figures(plan: BatchPlan, seconds: float) -> Record:
    return {
        "s": round(seconds, 3),
        "usd_per_hour": round(plan.usd_per_hour, 2),
        "bound_usd_per_hour": round(plan.bound_usd, 2),
        "gap_pct": round(plan.gap * 100, 3),
        "rounds": plan.rounds,
        "left_out": len(plan.waiting),
    }


def _pct(usd: float, bound_usd: float) -> float:
    return round((usd - bound_usd) / usd * 100, 2) if usd else 0.0


def table_of(records: Sequence[Record]) -> Table:
    table = Table(title="Planning a batch")
    for heading in ("mix", "pods", "nodes", "seed", "best fit, ms (gap)", "cold, s (gap)", "left out"):
        table.add_column(heading, justify="left" if heading == "mix" else "right")
    for heading in ("warm p50, p95, ms", "warm gap, mean (worst)"):
        table.add_column(heading, justify="right")
    for r in records:
        warm = r.get("warm")
        table.add_row(
            *(r["mix"], f"{r['pods']:,}", f"{r['nodes']:,}", str(r["seed"])),
            f"{r['best_fit']['ms']:.0f} ({r['best_fit']['gap_pct']:.1f} %)",
            f"{r['cold']['s']:.2f} ({r['cold']['gap_pct']:.2f} %)",
            str(r["cold"]["left_out"]),
            f"{warm['p50_ms']:.0f}, {warm['p95_ms']:.0f}" if warm else "",
            f"{warm['mean_gap_pct']:.2f} % ({warm['worst_gap_pct']:.2f} %)" if warm else "",
        )
    return table


def rivals_of(records: Sequence[Record]) -> Table:
    table = Table(title="The same batches by baselines (without gangs and single devices)")
    table.add_column("mix")
    for heading in ("pods", "seed", "Tonnage cold", *RIVALS):
        table.add_column(heading, justify="right")
    for r in records:
        others = [r.get(name) for name in RIVALS]
        cells = [
            ""
            if o is None
            else f"{o['gap_pct']:.2f} %, {o['seconds']:.1f} s"
            if "gap_pct" in o
            else f"none, {o['seconds']:.1f} s"
            for o in others
        ]
        cold = f"{r['cold']['gap_pct']:.2f} %, {r['cold']['s']:.1f} s"
        table.add_row(r["mix"], f"{r['pods']:,}", str(r["seed"]), cold, *cells)
    return table


if __name__ == "__main__":
    main()
