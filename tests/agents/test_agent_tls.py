"""TLS between agents and controller: an agent shows its token only to a server that its authority vouches for."""

import asyncio
import ssl
import tracemalloc
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from controller.loops.power.agent_server import AgentServer
from controller.loops.power.term import PowerTerm
from controller.loops.server_tls import ServerTls
from nodeagent.controller_link import ControllerLink
from nodeagent.settings import ControllerAddress
from power.leases.messages import Inventory, Refusal, encoded
from tests.agents.credentials import names_itself
from tests.builders.certificates import Authority, Pair

PATIENCE_S = 20.0


def serving(pair: Pair) -> ssl.SSLContext:
    """As the operator serves."""
    return ServerTls(str(pair.certificate), str(pair.key), lambda: 0.0, "power.tls").context


def lived(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))


async def joins(
    server_tls: ssl.SSLContext, agent_tls: Callable[[], ssl.SSLContext] | None, token: bytes = b"n1", attempts: int = 3
) -> tuple[bool, list[bytes]]:
    """Whether an agent is connected before this many of its attempts have failed, and the tokens that were shown."""
    clock = asyncio.get_running_loop().time
    leader = PowerTerm(lambda _: pytest.fail("no turn is taken"), epoch=1)
    shown: list[bytes] = []

    async def identify(token: bytes, address: str) -> str | Refusal:
        shown.append(token)
        return await names_itself(token, address)

    server = AgentServer(lambda: leader, identify, clock)
    failed = asyncio.Semaphore(0)

    class Counting(ControllerLink):
        async def _listen(self, address: str) -> bool:
            try:
                return await super()._listen(address)
            finally:
                failed.release()

    async with await server.serve("127.0.0.1", 0, server_tls) as listening:
        port = int(listening.sockets[0].getsockname()[1])
        hello = encoded(Inventory("n1", "life", {}))
        chance = Random(1)  # noqa: S311 - spreads attempts
        link = Counting(lambda: token, "localhost", port, lambda _: None, chance, agent_tls, lambda: hello)
        talking = asyncio.create_task(link.keep_up())
        giving_up = asyncio.gather(*(failed.acquire() for _ in range(attempts)))
        while not giving_up.done() and "n1" not in server.nodes:
            await asyncio.sleep(0.01)
        found = "n1" in server.nodes
        for task in (talking, giving_up):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    return found, shown


def test_an_agent_with_a_token_joins_the_controller_of_its_authority(tmp_path: Path) -> None:
    async def story() -> None:
        ours = Authority(tmp_path)

        trusts = ControllerAddress(ca=ours.certificate).context
        assert await joins(serving(ours.vouches_for("localhost")), trusts) == (True, [b"n1"])

    lived(story)


@pytest.mark.parametrize("token", [b"wrong", b"n2"], ids=["of nobody", "of another node"])
def test_an_agent_with_another_token_does_not_speak_for_its_node(tmp_path: Path, token: bytes) -> None:
    async def story() -> None:
        ours = Authority(tmp_path)

        trusts = ControllerAddress(ca=ours.certificate).context
        found, _ = await joins(serving(ours.vouches_for("localhost")), trusts, token)
        assert not found

    lived(story)


def test_an_agent_without_tls_is_not_served(tmp_path: Path) -> None:
    async def story() -> None:
        assert await joins(serving(Authority(tmp_path).vouches_for("localhost")), None) == (False, [])

    lived(story)


def test_an_agent_shows_its_token_to_no_server_of_another_name_or_authority(tmp_path: Path) -> None:
    async def story() -> None:
        ours, theirs = Authority(tmp_path), Authority(tmp_path, "another")
        trusts = ControllerAddress(ca=ours.certificate).context

        assert await joins(serving(ours.vouches_for("elsewhere")), trusts) == (False, [])
        assert await joins(serving(theirs.vouches_for("localhost")), trusts) == (False, [])

    lived(story)


def test_thousands_of_agents_take_little_memory(tmp_path: Path) -> None:
    """asyncio gives each connection a buffer of 256 kB under TLS. Both ends of each connection are in this process."""
    connections = 20

    async def story() -> None:
        ours = Authority(tmp_path)
        trusts = ControllerAddress(ca=ours.certificate).context()
        server = AgentServer(lambda: None, names_itself, asyncio.get_running_loop().time)
        async with await server.serve("127.0.0.1", 0, serving(ours.vouches_for("localhost"))) as listening:
            port = int(listening.sockets[0].getsockname()[1])

            async def connect() -> asyncio.StreamWriter:
                return (await asyncio.open_connection("127.0.0.1", port, ssl=trusts, server_hostname="localhost"))[1]

            writers = [await connect()]
            tracemalloc.start()
            writers += [await connect() for _ in range(connections)]
            taken, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            for writer in writers:
                writer.close()
        assert taken / connections < 2 * 50_000

    lived(story)
