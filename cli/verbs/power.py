"""`tonnage power` and `tonnage simulate power`: power of PowerDomains, and of a simulated row under a budget."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.cluster import ClusterAccess, cluster_options, listed
from cli.inputs.options import adding, output_choice, report_option, setting
from cli.inputs.runs import executor_of, parallel_options, report_facts, save_report
from cli.printing.terminal import FAILED, VerbGroup, stopped_status
from cluster.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from cli.printing.power_domain_output import ReportedDomain
    from simulator.power.study import Study


UNSAFE = 1
CSV = click.Path(path_type=Path)
row_options: Callable[[Callable[..., None]], Callable[..., None]] = adding(
    click.option("--row", type=click.Path(path_type=Path), metavar="YAML",
                 help="Row of pools (docs/power-simulation.md). [default: A100 servers that chat]"),
    click.option("--grow", default="", callback=lambda _, __, names: tuple(filter(None, names.split(","))),
                 help="Pools of --row to add servers to. [default: all, in proportion]"),
    click.option("--rate", "rates", type=CSV, metavar="CSV",
                 help="Request rates over time, columns t_s and req_per_s. [default: generated]"),
    click.option("--days", type=click.IntRange(1), help="Number of days to use. [default: all]"),
    setting("--above above_share", 0.0, "Only periods with at least this fraction of the highest rate.",
            click.FloatRange(0, 1)),
    click.option("--servers", "base_servers", type=click.IntRange(4),
                 help="Servers for which the row was planned. [default: 40]"),
    setting("--peak base_peak_share", 0.79, "Peak draw of the planned row, as a fraction of its budget.",
            click.FloatRange(0.1, 1)),
    click.option("--budget-w", type=click.FloatRange(0, min_open=True), help="Budget in watts, instead of --peak."),
    setting("--seeds", "1-2", "Seeds of the arrivals, such as 1-5."),
    click.option("--delay", "delay_s", type=click.FloatRange(0),
                 help="Control delay of every policy, s. [default: 2 in band, 40 out of band]"),
    click.option("--telemetry", "telemetry_s", type=click.FloatRange(0),
                 help="Delay of readings for every policy, s, in steps of 2. [default: 0 in band, 2 for meters]"),
    report_option(),
    output_choice("table", "json"),
)  # fmt: skip
"""Adds the options that describe the simulated row."""


@click.command(name="power")
@setting("--extra", "0.3", "Additional servers, as fractions of --servers, such as 0.3,0.4.")
@setting("--policies", "no-cap,polca,tonnage", "Policies to compare.")
@click.option("--faults", default="", help="Faults to inject, such as lying:0.25@3600-7200,killed@100-900 (seconds).")
@click.option(
    "--no-brake", is_flag=True, help="Simulate without the hardware brake, to count seconds above the budget."
)
@parallel_options
@row_options
@click.pass_context
def simulate_power(
    ctx: click.Context,
    /,
    extra: str,
    policies: str,
    faults: str,
    no_brake: bool,
    jobs: int | None,
    ray: str,
    seeds: str,
    report: Path | None,
    output: str,
    **row: Any,
) -> None:
    """Serve requests on a row of GPU servers under a power budget, with several policies.

    The budget is chosen so that the planned row peaks at --peak of it. Then --extra servers with their load are added
    under the same budget. Reports how often the hardware brake engaged, how long the row exceeded its budget, and how
    much slower each class of requests became.

    \b
    tonnage simulate power --days 1 --extra 0.3,0.4 --report out/power.html
    tonnage simulate power --rate rates.csv --policies polca,tonnage --seeds 1-5 -o json
    """
    from functools import partial

    from cli.inputs.sweeps import seeds_from
    from cli.printing.power_study_output import in_words, runs_json, tables_of
    from simulator.power.agents import faults_from
    from simulator.power.report import render_power
    from simulator.power.study import Study, check_study, label_of, play
    from simulator.sweep.runner import runs_of, sweep

    study = Study(**row)
    names = tuple(dict.fromkeys(filter(None, (name.strip() for name in policies.split(",")))))
    check_study(study, names, option="--policies")
    study = replace(study, brake=not no_brake, faults=faults_from(faults, study.curve().for_s))
    try:
        shares = [float(word) for word in extra.split(",")]
    except ValueError as error:
        raise ConfigError(Mistake("--extra", f"{extra!r} is not a list of numbers", "write 0.3,0.4")) from error
    if not all(0 <= share <= 4 for share in shares):
        raise ConfigError(Mistake("--extra", f"{extra!r} is out of range", "give fractions from 0 to 4"))
    runs = runs_of([label_of(share) for share in shares], names, seeds_from(seeds))
    began_s, started_at = perf_counter(), datetime.now(UTC)
    swept = sweep(
        runs,
        partial(play, study=study),
        way=executor_of(ray, jobs),
        on_done=lambda p: click.echo(f"{p.done}/{p.total} {in_words(p.run, p.result)}", err=True),
    )
    if swept.done:
        click.echo(runs_json(swept.done, swept.stopped) if output == "json" else tables_of(swept.done), nl=False)
    if swept.done and report is not None:
        facts = _facts(study, seeds, started_at, perf_counter() - began_s)
        save_report(report, render_power(swept.done, facts, stopped=swept.stopped))
    if swept.stopped:
        click.echo(f"stopped ({swept.stopped}): {len(swept.done)} of {len(runs)} runs done", err=True)
        ctx.exit(stopped_status(swept.stopped))


@click.command()
@setting("--policy", "tonnage", "Policy that limits the row's power.")
@setting("--most", 0.6, "Largest fraction of additional servers to try.", click.FloatRange(0.02, 4))
@parallel_options
@row_options
@click.pass_context
def headroom(
    ctx: click.Context,
    /,
    policy: str,
    most: float,
    jobs: int | None,
    ray: str,
    seeds: str,
    report: Path | None,
    output: str,
    **row: Any,
) -> None:
    """Find how many more servers are safe under a row's budget, with the margin and the limiting condition.

    A size is safe if, for every seed, the brake never engages, no 2 s period reaches the budget, and latency stays
    within POLCA's goals (low class: P50 +5 %, P99 +50 %; high class: P50 +1 %, P99 +5 %). Sizes are simulated one after
    another by bisection: five or six. The load grows with the servers. With `tonnage`, two weeks of 56 servers take 3
    to 8 minutes of one core; `--above 0.62` covers the critical periods in half a minute. Exits with 1
    if not even the planned row is safe.

    \b
    tonnage power headroom --rate rates.csv --servers 40 --budget-w 200000 --report out/headroom.html
    """
    from cli.inputs.sweeps import seeds_from
    from cli.printing.power_study_output import headroom_in_words, headroom_json, probe_in_words
    from simulator.power.report import render_power
    from simulator.power.study import Study, check_study, find_headroom, label_of
    from simulator.sweep.runner import PolicyRun

    study = Study(**row)
    check_study(study, (policy,))
    began_s, started_at = perf_counter(), datetime.now(UTC)
    found = find_headroom(
        study,
        policy,
        seeds_from(seeds),
        most_extra_share=most,
        on_probe=lambda probe: click.echo(probe_in_words(probe), err=True),
        way=executor_of(ray, jobs),
    )
    click.echo(headroom_json(found) if output == "json" else headroom_in_words(found), nl=False)
    if report is not None:
        done = [
            (PolicyRun(label_of(run.extra_share), policy, run.seed), run)
            for probe in sorted(found.probes, key=lambda probe: probe.servers)
            for run in probe.runs
        ]
        facts = _facts(study, seeds, started_at, perf_counter() - began_s)
        save_report(report, render_power(done, facts, headroom_in_words(found)))
    if found.safe is None:
        ctx.exit(UNSAFE)


def _facts(study: "Study", seeds: str, started_at: datetime, wall_s: float) -> tuple[tuple[str, str], ...]:
    """What a report says of how it was made."""
    assumed = (
        f"planned for {study.planned} servers that peak at {study.base_peak_share:.0%} of the budget"
        if study.budget_w is None
        else f"a budget of {study.budget_w:.0f} W",
        *(
            f"{pool.name}: {pool.servers} × {pool.machine.name}, {pool.machine.idle_w:.0f} W idle to "
            f"{pool.machine.highest_w:.0f} W, "
            + (f"steps of {pool.step_s:g} s" if pool.step_s else f"batch {pool.batch}, {pool.peak_busy_share:.0%} busy")
            for pool in study.pools(study.planned)
        ),
    )
    more = (("seeds", seeds), ("request rates", study.curve().source), ("assumed", "; ".join(assumed)))
    return report_facts(started_at, wall_s, *more)


@click.group(cls=VerbGroup)
def power() -> None:
    """Explain why devices are held back, and find how many more servers fit under a budget."""


@power.command(epilog="tonnage power explain rack-7")
@click.argument("target", metavar="DOMAIN|NODE|DEVICE")
@output_choice("table", "json")
@cluster_options
@click.pass_context
def explain(ctx: click.Context, target: str, output: str, access: ClusterAccess) -> None:
    """Explain the power limits of devices: which domain is short, which class is limited first, which device disobeys.

    DEVICE is a UUID. A status lists only the 128 devices of its domain with the largest shortfall.
    """
    from cli.printing.power_domain_output import why

    found = why(_domains(access), target)
    if found is None:
        click.echo(
            f"{target} is not a power domain, and no status lists it: it is not held back, or not among those listed",
            err=True,
        )
        ctx.exit(FAILED)
    click.echo(json.dumps(found.data, indent=2) if output == "json" else "\n".join(found.lines))


power.add_command(headroom)


def _domains(access: ClusterAccess) -> "tuple[ReportedDomain, ...]":
    from cli.printing.power_domain_output import domains_of

    return domains_of(listed(access, "powerdomains", all_namespaces=True))
