"""Wire protocol between a controller and its brain process, its layout on a byte stream, and one brain's session.

A message is a small head (MessagePack, typed) and, for snapshots, plans and memories, a body: a frame or a memory. Each
direction is one stream, in order. Every message names the request that it belongs to, so a late answer is recognized.
"""

import hmac
import secrets
import socket
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256

import msgspec

from cluster.errors import UNREADABLE
from controller.deciders.decisions import Decisions

PROTOCOL = 2
"""Version of the protocol, raised whenever two versions could misunderstand each other."""
LARGEST_BODY = 1 << 30
"""Largest body, in bytes. A snapshot of a million pods has a tenth of it; a process that announces more is broken."""
LARGEST_HEAD = 1 << 20
_START = 12
"""Size of a message's start, in bytes: the head's length (4) and the body's length (8), little endian."""
_NONCE = 32


class WireError(ConnectionError):
    """Error for data that is no valid message: the connection cannot be used any more."""


class Begin(msgspec.Struct, tag=True, frozen=True):
    """Controller to brain, as the first message: the settings of all deciders."""

    version: str
    """Version of Tonnage; both ends run the same one, or the brain refuses."""
    decisions: Decisions
    protocol: int = PROTOCOL


class Ready(msgspec.Struct, tag=True, frozen=True):
    """Brain to controller: the actors are up."""

    version: str
    ray: str
    nodes: int
    """Number of nodes of the Ray cluster."""
    planners: int
    took_s: float
    """Seconds from the start of the process."""
    processes: tuple[int, ...] = ()
    """Process ids of the planners, for people and for tests that end them."""


class StartRefused(msgspec.Struct, tag=True, frozen=True):
    """Brain to controller: it cannot start, and a retry alone will not help."""

    why: str


class Ask(msgspec.Struct, tag=True, frozen=True):
    """Controller to brain, with the snapshot's frame: request for a plan."""

    request: int
    epoch: int
    """Epoch of the controller's Lease: an answer to a request of an earlier epoch is never used."""
    deadline_s: float
    """Seconds from when the request was sent."""


class PlanAnswer(msgspec.Struct, tag=True, frozen=True):
    """Brain to controller, with the plan's frame."""

    request: int
    epoch: int
    took_s: float
    """Seconds in the brain, from the request's arrival."""


class Failed(msgspec.Struct, tag=True, frozen=True):
    """Brain to controller: this request gets no plan."""

    request: int
    epoch: int
    reason: str
    """`busy`, `deadline`, `planner_lost`, `queue_full`, `error`."""
    words: str


class Remember(msgspec.Struct, tag=True, frozen=True):
    """Controller to brain, with the memory of a slot's last result."""

    slot: str


class Thinks(msgspec.Struct, tag=True, frozen=True):
    """Brain to controller, with the frame of a slot's result, or with the reason why there is none."""

    slot: str
    reason: str = ""
    """Reason as in `controller.brain.frames.SlotOutcome`."""
    words: str = ""


class Ping(msgspec.Struct, tag=True, frozen=True):
    """Controller to brain: liveness check."""

    number: int


class Pong(msgspec.Struct, tag=True, frozen=True):
    """Brain to controller: answer to a ping, with the state of its actors."""

    number: int
    planners_up: int = 0
    """Planners that answered their last ping."""
    planner_restarts: int = 0
    """Restarts of planners since the brain started."""
    processes: tuple[int, ...] = ()
    """Process ids of the planners that answered."""
    slots_up: tuple[str, ...] = ()
    """Slots whose actor answered its last ping."""


Message = Begin | Ready | StartRefused | Ask | PlanAnswer | Failed | Remember | Thinks | Ping | Pong

_decode = msgspec.msgpack.Decoder(Message).decode
_encode = msgspec.msgpack.Encoder().encode


def written(message: Message, body: bytes | memoryview = b"") -> list[memoryview]:
    """The bytes of a message, in pieces so that the body is not copied."""
    head = _encode(message)
    start = len(head).to_bytes(4, "little") + len(body).to_bytes(8, "little")
    return [memoryview(start + head)] + ([memoryview(body)] if len(body) else [])


