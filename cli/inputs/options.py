"""Options that many commands share, each declared once."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Any], Any]
"""Decorator that adds an option to a command."""


def adding(*options: Option) -> Callable[[Command], Command]:
    """Decorator that adds these options to a command, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def setting(names: str, default: Any, words: str, kind: Any = None, metavar: str | None = None) -> Option:
    """Option with a default that its help shows. names: separated by blanks, as `--step step_s`."""
    return click.option(*names.split(), type=kind, default=default, show_default=True, metavar=metavar, help=words)


def files_option(words: str, *, required: bool = False) -> Option:
    """`-f`: files and folders, the parameter `files`."""
    kind = click.Path(allow_dash=True)
    return click.option("-f", "--filename", "files", multiple=True, required=required, type=kind, help=words)


def output_choice(*formats: str, words: str | None = None) -> Option:
    """`-o`: one of these formats, by default the first."""
    kind = click.Choice(formats)
    return click.option("-o", "--output", type=kind, default=formats[0], show_default=True, help=words)


def report_option(words: str = "Write a report with charts, too.") -> Option:
    """`--report`: file for a page."""
    from pathlib import Path  # 3 ms that a look at a cluster does without

    return click.option("--report", type=click.Path(path_type=Path), metavar="FILE.html", help=words)
