"""A support bundle of a real operator on a real API server: fetched in both ways, and decided again as it was."""

import json
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from cli.main import tonnage
from simulator.controlplane.binaries import Programs
from simulator.controlplane.server import ControlPlane
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import pod
from tests.controlplane.operators import ROOT, OperatorProcess, operator, until
from tests.controlplane.servers import StartServer, example_server, kubectl_with_kinds

pytestmark = pytest.mark.controlplane

EXAMPLES = ROOT / "examples"
LABELS = {"app.kubernetes.io/name": "tonnage", "app.kubernetes.io/component": "controller"}
TEST_ADDRESS = ("192.0.2.1", 9)
"""Of the block for documentation (RFC 5737): nothing is sent there, the system only chooses a way out."""


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> ControlPlane:
    """A server of the module's own: the operator places pods of all namespaces."""
    return example_server(start_server)


@pytest.fixture(scope="module")
def kubectl(server: ControlPlane, programs: Programs) -> Kubectl:
    kubectl = kubectl_with_kinds(server, programs)
    kubectl("create", "namespace", "tonnage-system")
    replica = pod("tonnage-0", schedulerName="nobody")
    replica["metadata"] |= {"namespace": "tonnage-system", "labels": LABELS}
    kubectl.within("tonnage-system")("create", "-f", "-", stdin=replica)
    files = [word for name in ("gpu-types", "profiles", "services") for word in ("-f", str(EXAMPLES / f"{name}.yaml"))]
    kubectl("apply", *files)
    return kubectl


@pytest.fixture(scope="module")
def acting(
    server: ControlPlane, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """An operator that has planned services, placed three pods, and left one without a place."""
    folder = tmp_path_factory.mktemp("operator")
    # What a deadline cuts short on a busy machine would be decided otherwise with more time.
    settings = {"pools": [{"placer": "bind"}], "plan_deadline_s": 60.0, "host": "0.0.0.0"}  # noqa: S104 - as in its pod
    own = kubectl.within("tonnage-system").get("pod", "tonnage-0")["metadata"]["uid"]
    settings |= {"record": {"key": own}}
    with operator(server.kubeconfig, folder, **settings) as started:
        # The wide one first: every cycle that places another has seen it.
        for name, gpus in (("wide", 16), ("one", 1), ("two", 2), ("eight", 8)):
            made = pod(name, gpus=gpus, schedulerName="tonnage", terminationGracePeriodSeconds=0)
            kubectl("create", "-f", "-", stdin=made)
        until(lambda: all(node_of(kubectl, name) for name in ("one", "two", "eight")), "three pods are placed")
        yield started


def node_of(kubectl: Kubectl, name: str) -> str | None:
    found: str | None = kubectl.get("pod", name)["spec"].get("nodeName")
    return found


def run(*arguments: str) -> Result:
    return CliRunner().invoke(tonnage, list(arguments))


def probe_port(acting: OperatorProcess) -> int:
    started = acting.said("started")
    assert started is not None
    return int(started["probe_port"])


def files_in(file: Path) -> dict[str, Any]:
    with tarfile.open(file) as tar:
        return {name: json.load(tar.extractfile(name)) for name in tar.getnames() if name.endswith(".json")}  # type: ignore[arg-type]


def holds_what_was_done(file: Path) -> None:
    files = files_in(file)
    done = [step for cycle in files["decisions.json"] for step in cycle["done"]]
    assert {"default/one", "default/two", "default/eight"} <= {step.get("pod") for step in done}
    newest = files["decisions.json"][-1]
    assert "default/chat" in newest["services"]
    assert "Pod/default/wide" in {each["workload"] for each in newest["unplaced"]}
    assert files["events.json"]
    assert "default/wide" in files["latest-snapshot.json"]["pods"]["names"]
    assert "kubeconfig" not in files["bundle.json"]["settings"]


def test_what_the_operator_decided_is_fetched_from_its_address_and_decided_again(
    server: ControlPlane, acting: OperatorProcess, tmp_path: Path
) -> None:
    file = tmp_path / "bundle.tar.gz"

    address = f"http://127.0.0.1:{probe_port(acting)}"
    fetched = run("bundle", "--from", address, "--kubeconfig", str(server.kubeconfig), "-o", str(file))

    assert fetched.exit_code == 0, fetched.output
    holds_what_was_done(file)
    again = run("replay", str(file))
    assert again.exit_code == 0, again.output
    assert " 0 different" in again.stdout


def own_address() -> str:
    """An address of this machine that the API server connects to: it refuses loopback ones."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        try:
            line.connect(TEST_ADDRESS)
        except OSError:
            pytest.skip("this machine has no address beside loopback, and the API server's proxy refuses that")
        return str(line.getsockname()[0])


@pytest.fixture
def installed(kubectl: Kubectl, acting: OperatorProcess) -> Iterator[None]:
    """The operator as the chart would show it: its pod runs at this machine's address, and a ConfigMap has settings."""
    metadata = {"namespace": "tonnage-system", "labels": LABELS}
    settings = {"settings.yaml": yaml.safe_dump({"probe_port": probe_port(acting)})}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata | {"name": "settings"}, "data": settings}
    within = kubectl.within("tonnage-system")
    within("create", "-f", "-", stdin=config)
    address = own_address()
    status = {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}
    within("patch", "pod", "tonnage-0", "--subresource=status", "--type=merge", "-p", json.dumps(status))
    yield
    within("delete", "configmap/settings")


@pytest.mark.usefixtures("installed")
def test_it_is_fetched_through_the_api_server(server: ControlPlane, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"

    fetched = run("bundle", "--kubeconfig", str(server.kubeconfig), "-o", str(file))

    assert fetched.exit_code == 0, fetched.output
    holds_what_was_done(file)


@pytest.mark.usefixtures("installed")
def test_who_may_not_reach_pods_through_the_api_server_is_refused(server: ControlPlane, tmp_path: Path) -> None:
    fetched = run("bundle", "--kubeconfig", str(server.kubeconfig), "--as", "visitor", "-o", str(tmp_path / "b"))

    assert fetched.exit_code != 0
    assert "cannot list" in fetched.output or "pods/proxy" in fetched.output
    assert list(tmp_path.iterdir()) == []
