"""Start, repair and stop of a local control plane."""

import os
import signal

import pytest

from cluster.errors import ControlPlaneError
from simulator.controlplane import processes
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import PROCESSES, ControlPlaneSettings, Folder
from simulator.controlplane.server import ControlPlane, down, status, up
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.processes import process_of
from tests.controlplane.servers import StartServer

pytestmark = pytest.mark.controlplane

SETTINGS = ControlPlaneSettings(nodes=3)


@pytest.fixture(scope="module")
def first_start(start_server: StartServer) -> ControlPlane:
    return start_server(SETTINGS)


@pytest.fixture
def server(first_start: ControlPlane, programs: Programs) -> ControlPlane:
    """It runs as it was first started, whatever the test before did to it."""
    return up(first_start.folder, SETTINGS, programs)


def test_the_first_start_starts_everything(first_start: ControlPlane) -> None:
    assert first_start.started == PROCESSES


def test_a_second_start_starts_nothing(server: ControlPlane, programs: Programs) -> None:
    again = up(server.folder, SETTINGS, programs)

    assert (again.started, again.url) == ((), server.url)


def test_a_start_replaces_only_what_died(server: ControlPlane, programs: Programs) -> None:
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    kubectl("create", "configmap", "kept")
    killed = process_of(server.folder, "kube-apiserver")
    os.kill(killed.pid, signal.SIGKILL)
    assert processes.ended_within(killed, 30)

    again = up(server.folder, SETTINGS, programs)

    assert again.started == ("kube-apiserver",)
    assert kubectl("get", "configmap", "kept", "-o", "name") == "configmap/kept\n"


def test_changed_settings_restart_only_what_they_concern(server: ControlPlane, programs: Programs) -> None:
    again = up(server.folder, ControlPlaneSettings(nodes=2), programs)

    assert again.started == ("simulated-nodes",)
    names = Kubectl(programs["kubectl"], server.kubeconfig)("get", "nodes", "-o", "name")
    assert names.split() == ["node/node-00000", "node/node-00001"]


def test_stopping_leaves_no_process_and_the_next_start_finds_the_objects(
    server: ControlPlane, programs: Programs
) -> None:
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    kubectl("create", "configmap", "survivor")

    stopped = down(server.folder)
    left = status(server.folder)
    again = up(server.folder, SETTINGS, programs)

    assert (set(stopped), left) == (set(PROCESSES), ())
    assert again.url == server.url  # the kubeconfig stays good
    assert kubectl("get", "configmap", "survivor", "-o", "name") == "configmap/survivor\n"


def test_a_process_that_dies_at_its_start_is_shown_and_nothing_stays(
    start_server: StartServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = Folder(tmp_path_factory.mktemp("doomed"))

    with pytest.raises(
        ControlPlaneError, match=r"(?s)kube-apiserver ended at startup:\n.*unknown flag: --no-such-flag"
    ):
        start_server(ControlPlaneSettings(api_flags=("--no-such-flag",)), folder)

    assert status(folder) == ()
