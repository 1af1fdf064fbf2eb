"""Rules of the reader of NCCL's RAS service, over a real socket where a server speaks its protocol."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from nodeagent.health.ras_service import HANGS_S, RasService, asked, is_own
from tests.builders.ras import answer, communicator, reduced
from tests.clock import HandClock

DEAD = {"unresponsive": True, "considered_dead": True}
BEHIND = answer(communicator("0xa", range(8), reduced(0, 1, 2, 3, 4, 6, 7)))
LOST = answer(communicator("0xa", range(8), {}, missing={5: DEAD}))


class Asked:
    """A service whose answer a test turns, read by an agent on the node of ranks 4 and 5."""

    def __init__(self, made: Any) -> None:
        self.clock, self.made = HandClock(1000.0), made
        self.reader = RasService(self._ask, lambda host: host == "10.0.0.2", self.clock)

    def _ask(self) -> object:
        if isinstance(self.made, Exception):
            raise self.made
        return self.made

    def found(self, for_s: float = 0.0) -> list[tuple[str, float]]:
        self.clock.now_s += for_s
        self.reader.look()
        return [(each.code, each.age_s) for each in self.reader.read(self.clock.now_s)]


def test_a_dead_rank_of_this_node_is_told_at_once() -> None:
    service = Asked(LOST)

    assert service.found() == [("RankLost", 0.0)]
    assert service.found(15.0) == [("RankLost", 15.0)]


def test_a_rank_that_others_wait_for_is_told_once_nothing_was_launched_for_minutes() -> None:
    service = Asked(BEHIND)

    assert service.found() == []
    assert service.found(HANGS_S - 1) == []
    assert service.found(1.0) == [("RankBehind", 0.0)]


def test_ranks_of_other_nodes_are_theirs_to_tell() -> None:
    service = Asked(answer(communicator("0xa", range(8), {}, missing={1: DEAD})))

    assert service.found() == []


@pytest.mark.parametrize("then", [answer(communicator("0xa", range(8), reduced(*range(8)))), ConnectionRefusedError()])
def test_a_job_that_moves_again_or_has_ended_is_no_evidence(then: Any) -> None:
    service = Asked(BEHIND)
    service.found()
    assert service.found(HANGS_S)

    service.made = then
    assert service.found(15.0) == []


@pytest.mark.parametrize("odd", [{}, None, ValueError("no JSON"), EOFError()])
def test_an_odd_answer_ends_no_loop(odd: Any) -> None:
    service = Asked(odd)

    assert service.found() == service.found(15.0) == []


@pytest.fixture
def served() -> Iterator[tuple[int, list[bytes]]]:
    """A service that answers as NCCL's does: its port, and what it was asked."""
    listener, heard = socket.create_server(("127.0.0.1", 0)), list[bytes]()

    def serve() -> None:
        line, _ = listener.accept()
        with line, line.makefile("rb") as lines:
            for told in (b"SERVER PROTOCOL 2\n", b"OK\n"):
                heard.append(lines.readline())
                line.sendall(told)
            heard.append(lines.readline())
            line.sendall(json.dumps(BEHIND).encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1], heard
    listener.close()


def test_the_service_is_asked_for_its_status_as_json(served: tuple[int, list[bytes]]) -> None:
    port, heard = served

    assert asked("127.0.0.1", port) == BEHIND
    assert heard == [b"CLIENT PROTOCOL 2\n", b"SET FORMAT json\n", b"STATUS\n"]


def test_an_address_of_this_machine_is_known_as_such() -> None:
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.1")  # of the documentation's network
    assert not is_own("unknown")
