"""The operator where somebody sets the clock, and where the API server's store goes back in time."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from simulator.controlplane.server import ControlPlane, down, up
from tests.controlplane.auditor import audit
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import pod
from tests.controlplane.operators import ROOT, create_all, operator, until
from tests.controlplane.servers import StartServer

pytestmark = pytest.mark.controlplane

SETTINGS = ControlPlaneSettings(nodes=10)
PLACED_WITHIN_S = 2.0
BACK_WITHIN_S = 10.0
BIND = [{"placer": "bind"}]
SLACK = 3.0
"""A busy machine is slower by so much."""


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> ControlPlane:
    return start_server(SETTINGS)


@pytest.fixture(scope="module")
def admin(server: ControlPlane, programs: Programs) -> Kubectl:
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    kubectl("apply", "-f", str(ROOT / "deploy" / "crds"))
    for crd in ("gputypes", "modelprofiles", "modelservices", "gangs"):
        kubectl.wait("condition=Established", f"crd/{crd}.tonnage.dev")
    kubectl("create", "namespace", "tonnage-system")
    return kubectl


def batch(admin: Kubectl, server: ControlPlane, name: str, count: int = 10) -> Callable[[], bool]:
    """Creates pods of one GPU that wait for Tonnage; returns whether all have a node."""
    pods = [pod(f"{name}-{n}", gpus=1, schedulerName="tonnage") for n in range(count)]
    for each in pods:
        each["metadata"] |= {"namespace": "default", "labels": {"batch": name}}
    create_all(server.kubeconfig, "/api/v1/namespaces/default/pods", pods)

    def are_placed() -> bool:
        found = admin.get("pods", "-l", f"batch={name}")["items"]
        return len(found) == count and all(each["spec"].get("nodeName") for each in found)

    return are_placed


def seconds_until(happens: Callable[[], bool], words: str) -> float:
    began_s = time.monotonic()
    until(happens, words)
    return time.monotonic() - began_s


def test_a_clock_that_somebody_sets_stops_nothing(
    server: ControlPlane, admin: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = tmp_path / "step"
    step.write_text("0", encoding="ascii")
    monkeypatch.setenv("CLOCK_STEP", str(step))
    took_s = {}
    with operator(server.kubeconfig, tmp_path, program="tests.controlplane.set_clock", pools=BIND) as running:
        until(batch(admin, server, "before"), "pods are placed")
        for step_s in (3600, 0, -3600, 86400, -86400):
            replacing = step.with_suffix(".new")
            replacing.write_text(str(step_s), encoding="ascii")
            replacing.rename(step)
            took_s[step_s] = seconds_until(batch(admin, server, f"step{len(took_s)}", 2), "pods are placed")
        assert running.said("leadership taken") is not None
        assert not [line for line in running.lines if "heard of" in str(line)]
    assert max(took_s.values()) < SLACK * PLACED_WITHIN_S, took_s


def test_a_store_that_goes_back_is_read_anew(
    server: ControlPlane, admin: Kubectl, programs: Programs, tmp_path: Path
) -> None:
    """As where somebody restores a backup of etcd: pods bound since wait again, deleted ones live."""
    with operator(server.kubeconfig, tmp_path, pools=BIND) as running:
        until(batch(admin, server, "early"), "pods are placed")
        waits = batch(admin, server, "waits", 8)
        until(waits, "pods are placed")
    admin("delete", "pods", "-l", "batch=waits", "--wait=true", "--grace-period=0", "--force")
    batch(admin, server, "waits", 8)
    down(server.folder)
    backup = tmp_path / "backup"
    shutil.copytree(server.folder.etcd, backup)
    up(server.folder, SETTINGS, programs)

    with operator(server.kubeconfig, tmp_path, pools=BIND) as running:
        until(waits, "pods are placed")
        until(batch(admin, server, "late"), "pods are placed")
        admin("delete", "pods", "-l", "batch=early", "--grace-period=0", "--force")
        down(server.folder)
        shutil.rmtree(server.folder.etcd)
        shutil.copytree(backup, server.folder.etcd)
        up(server.folder, SETTINGS, programs)
        took_s = seconds_until(waits, "pods are placed after the store is back")
        later_s = seconds_until(batch(admin, server, "after"), "pods are placed")

        told = running.said("the API server's store went back in time: all is read anew")
    assert told is not None
    assert took_s < SLACK * BACK_WITHIN_S
    assert later_s < SLACK * PLACED_WITHIN_S
    assert audit(admin).is_clean
