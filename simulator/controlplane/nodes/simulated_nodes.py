"""Simulated nodes against a real API server: objects with heartbeats, and kubelets for their pods."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from simulator.controlplane.nodes.connection import connected
from simulator.controlplane.nodes.heartbeats import LEASE_S, Heartbeats
from simulator.controlplane.nodes.kubelets import Kubelets
from simulator.controlplane.nodes.node_objects import Node
from simulator.controlplane.nodes.resource_slices import as_registered, publish


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


@asynccontextmanager
async def simulated_nodes(
    kubeconfig: Path, nodes: Sequence[Node], *, lease_s: int = LEASE_S
) -> AsyncIterator[SimulatedNodes]:
    """Simulated nodes that run while the context lasts; their objects stay."""
    # A connection for each, as real kubelets have: a thousand starting pods must not delay the heartbeats.
    async with connected(kubeconfig) as for_leases, connected(kubeconfig) as for_pods:
        heartbeats = Heartbeats(for_leases, [as_registered(node) for node in nodes], lease_s=lease_s)
        kubelets = Kubelets(for_pods, nodes)
        await heartbeats.register()
        await publish(for_leases, nodes)
        work = asyncio.create_task(_both(heartbeats, kubelets))
        try:
            yield SimulatedNodes(heartbeats, kubelets, work)
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work


async def _both(heartbeats: Heartbeats, kubelets: Kubelets) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(heartbeats.renew_all())
        group.create_task(kubelets.run())
