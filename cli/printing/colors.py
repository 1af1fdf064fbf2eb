"""Colors of differences, used only on a terminal that allows them."""

import os
import sys
from collections.abc import Iterable

import click

GONE, NEW, CHANGED = "red", "green", "yellow"
_BY_SIGN = {"-": GONE, "+": NEW, "~": CHANGED, ">": CHANGED, "!": GONE, "@": "cyan"}


def are_wanted() -> bool:
    """Whether standard output is a terminal and NO_COLOR is unset. Source: no-color.org."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def echo_difference(lines: Iterable[str]) -> None:
    """Print lines, each in the color of its first character."""
    colored = are_wanted()
    for line in lines:
        click.echo(click.style(line, fg=_BY_SIGN.get(line[:1])) if colored else line)
