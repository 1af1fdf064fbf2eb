"""File of `--report`: checked before the work, written after it; what is no regular file is never replaced."""

import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import click

from cluster.errors import ConfigError, Mistake

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
    """Write a report and name its file on standard error. Raises ConfigError when the file cannot be written."""
    folder = path.parent
    is_new = not folder.exists()
    write_report(path, html)
    click.echo(f"report: {path}{f' (made the folder {folder})' if is_new else ''}", err=True)


def write_report(path: Path, html: str) -> None:
    """Replace a regular file atomically; write into anything else (a device, a pipe), following symbolic links.

    Raises ConfigError when the file cannot be written.
    """
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            # The name, not what it resolves to: /dev/stdout resolves to a pipe without a name.
            path.write_text(html, encoding="utf-8")
        else:
            _replace(target, html)
    except (OSError, RuntimeError) as error:  # RuntimeError: symbolic links in a circle
        words = getattr(error, "strerror", None) or str(error)
        raise ConfigError(Mistake(f"report {path}", words, "name a file in a folder you may write to")) from error


def _replace(path: Path, html: str) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        scratch.write_text(html, encoding="utf-8")
        scratch.replace(path)
    finally:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
