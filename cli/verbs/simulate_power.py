"""`tonnage simulate power` and `tonnage power headroom`: power of a server row under a budget, and its capacity."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.machine import cores, machine_description
from cli.inputs.report_file import save_report
from cli.printing.errors import stopped_status
from cluster.errors import ConfigError, Mistake
from cluster.version import VERSION

if TYPE_CHECKING:  # numpy and its users are imported only after the options were checked
    from simulator.power.report import About
    from simulator.power.study import ComparedRun, Study
    from simulator.sweep.runner import Run

UNSAFE = 1
Command = Callable[..., None]

_OPTIONS = (
    click.option(
        "--rate",
        "rates",
        type=click.Path(path_type=Path),
        metavar="CSV",
        help="Request rates over time, columns t_s and req_per_s. [default: generated]",
    ),
    click.option("--days", type=click.IntRange(1), help="Number of days to use. [default: all]"),
    click.option("--worst-day", is_flag=True, help="Only the day with the highest rate."),
    click.option(
        "--above",
        "above_share",
        type=click.FloatRange(0, 1),
        default=0.0,
        show_default=True,
        help="Only periods with at least this fraction of the highest rate.",
    ),
    click.option(
        "--servers",
        "base_servers",
        type=click.IntRange(4),
        default=40,
        show_default=True,
        help="Servers for which the row was planned.",
    ),
    click.option(
        "--peak",
        "base_peak_share",
        type=click.FloatRange(0.1, 1),
        default=0.79,
        show_default=True,
        help="Peak draw of the planned row, as a fraction of its budget.",
    ),
    click.option("--budget-w", type=click.FloatRange(0, min_open=True), help="Budget in watts, instead of --peak."),
    click.option("--seeds", default="1-2", show_default=True, help="Seeds of the arrivals, such as 1-5."),
    click.option(
        "--delay",
        "delay_s",
        type=click.FloatRange(0),
        help="Control delay of every policy, s. [default: 2 in band, 40 out of band]",
    ),
    click.option(
        "--telemetry",
        "telemetry_s",
        type=click.FloatRange(0),
        help="Delay of readings for every policy, s, in steps of 2. [default: 0 in band, 2 for meters]",
    ),
    click.option(
        "--batch",
        type=click.IntRange(1, 32),
        default=1,
        show_default=True,
        help="Requests that a server handles together.",
    ),
    click.option(
        "--mix", type=click.Choice(["chat", "code"]), default="chat", show_default=True, help="Kind of requests."
    ),
    click.option(
        "--lengths",
        type=click.Path(path_type=Path),
        metavar="CSV",
        help="Request lengths for --mix code. [default: built-in quantiles]",
    ),
    click.option(
        "--busy",
        "peak_busy_share",
        type=click.FloatRange(0.05, 1),
        default=0.8,
        show_default=True,
        help="Fraction of servers busy at the highest rate.",
    ),
    click.option(
        "--burstiness",
        type=click.FloatRange(0, 10),
        default=1.0,
        show_default=True,
        help="Burstiness of arrivals: 1 is Poisson, less is smoother.",
    ),
    click.option(
        "--low-share",
        type=click.FloatRange(0.02, 0.98),
        default=0.5,
        show_default=True,
        help="Fraction of servers in the low class.",
    ),
    click.option(
        "--report", type=click.Path(path_type=Path), metavar="FILE.html", help="Write a report with charts, too."
    ),
    click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True),
)


def row_options(command: Command) -> Command:
    """Adds the options that describe the simulated row."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.option(
    "--extra", default="0.3", show_default=True, help="Additional servers, as fractions of --servers, such as 0.3,0.4."
)
@click.option("--policies", default="no-cap,polca,tonnage", show_default=True, help="Policies to compare.")
@click.option("--faults", default="", help="Faults to inject, such as lying:0.25@3600-7200,killed@100-900 (seconds).")
@click.option(
    "--no-brake", is_flag=True, help="Simulate without the hardware brake, to count seconds above the budget."
)
@click.option("--jobs", type=click.IntRange(min=1), help="Parallel runs. [default: one per core]")
@row_options
@click.pass_context
def power(
    ctx: click.Context,
    /,
    extra: str,
    policies: str,
    faults: str,
    no_brake: bool,
    jobs: int | None,
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

    from cli.inputs.contest import seeds_from
    from cli.printing.power_study_output import in_words, runs_json
    from simulator.power.faults import faults_from
    from simulator.power.report import render_power
    from simulator.power.study import check_study, label_of, play
    from simulator.sweep.runner import Processes, runs_of, sweep

    study = _study(row)
    names = tuple(dict.fromkeys(filter(None, (name.strip() for name in policies.split(",")))))
    check_study(study, names, option="--policies")
    study = replace(study, brake=not no_brake, faults=faults_from(faults, study.curve().for_s))
    runs = runs_of([label_of(share) for share in _shares(extra)], names, seeds_from(seeds))
    began_s, started_at = perf_counter(), datetime.now(UTC)
    swept = sweep(
        runs,
        partial(play, study=study),
        way=Processes(jobs or cores()),
        on_done=lambda p: click.echo(f"{p.done}/{p.total} {in_words(p.run, p.result)}", err=True),
    )
    if swept.done:
        click.echo(runs_json(swept.done, swept.stopped) if output == "json" else _tables(swept.done), nl=False)
    if swept.done and report is not None:
        about = _about(study, started_at, perf_counter() - began_s, swept.stopped)
        save_report(report, render_power(swept.done, study, about))
    if swept.stopped:
        click.echo(f"stopped ({swept.stopped}): {len(swept.done)} of {len(runs)} runs done", err=True)
        ctx.exit(stopped_status(swept.stopped))


@click.command()
@click.option("--policy", default="tonnage", show_default=True, help="Policy that limits the row's power.")
@click.option(
    "--most",
    type=click.FloatRange(0.02, 4),
    default=0.6,
    show_default=True,
    help="Largest fraction of additional servers to try.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Seeds in parallel. [default: one per core]")
@row_options
@click.pass_context
def headroom(
    ctx: click.Context,
    /,
    policy: str,
    most: float,
    jobs: int | None,
    seeds: str,
    report: Path | None,
    output: str,
    **row: Any,
) -> None:
    """Find how many more servers are safe under a row's budget, with the margin and the limiting condition.

    A size is safe if, for every seed, the brake never engages, no 2 s period reaches the budget, and latency stays
    within POLCA's goals (low class: P50 +5 %, P99 +50 %; high class: P50 +1 %, P99 +5 %). Sizes are simulated one after
    another by bisection: five or six. The load grows with the servers. With `tonnage`, two weeks of 56 servers take 3
    to 8 minutes of one core; `--worst-day` and `--above 0.62` cover the critical periods in half a minute. Exits with 1
    if not even the planned row is safe.

    \b
    tonnage power headroom --rate rates.csv --servers 40 --budget-w 200000 --report out/headroom.html
    """
    from cli.inputs.contest import seeds_from
    from cli.printing.power_study_output import headroom_in_words, headroom_json, probe_in_words
    from simulator.power.report import render_power
    from simulator.power.study import check_study, find_headroom, label_of
    from simulator.sweep.runner import Processes, Run

    study = _study(row)
    check_study(study, (policy,))
    began_s, started_at = perf_counter(), datetime.now(UTC)
    found = find_headroom(
        study,
        policy,
        seeds_from(seeds),
        most_extra_share=most,
        on_probe=lambda probe: click.echo(probe_in_words(probe), err=True),
        way=Processes(jobs or cores()),
    )
    click.echo(headroom_json(found) if output == "json" else headroom_in_words(found), nl=False)
    if report is not None:
        done = [
            (Run(label_of(run.extra_share), policy, run.seed), run)
            for probe in sorted(found.probes, key=lambda probe: probe.servers)
            for run in probe.runs
        ]
        about = _about(study, started_at, perf_counter() - began_s)
        save_report(report, render_power(done, study, about, headroom_in_words(found)))
    if found.safe is None:
        ctx.exit(UNSAFE)


def _study(row: dict[str, Any]) -> "Study":
    from simulator.power.study import Study

    return Study(**row)


def _shares(text: str) -> tuple[float, ...]:
    """Fractions of `0.3,0.4`. Raises ConfigError."""
    try:
        shares = tuple(float(word) for word in text.split(","))
    except ValueError as error:
        raise ConfigError(Mistake("--extra", f"{text!r} is not a list of numbers", "write 0.3,0.4")) from error
    if not all(0 <= share <= 4 for share in shares):
        raise ConfigError(Mistake("--extra", f"{text!r} is out of range", "give fractions from 0 to 4"))
    return shares


def _tables(done: "tuple[tuple[Run, ComparedRun], ...]") -> str:
    import io

    from rich.console import Console

    from cli.printing.power_study_output import table_of

    console = Console(file=io.StringIO(), width=None if sys.stdout.isatty() else 170, highlight=False)
    for label in dict.fromkeys(run.trace for run, _ in done):
        console.print(table_of(label, [one for one in done if one[0].trace == label]))
    text = console.file.getvalue() if isinstance(console.file, io.StringIO) else ""
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _about(study: "Study", started_at: datetime, wall_s: float, stopped: str = "") -> "About":
    from simulator.power.report import About

    machine = study.machine
    return About(
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        started_at=f"{started_at:%Y-%m-%d %H:%M} UTC",
        wall_s=wall_s,
        machine=machine_description(),
        version=VERSION,
        assumptions=(
            f"{machine.name}, {machine.idle_w:.0f} W idle to {machine.highest_w:.0f} W",
            f"planned for {study.base_servers} servers that peak at {study.base_peak_share:.0%} of the budget"
            if study.budget_w is None
            else f"a budget of {study.budget_w:.0f} W",
            f"{study.peak_busy_share:.0%} of the servers busy at the highest rate",
            f"mix {study.mix}, batch {study.batch}",
            f"burstiness {study.burstiness:g} (1 is Poisson), {study.low_share:.0%} of the servers of the low class",
        ),
        stopped=stopped,
    )
