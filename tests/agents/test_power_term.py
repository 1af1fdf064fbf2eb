"""Controller's fast loop with real agents on loopback: power follows need, leaders change, impostors are refused."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from cluster.arrays import Names
from cluster.power import (
    NEVER_S,
    DomainTable,
    FeedTable,
    PowerClass,
    PowerDeviceTable,
    PowerLeases,
    PowerReadings,
    PowerTable,
)
from controller.loops.power.agent_server import AgentServer
from controller.loops.power.term import PowerTerm
from nodeagent.agent import NodeAgent
from nodeagent.controller_link import ControllerLink
from nodeagent.recovery import AgentRules
from power.leases.messages import Inventory, Report, encoded, framed
from power.rules import PowerRules
from tests.agents.credentials import credentials, names_itself
from tests.fake_devices import FakeDevice, FakeDevices
from tests.node_agents import agent_of
from tests.until import until_async

PATIENCE_S = 30.0
until = partial(until_async, within_s=PATIENCE_S, pause_s=0.02)
FAST = PowerRules(control_delay_s=0.2, lease_s=3.0, stale_s=3.0)


def row_of(budget_w: float) -> Callable[[Mapping[str, Inventory]], PowerTable]:
    """A row with this budget; every node in it, every device of one class."""

    def made(inventories: Mapping[str, Inventory]) -> PowerTable:
        nodes = sorted(inventories)
        found = [
            (1 + n, uuid, each) for n, node in enumerate(nodes) for uuid, each in inventories[node].devices.items()
        ]
        count, width = len(found), 1 + len(nodes)
        low, high = (np.array([getattr(each, name) for *_, each in found]) for name in ("min_w", "max_w"))
        return PowerTable(
            domains=DomainTable(
                names=Names(["row", *nodes]),
                kind=("row", *["node"] * len(nodes)),
                budget_w=np.array([budget_w, *[1e15] * len(nodes)]),
                other_w=np.zeros(width),
                curve=np.full(width, -1),
            ),
            feeds=FeedTable(np.arange(1, width), np.zeros(width - 1, dtype=np.int64), np.ones(width - 1)),
            classes=(PowerClass("all", 0),),
            gpu_types=("H100",),
            devices=PowerDeviceTable(
                names=Names([uuid for _, uuid, _ in found]),
                domain=np.array([domain for domain, *_ in found], dtype=np.int64),
                gpu_type=np.zeros(count, dtype=np.int64),
                power_class=np.zeros(count, dtype=np.int64),
                min_w=low,
                max_w=high,
                default_w=np.array([each.default_w for *_, each in found]),
                previous_w=np.array([each.previous_w for *_, each in found]),
                floor_w=np.maximum(low, 0.5 * high),
                idle_w=np.full(count, 70.0),
                overshoot_share=np.full(count, 0.03),
                overhead_share=np.zeros(count),
                managed=np.array([each.managed for *_, each in found]),
            ),
            readings=PowerReadings(
                *(np.full(count, NEVER_S), np.zeros(count), np.zeros(count), np.full(count, -1), np.full(count, -1)),
                *(np.full(width, NEVER_S), np.zeros(width)),
            ),
            leases=PowerLeases(np.zeros(count), np.zeros(count), np.full(count, -1), np.full(count, NEVER_S)),
        )

    return made


class Row:
    """Agents of some nodes, one GPU each, and controllers that they may find."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.clock = asyncio.get_running_loop().time
        self.devices = {f"n{n}": FakeDevice(f"g{n}", obeys_after_s=0.0) for n in range(nodes)}
        self.folder = folder
        self.agents: dict[str, NodeAgent] = {}
        self.links: dict[str, ControllerLink] = {}
        self.leader: PowerTerm | None = None

    def enforced_w(self) -> list[float]:
        return [device.enforced_w(self.clock()) for device in self.devices.values()]

    @asynccontextmanager
    async def up(self) -> AsyncIterator[AgentServer]:
        server = AgentServer(lambda: self.leader, names_itself, self.clock)
        listening = await server.serve("127.0.0.1", 0, credentials().serves())
        port = int(listening.sockets[0].getsockname()[1])
        stop = asyncio.Event()
        tasks = [asyncio.create_task(server.decide())]
        for node, device in self.devices.items():
            await self._start(node, device, port, stop, tasks)
        try:
            yield server
        finally:
            stop.set()
            for task in tasks[::-1]:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            listening.close()
            for agent in self.agents.values():
                agent.close()
            await asyncio.sleep(0.05)

    async def _start(
        self, node: str, device: FakeDevice, port: int, stop: asyncio.Event, tasks: list["asyncio.Task[None]"]
    ) -> None:
        backend = FakeDevices([device], self.clock)
        rules = AgentRules(period_s=0.1, mean_s=0.1)
        say = lambda message: self.links[node].send(message)  # noqa: E731 - the link is made after the agent
        agent = agent_of(node, "life", "boot", backend, self.folder / node, rules, self.clock, say)
        await agent.start()
        chance = Random(1)  # noqa: S311 - spreads attempts
        self.links[node] = ControllerLink(
            *(node.encode, "127.0.0.1", port, agent.receive, chance), credentials().trusts, agent.inventory
        )
        self.agents[node] = agent
        tasks += [asyncio.create_task(agent.run(stop)), asyncio.create_task(self.links[node].keep_up())]


