"""No control character that somebody wrote into an object reaches a terminal."""

import io
import sys

import pytest

from cli.printing.tables import table
from cli.printing.terminal import PrintableStream, printable, styled

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[8mhidden\x9b31m txt\rover\x7f"
SHOWN = "^[]0;owned^G^[[2J^[[8mhidden\\u009b31m txt^Mover^?"


def test_control_characters_are_shown_and_line_breaks_and_tabs_stay() -> None:
    stream = io.StringIO()
    written = f"a\tb\r\n{EVIL}\n"

    assert PrintableStream(stream).write(written) == len(written)  # type: ignore[arg-type]

    assert stream.getvalue() == f"a\tb\r\n{SHOWN}\n"
    assert printable(EVIL) == SHOWN


def test_own_styles_stay_and_nobody_can_forge_them(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", PrintableStream(stream))  # type: ignore[arg-type]

    sys.stdout.write(styled(f"\x1b[31m{printable(EVIL)}\x1b[0m") + "\x0001\x00\x1b[1m\n")

    assert stream.getvalue() == f"\x1b[31m{SHOWN}\x1b[0m^@01^@^[[1m\n"


def test_a_table_on_a_terminal_has_our_bold_and_nothing_of_the_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", PrintableStream(stream))  # type: ignore[arg-type]
    monkeypatch.setenv("TERM", "xterm")

    sys.stdout.write(table(("NAME", "WORDS"), [("a", EVIL)], width=200))

    assert "\x1b[1m" in stream.getvalue()
    assert SHOWN in stream.getvalue()