@dataclass(slots=True)
class Inbox:
    """Parser that turns bytes, as they arrive, into whole messages."""

    _bytes: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes | memoryview) -> Iterator[tuple[Message, bytes]]:
        """The messages that are complete with this data. Raises WireError."""
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
    """Sends a message and waits until it is written. Raises OSError."""
    for piece in written(message, body):
        stream.sendall(piece)


def receive(stream: socket.socket) -> tuple[Message, bytearray]:
    """Waits for a message. Raises EOFError when the other end is closed, WireError, OSError."""
    head, body = _lengths(_exactly(stream, _START))
    message = _message(bytes(_exactly(stream, head)))
    return message, _exactly(stream, body)


def _lengths(start: bytes | bytearray) -> tuple[int, int]:
    head, body = int.from_bytes(start[:4], "little"), int.from_bytes(start[4:_START], "little")
    if head > LARGEST_HEAD or body > LARGEST_BODY:
        raise WireError(f"a message of {head} and {body} bytes is not valid")
    return head, body


def _message(head: bytes) -> Message:
    try:
        message: Message = _decode(head)
    except UNREADABLE as error:
        raise WireError(f"the message cannot be read: {error}") from error
    return message


def _exactly(stream: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        got = stream.recv_into(view)
        if not got:
            raise EOFError("the other end is closed")
        view = view[got:]
    return data


def prove(stream: socket.socket, secret: bytes, *, as_brain: bool) -> None:
    """Mutual proof that both ends know the secret, without sending it. Raises WireError when the other end fails.

    Each end sends a fresh nonce and answers the other's with HMAC-SHA256 over both nonces and its own role, so that an
    answer cannot be sent back to its origin. This authenticates a connection when it opens; it encrypts nothing
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


SILENT_S = 5.0
"""Seconds without a message after which a brain counts as frozen; it answers pings also while it plans."""
UP_WITHIN_S = 40.0
"""Seconds from its start until its planners must be up; measured 7 s, on a busy machine 20."""


class BrainLost(Exception):  # noqa: N818 - an ordinary turn in a brain's life
    """Error that ends a brain's session. The reason is one word, for metrics."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason, self.words = reason, words


@dataclass(slots=True)
class BrainSession:
    """Session of one brain, from its start. Instants are on the link's clock."""

    stream: socket.socket
    began_s: float
    received_at_s: float
    pinged_at_s: float = 0.0
    up_at_s: float | None = None
    inbox: Inbox = field(default_factory=Inbox)
    out: deque[memoryview] = field(default_factory=deque)

    def queue(self, message: Iterable[memoryview]) -> None:
        """Queues a message, to be sent when the stream accepts it."""
        self.out.extend(message)

    def read(self, now_s: float) -> Iterator[tuple[Message, bytes]]:
        """Messages that have arrived. Raises BrainLost."""
        try:
            data = self.stream.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError as error:
            raise BrainLost("ended", f"the brain's process is gone: {error}") from error
        if not data:
            raise BrainLost("ended", "the brain's process has ended")
        self.received_at_s = now_s
        try:
            yield from self.inbox.feed(data)
        except WireError as error:
            raise BrainLost("garbled", str(error)) from error

    def write(self) -> None:
        """Sends as much of the queue as the stream accepts now. Raises BrainLost."""
        try:
            while self.out:
                sent = self.stream.send(self.out[0])
                if sent < len(self.out[0]):
                    self.out[0] = self.out[0][sent:]
                else:
                    self.out.popleft()
        except BlockingIOError:
            return
        except OSError as error:
            raise BrainLost("ended", f"the brain's process is gone: {error}") from error

    def check(self, now_s: float) -> None:
        """Raises BrainLost when the brain does not come up, or is silent."""
        if self.up_at_s is None:
            if now_s >= self.began_s + UP_WITHIN_S:
                raise BrainLost("unready", f"the brain was not up within {UP_WITHIN_S:.0f} s")
        elif now_s >= self.received_at_s + SILENT_S:
            raise BrainLost("silent", f"the brain was silent for {SILENT_S:.0f} s")
