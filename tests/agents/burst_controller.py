"""A controller of one node for tests: it answers every report with the same lease, which allows bursts."""

import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import cast

from power.leases.messages import LONGEST, Inventory, Lease, Refusal, Report, decoded, encoded, framed, kind_in
from tests.agents.credentials import credentials

BURST_J = 50.0


@dataclass(frozen=True)
class Granted:
    """What every lease grants: limits in watts by device, how far bursts may go, and for how long."""

    caps_w: Mapping[str, float]
    burst_to_w: float
    for_s: float = 60.0


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    granted: Granted


class _Line(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        granted = cast("_Server", self.server).granted
        node = self._frame().decode()
        for sequence in count():
            message = self._frame()
            if not message:
                return
            if kind_in(message) != "report":
                assert not isinstance(decoded(Inventory, message, node), Refusal)
                continue
            report = decoded(Report, message, node)
            assert isinstance(report, Report)
            lease = Lease(
                *(node, report.life, report.sent_s, granted.for_s, 1, sequence, float(sequence), granted.caps_w),
                safe_w=granted.caps_w,
                burst_j=dict.fromkeys(granted.caps_w, BURST_J),
                burst_to_w=dict.fromkeys(granted.caps_w, granted.burst_to_w),
                credit_back_s=0.5,
            )
            self.wfile.write(framed(encoded(lease)))

    def _frame(self) -> bytes:
        head = self.rfile.read(4)
        length = int.from_bytes(head, "big")
        assert length <= LONGEST
        return self.rfile.read(length)


@contextmanager
def granting(granted: Granted) -> Iterator[int]:
    """The port of such a controller."""
    with _Server(("127.0.0.1", 0), _Line) as server:
        server.granted = granted
        server.socket = credentials().serves().wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
