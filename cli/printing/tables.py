"""Tables as wide as the terminal, or as wide as needed when output is not a terminal."""

import sys
from collections.abc import Iterable, Sequence
from io import StringIO
from shutil import get_terminal_size

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.printing.terminal import printable, styled

Row = Sequence[str]

PIPE_WIDTH = 10_000
"""Width of piped output, so that no line is wrapped."""


GAP = 3
"""Blanks between columns."""


def table(columns: Sequence[str], rows: Iterable[Row], width: int | None = None, *, numeric: bool = False) -> str:
    """Table without borders, as in kubectl. Ends with an empty line.

    Text is wrapped between words to the width of the terminal. A name is never broken, so that it can be copied: where
    names need more than the terminal, the table is wider than it.

    width: width of the terminal, characters; None: that of standard output, which wraps nothing if it is not one.
    numeric: whether all columns but the first hold numbers.
    """
    is_terminal = sys.stdout.isatty()
    rows = [[printable(cell) for cell in row] for row in rows]
    room = width or (get_terminal_size().columns if is_terminal else PIPE_WIDTH)
    widths = fitted(columns, rows, room - GAP * (len(columns) - 1))
    made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for number, (name, cells) in enumerate(zip(columns, widths, strict=True)):
        is_right = name.startswith("$") or (numeric and number > 0)
        made.add_column(name, justify="right" if is_right else "left", overflow="fold", width=cells)
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    whole = sum(widths) + GAP * len(columns)
    console = Console(file=StringIO(), width=whole, force_terminal=is_terminal, highlight=False)
    console.print(made)
    text = console.file.getvalue() if isinstance(console.file, StringIO) else ""
    return styled("\n".join(line.rstrip() for line in text.splitlines()) + "\n")


def fitted(columns: Sequence[str], rows: Iterable[Row], room: int) -> list[int]:
    """Widths of the columns in characters: as needed, the widest narrowed to `room` in total while words fit."""
    texts = [[name, *cells] for name, *cells in zip(columns, *rows, strict=True)]
    widths = [max(map(cell_len, text)) for text in texts]
    least = [max(cell_len(word) for cell in text for word in (cell.split() or [""])) for text in texts]
    while sum(widths) > room:
        narrowable = [n for n, width in enumerate(widths) if width > least[n]]
        if not narrowable:
            break
        widths[max(narrowable, key=lambda n: widths[n])] -= 1
    return widths
