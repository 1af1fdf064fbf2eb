"""Gate of a tool call: connects to the node agent, waits to be let through, and becomes the command.

Run by `tonnage.sandbox` as a program of its own, so that the agent sees, by the kernel's word, the very process that
will be the command. It imports next to nothing: 10 ms.

    python -I -S gate.py LINE HANDLE PATH ASK COMMAND...

LINE: descriptor of an unconnected socket. HANDLE: descriptor of a socket to the parent, which answers `g` to go.
"""

import _socket
import os
import sys

REFUSED = 75
"""Exit status of a gate that was not let through: EX_TEMPFAIL of sysexits.h."""


def main(words: list[str]) -> int:
    line = _socket.socket(fileno=int(words[0]))
    handle = _socket.socket(fileno=int(words[1]))
    try:
        line.connect(words[2])
        line.send(words[3].encode())
        handle.send(b"c")
    except OSError:
        handle.send(b"x")
    if handle.recv(1) != b"g":
        return REFUSED
    for descriptor in (line.fileno(), handle.fileno()):
        os.set_inheritable(descriptor, False)
    try:
        os.execvp(words[4], words[4:])  # noqa: S606 - the caller's own command
    except FileNotFoundError:
        sys.stderr.write(f"{words[4]}: command not found\n")
        return 127
    except OSError as error:
        sys.stderr.write(f"{words[4]}: {error.strerror}\n")
        return 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
