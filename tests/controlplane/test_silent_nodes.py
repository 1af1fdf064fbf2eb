"""Simulated node that loses power, inside the test's own process."""

import asyncio

import pytest

from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from simulator.controlplane.nodes.node_objects import node_object
from simulator.controlplane.nodes.simulated_nodes import simulated_nodes
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import GPU, pod
from tests.controlplane.servers import StartServer

pytestmark = pytest.mark.controlplane

UNREACHABLE = "node.kubernetes.io/unreachable"
HAS = {"cpu": "8", "memory": "64Gi", GPU: "8"}


@pytest.mark.slow
def test_with_the_node_lifecycle_a_silent_node_loses_its_pods(start_server: StartServer, programs: Programs) -> None:
    lease_s = 8  # a node counts as silent after 10 s
    server = start_server(ControlPlaneSettings(node_lifecycle=True, lease_s=lease_s))
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    at_once = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    lost = pod("lost", nodeName="dark", tolerations=[at_once])

    def taints(node: str) -> set[str]:
        return {taint["key"] for taint in kubectl.get("node", node)["spec"].get("taints", [])}

    async def scene() -> tuple[set[str], set[str]]:
        nodes = [node_object(name, {}, HAS) for name in ("dark", "lit")]
        async with simulated_nodes(server.kubeconfig, nodes, lease_s=lease_s) as fleet:
            await asyncio.to_thread(kubectl, "create", "-f", "-", stdin=lost)
            await asyncio.to_thread(kubectl.wait, "condition=Ready", "pod/lost")
            fleet.silence("dark")
            # It is deleted, and stays until its kubelet answers.
            await asyncio.to_thread(kubectl.wait, "jsonpath={.metadata.deletionTimestamp}", "pod/lost")
            while_dark = await asyncio.to_thread(taints, "dark"), await asyncio.to_thread(taints, "lit")
            await fleet.revive("dark")
            await asyncio.to_thread(kubectl.wait, "delete", "pod/lost")
            await asyncio.to_thread(kubectl.wait, "condition=Ready", "node/dark")
        return while_dark

    dark, lit = asyncio.run(scene())
    assert UNREACHABLE in dark
    assert lit == set()


def test_a_silent_node_starts_no_pod_until_it_is_revived(start_server: StartServer, programs: Programs) -> None:
    server = start_server(ControlPlaneSettings())
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)

    async def scene() -> tuple[str, str]:
        async with simulated_nodes(
            server.kubeconfig, [node_object(name, {}, HAS) for name in ("dark", "lit")]
        ) as fleet:
            fleet.silence("dark")
            for node in ("dark", "lit"):
                await asyncio.to_thread(kubectl, "create", "-f", "-", stdin=pod(f"on-{node}", gpus=8, nodeName=node))
            # Both came by the same watch, the one on the dark node first.
            await asyncio.to_thread(kubectl.wait, "condition=Ready", "pod/on-lit")
            while_dark = await asyncio.to_thread(kubectl.get, "pod", "on-dark")
            await fleet.revive("dark")
            await asyncio.to_thread(kubectl.wait, "condition=Ready", "pod/on-dark")
            after = await asyncio.to_thread(kubectl.get, "pod", "on-dark")
        return while_dark["status"]["phase"], after["status"]["phase"]

    assert asyncio.run(scene()) == ("Pending", "Running")
