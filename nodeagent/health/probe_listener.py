"""Listener of pair probes: admits the peers that an order names, each once."""

import fcntl
import socket
import struct
import threading
from contextlib import suppress
from time import monotonic

from health.records.frames import MOST_PEERS
from nodeagent.loops import AgentLoop
from tonnage.probe_wire import PAIR_S, ProbeError, admitted, prepare, serve

WAIT_S = 0.2
ADMITTED_S = 15.0
"""Time for which a token is admitted."""
_GET_ADDRESS = 0x8915
"""SIOCGIFADDR. Source: linux/sockios.h."""


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
