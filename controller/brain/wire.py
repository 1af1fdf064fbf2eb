"""The words that a controller and its brain process exchange, and how they stand on a stream of bytes.

A message is a small head (MessagePack, typed) and a body that only snapshots and plans have: their frame. Each way is
one stream, in order, and everything carries the number of the request that it belongs to, so that an answer that comes
too late is known for what it is.
"""

import hmac
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256

import msgspec

from controller.deciders.decisions import Decisions

PROTOCOL = 2
"""Raised whenever two versions could misunderstand each other."""
LARGEST_BODY = 1 << 30
"""Bytes. A snapshot of a million pods has a tenth of it; a peer that announces more is broken."""
LARGEST_HEAD = 1 << 20
_START = 12
"""Bytes before a head: its length (4), the body's length (8), little endian."""
_NONCE = 32


class WireError(ConnectionError):
    """What arrived is not what a brain or a controller says: the connection is of no use any more."""


class Begin(msgspec.Struct, tag=True, frozen=True):
    """Controller to brain, first of all: how is to be decided."""

    version: str
    """Tonnage's; both ends run the same one, or the brain refuses."""
    decisions: Decisions
    protocol: int = PROTOCOL


class Ready(msgspec.Struct, tag=True, frozen=True):
    """Brain to controller: the actors are up."""

    version: str
    ray: str
    nodes: int
    """Of the Ray cluster."""
    planners: int
    took_s: float
    """From the start of the process."""
    processes: tuple[int, ...] = ()
    """Ids of the planners' processes; for people and for tests that end them."""


class Refuse(msgspec.Struct, tag=True, frozen=True):
    """Brain to controller: it cannot begin, and trying again alone will not help."""

    why: str


class Ask(msgspec.Struct, tag=True, frozen=True):
    """Controller to brain, with the snapshot's frame: a plan, please."""

    request: int
    epoch: int
    """Of the controller's Lease: an answer to a request of an earlier term is never used."""
    deadline_s: float
    """From when the request was written."""


class Answer(msgspec.Struct, tag=True, frozen=True):
    """Brain to controller, with the plan's frame."""

    request: int
    epoch: int
    took_s: float
    """In the brain, from the request's arrival."""


class Failed(msgspec.Struct, tag=True, frozen=True):
    """Brain to controller: this request gets no plan."""

    request: int
    epoch: int
    reason: str
    """`busy`, `deadline`, `planner_lost`, `queue_full`, `error`."""
    words: str


class Remember(msgspec.Struct, tag=True, frozen=True):
    """Controller to brain, with the memory: what the occupant of a slot remembered last."""

    slot: str


class Thinks(msgspec.Struct, tag=True, frozen=True):
    """Brain to controller, with a thought's frame, or with the reason why there is none: out of a slot."""

    slot: str
    reason: str = ""
    """Of `controller.brain.background_frames.Idea`."""
    words: str = ""


class Ping(msgspec.Struct, tag=True, frozen=True):
    """Controller to brain: are you there?"""

    number: int


class Pong(msgspec.Struct, tag=True, frozen=True):
    """Brain to controller."""

    number: int
    planners_up: int = 0
    """Planners that answered when they were last asked."""
    planner_restarts: int = 0
    """Since the brain began."""
    processes: tuple[int, ...] = ()
    """Of the planners that answered."""
    slots_up: tuple[str, ...] = ()
    """Slots whose actor answered when it was last asked."""


Message = Begin | Ready | Refuse | Ask | Answer | Failed | Remember | Thinks | Ping | Pong

_decode = msgspec.msgpack.Decoder(Message).decode
_encode = msgspec.msgpack.Encoder().encode


def written(message: Message, body: bytes | memoryview = b"") -> list[memoryview]:
    """The bytes of a message, in pieces so that the body is not copied."""
    head = _encode(message)
    start = len(head).to_bytes(4, "little") + len(body).to_bytes(8, "little")
    return [memoryview(start + head)] + ([memoryview(body)] if len(body) else [])


@dataclass(slots=True)
class Inbox:
    """Turns bytes as they arrive into whole messages."""

    _bytes: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes | memoryview) -> Iterator[tuple[Message, bytes]]:
        """The messages that are whole with this. Raises WireError."""
        self._bytes += data
        while len(self._bytes) >= _START:
            head, body = _lengths(self._bytes[:_START])
            if len(self._bytes) < _START + head + body:
                return
            message = _message(bytes(self._bytes[_START : _START + head]))
            content = bytes(memoryview(self._bytes)[_START + head : _START + head + body])
            del self._bytes[: _START + head + body]
            yield message, content


def send(stream: socket.socket, message: Message, body: bytes = b"") -> None:
    """Write a message and wait until it is gone. Raises OSError."""
    for piece in written(message, body):
        stream.sendall(piece)


def receive(stream: socket.socket) -> tuple[Message, bytearray]:
    """Wait for a message. Raises EOFError when the other end is gone, WireError, OSError."""
    head, body = _lengths(_exactly(stream, _START))
    message = _message(bytes(_exactly(stream, head)))
    return message, _exactly(stream, body)


def _lengths(start: bytes | bytearray) -> tuple[int, int]:
    head, body = int.from_bytes(start[:4], "little"), int.from_bytes(start[4:_START], "little")
    if head > LARGEST_HEAD or body > LARGEST_BODY:
        raise WireError(f"a message of {head} and {body} bytes is none of ours")
    return head, body


def _message(head: bytes) -> Message:
    try:
        message: Message = _decode(head)
    except msgspec.MsgspecError as error:
        raise WireError(f"a message that cannot be read: {error}") from error
    return message


def _exactly(stream: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        got = stream.recv_into(view)
        if not got:
            raise EOFError("the other end is gone")
        view = view[got:]
    return data


def prove(stream: socket.socket, secret: bytes, *, as_brain: bool) -> None:
    """Both ends show that they know the secret, without telling it. Raises WireError when the other does not.

    Each sends a fresh nonce and answers the other's with HMAC-SHA256 over both and its own role, so that an answer
    cannot be sent back to whom it came from. This says who is there when a connection opens; it encrypts nothing
    (docs/ray.md).
    """
    mine = secrets.token_bytes(_NONCE)
    stream.sendall(mine)
    theirs = bytes(_exactly(stream, _NONCE))
    nonces = theirs + mine if as_brain else mine + theirs  # the controller's first, on both ends
    stream.sendall(_proof(secret, nonces, as_brain=as_brain))
    answer = bytes(_exactly(stream, sha256().digest_size))
    if not hmac.compare_digest(answer, _proof(secret, nonces, as_brain=not as_brain)):
        raise WireError("the other end does not know the brain's token; give both the same Secret")


def _proof(secret: bytes, nonces: bytes, *, as_brain: bool) -> bytes:
    return hmac.digest(secret, (b"brain" if as_brain else b"controller") + nonces, "sha256")
