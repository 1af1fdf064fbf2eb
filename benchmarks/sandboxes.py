"""Agents' sandboxes replayed in a real guest kernel: survival, kills and slow-down under isolation and its rivals.

All seeds and policies run in the same guest, one after the other, the policies of a seed in an order that the seed
draws, so that no policy has the busier machine by its place. Killers by pressure stall information need a kernel that
has it: they are left out in User-Mode Linux, and run on the emulated machine.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from cluster.errors import ConfigError, GuestError, Mistake
from simulator.kernel.guest import Guest, Kernel, booted
from simulator.sandboxes.model import MODELLED, modelled
from simulator.sandboxes.replay import TIMEOUT_FACTOR
from simulator.sandboxes.runs import (
    PRESSURE,
    AgentResult,
    Case,
    SandboxPolicyName,
    SandboxResult,
    SandboxRun,
    agents_of,
    as_json,
    runs_of,
)
from simulator.sandboxes.traces import published

Record = Mapping[str, object]

BOOTSTRAPS = 2000


@click.command(context_settings={"show_default": True})
@click.option("--case", type=click.Choice(get_args(Case)), default="trio", help="Agents and budget.")
@click.option("--seeds", callback=arguments.seeds, default="1-20", help="Seeds of traces, starts and errors of hints.")
@click.option("--policies", callback=arguments.words, default=",".join(get_args(SandboxPolicyName)), help="Policies.")
@click.option(
    "--traces", type=click.Path(path_type=Path), help="Published traces for `mixed`; default: generated ones."
)
@click.option("--agents", type=click.IntRange(2), default=16, help="Agents of `mixed`.")
@click.option(
    "--density", type=click.FloatRange(1.0), default=3.5, help="Static limits' sum over the budget of `mixed`."
)
@click.option("--memory-scale", type=float, default=0.25, help="Replayed over true memory.")
@click.option("--time-scale", type=float, default=0.1, help="Replayed over true time.")
@click.option(
    "--kernel",
    type=click.Choice(["guest", "emulated", "model"]),
    default="guest",
    help="User-Mode Linux, an emulated machine with PSI, or a model: exact times, seconds for a hundred seeds.",
)
@click.option("--guest-mib", type=int, default=1024, help="Memory of the guest.")
@click.option(
    "--also", type=click.Path(path_type=Path, exists=True), multiple=True, help="JSON lines of other seeds to count in."
)
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    case: Case,
    seeds: tuple[int, ...],
    policies: tuple[str, ...],
    traces: Path | None,
    agents: int,
    density: float,
    memory_scale: float,
    time_scale: float,
    kernel: str,
    guest_mib: int,
    also: tuple[Path, ...],
    json_to: str | None,
) -> None:
    """Replays agents and prints what became of them, medians with 95 % intervals over the seeds.

    high time, low time: of agents that lived, over the same agent's in `unlimited`, as is the peak of memory. killed,
    refused: tool calls.

    trio: three agents with colliding bursts on 87 % of their summed peaks. infeasible: the same on 55 %. mixed: many
    agents with random phases, one in four of them of high priority, on a fraction of the static limits' sum.
    """
    if unknown := set(policies) - set(get_args(SandboxPolicyName)):
        raise ConfigError(Mistake("--policies", f"unknown: {', '.join(sorted(unknown))}"))
    known = published(traces) if traces else ()
    runs: dict[int, list[SandboxRun]] = {}
    for seed in seeds:
        chance = np.random.default_rng(seed)
        chosen, budget_mib = agents_of(case, seed, chance, known, agents, density)
        able = tuple(one for one in policies if kernel == "emulated" or one not in PRESSURE)
        runs[seed] = list(runs_of(able, chosen, budget_mib, memory_scale, time_scale, chance))
    records: list[dict[str, Any]] = []
    failure = ""
    try:
        machine: Kernel = "emulated" if kernel == "emulated" else "uml"
        for record in _modelled(runs) if kernel == "model" else _in_one_guest(runs, guest_mib, machine):
            records += [{"case": case} | record]
    except GuestError as error:  # what was replayed before is not lost
        failure = f"error: {error}"
    if json_to:
        write_lines(json_to, records)
    if json_to != "-":
        others = [json.loads(line) for path in also for line in path.read_text(encoding="utf-8").splitlines()]
        Console().print(table(f"{case}, {kernel}", others + records))
    if failure:
        click.echo(failure, err=True)
        sys.exit(1)


def _modelled(runs: Mapping[int, Sequence[SandboxRun]]) -> Iterator[dict[str, Any]]:
    for seed, chosen in runs.items():
        yield from ({"seed": seed} | asdict(modelled(run)) for run in chosen if run.policy in MODELLED)


def _in_one_guest(runs: Mapping[int, Sequence[SandboxRun]], guest_mib: int, kernel: Kernel) -> Iterator[dict[str, Any]]:
    with booted(memory_mib=guest_mib, kernel=kernel) as guest:
        _replayed(guest, next(iter(runs.values()))[0])  # thrown away: it pays for the first touch of the guest's memory
        for seed, chosen in runs.items():
            for index in np.random.default_rng([seed, 1]).permutation(len(chosen)):
                yield {"seed": seed} | _replayed(guest, chosen[index])
                click.echo(f"seed {seed} {chosen[index].policy}: done", err=True)


def _replayed(guest: Guest, run: SandboxRun) -> dict[str, Any]:
    within_s = 60 + TIMEOUT_FACTOR * run.time_scale * max(agent.for_s + 60 for agent in run.agents)
    result = guest.call("simulator.sandboxes.replay:run_in_guest", as_json(run), within_s=within_s)
    agents = tuple(AgentResult(**agent) for agent in result.pop("agents"))
    return asdict(SandboxResult(agents=agents, **result))


def table(title: str, records: Sequence[dict[str, Any]]) -> Table:
    """One row for each policy."""
    made = Table(title=f"{title}: {len({record['seed'] for record in records})} seeds, load {os.getloadavg()[0]:.1f}")
    for column in (
        "policy",
        "all live",
        "high dead",
        "low dead",
        "OOM kills",
        "killed",
        "refused",
        "high time",
        "low time",
        "peak",
    ):
        made.add_column(column, justify="left" if column == "policy" else "right")
    free = {record["seed"]: record for record in records if record["policy"] == "unlimited"}
    for policy in sorted({record["policy"]: None for record in records}, key=_place):
        made.add_row(policy, *_cells([record for record in records if record["policy"] == policy], free))
    return made


def _place(policy: str) -> int:
    """As the policies are listed; others behind them, in the order in which they first appear."""
    known = get_args(SandboxPolicyName)
    return known.index(policy) if policy in known else len(known)


def _cells(rows: Sequence[dict[str, Any]], free: Mapping[int, dict[str, Any]]) -> Iterator[str]:
    agents = [agent for row in rows for agent in row["agents"]]
    yield f"{sum(all(agent['survived'] for agent in row['agents']) for row in rows)}/{len(rows)}"
    for priority in (1, 0):
        yield str(sum(agent["priority"] == priority and not agent["survived"] for agent in agents))
    yield str(sum(row["kernel_kills"] for row in rows))
    yield f"{sum(agent['killed_calls'] for agent in agents)}/{sum(agent['calls'] for agent in agents)}"
    yield str(sum(agent["refused_calls"] for agent in agents))
    for priority in (1, 0):
        yield _slow_down(rows, free, priority)
    yield _median([row["peak_mib"] / free[row["seed"]]["peak_mib"] for row in rows if row["seed"] in free])


def _slow_down(rows: Sequence[dict[str, Any]], free: Mapping[int, dict[str, Any]], priority: int) -> str:
    ratios = [
        agent["for_s"] / reference["for_s"]
        for row in rows
        if row["seed"] in free
        for agent, reference in zip(row["agents"], free[row["seed"]]["agents"], strict=True)
        if agent["priority"] == priority and agent["survived"]
    ]
    return _median(ratios) + (f", P95 {np.percentile(ratios, 95):.2f}" if ratios else "")


def _median(values: Sequence[float]) -> str:
    """Median with the 95 % interval of a bootstrap."""
    if not values:
        return "-"
    chance = np.random.default_rng(0)
    medians = np.median(chance.choice(np.array(values), (BOOTSTRAPS, len(values))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return f"{np.median(values):.2f} [{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    main()
