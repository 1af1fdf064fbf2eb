"""Host of background work: tasks run once, results are kept, and a driver that is lost is replaced."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread

import pytest

from cluster.version import VERSION
from controller.background import host as hosts, wire
from controller.background.host import LOSSES, TRIES, BackgroundHost
from controller.background.tasks import BackgroundTask, TaskResult
from tests.until import until

Answer = Callable[[socket.socket, wire.Submit, tuple[bytes, ...]], None]
"""What a fake driver does with a task."""
WITHIN_S = 10.0


@dataclass
class FakeDrivers:
    """Drivers in threads of this process. They answer tasks as told."""

    answer: Answer
    refuses: str = ""
    opened: int = 0
    submitted: list[str] = field(default_factory=list)
    """Kinds of the tasks that came."""
    parts: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    _stream: socket.socket | None = None

    def open(self) -> socket.socket:
        self.opened += 1
        mine, theirs = socket.socketpair()
        self._stream = theirs
        Thread(target=self._serve, args=(theirs,), daemon=True).start()
        return mine

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _serve(self, stream: socket.socket) -> None:
        with suppress(OSError, EOFError):
            assert wire.receive(stream) == (wire.Begin(VERSION), b"")
            if self.refuses:
                wire.send(stream, wire.StartRefused(self.refuses))
                return
            wire.send(stream, wire.Ready("a thread"))
            kept: dict[str, bytes] = {}
            while True:
                match wire.receive(stream):
                    case wire.Part(digest), body:
                        kept[digest] = body
                        self.parts.append(digest)
                    case wire.Drop(digest), _:
                        del kept[digest]
                        self.dropped.append(digest)
                    case wire.Submit() as task, _:
                        self.submitted.append(task.kind)
                        self.answer(stream, task, tuple(kept[part] for part in task.parts))


def joins(stream: socket.socket, task: wire.Submit, inputs: tuple[bytes, ...]) -> None:
    wire.send(stream, wire.Done(task.digest), b"+".join(inputs))


def fails(stream: socket.socket, task: wire.Submit, inputs: tuple[bytes, ...]) -> None:
    wire.send(stream, wire.Done(task.digest, "ValueError: no"))


def ends(stream: socket.socket, task: wire.Submit, inputs: tuple[bytes, ...]) -> None:
    wire.send(stream, wire.Began(task.digest))
    stream.shutdown(socket.SHUT_RDWR)


def is_silent(stream: socket.socket, task: wire.Submit, inputs: tuple[bytes, ...]) -> None:
    pass


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of a test's length."""
    for name, value in (("FIRST_PAUSE_S", 0.01), ("LONGEST_PAUSE_S", 0.02), ("TICK_S", 0.02)):
        monkeypatch.setattr(hosts, name, value)


@contextmanager
def hosted(*drivers: FakeDrivers) -> Iterator[BackgroundHost]:
    host = BackgroundHost(drivers)
    host.want(wanted=True)
    try:
        yield host
    finally:
        host.close()


def task(*inputs: bytes) -> BackgroundTask:
    return BackgroundTask("join", inputs)


def results(host: BackgroundHost, count: int) -> list[TaskResult]:
    found: list[TaskResult] = []
    until(lambda: found.extend(host.results("join")) or len(found) >= count, f"{count} results")  # type: ignore[func-returns-value]
    return found


def test_tasks_run_and_their_results_come_once() -> None:
    with hosted(FakeDrivers(joins)) as host:
        host.submit([task(b"a", b"b"), task(b"c")])

        assert {each.value for each in results(host, 2)} == {b"a+b", b"c"}
        assert host.results("join") == []


def test_a_task_that_is_open_is_not_run_twice_and_one_that_is_done_is_answered_from_the_store() -> None:
    drivers = FakeDrivers(joins)
    with hosted(drivers) as host:
        host.submit([task(b"a"), task(b"a")])
        first = results(host, 1)
        host.submit([task(b"a")])

        assert results(host, 1) == first
        assert drivers.submitted == ["join"]


def test_an_input_that_tasks_share_is_sent_once_and_dropped_when_none_needs_it() -> None:
    drivers = FakeDrivers(joins)
    with hosted(drivers) as host:
        host.submit([task(b"common", b"a"), task(b"common", b"b")])
        results(host, 2)

        assert len(drivers.parts) == 3
        until(lambda: len(drivers.dropped) == 3, "all inputs are dropped")


