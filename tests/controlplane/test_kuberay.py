"""KubeRay's own operator and Ray's own autoscaler on a real API server: Tonnage's Ray cluster, and Ray users' own."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.background.host import BackgroundHost
from controller.background.launcher import RemoteDriver
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from simulator.controlplane.server import ControlPlane
from tests.controlplane.installation import Site, account_of, installed_on
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.kuberay import RayKubelet, kuberay_on, played, skip_unless_built
from tests.controlplane.manifests import GPU, pod
from tests.controlplane.operators import operator, until
from tests.controlplane.servers import EXAMPLES, StartServer
from tests.ray.test_background_on_ray import results, tasks
from tests.rigs.chart import NAMESPACE

RAY = "tonnage-ray"
IDLE_S = 10
RACKS = ("r1", "r1", "r2", "r2")
LABELS_OF_NODES = """
import json, sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error", configure_logging=False)
while sum(node["Alive"] for node in ray.nodes()) < 3:
    time.sleep(1)
@ray.remote(num_cpus=0)
def labels():
    return ray.get_runtime_context().get_node_labels()
found = {}
for rack in sys.argv[2:]:
    task = labels.options(label_selector={"rack": rack}).remote()
    ready, _ = ray.wait([task], timeout=60 if rack != "nowhere" else 5)
    found[rack] = ray.get(task) if ready else None
print(json.dumps(found))
"""


def nodes() -> Iterator[dict[str, Any]]:
    """Four nodes of eight L4s in two racks, and two without."""
    for number, rack in enumerate(RACKS):
        labels = {"nvidia.com/gpu.product": "NVIDIA-L4", "rack": rack, "karpenter.sh/capacity-type": "spot"}
        has = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: "8"}
        yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"gpu-{number}", "labels": labels},
               "status": {"allocatable": has}}  # fmt: skip
    for number in range(2):
        has = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"cpu-{number}"},
               "status": {"allocatable": has}}  # fmt: skip


@pytest.fixture(scope="module")
def server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    skip_unless_built()
    manifests = tmp_path_factory.mktemp("fleet") / "nodes.yaml"
    manifests.write_text(yaml.safe_dump_all(nodes()), encoding="utf-8")
    return start_server(ControlPlaneSettings(manifests=str(manifests)))


@pytest.fixture(scope="module")
def kubectl(server: ControlPlane, programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """As administrator of a server with KubeRay's operator and, with its cluster, the chart."""
    made = Kubectl(programs["kubectl"], server.kubeconfig)
    with kuberay_on(server, made, tmp_path_factory.mktemp("kuberay")):
        installed_on(server, programs, {"ray": {"mode": "kuberay"}})
        # As the chart makes it, but for how long a worker stays.
        idle = {"spec": {"autoscalerOptions": {"idleTimeoutSeconds": IDLE_S}}}
        made.within(NAMESPACE)("patch", "raycluster", RAY, "--type=merge", "-p", json.dumps(idle))
        yield made


def test_workers_grow_from_none_with_the_tasks_and_go_when_there_are_none(
    server: ControlPlane, kubectl: Kubectl, tmp_path: Path
) -> None:
    own = kubectl.within(NAMESPACE)
    tokens = dict[str, str]()
    for name, value in own.get("secret", RAY)["data"].items():
        (tmp_path / name).write_bytes(base64.b64decode(value))
        tokens[f"/etc/tonnage-ray/{name}"] = str(tmp_path / name)
    with played(RayKubelet(server, own, RAY, tmp_path, tokens)) as kubelet:
        until(lambda: kubelet.started, "the head runs")
        assert kubelet.pods("worker") == []
        host = BackgroundHost([RemoteDriver(f"127.0.0.1:{kubelet.driver_port}", tmp_path / "driver-token")])
        host.want(wanted=True)
        try:
            host.submit(tasks(6))
            found = results(host, 6)
            assert [each.error for each in found.values()] == [""] * 6
            assert host.standing.runs_on.startswith("Ray")
        finally:
            host.close()
        until(lambda: kubelet.pods("worker") == [], "no worker stays without tasks")
        assert 1 <= max(kubelet.seen) <= 2, "as many as the chart allows"


