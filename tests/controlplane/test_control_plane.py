"""Shared server of the tests: upstream's own programs, with RBAC, a scheduler and nodes on which pods run."""

import json

import pytest

from simulator.controlplane.binaries import Programs, kubernetes_version
from simulator.controlplane.server import ControlPlane, status
from tests.controlplane.direct_get import asked, direct_get
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import GPU, job, pod
from tests.controlplane.servers import NODES

pytestmark = pytest.mark.controlplane


def test_every_process_serves(control_plane: ControlPlane) -> None:
    assert {process.name: process.ready for process in status(control_plane.folder)} == {
        "etcd": True,
        "kube-apiserver": True,
        "kube-scheduler": True,
        "kube-controller-manager": True,
        "simulated-nodes": True,
    }


def test_server_and_kubectl_are_the_pinned_release(kubectl: Kubectl) -> None:
    told = kubectl("version")

    assert told.count(f"Version: {kubernetes_version()}\n") == 2  # client and server


@pytest.mark.parametrize(
    "arguments",
    [
        ("namespace", "default"),
        ("svc/kubernetes",),
        ("services",),
        ("priorityclasses.scheduling.k8s.io",),
        ("clusterroles", "-l", "kubernetes.io/bootstrapping=rbac-defaults"),
        ("services", "-A", "--field-selector=metadata.namespace=default"),
    ],
)
def test_what_tests_read_over_a_kept_connection_is_what_kubectl_prints(
    control_plane: ControlPlane, programs: Programs, arguments: tuple[str, ...]
) -> None:
    kubectl = Kubectl(programs["kubectl"], control_plane.kubeconfig)
    printed = json.loads(kubectl("get", *arguments, "-o", "json"))
    what = asked(arguments)
    assert what is not None

    read = direct_get(control_plane.kubeconfig, "").get(what, "default")

    assert read.get("items", read) == printed.get("items", printed)
    assert read.get("items", read)


def test_only_its_owner_can_read_the_kubeconfig(control_plane: ControlPlane) -> None:
    assert control_plane.kubeconfig.stat().st_mode & 0o777 == 0o600


def test_simulated_nodes_are_ready_and_offer_gpus(kubectl: Kubectl) -> None:
    nodes = kubectl.get("nodes", "-l", "simulated.tonnage.dev/node=true")["items"]

    assert len(nodes) == NODES
    assert all(int(node["status"]["allocatable"][GPU]) > 0 for node in nodes)
    ready = [c["status"] for node in nodes for c in node["status"]["conditions"] if c["type"] == "Ready"]
    assert ready == ["True"] * NODES


def test_an_account_without_rights_is_refused(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "serviceaccount", "nobody")
    nobody = kubectl.as_user(f"system:serviceaccount:{namespace}:nobody")

    assert "pods is forbidden" in nobody.refusal("get", "pods")
    assert "configmaps is forbidden" in nobody.refusal("create", "configmap", "a")


def test_an_account_may_do_what_its_role_allows_and_no_more(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "serviceaccount", "reader")
    kubectl("create", "role", "reads-pods", "--verb=list", "--resource=pods")
    kubectl("create", "rolebinding", "reader", "--role=reads-pods", f"--serviceaccount={namespace}:reader")
    reader = kubectl.as_user(f"system:serviceaccount:{namespace}:reader")

    reader("get", "pods")
    assert 'pods "any" is forbidden' in reader.refusal("delete", "pod", "any")


def test_a_pod_gets_a_node_from_kube_scheduler_and_runs_there(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=pod("scheduled", gpus=1))

    kubectl.wait("condition=Ready", "pod/scheduled")
    found = kubectl.get("pod", "scheduled")
    assert found["status"]["phase"] == "Running"
    assert found["spec"]["nodeName"].startswith("node-")
    assert found["status"]["podIP"]


def test_a_deleted_pod_goes_within_its_grace(kubectl: Kubectl) -> None:
    # It would go on for an hour when told to stop; its grace of one second ends it.
    slow = {"simulated.tonnage.dev/stop-seconds": "3600"}
    kubectl("create", "-f", "-", stdin=pod("leaving", annotations=slow, terminationGracePeriodSeconds=1))
    kubectl.wait("condition=Ready", "pod/leaving")

    kubectl("delete", "pod", "leaving", "--wait=false")
    kubectl.wait("delete", "pod/leaving")


def test_a_job_completes_when_its_pods_end(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=job("short", pods=3, run_s=0.1))

    kubectl.wait("condition=Complete", "job/short")


def test_a_pod_that_finds_no_room_stays_pending_with_the_reason(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=pod("too-large", gpus=9))  # no node has more than eight

    kubectl.wait("condition=PodScheduled=False", "pod/too-large")
    assert "Insufficient nvidia.com/gpu" in kubectl("get", "pod", "too-large", "-o", "yaml")


def test_a_node_turns_away_what_a_scheduler_gave_it_twice(kubectl: Kubectl) -> None:
    """The API server checks nothing when a pod is bound; the node does, as a real kubelet."""
    nodes = kubectl.get("nodes")["items"]
    node, gpus = nodes[-1]["metadata"]["name"], int(nodes[-1]["status"]["allocatable"][GPU])

    # Each asks for all of the node's GPUs, so at most one of them finds room, whatever else runs there.
    for name in ("first", "second"):
        kubectl("create", "-f", "-", stdin=pod(name, gpus=gpus, nodeName=node))
    kubectl.wait("jsonpath={.status.phase}=Failed", "pod/second")

    assert kubectl.get("pod", "second")["status"]["reason"] == "UnexpectedAdmissionError"


def test_a_pod_is_not_bound_while_it_is_gated(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=pod("gated", schedulingGates=[{"name": "tonnage.dev/place"}]))
    kubectl.wait("condition=PodScheduled=False", "pod/gated")

    open_gate = '[{"op": "remove", "path": "/spec/schedulingGates"}]'
    kubectl("patch", "pod", "gated", "--type=json", f"--patch={open_gate}")

    kubectl.wait("condition=Ready", "pod/gated")
