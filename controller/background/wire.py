"""Wire protocol between the operator and the driver of its background work, and how each proves that it may speak.

A message is a small head (MessagePack, typed) and, for inputs and results, a body of bytes. Each direction is one
stream, in order.
"""

import hmac
import secrets
import socket
from hashlib import sha256

import msgspec

from cluster.errors import UNREADABLE

LARGEST_BODY = 1 << 30
"""Largest body, in bytes. The histories of a batch take a megabyte; a process that announces more is broken."""
LARGEST_HEAD = 1 << 20
_START = 12
"""Size of a message's start, in bytes: the head's length (4) and the body's length (8), little endian."""
_NONCE = 32


class WireError(ConnectionError):
    """Error for data that is no valid message: the connection cannot be used any more."""


class Begin(msgspec.Struct, tag=True, frozen=True):
    """Operator to driver, as the first message."""

    version: str
    """Version of Tonnage; both ends run the same one, or the driver refuses."""


class Ready(msgspec.Struct, tag=True, frozen=True):
    """Driver to operator: tasks may come."""

    runs_on: str
    """For people: Ray's version and processors, or this process."""


class StartRefused(msgspec.Struct, tag=True, frozen=True):
    """Driver to operator: it cannot start, and a retry alone will not help."""

    why: str


class Part(msgspec.Struct, tag=True, frozen=True):
    """Operator to driver, with an input as body: to be kept until it is dropped."""

    digest: str


class Drop(msgspec.Struct, tag=True, frozen=True):
    """Operator to driver: no task needs this input any more."""

    digest: str


class Submit(msgspec.Struct, tag=True, frozen=True):
    """Operator to driver: a task, whose inputs were sent before."""

    kind: str
    digest: str
    parts: tuple[str, ...]


class Began(msgspec.Struct, tag=True, frozen=True):
    """Driver to operator: this task runs in the driver's own process now, and could end it."""

    digest: str


class Done(msgspec.Struct, tag=True, frozen=True):
    """Driver to operator, with a task's result as body, or with the reason why there is none."""

    digest: str
    error: str = ""


class Alive(msgspec.Struct, tag=True, frozen=True):
    """Driver to operator, now and then."""


Message = Begin | Ready | StartRefused | Part | Drop | Submit | Began | Done | Alive

_decode = msgspec.msgpack.Decoder(Message).decode
_encode = msgspec.msgpack.Encoder().encode


def send(stream: socket.socket, message: Message, body: bytes = b"") -> None:
    """Sends a message and waits until it is written. Raises OSError."""
    head = _encode(message)
    stream.sendall(len(head).to_bytes(4, "little") + len(body).to_bytes(8, "little") + head)
    if body:
        stream.sendall(body)


def receive(stream: socket.socket) -> tuple[Message, bytes]:
    """Waits for a message. Raises EOFError when the other end is closed, WireError, OSError."""
    start = _exactly(stream, _START)
    head, body = int.from_bytes(start[:4], "little"), int.from_bytes(start[4:], "little")
    if head > LARGEST_HEAD or body > LARGEST_BODY:
        raise WireError(f"a message of {head} and {body} bytes is not valid")
    try:
        message: Message = _decode(bytes(_exactly(stream, head)))
    except UNREADABLE as error:
        raise WireError(f"the message cannot be read: {error}") from error
    return message, bytes(_exactly(stream, body))


def _exactly(stream: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        got = stream.recv_into(view)
        if not got:
            raise EOFError("the other end is closed")
        view = view[got:]
    return data


def prove(stream: socket.socket, secret: bytes, *, as_driver: bool) -> None:
    """Mutual proof that both ends know the secret, without sending it. Raises WireError when the other end fails.

    Each end sends a fresh nonce and answers the other's with HMAC-SHA256 over both nonces and its own role, so that an
    answer cannot be sent back to its origin. This authenticates a connection when it opens; it encrypts nothing
    (docs/ray.md).
    """
    mine = secrets.token_bytes(_NONCE)
    stream.sendall(mine)
    theirs = bytes(_exactly(stream, _NONCE))
    nonces = theirs + mine if as_driver else mine + theirs  # the controller's first, on both ends
    stream.sendall(_proof(secret, nonces, as_driver=as_driver))
    answer = bytes(_exactly(stream, sha256().digest_size))
    if not hmac.compare_digest(answer, _proof(secret, nonces, as_driver=not as_driver)):
        raise WireError("the other end does not know the driver's token; give both the same Secret")


def _proof(secret: bytes, nonces: bytes, *, as_driver: bool) -> bytes:
    return hmac.digest(secret, (b"driver" if as_driver else b"controller") + nonces, "sha256")