def test_the_autoscaler_may_change_counts_and_nothing_else(kubectl: Kubectl) -> None:
    """KubeRay gives its account the right to patch all pods of the namespace, the operator's too."""
    own = kubectl.within(NAMESPACE)
    (pod, *_) = own.get("pods", "-l", "app.kubernetes.io/component!=ray")["items"]
    account = own.as_user(f"system:serviceaccount:{NAMESPACE}:{RAY}")
    image = json.dumps([{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}])
    assert "forbidden" in account.refusal("patch", "pod", pod["metadata"]["name"], "--type=json", "-p", image)
    for path, value in (("headGroupSpec/template/spec/serviceAccountName", "tonnage"),
                        ("workerGroupSpecs/0/template/spec/serviceAccountName", "tonnage"),
                        ("workerGroupSpecs/0/maxReplicas", 100), ("rayVersion", "1.0")):  # fmt: skip
        patch = json.dumps([{"op": "add", "path": f"/spec/{path}", "value": value}])
        assert "forbidden" in account.refusal("patch", "raycluster", RAY, "--type=json", "-p", patch)
    counts = json.dumps([{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 0}])
    account("patch", "raycluster", RAY, "--type=json", "-p", counts)


def ray_cluster() -> dict[str, Any]:
    """A head, and two workers of a whole node each; each tells Ray the labels of its node."""

    def template(container: str, **limits: str) -> dict[str, Any]:
        volume = {
            "name": "node",
            "downwardAPI": {
                "items": [
                    {"path": "labels", "fieldRef": {"fieldPath": "metadata.annotations['tonnage.dev/node-labels']"}}
                ]
            },
        }
        mount = {"name": "node", "mountPath": "/etc/node"}
        env = [{"name": "RAY_AUTH_MODE", "value": "disabled"}]
        made = {
            "name": container,
            "image": "rayproject/ray:2.60.0",
            "resources": {"limits": limits},
            "env": env,
            "volumeMounts": [mount],
        }
        gates = [{"name": "tonnage.dev/placement"}]
        return {"spec": {"schedulingGates": gates, "containers": [made], "volumes": [volume]}}  # fmt: skip

    start = {"num-cpus": "0", "object-store-memory": "80000000", "labels-file": "/etc/node/labels"}
    head = {"rayStartParams": {**start, "include-dashboard": "false"}, "template": template("head", cpu="1")}
    group = {"groupName": "gpu", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "rayStartParams": start,
             "template": template("worker", **{"cpu": "8", GPU: "8"})}  # fmt: skip
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "train", "namespace": "default"},
            "spec": {"rayVersion": "2.60.0", "headGroupSpec": head, "workerGroupSpecs": [group]}}  # fmt: skip


def test_ray_sees_the_labels_of_the_nodes_on_which_its_gang_was_placed(
    server: ControlPlane, kubectl: Kubectl, programs: Programs, tmp_path: Path
) -> None:
    kubectl("apply", "-f", str(EXAMPLES / "gpu-types.yaml"))
    kubectl("cordon", "gpu-1", "gpu-2", "gpu-3")
    own = account_of(Site(server, programs))
    with operator(own, tmp_path), played(RayKubelet(server, kubectl, "train", tmp_path)) as kubelet:
        kubectl("apply", "-f", "-", stdin=ray_cluster())
        until(lambda: len(kubelet.pods("worker")) == 2, "KubeRay makes the workers")
        later = pod("later", schedulingGates=[{"name": "tonnage.dev/placement"}])
        kubectl("create", "-f", "-", stdin=later)
        until(lambda: kubectl.get("pod", "later")["spec"].get("nodeName"), "a later pod had its turn")
        assert not kubelet.started, "the gang starts whole or not at all"
        kubectl("uncordon", "gpu-2")
        until(lambda: len(kubelet.started) == 3, "head and workers start")
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", LABELS_OF_NODES, kubelet.address, "r1", "r2", "nowhere"],
            capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "RAY_AUTH_MODE": "disabled"})  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert [found[rack]["rack"] for rack in ("r1", "r2")] == ["r1", "r2"]
        assert found["r1"]["karpenter.sh/capacity-type"] == "spot"
        assert found["nowhere"] is None
        kubectl("delete", "raycluster", "train")
        until(lambda: not kubelet.pods("worker"), "its pods are gone")
