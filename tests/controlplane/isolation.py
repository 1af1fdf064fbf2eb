"""A node agent's end of the link as far as isolation goes, and what it reports on: every pod that it is ordered to."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from isolation.capability import Level
from isolation.orders import ORDERS, REPORT, NodeReport, Orders, SandboxReport
from nodeagent.controller_link import Link
from power.leases.messages import Inventory, Keys, Refusal, opened_text, sealed, sealed_text
from power.leases.mounted_keys import keys_of_node

OURS = "tonnage.dev/v1alpha1"


def policy(name: str, **spec: Any) -> dict[str, Any]:
    classes = [{"name": "batch"}, {"name": "interactive", "priority": 100, "budget": "4Gi"}]
    content = {"classes": classes, **spec}
    return {"apiVersion": OURS, "kind": "SandboxPolicy", "metadata": {"name": name}, "spec": content}


def agent_pod(name: str, node: str, **labels: str) -> dict[str, Any]:
    """Pod as the Sandbox of kubernetes-sigs/agent-sandbox makes it, with the label by which isolation finds it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"tonnage.dev/sandbox": "interactive", **labels}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "agent", "image": "example.com/agent"}],
        },
    }


@dataclass
class FakeIsolation:
    """What the node reports, and what it was ordered."""

    node: str
    level: Level = "full"
    why: str = "cgroup v2, writable"
    orders: Orders | None = None
    happened: Mapping[str, int] = field(default_factory=dict)
    """Counts of this session."""
    steadily: str = ""
    """What happens once in every report."""
    reports: int = 0

    def report(self) -> NodeReport:
        orders, self.reports = self.orders, self.reports + 1
        happened = {**self.happened, **({self.steadily: self.reports} if self.steadily else {})}
        sandboxes = {
            uid: SandboxReport(200 << 20, 512 << 20, running=2, queued=1, frozen=1, happened=happened)
            for uid in (orders.sandboxes if orders is not None else ())
        }
        return NodeReport(self.node, "life", self.level, self.why, 8 << 30, 1 << 30, sandboxes)


@contextmanager
def isolating_agent(node: str, port: int, fleet: Keys) -> Iterator[FakeIsolation]:
    """An agent without devices that reports ten times a second, in a thread of its own."""
    keys, made, ended = keys_of_node(fleet, node), FakeIsolation(node), threading.Event()

    def hear(travelled: bytes) -> None:
        text = opened_text(ORDERS, travelled, keys, node)
        if not isinstance(text, Refusal):
            made.orders = msgspec.json.decode(text, type=Orders)

    async def talk() -> None:
        hello = sealed(Inventory(node, "life", {}), keys, node)
        link = Link(node, "127.0.0.1", port, hear, Random(1), None, lambda: hello)  # noqa: S311 - spreads attempts
        talking = asyncio.create_task(link.keep_up())
        while not ended.is_set():
            link.say(sealed_text(REPORT, msgspec.json.encode(made.report()), keys, node))
            await asyncio.sleep(0.1)
        talking.cancel()

    thread = threading.Thread(target=lambda: asyncio.run(talk()), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        ended.set()
        thread.join(10)
