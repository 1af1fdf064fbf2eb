"""Probes of the node agent: alive while it reads its devices, ready while it accepts leases."""

from pathlib import Path

from nodeagent.metrics import probes
from tests.unit.nodeagent.test_agent import Node, gpu, lived


def test_an_agent_is_ready_while_a_lease_was_accepted_in_the_last_minute(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu())
        await node.agent.start()
        asked = probes(node.agent, node.clock)
        report = await node.looks()
        before = asked["/readyz"]()
        node.agent.receive(node.lease(report, {"g": 600.0}))
        leased = asked["/readyz"]()
        await node.passes(61.0)
        cut_off = asked["/readyz"]()

        assert before is not None
        assert leased is None
        assert cut_off is not None
        assert asked["/healthz"]() is None

    lived(story)


def test_an_agent_that_gets_another_nodes_leases_is_not_ready_and_says_what_it_refuses(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, gpu())
        await node.agent.start()
        other = node.lease(await node.looks(), {"g": 600.0}, node="n2")
        node.agent.receive(other)
        asked = probes(node.agent, node.clock)

        assert asked["/healthz"]() is None
        assert "1 OtherNode" in (asked["/readyz"]() or "")

    lived(story)


def test_a_lease_without_devices_makes_ready_too(tmp_path: Path) -> None:
    """As an agent of a node in no domain has it."""

    async def story() -> None:
        node = Node(tmp_path, gpu())
        await node.agent.start()
        node.agent.receive(node.lease(await node.looks(), {}))

        assert probes(node.agent, node.clock)["/readyz"]() is None

    lived(story)
