"""Number of additional servers in a row under its breaker with each power policy, and the slowdown. Simulated."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from cli.printing.power_study_output import in_words, record_of, table_of
from simulator.power.agents import faults_from
from simulator.power.requests import SHAPES
from simulator.power.study import ComparedRun, Study, check_study, label_of, play
from simulator.sweep.runner import PolicyRun, SweepProgress, WorkerProcesses, runs_of, sweep


def shares(_context: click.Context, parameter: click.Parameter, value: str) -> tuple[float, ...]:
    """Fractions separated by commas: `0.3,0.4`."""
    try:
        found = tuple(float(word) for word in value.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a list of numbers; write 0.3,0.4", param=parameter) from error
    if not all(0 <= share <= 4 for share in found):
        raise click.BadParameter("fractions of additional servers are between 0 and 4", param=parameter)
    return found


@click.command(context_settings={"show_default": True})
@click.option("--rate", type=click.Path(path_type=Path), help="Request rates, CSV with t_s and req_per_s. [generated]")
@click.option("--shape", type=click.Choice(list(SHAPES)), help="A synthetic course of hours instead of rates.")
@click.option("--days", type=click.IntRange(1), help="Number of days of them. [all]")
@click.option("--worst-day", is_flag=True, help="Only the day with the highest rate.")
@click.option("--above", type=click.FloatRange(0, 1), default=0.0, help="Only periods of at least this fraction of it.")
@click.option("--servers", type=click.IntRange(4), default=40, help="Planned servers of the row.")
@click.option("--peak", type=click.FloatRange(0.1, 1), default=0.79, help="Peak of the planned row over its budget.")
@click.option("--budget-w", type=click.FloatRange(0, min_open=True), help="Budget, instead of --peak.")
@click.option("--extra", callback=shares, default="0.3", help="Additional servers, as fractions of those planned.")
@click.option("--policy", callback=arguments.words, default="no-cap,polca,tonnage", help="Which policies.")
@click.option("--seeds", callback=arguments.seeds, default="1-5", help="Seeds of the arrivals.")
@click.option("--delay", type=click.FloatRange(0), help="Control delay of every policy, s. [2 in band, 40 out of band]")
@click.option(
    "--telemetry", type=click.FloatRange(0), help="Delay of readings, s, in steps of 2. [0 in band, 2 of meters]"
)
@click.option("--batch", type=click.IntRange(1, 32), default=1, help="Requests that a server serves together.")
@click.option("--mix", type=click.Choice(["chat", "code"]), default="chat", help="Kind of the requests.")
@click.option("--lengths", type=click.Path(path_type=Path), help="CSV of lengths for --mix code. [built-in quantiles]")
@click.option(
    "--busy", type=click.FloatRange(0.05, 1.0), default=0.8, help="Utilisation of the servers at the highest rate."
)
@click.option("--burstiness", type=click.FloatRange(0, 10), default=1.0, help="1 is Poisson, below is smoother.")
@click.option(
    "--low-share", type=click.FloatRange(0.02, 0.98), default=0.5, help="Fraction of the servers of low class."
)
@click.option("--faults", default="", help="Such as lying:0.25@3600-7200,killed@100-900 (seconds).")
@click.option(
    "--noise",
    type=click.FloatRange(0, 0.2),
    default=0.01,
    help="Errors of readings as a fraction of the draw, beside 5 W; 0 for none.",
)
@click.option("--rule", "rules", multiple=True, help="A setting of power/rules.py for Tonnage: reserve_spikes=1.0.")
@click.option("--no-brake", is_flag=True, help="Without the hardware brake, to count seconds above the budget.")
@click.option("--jobs", type=click.IntRange(1), default=1, help="Processes.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    rate: Path | None,
    shape: str | None,
    days: int | None,
    worst_day: bool,
    above: float,
    servers: int,
    peak: float,
    budget_w: float | None,
    extra: tuple[float, ...],
    policy: tuple[str, ...],
    seeds: tuple[int, ...],
    delay: float | None,
    telemetry: float | None,
    batch: int,
    mix: str,
    lengths: Path | None,
    busy: float,
    burstiness: float,
    low_share: float,
    faults: str,
    noise: float,
    rules: tuple[str, ...],
    no_brake: bool,
    jobs: int,
    json_to: str | None,
) -> None:
    """Serves the same requests under each policy, beside a row without limits.

    For each seed the budget is computed so that the planned row peaks at --peak of it.
    """
    study = Study(
        rates=rate,
        shape=shape,
        days=days,
        worst_day=worst_day,
        above_share=above,
        mix=mix,
        lengths=lengths,
        base_servers=servers,
        base_peak_share=peak,
        budget_w=budget_w,
        delay_s=delay,
        telemetry_s=telemetry,
        batch=batch,
        peak_busy_share=busy,
        burstiness=burstiness,
        low_share=low_share,
        brake=not no_brake,
        noise_share=noise,
        rules=tuple(_rule(each) for each in rules),
    )
    check_study(study, policy)
    study = replace(study, faults=faults_from(faults, study.curve().for_s))
    runs = runs_of([label_of(share) for share in extra], policy, seeds)
    swept = sweep(runs, partial(play, study=study), way=WorkerProcesses(jobs), on_done=_tell)
    if json_to:
        write_lines(json_to, (record_of(run, compared) for run, compared in swept.done))
    console = Console(stderr=bool(json_to), width=None if sys.stdout.isatty() else 170)
    for label in dict.fromkeys(run.trace for run, _ in swept.done):
        console.print(table_of(label, [(run, compared) for run, compared in swept.done if run.trace == label]))
    if swept.stopped:
        click.echo(f"stopped early ({swept.stopped}): {len(swept.missing)} runs are missing", err=True)
        sys.exit(1)


def _rule(written: str) -> tuple[str, float]:
    name, _, value = written.partition("=")
    try:
        return name, float(value)
    except ValueError as error:
        raise click.BadParameter(f"{written!r} is not NAME=NUMBER", param_hint="--rule") from error


def _tell(progress: SweepProgress[PolicyRun, ComparedRun]) -> None:
    click.echo(f"[{progress.done}/{progress.total}] {in_words(progress.run, progress.result)}", err=True)


if __name__ == "__main__":
    main()
