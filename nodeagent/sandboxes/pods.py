"""The pods under control, as the controller orders them and as the cgroup tree has them."""

from contextlib import suppress
from dataclasses import replace

import structlog

from isolation.ledger import Sandbox
from isolation.orders import IsolationReport, Orders, SandboxOrder, SandboxReport
from isolation.tree import Capability, CgroupFiles, container_group, is_uid, pod_groups
from nodeagent.sandboxes.enforcer import Enforcer
from nodeagent.sandboxes.server import SandboxServer

log = structlog.get_logger(__name__)
MOST_SANDBOXES = 1024
"""Sandboxes of one node: nine times the kubelet's limit of pods."""


class SandboxPods:
    """Adopts what is ordered, and releases the rest."""

    def __init__(self, enforcer: Enforcer, files: CgroupFiles, server: SandboxServer, below: str = "") -> None:
        self._enforcer, self._files, self._server, self._below = enforcer, files, server, below
        self._orders: dict[str, SandboxOrder] = {}
        """Those that are carried out."""
        self._trouble: dict[str, str] = {}

    def follow(self, orders: Orders) -> None:
        """Brings the node to the orders. Cheap where nothing changed; what fails is tried again the next time."""
        wanted = dict(list(orders.sandboxes.items())[:MOST_SANDBOXES])
        there = self._enforcer.tree.homes
        for uid in [uid for uid in self._orders if uid not in wanted or uid not in there]:
            self._drop(uid)
        self._trouble = {uid: why for uid, why in self._trouble.items() if uid in wanted}
        for uid, order in wanted.items():
            before = self._orders.get(uid)
            if before == order:
                continue
            if before is not None and before.container_id != order.container_id:
                self._drop(uid)
                before = None
            if before is None:
                self._take(uid, order)
                continue
            with suppress(OSError):  # its container just ended, which the enforcer notices: the next time drops it
                self._enforcer.change(self._sandbox(uid, order, there[uid]))
                self._orders[uid] = order

    def report(self, node: str, life: str, can: Capability) -> IsolationReport:
        state = self._enforcer.state
        sandboxes: dict[str, SandboxReport] = {}
        for uid in self._orders:
            sandbox = state.ledger.sandboxes.get(uid)
            calls = [call for call in state.calls.values() if call.request.sandbox == uid]
            kept = [each.lease_bytes for each in state.ledger.reservations.values() if each.sandbox == uid]
            pod = self._server.pods.get(uid)
            blocked = pod is not None and pod.listener is None
            sandboxes[uid] = SandboxReport(
                agent_bytes=sandbox.agent_bytes if sandbox else 0,
                calls_bytes=sum(kept),
                running=len(calls),
                queued=sum(asked.sandbox == uid for asked in state.queue),
                frozen=sum(call.frozen is not None for call in calls),
                happened={f"{what}/{reason}": count for (what, reason), count in pod.counts.items()} if pod else {},
                trouble="its socket cannot be made: its folder is blocked" if blocked else "",
            )
        sandboxes |= {uid: SandboxReport(trouble=why) for uid, why in self._trouble.items()}
        budget_bytes, reserved_bytes = state.ledger.budget_bytes, state.ledger.reserved_bytes()
        return IsolationReport(node, life, can.level, can.reason, budget_bytes, reserved_bytes, sandboxes)

    def _take(self, uid: str, order: SandboxOrder) -> None:
        home = self._home(uid, order.container_id)
        if home is None:
            self._trouble[uid] = "its container's cgroup is not found"
            return
        try:
            self._enforcer.adopt(self._sandbox(uid, order, home), home)
        except OSError as error:
            self._enforcer.forget(uid)
            if self._trouble.get(uid) != str(error):
                log.warning("a container's cgroup cannot be taken over", pod=uid, why=str(error))
            self._trouble[uid] = str(error)
            return
        self._server.open(uid, order.tenant)
        self._orders[uid] = order
        self._trouble.pop(uid, None)
        log.info("sandbox taken over", pod=uid, priority=order.priority)

    def _drop(self, uid: str) -> None:
        del self._orders[uid]
        self._server.close(uid)
        if uid in self._enforcer.tree.homes:
            self._enforcer.release(uid)

    def _home(self, uid: str, container_id: str) -> str | None:
        """Group of the pod's container; None where there is none yet, or any more."""
        if not is_uid(uid):
            return None
        for group in pod_groups(uid, self._below):
            with suppress(OSError):
                found = container_group(container_id, self._files.children(group))
                return None if found is None else f"{group}/{found}"
        return None

    def _sandbox(self, uid: str, order: SandboxOrder, home: str) -> Sandbox:
        """The order in the ledger's words, within the container's limit and the node's budget."""
        limit = self._files.read(home, "memory.max").strip()
        most = self._enforcer.state.ledger.budget_bytes
        bounds = [most, *([] if limit == "max" else [int(limit)])]
        if order.budget_bytes is not None:
            bounds.append(order.budget_bytes)
        sandbox = Sandbox(uid, min(bounds), order.priority, 0, order.agent_bytes)
        return replace(sandbox, guaranteed_bytes=min(order.guaranteed_bytes, sandbox.budget_bytes))
