"""Servers that tests share or start: the number of their nodes, and how one more is started."""

from collections.abc import Callable
from pathlib import Path

import yaml

from controller.api.kinds import OWN_KINDS
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from simulator.controlplane.server import ControlPlane
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import GPU
from tests.controlplane.operators import ROOT, until

EXAMPLES = ROOT / "examples"
EXAMPLE_NODES = 22

NODES = 20
"""Simulated nodes of the shared server: what tests need that do not bring their own."""

StartServer = Callable[..., ControlPlane]
"""The fixture `start_server`: settings → a running server of the module's own."""


def example_server(start_server: StartServer) -> ControlPlane:
    """A server of the module's own with the nodes of the examples: an operator or a plan covers all of a server."""
    return start_server(ControlPlaneSettings(manifests=str(EXAMPLES / "nodes.yaml")))


def server_of_l4(start_server: StartServer, folder: Path, nodes: int) -> ControlPlane:
    """A server of the module's own with equal nodes of eight L4s. folder: where their manifests are written."""
    has = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: "8"}
    node = {"apiVersion": "v1", "kind": "Node", "status": {"allocatable": has}}
    labels = {"nvidia.com/gpu.product": "NVIDIA-L4"}
    manifests = folder / "nodes.yaml"
    fleet = [{**node, "metadata": {"name": f"n{n:03d}", "labels": labels}} for n in range(nodes)]
    manifests.write_text(yaml.safe_dump_all(fleet), encoding="utf-8")
    return start_server(ControlPlaneSettings(manifests=str(manifests)))


def kubectl_with_kinds(server: ControlPlane, programs: Programs) -> Kubectl:
    """kubectl as administrator of an example server, with Tonnage's kinds installed and all nodes there."""
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    kubectl("apply", "-f", str(ROOT / "deploy" / "crds"))
    for kind in OWN_KINDS:
        kubectl.wait("condition=Established", f"crd/{kind.definition}")
    until(lambda: len(kubectl.get("nodes")["items"]) == EXAMPLE_NODES, "the simulated nodes are there")
    return kubectl
