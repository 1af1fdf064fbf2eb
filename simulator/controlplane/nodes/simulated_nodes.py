"""Simulated nodes against a real API server: objects with heartbeats, their slices, and kubelets for their pods."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import msgspec
import structlog

from controller.dra.objects import API as RESOURCE_API
from controller.kube.request import MERGE_PATCH, STRATEGIC_PATCH
from simulator.controlplane.nodes import node_objects
from simulator.controlplane.nodes.client import InsistentClient, connected
from simulator.controlplane.nodes.kubelets import Kubelets
from simulator.controlplane.nodes.pod_lifecycle import now

LEASE_S = 40
"""The kubelet's own default."""

RENEWALS_PER_LEASE = 4

PARTS = 10
"""Number of parts of a renewal round: a thousand renewals at once would be a wave of load."""

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

log = structlog.get_logger()


class Heartbeats:
    """Registers nodes and renews their leases, as all their kubelets would."""

    def __init__(self, client: InsistentClient, nodes: Sequence[node_objects.Node], *, lease_s: int = LEASE_S) -> None:
        self._client = client
        self._nodes = {node["metadata"]["name"]: node for node in nodes}
        self._lease_s = lease_s
        self._uid: dict[str, str] = {}
        self._silent: set[str] = set()

    async def register(self) -> None:
        """Creates the Node objects, and removes those of an earlier fleet."""
        answer = await self._client.insist("GET", f"/api/v1/nodes?labelSelector={node_objects.SIMULATED}%3Dtrue")
        earlier = {item["metadata"]["name"] for item in msgspec.json.decode(answer.body)["items"]} - self._nodes.keys()
        await asyncio.gather(*(self._client.insist("DELETE", f"/api/v1/nodes/{name}") for name in earlier))
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
        status = {**node["status"], "conditions": node_objects.ready_conditions(now())}
        answer = await self._client.insist("POST", "/api/v1/nodes", {**node, "status": status})
        if answer.status == HTTPStatus.CONFLICT:  # exists since an earlier run
            labels = {"metadata": {"labels": node["metadata"]["labels"]}}
            answer = await self._client.insist("PATCH", f"/api/v1/nodes/{name}", labels, MERGE_PATCH)
            await self._report(name)
        if not answer.is_ok:
            log.error("node refused", node=name, status=answer.status, answer=answer.body.decode())
            return
        self._uid[name] = msgspec.json.decode(answer.body)["metadata"]["uid"]

    async def _report(self, name: str) -> None:
        status = {"status": {**self._nodes[name]["status"], "conditions": node_objects.ready_conditions(now())}}
        await self._client.insist("PATCH", f"/api/v1/nodes/{name}/status", status, STRATEGIC_PATCH)

    async def _renew(self, name: str) -> None:
        if name not in self._uid:
            return
        spec = {"holderIdentity": name, "leaseDurationSeconds": self._lease_s, "renewTime": now()}
        answer = await self._client.insist("PATCH", f"{LEASES}/{name}", {"spec": spec}, MERGE_PATCH)
        if answer.status == HTTPStatus.NOT_FOUND:
            # With its owner, so that the garbage collector removes the lease when the node is deleted.
            owner = {"apiVersion": "v1", "kind": "node_objects.Node", "name": name, "uid": self._uid[name]}
            metadata = {"name": name, "ownerReferences": [owner]}
            await self._client.insist("POST", LEASES, {"metadata": metadata, "spec": spec})


@dataclass(frozen=True, slots=True)
class SimulatedNodes:
    """Registered fleet with its running kubelets."""

    heartbeats: Heartbeats
    kubelets: Kubelets
    work: asyncio.Task[None]
    """Ends when it is cancelled, or with an internal error."""

    def silence(self, node: str) -> None:
        """Silences a node as when its power is cut: no lease renewed, no pod started, none removed."""
        self.heartbeats.silence(node)
        self.kubelets.silence(node)

    async def revive(self, node: str) -> None:
        """Restores the node's power."""
        await self.heartbeats.revive(node)
        self.kubelets.revive(node)


async def publish(client: InsistentClient, nodes: Sequence[node_objects.Node]) -> None:
    """Publishes the slices of registered nodes, and the class of each driver. Existing ones stay."""
    publishing = [node for node in nodes if node_objects.driver_of(node)]

    async def create(resource: str, body: node_objects.Node) -> None:
        answer = await client.insist("POST", f"{RESOURCE_API}/{resource}", body)
        if not answer.is_ok and answer.status != HTTPStatus.CONFLICT:
            name = body["metadata"]["name"]
            log.error("not published", resource=resource, name=name, answer=answer.body.decode()[:200])

    async def publish_slice(node: node_objects.Node) -> None:
        answer = await client.insist("GET", f"/api/v1/nodes/{node['metadata']['name']}")
        if answer.is_ok:
            await create(
                "resourceslices", node_objects.slice_of(node, msgspec.json.decode(answer.body)["metadata"]["uid"])
            )

    for driver in sorted({node_objects.driver_of(node) for node in publishing}):
        await create("deviceclasses", node_objects.class_of(driver))
    await asyncio.gather(*map(publish_slice, publishing))


@asynccontextmanager
async def simulated_nodes(
    kubeconfig: Path, nodes: Sequence[node_objects.Node], *, lease_s: int = LEASE_S
) -> AsyncIterator[SimulatedNodes]:
    """Simulated nodes that run while the context lasts; their objects stay."""
    # A connection for each, as real kubelets have: a thousand starting pods must not delay the heartbeats.
    async with connected(kubeconfig) as for_leases, connected(kubeconfig) as for_pods:
        heartbeats = Heartbeats(for_leases, [node_objects.as_registered(node) for node in nodes], lease_s=lease_s)
        kubelets = Kubelets(for_pods, nodes)
        await heartbeats.register()
        await publish(for_leases, nodes)

        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(heartbeats.renew_all())
                group.create_task(kubelets.run())

        work = asyncio.create_task(both())
        try:
            yield SimulatedNodes(heartbeats, kubelets, work)
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
