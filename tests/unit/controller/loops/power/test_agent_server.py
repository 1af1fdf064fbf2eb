"""Controller's end of agent connections: impostors are sent away, and so are all when another process leads."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from controller.loops.health.loop import ReportQueue
from controller.loops.power import agent_server
from controller.loops.power.agent_server import AgentServer
from controller.loops.power.term import PowerTerm
from power.leases.messages import Inventory, Report, encoded, encoded_text, framed
from tests.agents.credentials import names_itself
from tests.builders.power import row_of
from tests.until import until_async

PATIENCE_S = 10.0


class Leader:
    """A process that answers agents while it has a term."""

    def __init__(self) -> None:
        self.term: PowerTerm | None = PowerTerm(lambda _: row_of([], 1000.0), epoch=1)
        self.queue = ReportQueue()
        clock = asyncio.get_running_loop().time
        self.server = AgentServer(lambda: self.term, names_itself, clock, [self.queue])

    @asynccontextmanager
    async def up(self) -> AsyncIterator[int]:
        listening = await self.server.serve("127.0.0.1", 0)
        deciding = asyncio.create_task(self.server.decide())
        try:
            yield int(listening.sockets[0].getsockname()[1])
        finally:
            deciding.cancel()
            with suppress(asyncio.CancelledError):
                await deciding
            listening.close()


async def caller(
    port: int, node: str, token: str = "", life: str = "life"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that has introduced itself as a node; with the token of that node by default."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(framed((token or node).encode()) + framed(encoded(Inventory(node, life, {}))))
    await writer.drain()
    return reader, writer


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Waits until the other end has closed the connection, or has reset it because of what it did not read."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


def lived(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))


def test_an_impostor_is_sent_away_and_pushes_no_node_aside() -> None:
    async def story() -> None:
        leader = Leader()
        async with leader.up() as port:
            _, honest = await caller(port, "n1")
            await until_async(lambda: leader.server.nodes == {"n1"}, "the node is connected")

            reader, writer = await caller(port, "n1", "wrong")
            other, also = await caller(port, "n1", "n2")

            assert await is_ended(reader)
            assert await is_ended(other)
            assert leader.server.counts.refused == {"NotAuthenticated": 1, "OtherNode": 1}
            assert leader.server.nodes == {"n1"}
            for each in (honest, writer, also):
                each.close()

    lived(story)


def test_a_node_that_is_taken_over_speaks_for_itself_alone() -> None:
    """With its token it connects, and then reports for another node: none counts, and no lease of the other comes."""

    async def story() -> None:
        leader = Leader()
        assert leader.term is not None
        async with leader.up() as port:
            _, writer = await caller(port, "n2")
            for number in range(1, 101):
                writer.write(framed(encoded(Report("n1", "life", float(number), -1, -1, {}))))
            writer.write(framed(encoded(Report("n2", "life", 1.0, -1, -1, {}))))
            await until_async(lambda: leader.server.counts.reports == 1, "its own report is heard")

            assert leader.server.counts.refused == {"OtherNode": 100}
            assert set(leader.term.inventories) == {"n2"}
            assert leader.server.nodes == {"n2"}
            writer.close()

    lived(story)


def test_callers_of_any_name_fill_no_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Each refused message was a line."""

    async def story() -> None:
        leader = Leader()
        async with leader.up() as port:
            for number in range(50):
                reader, writer = await caller(port, f"n{number}", f"wrong-{number}")
                assert await is_ended(reader)
                writer.close()
            _, agent = await caller(port, "known")
            for _ in range(50):
                agent.write(framed(encoded(Report("another", "life", 5.0, -1, -1, {}))))
            refused = leader.server.counts.refused
            await until_async(lambda: refused == {"NotAuthenticated": 50, "OtherNode": 50}, "all are counted")
            agent.close()

    lived(story)
    assert capsys.readouterr().out.count("message refused") == 2


def test_an_agent_that_connects_anew_takes_its_place_at_once() -> None:
    async def story() -> None:
        leader = Leader()
        assert leader.term is not None
        async with leader.up() as port:
            first_reader, first = await caller(port, "n1")
            await until_async(lambda: leader.server.nodes == {"n1"}, "the node is connected")
            _, second = await caller(port, "n1", life="next")
            second.write(framed(encoded(Report("n1", "next", 1.0, -1, -1, {}))))

            assert await is_ended(first_reader)
            await until_async(lambda: leader.server.counts.reports == 1, "it is heard")
            assert leader.server.nodes == {"n1"}
            assert leader.term.inventories["n1"].life == "next"
            for each in (first, second):
                each.close()

    lived(story)


def test_a_connection_ends_after_an_hour_so_that_its_agent_shows_a_token_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_server, "SHOWN_FOR_S", 0.2)

    async def story() -> None:
        leader = Leader()
        async with leader.up() as port:
            reader, writer = await caller(port, "n1")
            for number in range(1, 10):
                writer.write(framed(encoded(Report("n1", "life", float(number), -1, -1, {}))))
                await asyncio.sleep(0.05)

            assert await is_ended(reader)
            writer.close()

    lived(story)


def test_agents_are_sent_away_when_this_process_leads_no_more() -> None:
    """They look for the leader elsewhere; else they would sit here until their leases have ended."""

    async def story() -> None:
        leader = Leader()
        async with leader.up() as port:
            reader, writer = await caller(port, "n1")
            await until_async(lambda: leader.server.nodes == {"n1"}, "the node is connected")

            leader.term = None
            assert await is_ended(reader)
            refused_reader, refused = await caller(port, "n1")

            assert await is_ended(refused_reader)
            assert leader.server.nodes == frozenset()
            for each in (writer, refused):
                each.close()

    lived(story)


def test_another_loops_message_reaches_it_and_no_other_kind_does() -> None:
    async def story() -> None:
        leader = Leader()
        async with leader.up() as port:
            _, writer = await caller(port, "n1")
            writer.write(framed(encoded_text("unheard of", b"nobody's")))
            writer.write(framed(encoded_text("lease", b"of another kind")))
            writer.write(framed(encoded_text("health", b"its own")))
            await until_async(leader.queue.arrived.is_set, "a report has arrived")

            assert leader.queue.take() == [("n1", b"its own")]
            assert leader.server.counts.refused == {"Unreadable": 2}
            writer.close()

    lived(story)


def test_callers_that_show_nothing_take_no_connection_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_server, "UNKNOWN_OF_ONE", 3)

    async def story() -> None:
        leader = Leader()
        async with leader.up() as port:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            await asyncio.sleep(0)
            reader, _ = await caller(port, "n1")
            assert await is_ended(reader)
            silent[0][1].close()
            honest = []
            while leader.server.nodes != {"n1"}:
                honest.append(await caller(port, "n1"))
                await asyncio.sleep(0.05)
            for _, writer in (*silent[1:], *honest):
                writer.close()

    lived(story)
