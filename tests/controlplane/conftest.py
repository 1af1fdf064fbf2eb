"""Real control plane for tests: one shared by all test processes, with a namespace for each module, or a server of the
module's own."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.errors import BuildError
from simulator.controlplane import processes
from simulator.controlplane.binaries import Programs, control_plane_programs, progress_on
from simulator.controlplane.commands import ControlPlaneSettings, Folder
from simulator.controlplane.processes import locked
from simulator.controlplane.server import ControlPlane, down, up
from tests.controlplane.keeper import keep
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.servers import NODES, StartServer

LONGEST = (
    "test_operator",
    "test_chaos",
    "test_churned_day",
    "test_scaling_end_to_end",
    "test_power",
    "test_faults",
    "test_compositions",
    "test_dra",
    "test_scaling",
    "test_health",
)
"""Modules of more than two minutes: they begin first, so that none of them runs alone at the end."""

REQUIRED = "controlplane" in os.environ.get("TONNAGE_REQUIRE", "").split(",")
"""Whether a control plane that cannot be built is a failure, as in CI, or a reason to skip."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests in the order in which test processes take their modules: the longest first."""
    rank = {Path(__file__).with_name(f"{name}.py"): n for n, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))
    # A socket that a helper leaves to the garbage collector would fail the test that runs when it is collected, an
    # innocent one. That the operator and the CLI close theirs is held by unit tests.
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <.*socket:ResourceWarning"))


@pytest.fixture(scope="session")
def programs(shared_folder: Path) -> Programs:
    """The programs of a control plane, built if need be; a skip that says why where that cannot be done."""
    failure = shared_folder / "build-failure"
    with locked(shared_folder / "build.lock"):
        if not failure.exists():
            try:
                return control_plane_programs(progress_on(sys.__stderr__ or sys.stderr))
            except BuildError as error:
                # The other test processes need not find out again, which may take minutes without a network.
                failure.write_text(str(error), encoding="utf-8")
    why = f"no control plane: {failure.read_text(encoding='utf-8')}"
    if REQUIRED:
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all test processes of this run (pytest-xdist gives each a folder beneath it)."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def kept_folder(shared_folder: Path) -> Path:
    """The shared folder, and every server that is started in it ends with this test run, however that ends."""
    # A process of pytest-xdist is a child of the one that the user started.
    run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    keep(shared_folder, processes.process_with("test run", run))
    return shared_folder


@pytest.fixture(scope="session")
def control_plane(kept_folder: Path, programs: Programs) -> ControlPlane:
    """A server with simulated nodes, shared by all test processes. Leave it as it was: use a namespace of your own."""
    return up(Folder(kept_folder / "server"), ControlPlaneSettings(nodes=NODES), programs)


@pytest.fixture(scope="module")
def namespace(control_plane: ControlPlane, programs: Programs, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the module's own on the shared server."""
    # pytest-xdist may run parts of one module in two processes, each with this fixture.
    name = f"{request.module.__name__.rpartition('.')[2]}-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    name = re.sub(r"[^a-z0-9]+", "-", name.lower())[-63:].strip("-")
    kubectl = Kubectl(programs["kubectl"], control_plane.kubeconfig)
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def kubectl(control_plane: ControlPlane, programs: Programs, namespace: str) -> Kubectl:
    """kubectl as administrator in the module's namespace."""
    return Kubectl(programs["kubectl"], control_plane.kubeconfig, namespace)


@pytest.fixture(scope="module")
def start_server(
    kept_folder: Path, programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartServer]:
    """Starts servers that are the module's own, such as those that a test kills: `start_server(Settings(nodes=3))`."""
    folders: list[Folder] = []

    def start(settings: ControlPlaneSettings, folder: Folder | None = None) -> ControlPlane:
        folders.append(folder or Folder(tmp_path_factory.mktemp("server")))
        return up(folders[-1], settings, programs)

    yield start
    for folder in dict.fromkeys(folders):
        if folder.state.exists():
            down(folder, delete=True)
