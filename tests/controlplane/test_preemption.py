"""Gangs that preempt on a real API server: as many victims as are needed, and each gang starts at one time."""

from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from simulator.controlplane.binaries import Programs
from simulator.controlplane.server import ControlPlane
from tests.controlplane.auditor import audit
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import pod
from tests.controlplane.operators import ROOT, create_all, operator, until
from tests.controlplane.servers import StartServer, server_of_l4

GANGS, MEMBERS, PER_NODE = 100, 8, 8
"""Gangs; members of each, of one GPU; GPUs of a node. The gangs need every GPU, and low pods have them all."""
PODS = "/api/v1/namespaces/default/pods"
OURS = {"schedulerName": "tonnage", "terminationGracePeriodSeconds": 1}


@pytest.fixture(scope="module")
def server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    return server_of_l4(start_server, tmp_path_factory.mktemp("fleet"), GANGS * MEMBERS // PER_NODE)


@pytest.fixture(scope="module")
def kubectl(server: ControlPlane, programs: Programs) -> Kubectl:
    made = Kubectl(programs["kubectl"], server.kubeconfig)
    made("apply", "-f", str(ROOT / "deploy" / "crds"))
    made("create", "namespace", "tonnage-system")
    for name, value in (("low", 1), ("high", 1000)):
        priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        made("create", "-f", "-", stdin={**priority, "value": value})
    return made


def running(kubectl: Kubectl, app: str) -> list[dict[str, Any]]:
    pods = kubectl.get("pods", "-l", f"app={app}")["items"]
    return [each for each in pods if each["status"].get("phase") == "Running"]


def labelled(name: str, priority: str, **labels: str) -> dict[str, Any]:
    made = pod(name, gpus=1, priorityClassName=priority, **OURS)
    made["metadata"]["labels"] = labels
    return made


def test_gangs_that_preempt_stop_no_more_than_they_need_and_start_whole_at_one_time(
    server: ControlPlane, kubectl: Kubectl, tmp_path: Path
) -> None:
    """A plan may stop 40 pods, so that it takes many cycles."""
    with operator(server.kubeconfig, tmp_path, pools=[{"placer": "bind"}], interval_s=1.0):
        create_all(server.kubeconfig, PODS, [labelled(f"low-{n}", "low", app="low") for n in range(GANGS * MEMBERS)])
        until(lambda: len(running(kubectl, "low")) == GANGS * MEMBERS, "the fleet is full")
        kind = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Gang", "spec": {"minMembers": MEMBERS}}
        gangs = [{**kind, "metadata": {"name": f"g{n}"}} for n in range(GANGS)]
        create_all(server.kubeconfig, "/apis/tonnage.dev/v1alpha1/namespaces/default/gangs", gangs)
        members = [
            labelled(f"g{n}-{m}", "high", app="member", **{"tonnage.dev/gang": f"g{n}"})
            for n in range(GANGS)
            for m in range(MEMBERS)
        ]
        create_all(server.kubeconfig, PODS, members)
        until(lambda: len(running(kubectl, "member")) == GANGS * MEMBERS, "all members run", within_s=400.0)

        found = audit(kubectl, gangs={f"g{n}": MEMBERS for n in range(GANGS)})
        assert found.is_clean, found
        assert running(kubectl, "low") == []
        bound = defaultdict(list)
        for each in running(kubectl, "member"):
            (said,) = (c for c in each["status"]["conditions"] if c["type"] == "PodScheduled")
            at = datetime.fromisoformat(said["lastTransitionTime"])
            bound[each["metadata"]["labels"]["tonnage.dev/gang"]].append(at)
        spans = [(max(each) - min(each)).total_seconds() for each in bound.values()]
        assert max(spans) <= 1.0, sorted(spans)
