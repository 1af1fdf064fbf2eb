"""Controller's end of agent connections: impostors are sent away, and so are all when another process leads."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from controller.loops.health.loop import ReportQueue
from controller.loops.power.agent_server import AgentServer
from controller.loops.power.term import PowerTerm
from power.leases.messages import Inventory, Keys, Report, framed, sealed, sealed_text
from power.leases.mounted_keys import keys_of_node
from tests.builders.power import row_of
from tests.until import until_async

FLEET = Keys("k", {"k": b"a secret of the fleet, long enough"})
PATIENCE_S = 10.0


class Leader:
    """A process that answers agents while it has a term."""

    def __init__(self) -> None:
        self.term: PowerTerm | None = PowerTerm(lambda _: row_of([], 1000.0), epoch=1)
        self.queue = ReportQueue()
        clock = asyncio.get_running_loop().time
        self.server = AgentServer(lambda: self.term, lambda: FLEET, clock, [self.queue])

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


async def caller(port: int, node: str, keys: Keys) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that has introduced itself as a node, with these keys."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(framed(node.encode()) + framed(sealed(Inventory(node, "life", {}), keys, node)))
    await writer.drain()
    return reader, writer


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Waits until the other end has closed the connection, or has reset it because of what it did not read."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


def lived(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))


def test_an_impostor_is_sent_away_and_pushes_no_node_aside() -> None:
    async def story() -> None:
        leader = Leader()
        async with leader.up() as port:
            _, honest = await caller(port, "n1", keys_of_node(FLEET, "n1"))
            await until_async(lambda: leader.server.nodes == {"n1"}, "the node is connected")

            reader, writer = await caller(port, "n1", Keys("k", {"k": b"guessed"}))
            other, also = await caller(port, "n1", keys_of_node(FLEET, "n2"))

            assert await is_ended(reader)
            assert await is_ended(other)
            assert leader.server.counts.refused == {"Forged": 2}
            assert leader.server.nodes == {"n1"}
            for each in (honest, writer, also):
                each.close()

    lived(story)


def test_callers_of_any_name_are_not_remembered_and_fill_no_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Keys of each name that was ever claimed were kept, and each refused message was a line."""

    async def story() -> None:
        leader = Leader()
        async with leader.up() as port:
            for number in range(50):
                reader, writer = await caller(port, f"n{number}", Keys("k", {"k": b"guessed"}))
                assert await is_ended(reader)
                writer.close()
            _, agent = await caller(port, "known", keys_of_node(FLEET, "known"))
            for _ in range(50):
                agent.write(framed(sealed(Report("known", "life", 5.0, -1, -1, {}), Keys("k", {"k": b"no"}), "known")))
            await until_async(lambda: leader.server.counts.refused == {"Forged": 100}, "all are counted")

            assert leader.server._keys_of.keys() == {"known"}
            agent.close()

    lived(story)
    assert capsys.readouterr().out.count("message refused") == 2


def test_recorded_messages_push_neither_a_node_nor_its_devices_aside() -> None:
    async def story() -> None:
        leader, keys = Leader(), keys_of_node(FLEET, "n1")
        assert leader.term is not None
        had, has = (Inventory("n1", life, {}) for life in ("before", "now"))
        async with leader.up() as port:
            _, agent = await asyncio.open_connection("127.0.0.1", port)
            agent.write(framed(b"n1") + framed(sealed(has, keys, "n1")))
            recorded = sealed(Report("n1", "now", 5.0, -1, -1, {}), keys, "n1")
            agent.write(framed(sealed(Report("n1", "now", 6.0, -1, -1, {}), keys, "n1")))
            await until_async(lambda: leader.server.counts.reports == 1, "the agent was heard")

            for inventory in (had, has):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(framed(b"n1") + framed(sealed(inventory, keys, "n1")) + framed(recorded))
                assert await is_ended(reader)
                writer.close()
            agent.write(framed(sealed(Report("n1", "now", 7.0, -1, -1, {}), keys, "n1")))
            await until_async(lambda: leader.server.counts.reports == 2, "the agent's connection is still its own")

            assert leader.term.inventories == {"n1": has}
            assert leader.server.counts.refused == {"OtherLife": 1, "Replayed": 1}
            agent.close()

    lived(story)


def test_an_agent_that_connects_anew_takes_its_place_with_its_first_report() -> None:
    async def story() -> None:
        leader, keys = Leader(), keys_of_node(FLEET, "n1")
        assert leader.term is not None
        async with leader.up() as port:
            first_reader, first = await caller(port, "n1", keys)
            await until_async(lambda: leader.server.nodes == {"n1"}, "the node is connected")
            _, second = await asyncio.open_connection("127.0.0.1", port)
            second.write(framed(b"n1") + framed(sealed(Inventory("n1", "next", {}), keys, "n1")))
            second.write(framed(sealed(Report("n1", "next", 1.0, -1, -1, {}), keys, "n1")))

            assert await is_ended(first_reader)
            await until_async(lambda: leader.server.counts.reports == 1, "it is heard")
            assert leader.server.nodes == {"n1"}
            await until_async(
                lambda: leader.term is not None and leader.term.inventories["n1"].life == "next", "its devices count"
            )
            for each in (first, second):
                each.close()

    lived(story)


def test_agents_are_sent_away_when_this_process_leads_no_more() -> None:
    """They look for the leader elsewhere; else they would sit here until their leases have ended."""

    async def story() -> None:
        leader = Leader()
        async with leader.up() as port:
            reader, writer = await caller(port, "n1", keys_of_node(FLEET, "n1"))
            await until_async(lambda: leader.server.nodes == {"n1"}, "the node is connected")

            leader.term = None
            assert await is_ended(reader)
            refused_reader, refused = await caller(port, "n1", keys_of_node(FLEET, "n1"))

            assert await is_ended(refused_reader)
            assert leader.server.nodes == frozenset()
            for each in (writer, refused):
                each.close()

    lived(story)


def test_another_parts_message_reaches_its_courier_and_nobody_under_a_false_key_or_kind() -> None:
    async def story() -> None:
        leader, keys = Leader(), keys_of_node(FLEET, "n1")
        async with leader.up() as port:
            _, writer = await caller(port, "n1", keys)
            writer.write(framed(sealed_text("health", b"of another node", keys_of_node(FLEET, "n2"), "n1")))
            writer.write(framed(sealed_text("unheard of", b"nobody's", keys, "n1")))
            writer.write(framed(sealed_text("lease", b"of another kind", keys, "n1").replace(b"lease", b"health", 1)))
            writer.write(framed(sealed_text("health", b"its own", keys, "n1")))
            await until_async(leader.queue.arrived.is_set, "a report has arrived")

            assert leader.queue.take() == [("n1", b"its own")]
            assert leader.server.counts.refused == {"Forged": 3}
            writer.close()

    lived(story)
