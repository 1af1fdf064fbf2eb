"""Pair probes on the wire: proof of a token by both ends, round trips, bursts in both directions; and their listener.

All lengths and times are bounded at both ends. Nothing that arrives is interpreted but one letter and two numbers.
"""

import fcntl
import hmac
import os
import socket
import struct
import threading
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from statistics import median
from time import monotonic

from health.records.frames import BURSTS, MOST_BURST_S, MOST_BYTES, MOST_PEERS, PAIR_S, PINGS, ProbeResult
from nodeagent.loops import AgentLoop

MAGIC = b"tonprob1"
NONCE_BYTES = 16
HANDSHAKE_S = 1.0
STEP_S = 1.5
"""Time limit of each read and write: a burst lasts 0.3 s, so that a silent peer is noticed."""
ENOUGH_S = 1.0
"""Time after which no further burst is sent one way: a slow path shows in its first."""
SEND_BUFFER_BYTES = 512 * 1024
"""Bytes that may wait to be sent: what a slow path still holds when the burst is over takes time as well."""
WAIT_S = 0.2
ADMITTED_S = 15.0
"""Time for which a token is admitted."""
_GET_ADDRESS = 0x8915
"""SIOCGIFADDR. Source: linux/sockios.h."""
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


def measured(opened: socket.socket) -> ProbeResult:
    """Round trips and bursts with a peer that has admitted us; number and peer are left empty. Raises OSError."""
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
    return ProbeResult("", "", 0.0, median(trips), out, back)


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


def address_of(interface: str) -> str:
    """IPv4 address of a network interface. Raises OSError where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        found = fcntl.ioctl(asking.fileno(), _GET_ADDRESS, struct.pack("256s", interface.encode()[:15]))
    return socket.inet_ntoa(found[20:24])


class ProbeListener:
    """Listening socket, served by a thread of its own, one connection after another."""

    def __init__(self, host: str, port: int) -> None:
        """Raises OSError when the address is not available. host: empty for all interfaces."""
        both = not host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        self._opened = socket.create_server((host, port), family=family, backlog=8, dualstack_ipv6=both)
        self._opened.settimeout(WAIT_S)
        self._tokens: dict[bytes, float] = {}
        """Admitted tokens, and until when."""
        self._lock = threading.Lock()
        self._loop = AgentLoop("probe listener", self._accept)
        self.served = 0
        self.refused = 0

    @property
    def port(self) -> int:
        return int(self._opened.getsockname()[1])

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.close(1.0)
        self._opened.close()

    def admit(self, tokens: tuple[bytes, ...]) -> None:
        """Admits these tokens, each once, and no older one."""
        until_s = monotonic() + ADMITTED_S
        with self._lock:
            self._tokens = dict.fromkeys(tokens[:MOST_PEERS], until_s)

    def _accept(self) -> float:
        """Serves one connection, if one comes. Returns seconds until the next: none."""
        with suppress(TimeoutError):
            opened, _ = self._opened.accept()
            with opened:
                self._serve(opened)
        return 0.0

    def _serve(self, opened: socket.socket) -> None:
        """Serves one connection, if it shows a token that is admitted."""
        now_s = monotonic()
        with self._lock:
            self._tokens = {token: until_s for token, until_s in self._tokens.items() if until_s > now_s}
            known = tuple(self._tokens)
        try:
            prepare(opened)
            token = admitted(opened, known)
            with self._lock:
                if self._tokens.pop(token, None) is None:
                    raise ProbeError("a token was used twice")
            serve(opened, now_s + PAIR_S)
            self.served += 1
        except (ProbeError, OSError):
            self.refused += 1
