"""Process that analyses one large job: `python -m controller.loops.health.analyser_child SOCKET MEMORY`.

A child of the operator. It reads a layout, then frames and requests for verdicts, and answers these. It ends with its
socket.
"""

import mmap
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from controller.loops.health.analyser_wire import (
    HEAD,
    Judged,
    Kind,
    facts_in,
    judged_body,
    layout_in,
    message,
)
from health.stream import Analyser


def serve(stream: socket.socket, memory: mmap.mmap) -> None:
    """Analyses until the other end closes. An error in what a job wrote ends it with its kind and place, no values."""
    analyser: Analyser | None = None
    try:
        while (received := receive(stream)) is not None:
            kind, body, now_s = received
            if kind is Kind.LAYOUT:
                analyser = Analyser(layout_in(body))
            elif analyser is not None and kind is Kind.FRAMES:
                analyser.take(memoryview(memory)[: int.from_bytes(body, "little")], now_s)
                send(stream, Kind.TAKEN, b"")
            elif analyser is not None and kind is Kind.JUDGE:
                answer = Judged(analyser.judge(now_s, facts_in(body)), analyser.ended(now_s))
                send(stream, Kind.VERDICTS, judged_body(answer))
    except OSError:
        return
    except Exception as error:  # noqa: BLE001 - records are written by the job, which may write anything
        place = traceback.extract_tb(error.__traceback__)[-1]
        words = f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
        with suppress(OSError):
            send(stream, Kind.FAILED, words.encode())


def receive(stream: socket.socket) -> tuple[Kind, bytes, float] | None:
    """The next message; None at the end of the stream. Raises OSError."""
    head = _read(stream, HEAD.size)
    if head is None:
        return None
    kind, length, now_s = HEAD.unpack(head)
    body = _read(stream, length)
    return None if body is None else (Kind(kind), body, now_s)


def send(stream: socket.socket, kind: Kind, body: bytes, now_s: float = 0.0) -> None:
    """Sends one message. Raises OSError."""
    for part in message(kind, body, now_s):
        stream.sendall(part)


def _read(stream: socket.socket, length: int) -> bytes | None:
    made = bytearray(length)
    view, at = memoryview(made), 0
    while at < length:
        count = stream.recv_into(view[at:])
        if not count:
            return None
        at += count
    return bytes(made)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), mmap.mmap(int(sys.argv[2]), 0, access=mmap.ACCESS_READ))
