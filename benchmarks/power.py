"""How many more servers a row carries under its breaker, with each power policy, and what it costs whom. Simulated."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from simulator.power.demand import DAY_S
from simulator.power.faults import faults_from
from simulator.power.requests import CLASSES
from simulator.power.study import Compared, Study, check_study, label_of, play
from simulator.sweep import Progress, Run, runs_of, sweep


def shares(_context: click.Context, parameter: click.Parameter, value: str) -> tuple[float, ...]:
    """`0.3,0.4`."""
    try:
        found = tuple(float(word) for word in value.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{value!r} holds what is no number; write 0.3,0.4", param=parameter) from error
    if not all(0 <= share <= 4 for share in found):
        raise click.BadParameter("shares of more servers lie between 0 and 4", param=parameter)
    return found


@click.command(context_settings={"show_default": True})
@click.option("--rate", type=click.Path(path_type=Path), help="Request rates, CSV with t_s and req_per_s. [made up]")
@click.option("--days", type=click.IntRange(1), help="So many days of them. [all]")
@click.option("--worst-day", is_flag=True, help="Only the day with the highest rate.")
@click.option("--servers", type=click.IntRange(4), default=40, help="The row as it was planned.")
@click.option("--peak", type=click.FloatRange(0.1, 1), default=0.79, help="Its peak over its budget.")
@click.option("--budget-w", type=click.FloatRange(0, min_open=True), help="The budget itself, instead.")
@click.option("--extra", callback=shares, default="0.3", help="How many more servers, as shares of those planned.")
@click.option("--policy", callback=arguments.words, default="no-cap,polca,tonnage", help="Which policies.")
@click.option("--seeds", callback=arguments.seeds, default="1-5", help="Seeds of the arrivals.")
@click.option("--delay", type=click.FloatRange(0), help="Control delay of every policy, s. [2 in band, 40 out of band]")
@click.option("--batch", type=click.IntRange(1, 32), default=1, help="Requests that a server serves together.")
@click.option("--mix", type=click.Choice(["chat", "code"]), default="chat", help="What is asked.")
@click.option("--lengths", type=click.Path(path_type=Path), help="CSV of lengths for --mix code. [built-in quantiles]")
@click.option("--busy", type=click.FloatRange(0.05, 1.0), default=0.8, help="Of the servers, at the highest rate.")
@click.option("--burstiness", type=click.FloatRange(0, 10), default=1.0, help="1 is Poisson, below is smoother.")
@click.option("--low-share", type=click.FloatRange(0.02, 0.98), default=0.5, help="Of the servers, of low class.")
@click.option("--faults", default="", help="Such as lying:0.25@3600-7200,killed@100-900 (seconds).")
@click.option("--no-brake", is_flag=True, help="Leave the hardware brake out, to count seconds above the budget.")
@click.option("--jobs", type=click.IntRange(1), default=1, help="Processes.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    rate: Path | None,
    days: int | None,
    worst_day: bool,
    servers: int,
    peak: float,
    budget_w: float | None,
    extra: tuple[float, ...],
    policy: tuple[str, ...],
    seeds: tuple[int, ...],
    delay: float | None,
    batch: int,
    mix: str,
    lengths: Path | None,
    busy: float,
    burstiness: float,
    low_share: float,
    faults: str,
    no_brake: bool,
    jobs: int,
    json_to: str | None,
) -> None:
    """Serves the same requests under each policy, beside a row that nothing holds back.

    The budget is worked out so that the row as planned peaks at --peak of it, for every seed anew.
    """
    study = Study(
        rates=rate,
        days=days,
        worst_day=worst_day,
        mix=mix,
        lengths=lengths,
        base_servers=servers,
        base_peak_share=peak,
        budget_w=budget_w,
        delay_s=delay,
        batch=batch,
        peak_busy_share=busy,
        burstiness=burstiness,
        low_share=low_share,
        brake=not no_brake,
    )
    check_study(study, policy)
    study = with_faults(study, faults)
    runs = runs_of([label_of(share) for share in extra], policy, seeds)
    swept = sweep(runs, partial(play, study=study), jobs=jobs, on_done=_tell)
    if json_to:
        write_lines(json_to, (record_of(run, compared) for run, compared in swept.done))
    console = Console(stderr=bool(json_to), width=None if sys.stdout.isatty() else 170)
    for label in dict.fromkeys(run.trace for run, _ in swept.done):
        console.print(table_of(label, [(run, compared) for run, compared in swept.done if run.trace == label]))
    if swept.stopped:
        click.echo(f"stopped early ({swept.stopped}): {len(swept.missing)} runs are missing", err=True)
        sys.exit(1)


def with_faults(study: Study, text: str) -> Study:
    return replace(study, faults=faults_from(text, study.curve().for_s))


def record_of(run: Run, compared: Compared) -> dict[str, object]:
    """One run as JSON."""
    outcome = compared.outcome
    return {
        "simulated": True,
        "policy": run.policy,
        "seed": run.seed,
        "extra_share": compared.extra_share,
        "servers": sum(outcome.servers),
        "days": round(outcome.for_s / DAY_S, 3),
        "delay_s": compared.delay_s,
        "budget_w": round(outcome.budget_w, 1),
        "base_spike_40s_share": round(compared.base_spike_share, 4),
        "brakes": outcome.brakes,
        "peak_share": round(outcome.peak_share, 4),
        "over_s": round(outcome.over_s, 2),
        "longest_over_s": round(outcome.longest_over_s, 2),
        "breaker_share": round(outcome.breaker_share, 4),
        "limit_changes": outcome.limit_changes,
        "classes": {name: _class_record(compared, name) for name in CLASSES},
        "missed_goals": compared.missed(),
        "named": [list(one) for one in outcome.named],
        "cpu_s": round(compared.cpu_s, 2),
    }


def _class_record(compared: Compared, name: str) -> dict[str, float]:
    mine = compared.outcome.of_class(name)
    return {
        "requests": mine.requests,
        "unserved": mine.unserved,
        "p50_s": round(mine.p50_s, 3),
        "p99_s": round(mine.p99_s, 3),
        "p50_slower_pct": round(compared.slower_pct(name, 50), 3),
        "p99_slower_pct": round(compared.slower_pct(name, 99), 3),
        "held_share": round(mine.held_share, 5),
        "limited_share": round(mine.limited_share, 5),
    }


def table_of(label: str, done: Sequence[tuple[Run, Compared]]) -> Table:
    """One line for each policy: sums of what must not happen, the worst of the rest, over the seeds."""
    first = done[0][1].outcome
    table = Table(
        title=f"{label} servers ({sum(first.servers)}), {first.for_s / DAY_S:g} days (simulated): "
        "brakes and seconds over the budget are the worst of the seeds, as is all else"
    )
    headings = ["policy", "delay", "seeds", "brakes", "over s", "longest", "breaker", "peak"]
    for name in CLASSES:
        headings += [f"{name} P50 %", "P99 %", "held %", "limited %"]
    for heading in (*headings, "POLCA's goals", "cpu s"):
        table.add_column(heading, justify="left" if heading in ("policy", "POLCA's goals") else "right")
    for policy in dict.fromkeys(run.policy for run, _ in done):
        table.add_row(policy, *_cells([compared for run, compared in done if run.policy == policy]))
    return table


def _cells(mine: Sequence[Compared]) -> Iterator[str]:
    outcomes = [compared.outcome for compared in mine]
    yield f"{mine[0].delay_s:g}"
    yield str(len(mine))
    yield str(max(outcome.brakes for outcome in outcomes))
    yield f"{max(outcome.over_s for outcome in outcomes):.1f}"
    yield f"{max(outcome.longest_over_s for outcome in outcomes):.1f}"
    yield f"{max(outcome.breaker_share for outcome in outcomes):.3f}"
    yield f"{max(outcome.peak_share for outcome in outcomes):.3f}"
    for name in CLASSES:
        yield f"{max(compared.slower_pct(name, 50) for compared in mine):+.2f}"
        yield f"{max(compared.slower_pct(name, 99) for compared in mine):+.2f}"
        yield f"{max(100 * outcome.of_class(name).held_share for outcome in outcomes):.2f}"
        yield f"{max(100 * outcome.of_class(name).limited_share for outcome in outcomes):.2f}"
    met = sum(not compared.missed() for compared in mine)
    yield f"met {met}/{len(mine)}"
    yield f"{max(compared.cpu_s for compared in mine):.0f}"


def _tell(progress: Progress[Compared]) -> None:
    compared = progress.result
    outcome = compared.outcome
    click.echo(
        f"[{progress.done}/{progress.total}] {progress.run.trace} {progress.run.policy} seed {progress.run.seed}: "
        f"{outcome.brakes} brakes, {outcome.over_s:.1f} s over, peak {outcome.peak_share:.3f} of the budget, "
        f"{compared.cpu_s:.0f} s",
        err=True,
    )


if __name__ == "__main__":
    main()
