"""A node agent's end of the link as far as isolation goes, and what it reports on: every pod that it is ordered to."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

import msgspec

from isolation.orders import ORDERS, REPORT, IsolationReport, Orders, SandboxReport
from isolation.tree import Level
from nodeagent.controller_link import ControllerLink
from power.leases.messages import Inventory, encoded, encoded_text, kind_in, text_in
from tests.agents.credentials import credentials
from tests.rigs.kernel.guest import Guest

OURS = "tonnage.dev/v1alpha1"
REMOTE = "tests.kernel.remote"


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

    def report(self) -> IsolationReport:
        orders, self.reports = self.orders, self.reports + 1
        happened = {**self.happened, **({self.steadily: self.reports} if self.steadily else {})}
        sandboxes = {
            uid: SandboxReport(200 << 20, 512 << 20, running=2, queued=1, frozen=1, happened=happened)
            for uid in (orders.sandboxes if orders is not None else ())
        }
        return IsolationReport(self.node, "life", self.level, self.why, 8 << 30, 1 << 30, sandboxes)


class GuestIsolation:
    """The isolation process itself, on a kernel of its own, with one pod."""

    def __init__(self, guest: Guest, node: str, uid: str, container: str) -> None:
        self.orders: Orders | None = None
        self._guest, self._pod = guest, (uid, container.rpartition("/")[2])
        self._turn = threading.Lock()
        self._handed: Orders | None = None
        self._newest: IsolationReport | None = None
        self._guest.call(f"{REMOTE}:begin", node, *self._pod)
        while self._newest is None:
            self._exchange()

    def report(self) -> IsolationReport:
        self._exchange()
        assert self._newest is not None
        return self._newest

    def outgrow(self) -> dict[str, Any]:
        """What became of a tool call that took far more than it declared."""
        with self._turn:
            found: dict[str, Any] = self._guest.call(f"{REMOTE}:outgrow", *self._pod)
        return found

    def _exchange(self) -> None:
        orders = self.orders
        text = "" if orders is None or orders is self._handed else msgspec.json.encode(orders).decode() + "\n"
        with self._turn:
            lines: str = self._guest.call(f"{REMOTE}:exchange", text)
        self._handed = orders
        if lines:
            self._newest = msgspec.json.decode(lines.splitlines()[-1], type=IsolationReport)


class Isolation(Protocol):
    """What a node's agent asks of its isolation process."""

    orders: Orders | None

    def report(self) -> IsolationReport: ...


@contextmanager
def isolating_agent(node: str, port: int, token: str = "") -> Iterator[FakeIsolation]:
    """An agent without devices whose isolation is a fake."""
    made = FakeIsolation(node)
    with linked(node, port, made, token):
        yield made


@contextmanager
def linked(node: str, port: int, made: Isolation, token: str = "") -> Iterator[None]:
    """The node's end of the link, which reports ten times a second, in a thread of its own.

    token: what it shows; the node's name by default.
    """
    ended, shown = threading.Event(), (token or node).encode()

    def hear(travelled: bytes) -> None:
        if kind_in(travelled) == ORDERS:
            made.orders = msgspec.json.decode(text_in(travelled), type=Orders)

    async def talk() -> None:
        hello = encoded(Inventory(node, "life", {}))
        link = ControllerLink(
            *(lambda: shown, "127.0.0.1", port, hear, Random(1)),  # noqa: S311 - spreads attempts
            credentials().trusts,
            lambda: hello,
        )
        talking = asyncio.create_task(link.keep_up())
        while not ended.is_set():
            link.send(encoded_text(REPORT, msgspec.json.encode(made.report())))
            await asyncio.sleep(0.1)
        talking.cancel()

    thread = threading.Thread(target=lambda: asyncio.run(talk()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10)
