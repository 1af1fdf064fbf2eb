"""Progress of a sweep on standard error: a bar on a terminal, a line for each replay elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import click

from simulator.replay import Replay
from simulator.sweep import Progress

OnDone = Callable[[Progress[Replay]], None]


@contextmanager
def progress_on(stream: TextIO, total: int) -> Iterator[OnDone]:
    """What to call after each replay while the context lasts."""
    if not stream.isatty():
        yield lambda progress: click.echo(f"{progress.done}/{progress.total} {in_words(progress)}", file=stream)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with Bar(*columns, console=Console(file=stream), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda progress: bar.update(task, completed=progress.done, description=in_few_words(progress))


def in_words(progress: Progress[Replay]) -> str:
    run, curve = progress.run, progress.result.curve
    allocated = curve.at(100, curve.allocation_pct)
    return f"{run.trace} {run.policy} seed {run.seed}: {allocated:.2f} % allocated at 100 % arrived"


def in_few_words(progress: Progress[Replay]) -> str:
    run, curve = progress.run, progress.result.curve
    return f"{run.policy}, seed {run.seed}: {curve.at(100, curve.allocation_pct):.1f} %"
