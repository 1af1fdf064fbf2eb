"""Agent's connection: finds the leader among the controllers, reconnects, and ends on an invalid message."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import nullcontext, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
import structlog
import structlog.testing

from cluster.errors import ConfigError
from nodeagent import controller_link
from nodeagent.controller_link import LOGGED_ROUNDS, ControllerLink
from nodeagent.settings import read_settings
from power.leases.messages import framed, read_frame
from tests.until import until_async

PATIENCE_S = 10.0


def lived(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def chance() -> Random:
    return Random(1)  # noqa: S311 - spreads attempts


async def leader(served: list[bytes], *, answers: int) -> asyncio.Server:
    """Records callers and messages, answers this often, then closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(EOFError):
            served.append(await read_frame(reader))
            for _ in range(answers):
                served.append(await read_frame(reader))
                writer.write(framed(b"lease"))
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


def port_of(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


def test_the_agent_says_who_it_is_and_hears_answers() -> None:
    async def story() -> None:
        served, heard = list[bytes](), asyncio.Queue[bytes]()
        async with await leader(served, answers=1) as server:
            link = ControllerLink("n1".encode, "127.0.0.1", port_of(server), heard.put_nowait, chance())
            talking = asyncio.create_task(link.keep_up())
            await until_async(lambda: link.is_up)
            link.send(b"report")

            assert await heard.get() == b"lease"
            await ended(talking)

        assert served[:2] == [b"n1", b"report"]

    lived(story)


def test_a_line_that_ended_is_made_again() -> None:
    async def story() -> None:
        served, heard = list[bytes](), asyncio.Queue[bytes]()
        async with await leader(served, answers=1) as server:
            link = ControllerLink("n1".encode, "127.0.0.1", port_of(server), heard.put_nowait, chance())
            talking = asyncio.create_task(link.keep_up())
            for _ in range(2):
                await until_async(lambda: not heard.empty() or link.send(b"report"))
                heard.get_nowait()
            await ended(talking)

        assert served.count(b"n1") >= 2

    lived(story)


def test_an_agent_without_a_controller_for_hours_still_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its waits doubled without end: after 1,024 rounds, 40 minutes, they were no number any more."""
    monkeypatch.setattr(controller_link, "FIRST_WAIT_S", 0.0)

    class Alone(ControllerLink):
        tries = 0

        async def _listen(self, _: str) -> bool:
            self.tries += 1
            return False

    async def story() -> None:
        link = Alone("n1".encode, "127.0.0.1", 1, lambda _: None, chance())
        trying = asyncio.create_task(link.keep_up())
        await until_async(lambda: link.tries > 1030 or trying.done())
        await ended(trying)

        assert link.tries > 1030

    lived(story)


def test_an_agent_that_finds_no_controller_says_why_once_and_when_there_is_one_again() -> None:
    async def story() -> None:
        served, heard = list[bytes](), asyncio.Queue[bytes]()
        async with await leader(served, answers=1) as server:
            port = port_of(server)
        link = ControllerLink("n1".encode, "127.0.0.1", port, heard.put_nowait, chance())
        with structlog.testing.capture_logs() as lines:
            talking = asyncio.create_task(link.keep_up())
            await until_async(lambda: lines)
            gone = asyncio.Event()

            async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(framed(b"lease"))
                await reader.read()
                writer.close()
                await writer.wait_closed()
                gone.set()

            async with await asyncio.start_server(greet, "127.0.0.1", port):
                await heard.get()
                await ended(talking)
                await gone.wait()

        assert [line["event"] for line in lines] == [
            "no connection to a controller",
            "connection to a controller restored",
        ]
        assert "127.0.0.1" in lines[0]["why"]

    lived(story)


def test_an_agent_that_finds_its_controller_in_the_last_silent_round_says_nothing() -> None:
    async def story() -> None:
        served, heard = list[bytes](), asyncio.Queue[bytes]()
        async with await leader(served, answers=1) as server:
            link = ControllerLink("n1".encode, "127.0.0.1", port_of(server), heard.put_nowait, chance())
            link._in_vain = LOGGED_ROUNDS - 1
            with structlog.testing.capture_logs() as lines:
                talking = asyncio.create_task(link.keep_up())
                await until_async(lambda: not heard.empty() or link.send(b"report"))
                await ended(talking)

        assert lines == []

    lived(story)


def test_what_is_no_message_ends_the_line_and_harms_nobody() -> None:
    async def story() -> None:
        heard = list[bytes]()
        calls = asyncio.Queue[None]()

        async def rave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"\xff\xff\xff\xff and so on")
            await writer.drain()
            calls.put_nowait(None)
            writer.close()
            await writer.wait_closed()

        async with await asyncio.start_server(rave, "127.0.0.1", 0) as server:
            link = ControllerLink("n1".encode, "127.0.0.1", port_of(server), heard.append, chance())
            talking = asyncio.create_task(link.keep_up())
            await calls.get()
            await calls.get()
            await ended(talking)

        assert heard == []

    lived(story)


def test_saying_something_without_a_line_is_no_error() -> None:
    ControllerLink("n1".encode, "127.0.0.1", 1, lambda _: None, chance()).send(b"report")


def test_settings_name_every_mistake(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("period: 0\nfloor_share: 2\nunknown: 1\n")

    with pytest.raises(ConfigError) as wrong:
        read_settings(path, "n1")

    places = " ".join(mistake.place for mistake in wrong.value.mistakes)
    assert all(name in places for name in ("period", "floor_share", "unknown"))


@pytest.mark.parametrize(("period", "fits"), [(0.5, True), (1, True), (1.5, False)])
def test_an_agent_looks_once_a_second_at_least_since_bursts_end_at_looks(
    tmp_path: Path, period: float, *, fits: bool
) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(f"period: {period}\n")

    with nullcontext() if fits else pytest.raises(ConfigError, match="period"):
        assert read_settings(path, "n1").period == period


@pytest.mark.parametrize(
    ("told", "what"), [("meter: true", "the node's meter"), ("backend: redfish", "the back end redfish")]
)
def test_who_is_to_ask_a_bmc_and_is_told_of_none_reads_which_setting_is_missing(
    tmp_path: Path, told: str, what: str
) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(told)

    with pytest.raises(ConfigError) as wrong:
        read_settings(path, "n1")

    (mistake,) = wrong.value.mistakes
    assert mistake.place.endswith("agent.yaml")
    assert mistake.problem == f"redfish is missing: {what} needs it, with the `host` of the BMC at least"


def test_the_nodes_name_comes_from_outside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("node: other\n")

    assert read_settings(path, "n1").node == "n1"


class Backlog:
    """A connection of which so many bytes are still to be sent, with what is written on it."""

    def __init__(self, waiting: int) -> None:
        self.waiting, self.written = waiting, list[bytes]()
        self.transport = self

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def write(self, data: bytes) -> None:
        self.written.append(data)


@pytest.mark.parametrize(("waiting", "is_sent"), [(0, True), (1, False)])
def test_a_report_is_dropped_while_an_older_one_waits_to_be_sent(waiting: int, *, is_sent: bool) -> None:
    """Reports of a stalled connection would arrive in a burst, minutes old, and fill the memory meanwhile."""
    link, line = ControllerLink("n1".encode, "127.0.0.1", 1, lambda _: None, chance()), Backlog(waiting)
    link._writer = line  # type: ignore[assignment]

    link.send(b"report")

    assert line.written == ([framed(b"report")] if is_sent else [])


def test_a_report_follows_bulk_that_still_waits_and_bulk_follows_nothing_that_waits() -> None:
    """A batch of records may take a while on a slow link; a report on power must not be lost for it."""
    link, line = ControllerLink("n1".encode, "127.0.0.1", 1, lambda _: None, chance()), Backlog(0)
    link._writer = line  # type: ignore[assignment]
    link.send_bulk(b"records")
    line.waiting = 1

    link.send_bulk(b"more records")
    link.send(b"report")
    link.send(b"newer report")

    assert line.written == [framed(b"records"), framed(b"report")]