def lived(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))


def test_watts_flow_to_who_needs_them_and_never_over_the_budget(tmp_path: Path) -> None:
    async def story() -> None:
        row = Row(tmp_path, 3)
        for busy in ("n0", "n1"):
            row.devices[busy].wants_w = lambda _: 690.0
        row.devices["n2"].wants_w = lambda _: 70.0
        row.leader = PowerTerm(row_of(1700.0), epoch=1, rules=FAST)
        async with row.up():
            await until(lambda: max(row.enforced_w()) <= 350.0)  # every agent has taken hold
            await until(lambda: sum(row.enforced_w()[:2]) > 2 * 500.0)
            for _ in range(20):
                assert 1.03 * sum(row.enforced_w()) <= 1700.0 + 1.0
                await asyncio.sleep(0.05)

    lived(story)


def test_without_a_leader_devices_fall_to_their_floor_and_a_new_one_takes_over(tmp_path: Path) -> None:
    async def story() -> None:
        row = Row(tmp_path, 2)
        row.leader = PowerTerm(row_of(1300.0), epoch=1, rules=FAST)
        async with row.up():
            await until(lambda: sum(row.enforced_w()) > 1000.0)
            row.leader = None
            await until(lambda: row.enforced_w() == [350.0, 350.0])
            row.leader = PowerTerm(row_of(1300.0), epoch=2, rules=FAST)
            await until(lambda: sum(row.enforced_w()) > 1000.0)

            assert {agent.holder.epoch for agent in row.agents.values()} == {2}

    lived(story)


def test_a_budget_that_is_cut_is_kept_soon(tmp_path: Path) -> None:
    async def story() -> None:
        row = Row(tmp_path, 2)
        row.leader = PowerTerm(row_of(1400.0), epoch=1, rules=FAST)
        async with row.up():
            await until(lambda: sum(row.enforced_w()) > 1000.0)
            row.leader.changed(row_of(800.0))
            await until(lambda: 1.03 * sum(row.enforced_w()) <= 801.0)
            for _ in range(10):
                await asyncio.sleep(0.05)
                assert 1.03 * sum(row.enforced_w()) <= 801.0

    lived(story)


def test_an_impostor_neither_joins_nor_pushes_a_node_aside(tmp_path: Path) -> None:
    async def story() -> None:
        row = Row(tmp_path, 1)
        row.leader = PowerTerm(row_of(700.0), epoch=1, rules=FAST)
        async with row.up() as server:
            await until(lambda: server.nodes == {"n0"})
            port = row.links["n0"]._port
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=credentials().trusts())
            false = encoded(Inventory("n0", "mine", {}))
            writer.write(framed(b"wrong") + framed(false))
            ended = await reader.read()
            writer.close()
            await writer.wait_closed()

            assert ended == b""
            assert server.counts.refused == {"NotAuthenticated": 1}
            assert server.nodes == {"n0"}

    lived(story)


def test_domains_that_cannot_be_leave_those_that_were(tmp_path: Path) -> None:
    watts = PowerTerm(row_of(1000.0), epoch=1, rules=FAST)
    watts.changed(row_of(-1.0))

    assert watts.turn(0.0) == ()
    assert watts.turn(10.0) == ()
    assert "budget" in watts.mistake


def test_a_report_that_came_late_does_not_count() -> None:
    watts = PowerTerm(row_of(1000.0), epoch=1, rules=FAST)
    newer, older = (Report("n0", "life", at_s, -1, -1, {}) for at_s in (5.0, 4.0))

    assert watts.receive(newer) is None
    refusal = watts.receive(older)
    assert refusal is not None
    assert refusal.code == "Replayed"
