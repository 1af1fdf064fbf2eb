"""Moves on a real API server: scattered pods leave whole nodes to those that wait, and none waits afterwards."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulator.controlplane.binaries import Programs
from simulator.controlplane.server import ControlPlane
from tests.controlplane.auditor import audit
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import pod, pod_spec
from tests.controlplane.operators import ROOT, create_all, operator, until
from tests.controlplane.servers import StartServer, server_of_l4

COUNT, SMALL, PER_NODE = 40, 224, 8
"""Nodes; pods of one GPU; GPUs of a node."""
PODS = "/api/v1/namespaces/default/pods"
OURS = {"schedulerName": "tonnage", "terminationGracePeriodSeconds": 2}


@pytest.fixture(scope="module")
def server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    return server_of_l4(start_server, tmp_path_factory.mktemp("fleet"), COUNT)


@pytest.fixture(scope="module")
def kubectl(server: ControlPlane, programs: Programs) -> Kubectl:
    made = Kubectl(programs["kubectl"], server.kubeconfig)
    made("apply", "-f", str(ROOT / "deploy" / "crds"))
    made("create", "namespace", "tonnage-system")
    return made


def running(kubectl: Kubectl, app: str) -> dict[str, str]:
    """Nodes of the running pods of one label, by name."""
    pods = kubectl.get("pods", "-l", f"app={app}")["items"]
    return {
        each["metadata"]["name"]: each["spec"]["nodeName"]
        for each in pods
        if each["status"].get("phase") == "Running" and not each["metadata"].get("deletionTimestamp")
    }


def labelled(app: str, number: int, gpus: int) -> dict[str, Any]:
    made = pod(f"{app}-{number}", gpus=gpus, **OURS)
    made["metadata"]["labels"] = {"app": app}
    return made


def scattered(kubectl: Kubectl) -> dict[str, str]:
    """A fleet full of small pods, of which a lot drawn by seed 1 has gone: the rest are spread over all nodes."""
    template = {
        "metadata": {"labels": {"app": "small"}, "annotations": {"tonnage.dev/movable": "true"}},
        "spec": pod_spec(gpus=1, **OURS),
    }
    spec = {"replicas": COUNT * PER_NODE, "selector": {"matchLabels": {"app": "small"}}, "template": template}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "small"}, "spec": spec}
    kubectl("create", "-f", "-", stdin=owner)
    until(lambda: len(running(kubectl, "small")) == COUNT * PER_NODE, "the fleet is full")
    full = running(kubectl, "small")
    gone = random.Random(1).sample(  # noqa: S311
        sorted(full, key=lambda name: (full[name], name)), COUNT * PER_NODE - SMALL
    )
    kubectl("annotate", "pod", *gone, "controller.kubernetes.io/pod-deletion-cost=-1")
    kubectl("scale", "replicaset", "small", f"--replicas={SMALL}")
    until(lambda: len(running(kubectl, "small")) == SMALL, "a part of them has gone")
    return running(kubectl, "small")


@pytest.fixture
def here(kubectl: Kubectl) -> Iterator[Kubectl]:
    yield kubectl
    kubectl("delete", "replicasets", "--all")
    until(lambda: kubectl.get("pods", "-l", "app=small")["items"] == [], "what they owned has gone")
    kubectl("delete", "pods", "--all", "--wait")


@pytest.mark.parametrize(("wide", "strangers"), [(12, 0), (8, 8)])
def test_scattered_pods_make_room_for_wide_ones_and_none_waits_afterwards(
    server: ControlPlane, here: Kubectl, tmp_path: Path, wide: int, strangers: int
) -> None:
    """Twelve wide pods take all that is free. Strangers come while pods move, and take no seat that is held for others;
    where they are, no wide pod can be, so that more may have to move, within the limit of a quarter in an hour."""
    with operator(server.kubeconfig, tmp_path, pools=[{"placer": "bind"}], interval_s=1.0):
        before = scattered(here)
        counts = Counter(before.values())
        fewest = sum(sorted(counts[f"n{n:03d}"] for n in range(COUNT))[:wide])

        create_all(server.kubeconfig, PODS, [labelled("wide", n, PER_NODE) for n in range(wide)])
        until(lambda: len(running(here, "small")) < SMALL, "the first pods move")
        create_all(server.kubeconfig, PODS, [labelled("stranger", n, 1) for n in range(strangers)])
        until(lambda: len(running(here, "wide")) == wide, "all wide pods run")
        until(lambda: len(running(here, "small")) == SMALL, "all that moved run")
        until(lambda: len(running(here, "stranger")) == strangers, "all strangers run")

        evicted = len(before.keys() - running(here, "small").keys())
        most = SMALL // 4 if strangers else 1.08 * fewest
        assert evicted <= most, (evicted, fewest)
        found: Any = audit(here)
        assert found.is_clean, found
