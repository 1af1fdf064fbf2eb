"""Concurrency tuners on simulated replicas, beside the static limit that was best in hindsight.

Each workload is drawn from its family and a seed, so seeds that nothing was developed on are unseen workloads. Goodput
counts the requests of intervals that kept the guard on p95.
"""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from autoscaler.concurrency.safe_bandit import SafeBandit
from autoscaler.concurrency.tuner import Rules, Tuner
from benchmarks import arguments
from benchmarks.arguments import write_lines
from simulator.scaling.concurrency import ALLOWED_BREACHES, FAMILIES, NEAR, best_static, course, score, workload
from simulator.scaling.concurrency_baselines import Aimd, HillClimb, QLearning, Static

FIRST = 60
"""Decisions within which a tuner should be near the best static limit."""
KNATIVE_DEFAULT = 100
"""Target concurrency of a Knative revision that names none (container-concurrency-target-default)."""

Record = Mapping[str, Any]

POLICIES: Mapping[str, Callable[[Rules], Tuner[Any]]] = {
    "safe-bandit": SafeBandit,
    "hill-climb": HillClimb,
    "aimd": Aimd,
    "q-learning": QLearning,
    "q-learning-tuned": functools.partial(QLearning, step=4, epsilon=0.3),
    "static-start": lambda rules: Static(rules.start),
    "static-knative": lambda _rules: Static(KNATIVE_DEFAULT),
}
"""By name. q-learning: as in its paper; q-learning-tuned: the step and epsilon with the most goodput on seeds 1-10."""


@click.command(context_settings={"show_default": True})
@click.option("--seeds", callback=arguments.seeds, default="201-220", help="Developed on: 1-20, 101-120.")
@click.option("--workloads", callback=arguments.words, default=",".join(FAMILIES))
@click.option("--policies", callback=arguments.words, default=",".join(POLICIES))
@click.option("--decisions", type=click.IntRange(2 * FIRST), default=240, help="Intervals of each run.")
@click.option("--start", type=click.IntRange(1, 1024), default=8, help="Limit at the start of each run.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
def main(
    seeds: tuple[int, ...],
    workloads: tuple[str, ...],
    policies: tuple[str, ...],
    decisions: int,
    start: int,
    json_to: str | None,
) -> None:
    """Runs each policy on each workload, and prints how near it comes to the best static limit."""
    _refuse_unknown("--workloads", workloads, FAMILIES)
    _refuse_unknown("--policies", policies, POLICIES)
    records: list[Record] = []
    for family in workloads:
        for seed in seeds:
            records += _records(family, seed, policies, decisions, start)
        click.echo(f"{family}: {len(seeds)} seeds", err=True)
    if json_to:
        write_lines(json_to, records)
    console = Console(stderr=bool(json_to), width=120)
    for policy in policies:
        console.print(policy_table(policy, [record for record in records if record["policy"] == policy]))


def _refuse_unknown(option: str, names: Sequence[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint=option)


def _records(family: str, seed: int, policies: Sequence[str], decisions: int, start: int) -> list[Record]:
    drawn = workload(family, seed, decisions)
    best = best_static(drawn)
    told = {"simulated": True, "workload": family, "seed": seed, "best_limit": int(best.limit[0])}
    found: list[Record] = []
    for policy in policies:
        tuner = POLICIES[policy](Rules(drawn.guard_s, start=start))
        begin = tuner.limit if isinstance(tuner, Static) else start
        run = course(tuner, drawn, begin)
        found.append({**told, "policy": policy, "start": begin, **asdict(score(run, best, FIRST))})
    return found


def policy_table(policy: str, records: Sequence[Record]) -> Table:
    """Scores of one policy by workload: means over the seeds, and the worst seed."""
    table = Table(title=f"{policy} (simulated); goodput over the best static limit's")
    headings = ("goodput", f"after {FIRST}", "worst seed", f"≥ {NEAR:.0%}", "until near: median, last", "breaches")
    for heading in ("workload", *headings, f"in first {FIRST}", "changes"):
        table.add_column(heading, justify="left" if heading == "workload" else "right")
    for family in (*dict.fromkeys(record["workload"] for record in records), "all"):
        own = [record for record in records if family in (record["workload"], "all")]
        table.add_row(family, *_cells(own))
    return table


def _cells(records: Sequence[Record]) -> tuple[str, ...]:
    def mean(field: str) -> float:
        return sum(float(record[field]) for record in records) / len(records)

    later = [float(record["later_ratio"]) for record in records]
    until = [record["near_after"] if record["near_after"] is not None else float("inf") for record in records]
    breaches = mean("breach_share")
    return (
        f"{mean('goodput_ratio'):.3f}",
        f"{mean('later_ratio'):.3f}",
        f"{min(later):.3f}",
        f"{sum(ratio >= NEAR for ratio in later)}/{len(later)}",
        f"{median(until):.0f}, {max(until):.0f}",
        f"{breaches:.2%}" + ("" if breaches <= ALLOWED_BREACHES else " !"),
        f"{mean('first_breach_share'):.2%}",
        f"{mean('changes_share'):.1%}",
    )


if __name__ == "__main__":
    main()