def test_the_store_is_bounded_and_gives_up_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "STORE_BYTES", 10)
    drivers = FakeDrivers(joins)
    with hosted(drivers) as host:
        for content in (b"123456", b"abcdef", b"123456"):
            host.submit([task(content)])
            results(host, 1)

        assert len(drivers.submitted) == 3


def test_without_tasks_there_is_no_driver_and_one_that_has_none_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "IDLE_S", 0.05)
    drivers = FakeDrivers(joins)
    with hosted(drivers) as host:
        assert drivers.opened == 0
        host.submit([task(b"a")])
        results(host, 1)
        until(lambda: host.standing.state == "away", "the driver is ended")

        assert host.standing.losses.total() == 0


def test_a_replica_that_does_not_lead_runs_nothing() -> None:
    drivers = FakeDrivers(is_silent)
    with hosted(drivers) as host:
        host.submit([task(b"a")])
        until(lambda: drivers.submitted == ["join"], "the task is under way")
        host.want(wanted=False)
        until(lambda: host.standing.state == "away", "the driver is ended")
        drivers.answer = joins
        host.want(wanted=True)
        host.submit([task(b"b")])

        assert [each.value for each in results(host, 1)] == [b"b"]


def test_a_task_that_fails_is_reported_and_may_be_tried_again() -> None:
    drivers = FakeDrivers(fails)
    with hosted(drivers) as host:
        host.submit([task(b"a")])
        assert [each.error for each in results(host, 1)] == ["ValueError: no"]
        drivers.answer = joins
        host.submit([task(b"a")])

        assert [each.value for each in results(host, 1)] == [b"a"]


def test_what_was_open_when_a_driver_ended_is_given_to_the_next_one() -> None:
    drivers = FakeDrivers(lambda *given: (joins if drivers.opened > 1 else ends)(*given))
    with hosted(drivers) as host:
        host.submit([task(b"a"), task(b"b")])

        assert {each.value for each in results(host, 2)} == {b"a", b"b"}
        assert host.standing.losses == {"ended": 1}


def test_a_task_that_ends_its_process_each_time_fails_and_the_others_go_on() -> None:
    def ends_at_a(stream: socket.socket, asked: wire.Submit, inputs: tuple[bytes, ...]) -> None:
        (ends if inputs == (b"a",) else joins)(stream, asked, inputs)

    drivers = FakeDrivers(ends_at_a)
    with hosted(drivers) as host:
        host.submit([task(b"a"), task(b"b")])
        found = {each.digest: each.error for each in results(host, 2)}

        assert found[task(b"b").digest] == ""
        assert found[task(b"a").digest] == f"its process ended {TRIES} times while it ran"


def test_a_driver_that_is_silent_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "SILENT_S", 0.1)
    drivers = FakeDrivers(
        lambda stream, task, inputs: (joins if drivers.opened > 1 else is_silent)(stream, task, inputs)
    )
    with hosted(drivers) as host:
        host.submit([task(b"a")])

        assert [each.value for each in results(host, 1)] == [b"a"]
        assert host.standing.losses == {"silent": 1}


def test_while_the_preferred_driver_cannot_start_another_runs_the_tasks() -> None:
    refuses, other = FakeDrivers(joins, refuses="no Ray"), FakeDrivers(joins)
    with hosted(refuses, other) as host:
        host.submit([task(b"a")])

        assert [each.value for each in results(host, 1)] == [b"a"]
        assert (refuses.opened, other.opened) == (LOSSES, 1)
        assert host.standing.losses == {"refused": LOSSES}


def test_a_driver_that_says_what_it_should_not_is_replaced() -> None:
    def strange(stream: socket.socket, asked: wire.Submit, inputs: tuple[bytes, ...]) -> None:
        if drivers.opened > 1:
            joins(stream, asked, inputs)
        else:
            wire.send(stream, wire.Begin("?"))

    drivers = FakeDrivers(strange)
    with hosted(drivers) as host:
        host.submit([task(b"a")])

        assert [each.value for each in results(host, 1)] == [b"a"]
        assert host.standing.losses == {"garbled": 1}


def test_a_result_of_a_task_that_nobody_waits_for_is_dropped() -> None:
    def twice(stream: socket.socket, asked: wire.Submit, inputs: tuple[bytes, ...]) -> None:
        wire.send(stream, wire.Done("unknown"), b"?")
        joins(stream, asked, inputs)
        joins(stream, asked, inputs)

    with hosted(FakeDrivers(twice)) as host:
        host.submit([task(b"a")])
        results(host, 1)
        host.submit([task(b"b")])

        assert [each.value for each in results(host, 1)] == [b"b"]
