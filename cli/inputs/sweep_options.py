"""Options that every sweep has: how many runs at a time, where, and where finished ones are kept."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cli.inputs.machine import cores

if TYPE_CHECKING:
    from simulator.sweep.runner import Executor

Command = TypeVar("Command", bound=Callable[..., Any])


def sweep_options(command: Command) -> Command:
    """`--jobs`, `--ray`, `--results`."""
    for option in (
        click.option(
            "--results",
            type=click.Path(path_type=Path),
            metavar="FOLDER",
            help="Keep finished runs there; the same command again does only those that are missing.",
        ),
        click.option(
            "--ray",
            default="",
            metavar="ADDRESS|embedded",
            help="Run on the Ray cluster at HOST:PORT, or on an own Ray on this machine. [default: processes]",
        ),
        click.option("--jobs", type=click.IntRange(min=1), help="Runs at a time on this machine. [default: its cores]"),
    ):
        command = option(command)
    return command


def way_of(ray: str, jobs: int | None) -> "Executor":
    """Where runs are done."""
    if not ray:
        from simulator.sweep.runner import Processes

        return Processes(jobs or cores())
    from simulator.sweep.on_ray import OnRay

    return OnRay(ray, jobs or cores())


def hint(results: Path | None) -> str:
    """What to do about a sweep that was stopped."""
    if results is None:
        return "with --results FOLDER, finished runs would be kept for the next time"
    return f"finished runs are kept in {results}: the same command goes on from there"
