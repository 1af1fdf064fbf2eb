"""Sweeps over openb traces: the command-line options that they share, and their end in tables and JSON lines."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import write_lines
from cluster.arrays import FloatArray
from simulator.sweep.runner import Swept

Command = Callable[..., Any]
NODES = click.option("--nodes", type=click.Path(path_type=Path), required=True, help="Fleet, CSV in the openb format.")
"""`--nodes`: the fleet of the trace."""


def pods_option(what: str) -> Callable[[Command], Command]:
    """`--pods`, repeatable. what: the pods in the help text."""
    where = click.Path(path_type=Path)
    words = f"{what}, CSV in the openb format; repeatable."
    return click.option("--pods", type=where, required=True, multiple=True, help=words)


def output_options(jobs: str = "Processes.") -> Callable[[Command], Command]:
    """`--jobs` and `--json`. jobs: help text of the number of processes."""

    def decorated(command: Command) -> Command:
        to = "JSON lines to this file, or to stdout."
        command = click.option("--json", "json_to", is_flag=False, flag_value="-", help=to)(command)
        return click.option("--jobs", type=click.IntRange(1), default=1, help=jobs)(command)

    return decorated


def finish(
    swept: Swept[Any, Mapping[str, Any]],
    json_to: str | None,
    tables: Callable[[Sequence[Mapping[str, Any]]], Iterable[Table]],
    width: int = 150,
) -> None:
    """Write the records as JSON lines and print their tables; exit with 1 if the sweep was stopped early.

    width: of the tables where stdout is no terminal, in characters.
    """
    records = [record for _, record in swept.done]
    if json_to:
        write_lines(json_to, records)
    console = Console(stderr=bool(json_to), width=None if sys.stdout.isatty() else width)
    for table in tables(records):
        console.print(table)
    if swept.stopped:
        click.echo(f"stopped early ({swept.stopped}): {len(swept.missing)} runs are missing", err=True)
        sys.exit(1)


def with_error(values: FloatArray, *, signed: bool = True) -> str:
    """Mean over seeds with its standard error, of two seeds or more."""
    mean = f"{values.mean():+.2f}" if signed else f"{values.mean():.2f}"
    return mean if len(values) < 2 else f"{mean} ± {values.std(ddof=1) / np.sqrt(len(values)):.2f}"
