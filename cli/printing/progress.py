"""Progress of a sweep on standard error: a bar on a terminal, one line per run elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO, TypeVar

import click

from simulator.packing.replay import Replay
from simulator.sweep.runner import K, Progress, Run

R = TypeVar("R")


@contextmanager
def progress_on(
    stream: TextIO, total: int, describe: Callable[[Progress[K, R]], str]
) -> Iterator[Callable[[Progress[K, R]], None]]:
    """Function to call after each run. describe: text of a run and its result."""
    if not stream.isatty():
        yield lambda progress: click.echo(f"{progress.done}/{progress.total} {describe(progress)}", file=stream)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    # The description takes what is left of the line, and ends in an ellipsis before the count or the time would.
    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    columns = (
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", table_column=rest),
    )
    with Bar(*columns, console=Console(file=stream), transient=True, expand=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda progress: bar.update(task, completed=progress.done, description=describe(progress))


def replay_in_words(progress: Progress[Run, Replay]) -> str:
    """Result of a replay in one line."""
    run, curve = progress.run, progress.result.curve
    allocated = curve.at(100, curve.allocation_pct)
    return f"{run.trace} {run.policy} seed {run.seed}: {allocated:.2f} % allocated at 100 % arrived"
