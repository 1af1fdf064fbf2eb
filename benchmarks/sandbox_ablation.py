"""What each step of isolation buys (simulated): runs of the model without one of them at a time."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np
from rich.console import Console

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.sandboxes import table
from isolation.settings import Leases, Rung, Settings
from simulator.sandboxes.model import Model
from simulator.sandboxes.runs import OURS, Case, SandboxRun, agents_of, runs_of
from simulator.sandboxes.traces import published

NEVER_S = 1e9


def variants() -> dict[str, Settings]:
    """Name → settings: all, then without one step, or with one rule replaced by none."""
    full = Settings()
    without = {
        f"without {rung}": replace(full, rungs=tuple(each for each in full.rungs if each != rung))
        for rung in get_args(Rung)
        if rung != "reclaim"  # only with swap
    }
    return {
        "all": full,
        **without,
        "no ladder": replace(full, rungs=()),
        "no ageing": replace(full, starvation_s=NEVER_S),
        "no bound of freezing": replace(full, frozen_s=NEVER_S),
    }


@click.command(context_settings={"show_default": True})
@click.option("--case", type=click.Choice(get_args(Case)), default="infeasible", help="Agents and budget.")
@click.option("--seeds", callback=arguments.seeds, default="1-100", help="Seeds of traces, starts and errors of hints.")
@click.option("--traces", type=click.Path(path_type=Path), help="Published traces for `mixed`.")
@click.option("--agents", type=click.IntRange(2), default=16, help="Agents of `mixed`.")
@click.option("--density", type=click.FloatRange(1.0), default=3.5, help="As of benchmarks.sandboxes.")
@click.option("--guarantees/--no-guarantees", default=True, help="Whether memory is kept for the high agents.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    case: Case,
    seeds: tuple[int, ...],
    traces: Path | None,
    agents: int,
    density: float,
    guarantees: bool,
    json_to: str | None,
) -> None:
    """Replays a case in the model with every variant, with whole claims and with growing leases."""
    known = published(traces) if traces else ()
    records: list[dict[str, Any]] = []
    for seed in seeds:
        chance = np.random.default_rng(seed)
        chosen, budget_mib = agents_of(case, seed, chance, known, agents, density)
        about = {"case": case, "seed": seed, "guarantees": guarantees}
        for run in runs_of(("unlimited", *OURS), chosen, budget_mib, 1.0, 1.0, chance):
            records += [about | record for record in _ablated(run, guarantees=guarantees)]
    if json_to:
        write_lines(json_to, records)
    if json_to != "-":
        Console().print(table(f"{case}, model", records))


def _ablated(run: SandboxRun, *, guarantees: bool) -> list[dict[str, Any]]:
    if run.policy == "unlimited":
        return [asdict(Model(run, Settings()).result())]
    leases: Leases = "whole" if run.policy == "whole-claims" else "growing"
    made = {f"{run.policy}, {name}": replace(each, leases=leases) for name, each in variants().items()}
    if leases == "growing":
        made[f"{run.policy}, without shrinking"] = replace(Settings(), leases=leases, lease_slack_bytes=1 << 60)
    return [asdict(Model(run, each, guarantees=guarantees).result()) | {"policy": name} for name, each in made.items()]


if __name__ == "__main__":
    main()
