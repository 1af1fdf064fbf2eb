"""What each mechanism of the power allocator buys: the simulated row without it, beside the whole. Simulated."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.power import shares
from cli.printing.power_study_output import in_words, record_of
from power.rules import PowerRules
from simulator.power.requests import CLASSES
from simulator.power.study import ComparedRun, Study, check_study, label_of, play
from simulator.sweep.runner import PolicyRun, WorkerProcesses, sweep

WHOLE = PowerRules()
NONE = 1e-9
"""In place of 0, where a rule must be above it."""
SETTINGS: Mapping[str, Mapping[str, float]] = {
    "nothing": {},
    "bursts": {"burst_share": 0.0},
    "reserve for spikes": {"reserve_spikes": NONE},
    "bounds on bursts": {
        "low_bursts_room": 2 * NONE,
        "low_floor_room": NONE,
        "bursts_room": 2 * NONE,
        "floor_room": NONE,
    },
    "degrees of bounds": {
        "low_floor_room": WHOLE.low_bursts_room - NONE,
        "floor_room": WHOLE.bursts_room - NONE,
    },
    "a week's memory of spikes": {"spike_memory_s": 86_400.0},
    "a guess before the first spike": {"first_spike_share": 0.0},
    "waiting while calm": {"calm_look_share": NONE},
    "sooner credit while calm": {"calm_credit_back_s": WHOLE.credit_back_s},
    "deadband of caps": {"band_share": NONE},
    "margin above the draw": {"margin_share": NONE},
    "mean of draws": {"mean_s": NONE},
    "check for stuck readings": {"stuck_s": 0.0},
}
"""Settings of `power/rules.py` by the mechanism that they take out."""


@click.command(context_settings={"show_default": True})
@click.option("--rate", type=click.Path(path_type=Path), help="Request rates, CSV with t_s and req_per_s. [generated]")
@click.option("--days", type=click.IntRange(1), help="Number of days of them. [all]")
@click.option(
    "--above", type=click.FloatRange(0, 1), default=0.62, help="Only periods of at least this rate's fraction."
)
@click.option("--extra", callback=shares, default="0.4", help="Additional servers, as fractions of those planned.")
@click.option("--without", callback=arguments.words, default=",".join(SETTINGS), help="Mechanisms to take out.")
@click.option("--seeds", callback=arguments.seeds, default="1,3", help="Seeds of the arrivals.")
@click.option("--noise", type=click.FloatRange(0, 0.2), default=0.01, help="Errors of readings, beside 5 W.")
@click.option("--jobs", type=click.IntRange(1), default=1, help="Processes.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    rate: Path | None,
    days: int | None,
    above: float,
    extra: tuple[float, ...],
    without: tuple[str, ...],
    seeds: tuple[int, ...],
    noise: float,
    jobs: int,
    json_to: str | None,
) -> None:
    """Takes one mechanism out at a time and serves the same requests, by default in the hottest hours."""
    if unknown := [name for name in without if name not in SETTINGS]:
        raise click.BadParameter(f"{unknown[0]!r} is none of: {', '.join(SETTINGS)}", param_hint="--without")
    study = Study(rates=rate, days=days, above_share=above, noise_share=noise)
    check_study(study, ("tonnage",))
    done: list[tuple[str, PolicyRun, ComparedRun]] = []
    runs = [PolicyRun(label_of(share), "tonnage", seed) for share in extra for seed in seeds]
    for name in without:
        changed = replace(study, rules=tuple(SETTINGS[name].items()))
        swept = sweep(runs, partial(play, study=changed), way=WorkerProcesses(jobs))
        done += [(name, run, compared) for run, compared in swept.done]
        for run, compared in swept.done:
            click.echo(f"without {name}: {in_words(run, compared)}", err=True)
        if swept.stopped:
            click.echo(f"stopped early ({swept.stopped})", err=True)
            break
    if json_to:
        write_lines(json_to, ({"without": name, **record_of(run, compared)} for name, run, compared in done))
    console = Console(stderr=bool(json_to), width=None if sys.stdout.isatty() else 170)
    for label in dict.fromkeys(run.trace for run in runs):
        console.print(table_of(label, [(name, compared) for name, run, compared in done if run.trace == label]))


def table_of(label: str, done: Sequence[tuple[str, ComparedRun]]) -> Table:
    """A line for each mechanism, the worst of the seeds in each figure by itself."""
    table = Table(title=f"{label} servers, simulated; worst of the seeds")
    columns = ("without", "seeds", "brakes", "over s", *(f"{name} P50 / P99 %" for name in CLASSES), "changes", "cpu s")
    for column in columns:
        table.add_column(column, justify="left" if column == "without" else "right")
    for name in dict.fromkeys(name for name, _ in done):
        table.add_row(name, *_cells([compared for mine, compared in done if mine == name]))
    return table


def _cells(runs: Sequence[ComparedRun]) -> Iterator[str]:
    yield str(len(runs))
    yield str(max(run.outcome.brakes for run in runs))
    yield f"{max(run.outcome.over_s for run in runs):.2f}"
    for name in CLASSES:
        p50, p99 = (max(run.slower_pct(name, percentile) for run in runs) for percentile in (50, 99))
        yield f"{p50:+.2f} / {p99:+.2f}"
    yield str(max(run.outcome.limit_changes for run in runs))
    yield f"{max(run.cpu_s for run in runs):.0f}"


if __name__ == "__main__":
    main()
