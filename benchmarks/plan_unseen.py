"""Planning of batches that the generator of `plan_cases` does not draw: heavy tails, fleets in use, a trace's requests.

For the operator's default time and for a long one: rounds of pricing, CPU seconds, gap, and what is left out.
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.plan_cases import fleet, odd_asks, with_batch
from benchmarks.plan_check import wrongs
from benchmarks.plan_heavy_cases import HeavyCase, heavy_batch, openb_batch
from cluster.errors import ConfigError, Mistake
from cluster.snapshot import Snapshot
from placement.batch.ladder import BatchPlan, BatchSettings, plan_batch
from placement.batch.lp.columns import Memory
from placement.batch.problem import batch_of

OPERATOR_S = 2.0
"""The operator's default time for a plan."""
LONG_S = 20.0

HEAVY: Mapping[str, HeavyCase] = {
    "heavy-30-classes": HeavyCase(200, 1_200, 30),
    "heavy-60-classes": HeavyCase(1_000, 8_000, 60),
    "heavy-140-classes": HeavyCase(1_000, 6_000, 140),
    "heavy-large": HeavyCase(3_000, 20_000, 40),
    "in-use-small": HeavyCase(100, 900, 25, 0.5),
    "in-use-30-classes": HeavyCase(500, 4_000, 30, 0.5),
    "in-use-60-classes": HeavyCase(1_000, 9_000, 60, 0.5),
    "in-use-large": HeavyCase(2_000, 18_000, 60, 0.5),
}

Record = dict[str, Any]


@click.command(context_settings={"show_default": True})
@click.option("--seeds", callback=arguments.seeds, default="1", help="Seeds of the cases.")
@click.option("--cases", "wanted", callback=arguments.words, default="", help="Cases by name; all without it.")
@click.option("--data", type=click.Path(path_type=Path), default=None, help="Folder of the openb trace.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(seeds: tuple[int, ...], wanted: tuple[str, ...], data: Path | None, json_to: str | None) -> None:
    """One process, one core; CPU seconds of the process. Every plan is verified by independent code."""
    records: list[Record] = []
    known = cases(data)
    if unknown := [name for name in wanted if name not in known]:
        raise ConfigError(tuple(Mistake(f"--cases {name}", "is unknown or has no data") for name in unknown))
    for name, make in known.items():
        if wanted and name not in wanted:
            continue
        for seed in seeds:
            seen = make(seed)
            for within_s in (OPERATOR_S, LONG_S):
                records.append(measured(name, seed, seen, within_s))
                click.echo(str(records[-1]), err=True)
    if json_to:
        write_lines(json_to, records)
    Console(stderr=bool(json_to), width=None if os.isatty(1) else 140).print(table_of(records))


def cases(data: Path | None) -> dict[str, Callable[[int], Snapshot]]:
    """Case by name, made from a seed. The trace's only where it is there; its absence is reported."""
    made: dict[str, Callable[[int], Snapshot]] = {
        "generated-odd": lambda seed: with_batch(fleet(1000, odd_asks(seed)), 10_000, seed, odd_asks(seed))
    }
    for name, case in HEAVY.items():
        made[name] = lambda seed, case=case: heavy_batch(case, seed)  # type: ignore[misc]
    folder = data or Path(os.environ.get("TONNAGE_DATA") or "../shared/data") / "openb"
    if (folder / "openb_pod_list_default.csv").is_file():
        made["openb"] = lambda seed: openb_batch(folder, 3_000, seed)
    else:
        click.echo(f"openb's requests are skipped: {folder} has no trace; set TONNAGE_DATA or --data", err=True)
    return made


def measured(name: str, seed: int, seen: Snapshot, within_s: float) -> Record:
    """Record of one case: a cold plan, and a warm one of the same batch."""
    settings = BatchSettings(within_s=within_s)
    cold_s, cold = _timed(seen, Memory(), settings)
    warm_s, warm = _timed(seen, cold.memory, settings)
    hasty = plan_batch(seen, Memory(), settings, rung="best-fit")
    batch = batch_of(seen, among=cold.startable)
    return {
        "case": name,
        "seed": seed,
        "pods": len(seen.pods.pending),
        "nodes": len(seen.nodes),
        "in_use": int(batch.in_use.sum()),
        "classes": len(batch.shapes),
        "kinds": len(batch.kinds),
        "within_s": within_s,
        "rung": cold.rung,
        "rounds": cold.rounds,
        "cold_cpu_s": round(cold_s, 2),
        "warm_cpu_s": round(warm_s, 2),
        "gap_pct": round(cold.gap * 100, 2),
        "warm_gap_pct": round(warm.gap * 100, 2),
        "node_usd": round(cold.cost.node_usd, 2),
        "best_fit_node_usd": round(hasty.cost.node_usd, 2),
        "short": int(cold.startable[cold.waiting].sum()),
        "best_fit_short": int(hasty.startable[hasty.waiting].sum()),
        "impossible": int((~cold.startable[cold.waiting]).sum()),
    }


def _timed(seen: Snapshot, memory: Memory, settings: BatchSettings) -> tuple[float, BatchPlan]:
    began_s = time.process_time()
    plan = plan_batch(seen, memory, settings)
    took_s = time.process_time() - began_s
    columns = (plan.seats.row.tolist(), plan.seats.node.tolist(), plan.seats.devices.tolist())
    if wrong := wrongs(seen, list(zip(*columns, strict=True))):
        raise ConfigError(Mistake("the plan", "; ".join(wrong[:5]), "this is a bug of the planner: please report it"))
    return took_s, plan


def table_of(records: list[Record]) -> Table:
    table = Table(title="Planning of unseen batches (engine, CPU seconds)")
    headings = ("case", "pods x nodes (in use)", "classes x kinds", "time", "rounds", "cold, warm s", "gap", "left out")
    for heading in (*headings, "best fit: nodes, left out"):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    for r in records:
        dearer = 100 * (r["best_fit_node_usd"] / r["node_usd"] - 1) if r["node_usd"] else 0.0
        table.add_row(
            r["case"],
            f"{r['pods']:,} x {r['nodes']:,} ({r['in_use']:,})",
            f"{r['classes']} x {r['kinds']}",
            f"{r['within_s']:g} s",
            str(r["rounds"]),
            f"{r['cold_cpu_s']:.2f}, {r['warm_cpu_s']:.2f}",
            f"{r['gap_pct']:.2f} %",
            f"{r['short']:,} + {r['impossible']:,}",
            f"{dearer:+.1f} %, {r['best_fit_short']:,}",
        )
    return table


if __name__ == "__main__":
    main()
