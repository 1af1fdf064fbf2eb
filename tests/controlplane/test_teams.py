"""Teams with shares on a real API server: idle shares are lent, and come back by exactly as many stops as they need."""

import time
from pathlib import Path
from typing import Any

import pytest

from simulator.controlplane.binaries import Programs
from simulator.controlplane.server import ControlPlane
from tests.controlplane.auditor import audit
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import pod_spec
from tests.controlplane.operators import ROOT, operator, until
from tests.controlplane.servers import StartServer, server_of_l4

COUNT, PER_NODE = 40, 8
ALL, SHARE = COUNT * PER_NODE, COUNT * PER_NODE // 2
OURS = "tonnage.dev/v1alpha1"


@pytest.fixture(scope="module")
def server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    return server_of_l4(start_server, tmp_path_factory.mktemp("fleet"), COUNT)


@pytest.fixture(scope="module")
def kubectl(server: ControlPlane, programs: Programs) -> Kubectl:
    made = Kubectl(programs["kubectl"], server.kubeconfig)
    made("apply", "-f", str(ROOT / "deploy" / "crds"))
    made("wait", "--for=condition=Established", "crd", "--all")
    made("create", "namespace", "tonnage-system")
    label = {"key": "nvidia.com/gpu.product", "values": ["NVIDIA-L4"]}
    l4 = {"nodeLabel": label, "memory": "24Gi", "pricePerHour": {"onDemand": 1}}
    made("create", "-f", "-", stdin={"apiVersion": OURS, "kind": "GPUType", "metadata": {"name": "l4"}, "spec": l4})
    for name in ("red", "blue"):
        namespace = {"name": name, "labels": {"team": name}}
        made("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Namespace", "metadata": namespace})
        spec = {"namespaces": {"team": name}, "share": {"gpus": {"l4": SHARE}}, "minRun": "1s"}
        made("create", "-f", "-", stdin={"apiVersion": OURS, "kind": "Team", "metadata": {"name": name}, "spec": spec})
    return made


def ask(kubectl: Kubectl, team: str, pods: int) -> None:
    spec = pod_spec(gpus=1, schedulerName="tonnage", terminationGracePeriodSeconds=1)
    template = {"metadata": {"labels": {"app": team}}, "spec": spec}
    owner: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": team, "namespace": team},
    }
    owner["spec"] = {"replicas": pods, "selector": {"matchLabels": {"app": team}}, "template": template}
    kubectl("create", "-n", team, "-f", "-", stdin=owner)


def running(kubectl: Kubectl, team: str) -> set[str]:
    """UIDs of a team's running pods."""
    pods = kubectl.get("pods", "-n", team)["items"]
    live = (each for each in pods if not each["metadata"].get("deletionTimestamp"))
    return {each["metadata"]["uid"] for each in live if each["status"].get("phase") == "Running"}


def status(kubectl: Kubectl, team: str) -> dict[str, Any]:
    found: dict[str, Any] = kubectl.get("team", team)["status"]
    return found


def test_a_team_gets_all_that_is_idle_and_gives_back_exactly_the_share_of_the_other(
    server: ControlPlane, kubectl: Kubectl, tmp_path: Path
) -> None:
    with operator(server.kubeconfig, tmp_path, pools=[{"placer": "bind"}], interval_s=1.0):
        ask(kubectl, "red", ALL)
        until(lambda: len(running(kubectl, "red")) == ALL, "one team has all")
        before = running(kubectl, "red")
        until(lambda: status(kubectl, "red").get("borrowed") == SHARE, "its status says what it borrows")
        assert status(kubectl, "blue")["lent"] == SHARE

        ask(kubectl, "blue", SHARE)
        until(lambda: len(running(kubectl, "blue")) == SHARE, "the other has its share")
        until(lambda: len(running(kubectl, "red")) == SHARE, "the first has its own")
        owed = running(kubectl, "blue")
        time.sleep(10)  # nothing more happens
        assert running(kubectl, "blue") == owed
        assert len(before - running(kubectl, "red")) == SHARE, "exactly as many were stopped"
        assert running(kubectl, "red") <= before, "and none of those that stayed was started anew"
        until(lambda: status(kubectl, "red")["waiting"] == SHARE, "its status says what waits")
        until(
            lambda: "its team red holds 160 l4 of its share of 160" in kubectl("get", "events", "-n", "red"),
            "it is told",
        )

        kubectl("delete", "replicaset", "-n", "blue", "blue")
        until(lambda: len(running(kubectl, "red")) == ALL, "it has all again")
        found: Any = audit(kubectl)
        assert found.is_clean, found
