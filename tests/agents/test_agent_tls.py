"""Mutual TLS between agents and controller: neither side accepts the other without a valid certificate."""

import asyncio
import ssl
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
from nodeagent.settings import TlsFiles
from power.leases.messages import Inventory, Keys, sealed
from power.leases.mounted_keys import keys_of_node
from tests.builders.certificates import Authority, Pair

FLEET = Keys("k", {"k": b"a secret of the fleet, long enough"})
PATIENCE_S = 20.0


def serving(authority: Authority, pair: Pair) -> ssl.SSLContext:
    """As the operator serves: only clients with a certificate of the authority."""
    return ServerTls(str(pair.certificate), str(pair.key), lambda: 0.0, "power.tls", str(authority.certificate)).context


def lived(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))


async def joins(server_tls: ssl.SSLContext, agent_tls: TlsFiles | None, attempts: int = 3) -> bool:
    """Whether an agent is connected before this many of its attempts have failed."""
    clock = asyncio.get_running_loop().time
    leader = PowerTerm(lambda _: pytest.fail("no turn is taken"), epoch=1)
    server = AgentServer(lambda: leader, lambda: FLEET, clock)
    keys = keys_of_node(FLEET, "n1")
    failed = asyncio.Semaphore(0)

    class Counting(ControllerLink):
        async def _listen(self, address: str) -> bool:
            try:
                return await super()._listen(address)
            finally:
                failed.release()

    async with await server.serve("127.0.0.1", 0, server_tls) as listening:
        port = int(listening.sockets[0].getsockname()[1])
        introduce = lambda: sealed(Inventory("n1", "life", {}), keys, "n1")  # noqa: E731 - one word
        link = Counting("n1", "localhost", port, lambda _: None, Random(1), agent_tls, introduce)  # noqa: S311
        talking = asyncio.create_task(link.keep_up())
        giving_up = asyncio.gather(*(failed.acquire() for _ in range(attempts)))
        while not giving_up.done() and "n1" not in server.nodes:
            await asyncio.sleep(0.01)
        found = "n1" in server.nodes
        for task in (talking, giving_up):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    return found


def test_with_certificates_of_one_authority_an_agent_joins(tmp_path: Path) -> None:
    async def story() -> None:
        ours = Authority(tmp_path)
        operator, agent = ours.vouches_for("localhost"), ours.vouches_for("agent")

        assert await joins(
            serving(ours, operator), TlsFiles(ca=ours.certificate, certificate=agent.certificate, key=agent.key)
        )

    lived(story)


def test_an_agent_without_a_certificate_is_not_served(tmp_path: Path) -> None:
    async def story() -> None:
        ours = Authority(tmp_path)

        assert not await joins(serving(ours, ours.vouches_for("localhost")), None)

    lived(story)


def test_an_agent_of_another_authority_is_not_served(tmp_path: Path) -> None:
    async def story() -> None:
        ours, theirs = Authority(tmp_path), Authority(tmp_path, "another")
        agent = theirs.vouches_for("agent")

        tls = TlsFiles(ca=ours.certificate, certificate=agent.certificate, key=agent.key)
        assert not await joins(serving(ours, ours.vouches_for("localhost")), tls)

    lived(story)


def test_an_agent_believes_no_server_of_another_name_or_authority(tmp_path: Path) -> None:
    async def story() -> None:
        ours, theirs = Authority(tmp_path), Authority(tmp_path, "another")
        agent = ours.vouches_for("agent")
        tls = TlsFiles(ca=ours.certificate, certificate=agent.certificate, key=agent.key)

        assert not await joins(serving(ours, ours.vouches_for("elsewhere")), tls)
        assert not await joins(serving(ours, theirs.vouches_for("localhost")), tls)

    lived(story)
