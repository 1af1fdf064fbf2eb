"""Messages between the operator and the process that analyses a large job: framed, read without running code."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import msgspec

from cluster.frame import Buffer, framed, unframed
from health.records.layout import Layout
from health.verdicts.verdict import Fact, Verdict

HEAD = struct.Struct("<BQd")
"""Kind, bytes that follow, the analyser's clock."""


class Kind(IntEnum):
    """Kind of a message; the last three are answers."""

    LAYOUT = 1
    FRAMES = 2
    """Its body is the number of bytes that the shared memory holds."""
    JUDGE = 3
    TAKEN = 4
    """The frames may be overwritten."""
    VERDICTS = 5
    FAILED = 6


@dataclass(frozen=True, slots=True)
class Judged:
    """Answer to one request for verdicts."""

    found: tuple[Verdict, ...] = ()
    ended: tuple[Verdict, ...] = ()


def message(kind: Kind, body: Buffer, now_s: float = 0.0) -> tuple[bytes, Buffer]:
    """Head and body as they are sent."""
    return HEAD.pack(kind, len(body), now_s), body


def layout_body(layout: Layout) -> bytes:
    return framed(layout)


def layout_in(body: Buffer) -> Layout:
    """Raises FrameError."""
    return unframed(Layout, body)


def facts_body(facts: Sequence[Fact]) -> bytes:
    return msgspec.msgpack.encode(tuple(facts), enc_hook=_number)


def facts_in(body: Buffer) -> tuple[Fact, ...]:
    """Raises msgspec.MsgspecError."""
    return msgspec.msgpack.decode(body, type=tuple[Fact, ...])


def judged_body(judged: Judged) -> bytes:
    return msgspec.msgpack.encode(judged, enc_hook=_number)


def judged_in(body: Buffer) -> Judged:
    """Raises msgspec.MsgspecError."""
    return msgspec.msgpack.decode(body, type=Judged)


def _number(value: object) -> object:
    """A number of numpy as one of Python's."""
    item = getattr(value, "item", None)
    if item is None:
        raise NotImplementedError(f"a message holds no {type(value).__name__}")
    return item()
