"""Progress of a sweep on standard error: a bar on a terminal, one line per run elsewhere."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO, TypeVar

import click
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

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
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bar, TextColumn, TimeElapsedColumn
    from rich.table import Column

    # The description takes what is left of the line, and ends in an ellipsis before the count or the time would.
    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    columns = (
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", table_column=rest),
    )
    with Bar(*columns, console=Console(file=drawable(stream)), transient=True, expand=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda progress: bar.update(task, completed=progress.done, description=describe(progress))


def replay_in_words(progress: SweepProgress[PolicyRun, Replay]) -> str:
    """Result of a replay in one line."""
    run, curve = progress.run, progress.result.curve
    allocated = curve.at(100, curve.allocation_pct)
    return f"{run.trace} {run.policy} seed {run.seed}: {allocated:.2f} % allocated at 100 % arrived"


NEWS_LINES = 8
Show = Callable[[DayMoment], None]


@contextmanager
def watching(stream: TextIO, pace_s: float) -> Iterator[Show]:
    """Function that shows one moment. pace_s: shortest real time between two moments on a terminal, s."""
    if not stream.isatty():

        def print_hour(moment: DayMoment) -> None:
            if moment.at_s % HOUR_S == 0:
                words = f"{moment.gpus_used:,.1f} of {moment.gpus:,} GPUs allocated, {moment.running} pods running"
                cost = f"services ${moment.services_per_hour:,.2f}/h, planned in {1000 * moment.plan_s:.0f} ms"
                click.echo(f"{clock_words(moment.at_s)} {words}, {moment.waiting} pending, {cost}", file=stream)
            for words in moment.news:
                click.echo(f"{clock_words(moment.at_s)}   {words}", file=stream)

        yield print_hour
        return
    news: deque[str] = deque(maxlen=NEWS_LINES)
    with Live(console=Console(file=drawable(stream)), auto_refresh=False) as screen:
        due_s = time.monotonic()

        def show(moment: DayMoment) -> None:
            nonlocal due_s
            news.extend(f"{clock_words(moment.at_s)}  {words}" for words in moment.news)
            figures = Table(box=None, padding=(0, 3, 0, 0), show_header=False)
            share = moment.gpus_used / max(moment.gpus, 1)
            figures.add_row("time", clock_words(moment.at_s), "demand", f"{moment.demand_share:.0%} of its peak")
            figures.add_row(
                "GPUs allocated", f"{moment.gpus_used:,.1f} of {moment.gpus:,}", "", ProgressBar(100, 100 * share, 30)
            )
            figures.add_row("pods running", f"{moment.running:,}", "pending", f"{moment.waiting:,}")
            figures.add_row("services", f"${moment.services_per_hour:,.2f} per hour", "", "")
            figures.add_row("last cycle", f"{moment.bound} bound", "planning", f"{1000 * moment.plan_s:.0f} ms")
            lines = [Text(line, overflow="ellipsis", no_wrap=True) for line in news]
            screen.update(Group(Text("Simulated datacenter", style="bold"), figures, Text(""), *lines), refresh=True)
            due_s += pace_s
            time.sleep(max(0.0, due_s - time.monotonic()))

        yield show
