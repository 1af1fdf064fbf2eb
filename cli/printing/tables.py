"""Tables as wide as the terminal, or as wide as needed when output is not a terminal."""

from collections.abc import Iterable, Sequence
from io import StringIO
from shutil import get_terminal_size
from sys import stdout

from rich.console import Console
from rich.table import Table
from rich.text import Text

Row = Sequence[str]

PIPE_WIDTH = 10_000
"""Width of piped output, so that no line is wrapped."""


def table(columns: Sequence[str], rows: Iterable[Row]) -> str:
    """Table without borders, as in kubectl. Ends with an empty line."""
    is_terminal = stdout.isatty()
    made = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for name in columns:
        made.add_column(name, justify="right" if name.startswith("$") else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    width = get_terminal_size().columns if is_terminal else PIPE_WIDTH
    console = Console(file=StringIO(), width=width, force_terminal=is_terminal, highlight=False)
    console.print(made)
    text = console.file.getvalue() if isinstance(console.file, StringIO) else ""
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
