"""Roster: orders for pods whose containers come and go."""

import errno
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from isolation.ledger import MemoryLedger, Sandbox
from isolation.orders import Orders, SandboxOrder
from isolation.state import ArbiterState
from nodeagent.sandboxes.process import SandboxPods

UID = "00000000-0000-4000-8000-000000000001"
CONTAINER = "a" * 64
ORDER = SandboxOrder(f"containerd://{CONTAINER}", "tenant")


class Node:
    """Enforcer, files and server of a node with one container, whose group may be gone."""

    def __init__(self) -> None:
        self.tree = SimpleNamespace(homes={})
        self.state = ArbiterState(MemoryLedger(1 << 30))
        self.pods: dict[str, Any] = {}
        self.is_gone = False
        self.changed: list[Sandbox] = []

    def children(self, _: str) -> tuple[str, ...]:
        return (f"cri-containerd-{CONTAINER}.scope",)

    def read(self, _: str, __: str) -> str:
        if self.is_gone:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        return "max"

    def adopt(self, sandbox: Sandbox, home: str) -> None:
        self.tree.homes[sandbox.name] = home

    def change(self, sandbox: Sandbox) -> None:
        self.changed.append(sandbox)

    def open(self, uid: str, tenant: str) -> None:
        self.pods[uid] = tenant


def test_a_changed_order_for_a_container_that_just_ended_stops_nothing() -> None:
    node: Any = Node()
    roster = SandboxPods(node, node, node)
    roster.follow(Orders("n1", 1, 1, {UID: ORDER}))
    node.is_gone = True

    roster.follow(Orders("n1", 1, 2, {UID: replace(ORDER, priority=7)}))
    node.is_gone = False
    roster.follow(Orders("n1", 1, 2, {UID: replace(ORDER, priority=7)}))

    assert [each.priority for each in node.changed] == [7]
