"""Options shared by all sweeps: runs in parallel, where they run, and the folder of finished ones."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cli.inputs.machine import cores

if TYPE_CHECKING:
    from simulator.sweep.runner import Executor

Command = TypeVar("Command", bound=Callable[..., Any])


def sweep_options(command: Command) -> Command:
    """Adds `--jobs`, `--ray` and `--results`."""
    for option in (
        click.option(
            "--results",
            type=click.Path(path_type=Path),
            metavar="FOLDER",
            help="Folder for finished runs; repeating the command runs only what is missing.",
        ),
        click.option(
            "--ray",
            default="",
            metavar="ADDRESS|embedded",
            help="Run on this node's Ray cluster, by its head's HOST:PORT, or on a new Ray here. [default: processes]",
        ),
        click.option("--jobs", type=click.IntRange(min=1), help="Parallel runs on this machine. [default: its cores]"),
    ):
        command = option(command)
    return command


def executor_of(ray: str, jobs: int | None) -> "Executor":
    """Executor of the runs: processes, or Ray."""
    if not ray:
        from simulator.sweep.runner import Processes

        return Processes(jobs or cores())
    from simulator.sweep.on_ray import OnRay

    return OnRay(ray, jobs or cores())


def resume_hint(results: Path | None) -> str:
    """Hint about resuming a sweep that was stopped."""
    if results is None:
        return "use --results FOLDER to keep finished runs for the next time"
    return f"finished runs are in {results}; repeat the command to resume"
