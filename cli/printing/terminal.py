"""What every command does on a terminal: safe streams, errors with exit status, colours, and help of groups."""

import codecs
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from cluster.errors import TonnageError

if TYPE_CHECKING:
    from simulator.sweep.runner import Swept

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
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        reconfigure = getattr(stream, "reconfigure", None)  # tests and notebooks have streams without it
        if reconfigure is not None:
            reconfigure(errors=ESCAPED)
        if stream is not None and not isinstance(stream, PrintableStream):
            setattr(sys, name, PrintableStream(stream))
    if sys.stdout is None:
        raise TonnageError("standard output is closed, so results have nowhere to go; to discard them: >/dev/null")


_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
"""Characters by which a terminal does something else than show text."""
_NONCE = os.urandom(8).hex()
_OWN_STYLE = re.compile(rf"\x00{_NONCE}([\d;]*)\x00")
_STYLE = re.compile(r"\x1b\[([\d;]*)m")


class PrintableStream:
    """Standard stream that shows control characters instead of passing them to a terminal.

    Tenants write names, labels, messages and whole templates, which an admin's terminal must not obey.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        """The stream as it was, for what draws on a terminal by itself."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Writes it with control characters as `^[` or `\\u009b`; returns the number of characters given."""
        if _UNPRINTABLE.search(text):
            parts = _OWN_STYLE.split(text)  # text, style, text, style, ..., text
            parts[::2] = map(printable, parts[::2])
            parts[1::2] = (f"\x1b[{style}m" for style in parts[1::2])
            self.stream.write("".join(parts))
        else:
            self.stream.write(text)
        return len(text)


def printable(text: str) -> str:
    """Text with its control characters as people write them: `^[`, `^G`, `\\u009b`."""

    def shown(found: re.Match[str]) -> str:
        code = ord(found[0])
        return f"^{chr(code ^ 64)}" if code < 128 else f"\\u{code:04x}"

    return _UNPRINTABLE.sub(shown, text)


def styled(text: str) -> str:
    """Text whose colours and weights are our own, so that the standard streams keep them. What others wrote in it must
    be `printable` already."""
    return _STYLE.sub(f"\0{_NONCE}\\1\0", text) if isinstance(sys.stdout, PrintableStream) else text


def drawable(stream: TextIO) -> TextIO:
    """The stream, for what moves the cursor and shows nothing that tenants write."""
    return stream.stream if isinstance(stream, PrintableStream) else stream


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


def tell_end(ctx: click.Context, swept: "Swept[Any, Any]", results: Path | None, word: str) -> None:
    """Say what an earlier sweep had finished, and exit where this one was stopped, with how to resume it."""
    if swept.kept:
        click.echo(f"{swept.kept} {word} were kept from an earlier sweep in {results}", err=True)
    if swept.stopped:
        done = len(swept.done)
        click.echo(f"stopped ({swept.stopped}): {done} of {done + len(swept.missing)} {word} done", err=True)
        hint = f"finished runs are in {results}; repeat the command to resume"
        click.echo(hint if results else "use --results FOLDER to keep finished runs for the next time", err=True)
        ctx.exit(stopped_status(swept.stopped))


GONE, NEW, CHANGED = "red", "green", "yellow"
_BY_SIGN = {"-": GONE, "+": NEW, "~": CHANGED, ">": CHANGED, "!": GONE, "@": "cyan"}


def colors_are_wanted() -> bool:
    """Whether standard output is a terminal and NO_COLOR is unset. Source: no-color.org."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def echo_difference(lines: Iterable[str]) -> None:
    """Print lines, each in the color of its first character."""
    colored = colors_are_wanted()
    for line in lines:
        click.echo(styled(click.style(printable(line), fg=_BY_SIGN.get(line[:1]))) if colored else line)


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
