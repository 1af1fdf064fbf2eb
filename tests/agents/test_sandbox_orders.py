"""Orders and reports of isolation on the agents' link: next to power, and only for nodes that isolate."""

import asyncio
from contextlib import suppress

from controller.loops.isolation.coverage import SandboxChannel
from controller.loops.power.loop import PowerLoop, PowerView
from isolation.orders import SandboxOrder
from nodeagent.__main__ import clock
from power.rules import PowerRules
from tests.agents.credentials import credentials, names_itself
from tests.builders.leading import FixedSource, Leading
from tests.controlplane.isolation import isolating_agent

ORDER = SandboxOrder("cri-o://a", "p/team-a")


async def until(claim: object) -> None:
    async with asyncio.timeout(30):
        while not claim():  # type: ignore[operator]
            await asyncio.sleep(0.02)


def test_a_node_without_devices_gets_its_orders_and_its_reports_arrive() -> None:
    channel = SandboxChannel(clock, Leading())
    channel.set_orders({"n1": {"u": ORDER}})

    async def story() -> None:
        source = FixedSource(PowerView({}, {}))
        loop = PowerLoop(source.see, Leading(), names_itself, clock, PowerRules(), [channel])
        port = await loop.listen("127.0.0.1", 0, credentials().serves())
        running = asyncio.create_task(loop.run())
        with isolating_agent("n1", port) as agent:
            await until(lambda: agent.orders is not None and "n1" in channel.reports())
            assert agent.orders is not None
            assert dict(agent.orders.sandboxes) == {"u": ORDER}
            channel.set_orders({})
            await until(lambda: agent.orders is not None and not agent.orders.sandboxes)
        assert loop.counts.refused == {}
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    asyncio.run(story())
