"""Pair probes on the wire: proof of a token by both ends, round trips, and bursts in both directions.

All lengths and times are bounded at both ends. Nothing that arrives is interpreted but one letter and two numbers.
"""

import errno
import hmac
import os
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from statistics import median
from time import monotonic, sleep

MOST_BYTES = 16 * 1024 * 1024
"""Bytes of one burst, each way."""
MOST_BURST_S = 0.3
BURSTS = 3
"""Bursts each way; the best counts, since other traffic only slows them."""
PINGS = 20
PAIR_S = 4.0
"""Longest time of one pair with all its bursts."""
CONNECT_S = 1.0
AGAIN_S = 0.3
"""Pause between two tries: the peer may have its order a moment later."""
LOST_TRIES = 2
LOST = ("unreachable", "silent")
"""Failures that speak of the network; others do not."""
NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EINVAL)
"""Errors of a network that does not reach the peer; EINVAL: a black-hole route. Source: rtnetlink, RTN_BLACKHOLE."""
MAGIC = b"tonprob1"
NONCE_BYTES = 16
HANDSHAKE_S = 1.0
STEP_S = 1.5
"""Time limit of each read and write: a burst lasts 0.3 s, so that a silent peer is noticed."""
ENOUGH_S = 1.0
"""Time after which no further burst is sent one way: a slow path shows in its first."""
SEND_BUFFER_BYTES = 512 * 1024
"""Bytes that may wait to be sent: what a slow path still holds when the burst is over takes time as well."""
_CHUNK = 256 * 1024
_BURST = struct.Struct("<cId")
_COUNT = struct.Struct("<Qd")
_PING = b"p" * 32
_REFUSED = b"n" * 32


class ProbeError(Exception):
    """Error of a probe that says nothing about the network: wrong token, or a peer that speaks otherwise."""


def _proof(token: bytes, side: bytes, nonces: bytes) -> bytes:
    return hmac.new(token, MAGIC + side + nonces, sha256).digest()


def introduce(opened: socket.socket, token: bytes) -> None:
    """Shows the token to a listener and has it shown. Raises OSError, ProbeError."""
    opened.settimeout(HANDSHAKE_S)
    own = os.urandom(NONCE_BYTES)
    opened.sendall(MAGIC + own)
    nonces = own + _read(opened, NONCE_BYTES)
    opened.sendall(_proof(token, b"client", nonces))
    if not hmac.compare_digest(_read(opened, 32), _proof(token, b"server", nonces)):
        raise ProbeError("the peer does not know the token, or not yet")


def admitted(opened: socket.socket, tokens: Iterable[bytes]) -> bytes:
    """The token that a client has shown, after showing it as well. Raises OSError, ProbeError."""
    opened.settimeout(HANDSHAKE_S)
    first = _read(opened, len(MAGIC) + NONCE_BYTES)
    own = os.urandom(NONCE_BYTES)
    opened.sendall(own)
    nonces, shown = first[len(MAGIC) :] + own, _read(opened, 32)
    known = [each for each in tokens if hmac.compare_digest(shown, _proof(each, b"client", nonces))]
    if not first.startswith(MAGIC) or not known:
        opened.sendall(_REFUSED)
        raise ProbeError("a connection without a token of ours")
    opened.sendall(_proof(known[0], b"server", nonces))
    return known[0]


@dataclass(frozen=True, slots=True)
class PairReading:
    """What one end of a pair has measured."""

    rtt_s: float = 0.0
    """Median round trip."""
    out_bytes_per_s: float = 0.0
    """To the peer, as the peer counted it."""
    in_bytes_per_s: float = 0.0
    failure: str = ""
    """Why there is no measurement."""


