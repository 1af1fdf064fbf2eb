"""Standard streams that a command can rely on: open, able to write every character, and written out at the end."""

import codecs
import os
import sys

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
