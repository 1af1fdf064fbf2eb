"""What every command does on a terminal: safe streams, errors with exit status, colours, and help of groups."""

import codecs
import os
import sys
from collections.abc import Iterable

import click

from cluster.errors import TonnageError

ESCAPED = "tonnage-escaped"
"""Name of the error handler that writes what an encoding lacks as `\\uXXXX`, which JSON and YAML read back."""


def make_safe() -> None:
    """Make the standard streams usable. Raises TonnageError when standard output is closed (`>&-`).

    Its file descriptor would be given to the next file that is opened, and results would be written into that file.
    """
    codecs.register_error(ESCAPED, escaped)
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  # open as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # tests and notebooks have streams without it
        if reconfigure is not None:
            reconfigure(errors=ESCAPED)
    if sys.stdout is None:
        raise TonnageError("standard output is closed, so results have nowhere to go; to discard them: >/dev/null")


def write_out() -> None:
    """Write what is buffered, so that a full disk is an error of the command. Raises OSError."""
    sys.stdout.flush()


def escaped(error: UnicodeError) -> tuple[str, int]:
    """Handler of an encoding error: the characters as `\\uXXXX`, those outside the first plane as a pair of them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs), error.end


FAILED, WRONG_INPUT, INTERRUPTED, UNREAD = 1, 2, 130, 141
"""Exit statuses: refused or failed; wrong usage or invalid input; ended by Ctrl-C (128 + SIGINT, as in shells); the
reader of the output ended first (128 + SIGPIPE, as kubectl behind `| head`)."""


UNAUTHORIZED = 401
ANONYMOUS = "system:anonymous"
"""User of a request without credentials: the server refuses it as it would anybody without rights."""


def print_error(error: TonnageError) -> None:
    """Print an error as kubectl words it: refused by the server, server not reachable, or any other."""
    # Errors of the API server have it; their module is not loaded for verbs without a cluster.
    refusal = getattr(error, "refusal", None)
    if refusal is None:
        click.echo(f"error: {error}", err=True)
    elif refusal.status == 0:
        click.echo(f"Unable to connect to the server: {refusal.words}", err=True)
        click.echo("check --context and --kubeconfig, and whether the server runs", err=True)
    else:
        click.echo(f"Error from server ({refusal.reason}): {refusal.words}", err=True)
        if refusal.status == UNAUTHORIZED or ANONYMOUS in refusal.words:
            click.echo("you must be logged in: check the user of the kubeconfig and its token (--context)", err=True)


def stopped_status(stopped: str) -> int:
    """Exit status of a sweep that ended early. stopped: the reason, as the sweep states it."""
    return INTERRUPTED if stopped == "interrupted" else FAILED


GONE, NEW, CHANGED = "red", "green", "yellow"
_BY_SIGN = {"-": GONE, "+": NEW, "~": CHANGED, ">": CHANGED, "!": GONE, "@": "cyan"}


def colors_are_wanted() -> bool:
    """Whether standard output is a terminal and NO_COLOR is unset. Source: no-color.org."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def echo_difference(lines: Iterable[str]) -> None:
    """Print lines, each in the color of its first character."""
    colored = colors_are_wanted()
    for line in lines:
        click.echo(click.style(line, fg=_BY_SIGN.get(line[:1])) if colored else line)


WHOLE = 10_000
"""Limit of a summary's length, so that its first sentence is always whole."""


class VerbGroup(click.Group):
    """Group that shows the first sentence of each command's help whole."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        commands = [(name, self.get_command(ctx, name)) for name in names]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(n, c.get_short_help_str(WHOLE)) for n, c in commands if c is not None and not c.hidden]
            )
