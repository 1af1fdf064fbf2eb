"""Progress of a sweep on standard error: a bar on a terminal, one line per run elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO, TypeVar

import click

from cli.printing.terminal import drawable
from simulator.day.simulation import HOUR_S, DayMoment, clock_words
from simulator.packing.replay import Replay
from simulator.sweep.runner import K, PolicyRun, SweepProgress

R = TypeVar("R")


@contextmanager
def progress_on(
    stream: TextIO, total: int, describe: Callable[[SweepProgress[K, R]], str]
) -> Iterator[Callable[[SweepProgress[K, R]], None]]:
    """Function to call after each run. describe: text of a run and its result."""
    if not stream.isatty():
        yield lambda progress: click.echo(f"{progress.done}/{progress.total} {describe(progress)}", file=stream)
        return
    with click.progressbar(
        length=total,
        file=drawable(stream),
        width=20,
        show_pos=True,
        show_eta=False,
        item_show_func=lambda words: words or "",
    ) as bar:
        yield lambda progress: bar.update(1, describe(progress))


def replay_in_words(progress: SweepProgress[PolicyRun, Replay]) -> str:
    """Result of a replay in one line."""
    run, curve = progress.run, progress.result.curve
    allocated = curve.at(100, curve.allocation_pct)
    return f"{run.trace} {run.policy} seed {run.seed}: {allocated:.2f} % allocated at 100 % arrived"


def print_hour(moment: DayMoment) -> None:
    """Print a full hour of a simulated day, and what happened, on standard error."""
    if moment.at_s % HOUR_S == 0:
        words = f"{moment.gpus_used:,.1f} of {moment.gpus:,} GPUs allocated, {moment.running} pods running"
        cost = f"services ${moment.services_per_hour:,.2f}/h, planned in {1000 * moment.plan_s:.0f} ms"
        click.echo(f"{clock_words(moment.at_s)} {words}, {moment.waiting} pending, {cost}", err=True)
    for words in moment.news:
        click.echo(f"{clock_words(moment.at_s)}   {words}", err=True)
