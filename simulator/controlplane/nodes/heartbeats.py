"""Node objects of simulated nodes, registered and kept alive by their leases."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import structlog

from simulator.controlplane.nodes.connection import CONFLICT, GONE, MERGE_PATCH, STRATEGIC_PATCH, Answer, Connection
from simulator.controlplane.nodes.node_objects import SIMULATED, Node, ready_conditions

LEASE_S = 40
"""The kubelet's own default."""

RENEWALS_PER_LEASE = 4

PARTS = 10
"""Number of parts of a renewal round: a thousand renewals at once would be a wave of load."""

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

log = structlog.get_logger()


class Heartbeats:
    """Registers nodes and renews their leases, as all their kubelets would."""

    def __init__(self, connection: Connection, nodes: Sequence[Node], *, lease_s: int = LEASE_S) -> None:
        self._connection = connection
        self._nodes = {node["metadata"]["name"]: node for node in nodes}
        self._lease_s = lease_s
        self._uid: dict[str, str] = {}
        self._silent: set[str] = set()

    async def register(self) -> None:
        """Creates the Node objects, and removes those of an earlier fleet."""
        answer = await self._connection.insist("GET", f"/api/v1/nodes?labelSelector={SIMULATED}%3Dtrue")
        earlier = {item["metadata"]["name"] for item in msgspec.json.decode(answer.body)["items"]} - self._nodes.keys()
        await asyncio.gather(*(self._connection.insist("DELETE", f"/api/v1/nodes/{name}") for name in earlier))
        await asyncio.gather(*map(self._register, self._nodes))
        log.info("nodes registered", nodes=len(self._nodes), removed=len(earlier))

    async def renew_all(self) -> None:
        """Renews every lease in time, without end."""
        names, pause_s = list(self._nodes), self._lease_s / RENEWALS_PER_LEASE / PARTS
        while True:
            began_s = time.monotonic()
            for part in range(PARTS):
                await asyncio.gather(*(self._renew(name) for name in names[part::PARTS] if name not in self._silent))
                await asyncio.sleep(pause_s)
            if time.monotonic() - began_s > self._lease_s:
                # This process was frozen, or the server away, for longer than a lease: nodes may count as lost.
                log.warning("leases expired; nodes report again", for_s=round(time.monotonic() - began_s, 1))
                await asyncio.gather(*(self._report(name) for name in names if name not in self._silent))

    def silence(self, node: str) -> None:
        """Stops renewing the node's lease, as when its power is cut."""
        self._silent.add(node)

    async def revive(self, node: str) -> None:
        self._silent.discard(node)
        await self._report(node)

    async def _register(self, name: str) -> None:
        node = self._nodes[name]
        status = {**node["status"], "conditions": ready_conditions(now())}
        answer = await self._connection.insist("POST", "/api/v1/nodes", {**node, "status": status})
        if answer.status == CONFLICT:  # exists since an earlier run
            labels = {"metadata": {"labels": node["metadata"]["labels"]}}
            answer = await self._connection.insist("PATCH", f"/api/v1/nodes/{name}", labels, MERGE_PATCH)
            await self._report(name)
        if not answer.is_ok:
            log.error("node refused", node=name, status=answer.status, answer=_message(answer))
            return
        self._uid[name] = msgspec.json.decode(answer.body)["metadata"]["uid"]

    async def _report(self, name: str) -> None:
        status = {"status": {**self._nodes[name]["status"], "conditions": ready_conditions(now())}}
        await self._connection.insist("PATCH", f"/api/v1/nodes/{name}/status", status, STRATEGIC_PATCH)

    async def _renew(self, name: str) -> None:
        if name not in self._uid:
            return
        spec = {"holderIdentity": name, "leaseDurationSeconds": self._lease_s, "renewTime": now()}
        answer = await self._connection.insist("PATCH", f"{LEASES}/{name}", {"spec": spec}, MERGE_PATCH)
        if answer.status == GONE:
            # With its owner, so that the garbage collector removes the lease when the node is deleted.
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": self._uid[name]}
            metadata = {"name": name, "ownerReferences": [owner]}
            await self._connection.insist("POST", LEASES, {"metadata": metadata, "spec": spec})


def now() -> str:
    """This instant in the API's format, in microseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _message(answer: Answer) -> str:
    return str(msgspec.json.decode(answer.body).get("message", ""))
