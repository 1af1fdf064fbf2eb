"""What simulations share: parallel runs, a report file that is checked before the work, the machine they ran on."""

import os
import platform
import shlex
import sys
from contextlib import suppress
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.inputs.options import adding
from cluster.errors import ConfigError, Mistake
from cluster.version import VERSION

if TYPE_CHECKING:
    from simulator.sweep.runner import Executor


def cores() -> int:
    """Number of cores that this process may use; containers and batch systems may restrict it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_description() -> str:
    """Description such as `16 cores of AMD EPYC 9654, Linux 6.8, Python 3.12.4`."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    processor = next(names, "") or platform.machine() or "an unknown processor"
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    return f"{cores()} cores of {processor}, {system}, Python {platform.python_version()}"


def command_line() -> str:
    """The command as it was given, quoted for a shell."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def report_facts(started_at: datetime, wall_s: float, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """How a report was made, as (name, value). more: after the command. wall_s: seconds that it took."""
    return (
        ("ran", f"{started_at:%Y-%m-%d %H:%M} UTC, {wall_s:.1f} s"),
        ("command", command_line()),
        *more,
        ("machine", machine_description()),
        ("version", f"Tonnage {VERSION}"),
    )


REMEDY = "name a file in a writable folder"


def check_report(path: Path | None) -> None:
    """Raises ConfigError when a report could not be written there; None is fine.

    Raises ModuleNotFoundError, before hours of work, where the libraries of the extra `reports` are missing.
    """
    for library in ("matplotlib", "jinja2") if path is not None else ():
        if find_spec(library) is None:
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)
    if path is not None and (found := obstacle(path)):
        raise ConfigError(Mistake(f"--report {path}", found, REMEDY))


def obstacle(report: Path) -> str:
    """Reason why a report cannot be written, "" for none; checked before the work rather than after it."""
    if report.is_dir():
        return "is a folder"
    if report.exists() and not report.is_file():  # a device or a pipe is written into
        return "" if os.access(report, os.W_OK) else "is not writable"
    folder = next(parent for parent in report.absolute().parents if parent.exists())
    if not folder.is_dir():
        return f"{folder} is not a folder"
    return "" if os.access(folder, os.W_OK) else f"{folder} is not writable"


def save_report(path: Path, html: str) -> None:
    """Write a report and name its file on standard error. Raises ConfigError when the file cannot be written.

    A regular file is replaced atomically; anything else (a device, a pipe) is written into, following symbolic links.
    """
    is_new = not path.parent.exists()
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            # The name, not what it resolves to: /dev/stdout resolves to a pipe without a name.
            path.write_text(html, encoding="utf-8")
        else:
            scratch = target.with_name(f".{target.name}.{os.getpid()}")
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                scratch.write_text(html, encoding="utf-8")
                scratch.replace(target)
            finally:
                with suppress(OSError):
                    scratch.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: symbolic links in a circle
        words = getattr(error, "strerror", None) or str(error)
        raise ConfigError(Mistake(f"report {path}", words, "name a file in a folder you may write to")) from error
    click.echo(f"report: {path}{f' (made the folder {path.parent})' if is_new else ''}", err=True)


parallel_options = adding(
    click.option("--jobs", type=click.IntRange(min=1), help="Parallel runs on this machine. [default: its cores]"),
    click.option(
        "--ray",
        default="",
        metavar="ADDRESS|embedded",
        help="Run on this node's Ray cluster, by its head's HOST:PORT, or on a new Ray here. [default: processes]",
    ),
)
"""Adds `--jobs` and `--ray`."""

sweep_options = adding(
    parallel_options,
    click.option(
        "--results",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        help="Folder for finished runs; repeating the command runs only what is missing.",
    ),
)
"""Adds `--jobs`, `--ray` and `--results`."""


def executor_of(ray: str, jobs: int | None) -> "Executor":
    """Executor of the runs: processes, or Ray."""
    if not ray:
        from simulator.sweep.runner import WorkerProcesses

        return WorkerProcesses(jobs or cores())
    from controller.background.on_ray import check_installed
    from controller.report.logs import configure_logs
    from simulator.sweep.on_ray import SweepOnRay

    check_installed("--ray")
    configure_logs("auto", "warning")
    return SweepOnRay(ray, jobs or cores())