def measured_with(host: str, port: int, token: bytes, source: str = "", within_s: float = PAIR_S) -> PairReading:
    """What one peer shows, or why nothing is known of it. Tries again while the peer has no order yet."""
    until_s, lost, failure = monotonic() + within_s, 0, "refused"
    at = (source, 0) if source else None
    while monotonic() < until_s and lost < LOST_TRIES:
        try:
            with socket.create_connection((host, port), CONNECT_S, at) as opened:
                prepare(opened)
                introduce(opened, token)
                return measured(opened)
        except (ProbeError, ConnectionError):
            failure = "refused"  # its host answers: a peer without an order, or a new one, is no fault of the network
        except TimeoutError:
            failure, lost = "silent", lost + 1
        except (ValueError, OverflowError):
            return PairReading(failure="failed")  # no address: its agent named it
        except OSError as error:
            is_lost = error.errno in NO_WAY
            failure, lost = ("unreachable" if is_lost else "failed"), lost + is_lost
        sleep(AGAIN_S)
    return PairReading(failure=failure)


def measured(opened: socket.socket) -> PairReading:
    """Round trips and bursts with a peer that has admitted us. Raises OSError."""
    opened.settimeout(STEP_S)
    trips = []
    for _ in range(PINGS):
        began_s = monotonic()
        opened.sendall(_BURST.pack(b"p", 0, 0.0) + _PING)
        _read(opened, len(_PING))
        trips.append(monotonic() - began_s)
    rates = []  # bytes a second out and back, of the best of several bursts each
    for letter in (b"o", b"i"):
        began_s, best = monotonic(), 0.0
        for number in range(BURSTS):
            if number and monotonic() - began_s >= ENOUGH_S:
                break
            opened.sendall(_BURST.pack(letter, MOST_BYTES, MOST_BURST_S))
            if letter == b"o":
                _send(opened, MOST_BYTES, MOST_BURST_S)
                count, took_s = _COUNT.unpack(_read(opened, _COUNT.size))  # the peer's own count
            else:
                count, took_s = _taken(opened)
            best = max(best, count / took_s if took_s > 0 else 0.0)
        rates.append(best)
    out, back = rates
    return PairReading(median(trips), out, back)


def prepare(opened: socket.socket) -> None:
    """Options of either end."""
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


def serve(opened: socket.socket, until_s: float) -> None:
    """Answers a client that was admitted, until it closes the connection. Raises OSError, ProbeError.

    until_s: by the monotonic clock; no connection lives longer.
    """
    opened.settimeout(STEP_S)
    for _ in range(PINGS + 2 * BURSTS):
        head = opened.recv(_BURST.size)
        if not head:
            return
        head += _read(opened, _BURST.size - len(head))
        if monotonic() > until_s:
            raise ProbeError("a probe takes longer than allowed")
        letter, size, for_s = _BURST.unpack(head)
        if letter == b"p":
            opened.sendall(_read(opened, len(_PING)))
        elif letter == b"o":
            opened.sendall(_COUNT.pack(*_taken(opened)))
        elif letter == b"i":
            _send(opened, min(size, MOST_BYTES), min(max(for_s, 0.0), MOST_BURST_S))
        else:
            raise ProbeError("not a probe")


def _send(opened: socket.socket, most: int, for_s: float) -> None:
    """Chunks with their lengths, and a length of zero."""
    until_s, chunk = monotonic() + for_s, bytes(_CHUNK)
    while most > 0 and monotonic() < until_s:
        part = chunk[: min(most, _CHUNK)]
        opened.sendall(struct.pack("<I", len(part)) + part)
        most -= len(part)
    opened.sendall(struct.pack("<I", 0))


def _taken(opened: socket.socket) -> tuple[int, float]:
    """Bytes of a burst, and the time from its request to its last one. Raises ProbeError beyond what is allowed."""
    began_s, count = monotonic(), 0
    buffer = bytearray(_CHUNK)
    while size := int.from_bytes(_read(opened, 4), "little"):
        if size > _CHUNK or count + size > MOST_BYTES:
            raise ProbeError("a burst is longer than allowed")
        _read_into(opened, memoryview(buffer)[:size])
        count += size
    return count, monotonic() - began_s


def _read(opened: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    _read_into(opened, memoryview(buffer))
    return bytes(buffer)


def _read_into(opened: socket.socket, view: memoryview) -> None:
    while len(view):
        count = opened.recv_into(view)
        if not count:
            raise ConnectionResetError("the peer closed the connection")
        view = view[count:]
