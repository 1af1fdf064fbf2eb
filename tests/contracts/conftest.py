"""Worlds under the contract, each set up as a test asks."""

from collections.abc import Iterator

import pytest

from cluster.snapshot import Snapshot
from simulator.controlplane.commands import ControlPlaneSettings
from tests.contracts.kubernetes_stage import kubernetes_stages
from tests.contracts.stage import MAY_BE_DECLINED, Stage, Start, simulated
from tests.controlplane.conftest import kept_folder, programs, shared_folder, start_server
from tests.controlplane.servers import StartServer

__all__ = ["kept_folder", "programs", "shared_folder", "start_server"]  # fixtures of the real control plane


@pytest.fixture(scope="module")
def on_kubernetes(start_server: StartServer) -> Iterator[Start]:
    """On a server of its own: what is observed is the whole cluster."""
    with kubernetes_stages(start_server(ControlPlaneSettings()).kubeconfig) as stages:
        yield stages.start


WORLDS = {"simulated": None, "kubernetes": "on_kubernetes"}
"""Name of each world → the fixture that starts it, where it needs one."""


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.controlplane] if need else []) for name, need in WORLDS.items()]
)
def start(request: pytest.FixtureRequest) -> Start:
    need = WORLDS[request.param]
    begin: Start = request.getfixturevalue(need) if need else simulated

    def checked(snapshot: Snapshot) -> Stage:
        stage = begin(snapshot)
        assert stage.declines <= MAY_BE_DECLINED
        return stage

    return checked
