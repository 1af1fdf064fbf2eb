"""Server: what one pod's clients attach to their packets delays no other pod."""

import select
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isolation.ledger import MemoryLedger
from isolation.state import ArbiterState
from nodeagent.sandboxes.server import SandboxServer
from nodeagent.sandboxes.sockets import SOCKET
from tests.builders.lingering import lingering_socket

UID = "0f1e2d3c-aaaa-bbbb-cccc-1234567890ab"


class Enforcer:
    """Enforcer of a node whose cgroups hold nothing."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.state = ArbiterState(MemoryLedger(1 << 30))
        self.tree = SimpleNamespace(
            home=lambda _: "kubepods/nowhere", agent_group=lambda _: "kubepods/nowhere/agent", pids=lambda _: ()
        )

    def watch(self, descriptor: int) -> None:
        self._poll.register(descriptor, select.POLLIN)

    def unwatch(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)

    def wait(self, longest_s: float) -> tuple[list[int], list[Any]]:
        return [number for number, _ in self._poll.poll(longest_s * 1e3)], []

    def take_notices(self) -> list[Any]:
        return []

    def take_ends(self) -> list[Any]:
        return []


@pytest.mark.parametrize("packet", [b'{"type":"resume"}', b'{"type":"end"}'])
@pytest.mark.parametrize("count", [1, 3])
def test_sockets_that_linger_when_closed_delay_nobody_else(short_path: Path, packet: bytes, count: int) -> None:
    enforcer: Any = Enforcer()
    server = SandboxServer(enforcer, short_path, time.monotonic, lambda: "call")
    server.open(UID, "tenant")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect(str(short_path / UID / SOCKET))
        for _ in range(2):  # the second lies unread in the queue when the first is answered
            attached = [lingering_socket(for_s=30) for _ in range(count)]
            socket.send_fds(line, [packet], [each.fileno() for each in attached])
            for each in attached:
                each.close()

        began_s = time.monotonic()
        server.turn(1.0)
        server.turn(1.0)
        server.close(UID)
        took_s = time.monotonic() - began_s

    assert took_s < 10
