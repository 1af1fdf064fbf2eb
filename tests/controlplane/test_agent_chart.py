"""Node agent's chart on a real API server: admission of its pods, the nodes they run on, a certificate that stays."""

from pathlib import Path
from typing import Any

import pytest

from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.servers import StartServer
from tests.deploy.helm import NAMESPACE, RELEASE, HelmRefusedError, install, rendered, uninstall, upgrade

EXAMPLES = Path(__file__).parents[2] / "examples"
GPU_NODES = ("h100-1", "h100-2")
VALUES = {"agent": {"enabled": True}, "ray": {"mode": "none"}}


@pytest.fixture(scope="module")
def chart() -> dict[tuple[str, str], dict[str, Any]]:
    """Asked for before the server, so that nothing starts where there is no Helm."""
    return rendered(VALUES)


@pytest.fixture(scope="module")
def installed(chart: object, start_server: StartServer, programs: Programs) -> Kubectl:
    """The chart with agents, on nodes of which two have the label that the GPU operator gives."""
    server = start_server(ControlPlaneSettings(manifests=str(EXAMPLES / "nodes.yaml")))
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig, NAMESPACE)
    kubectl("create", "namespace", NAMESPACE)
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia"},
        "handler": "nvidia",
    }
    kubectl("apply", "-f", "-", stdin=runtime)
    kubectl("label", "nodes", *GPU_NODES, "nvidia.com/gpu.present=true")
    kubectl("taint", "nodes", GPU_NODES[0], "nvidia.com/gpu=present:NoSchedule")
    install(kubectl.kubeconfig, VALUES)
    return kubectl


def certificate(kubectl: Kubectl) -> dict[str, str]:
    """The operator's certificate and its authority."""
    secret, authority = kubectl.get("secret/tonnage-power-tls"), kubectl.get("configmap/tonnage-power-ca")
    return {**secret["data"], **authority["data"]}


def test_agents_come_to_every_gpu_node_tainted_or_not_and_to_no_other(installed: Kubectl) -> None:
    installed("rollout", "status", "daemonset/tonnage-agent", "--timeout=60s")

    pods = installed.get("pods", "-l", "app.kubernetes.io/component=agent")["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == set(GPU_NODES)


def test_where_only_restricted_or_baseline_pods_are_admitted_agents_are_not(
    installed: Kubectl, chart: dict[tuple[str, str], dict[str, Any]]
) -> None:
    """They hold CAP_SYS_ADMIN and a path of the host: the namespace must allow that (docs/power.md)."""
    template = chart["DaemonSet", "tonnage-agent"]["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent"}, "spec": template["spec"]}
    refusals = {}
    for level in ("privileged", "baseline", "restricted"):
        namespace = installed.within(f"only-{level}")
        installed("create", "namespace", namespace.namespace)
        installed("label", "namespace", namespace.namespace, f"pod-security.kubernetes.io/enforce={level}")
        if level == "privileged":
            namespace("create", "--dry-run=server", "-f", "-", stdin=pod)
        else:
            refusals[level] = namespace.refusal("create", "--dry-run=server", "-f", "-", stdin=pod)

    assert "SYS_ADMIN" in refusals["baseline"]
    assert "hostPath" in refusals["baseline"]
    assert "violates PodSecurity" in refusals["restricted"]


def test_their_account_can_do_nothing(installed: Kubectl) -> None:
    """But ask what it may do, as everybody can."""
    pods = installed.get("pods", "-l", "app.kubernetes.io/component=agent")["items"]
    tokens = [
        source["serviceAccountToken"]["audience"]
        for pod in pods
        for volume in pod["spec"]["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
        if "serviceAccountToken" in source
    ]
    agent = installed.as_user(f"system:serviceaccount:{NAMESPACE}:tonnage-agent")
    may = agent("auth", "can-i", "--list", "--no-headers")

    assert set(tokens) == {"tonnage-power"}
    assert not [line for line in may.splitlines() if not line.startswith(("self", "  ")) and line.strip()]


def test_the_certificate_stays_over_upgrades(installed: Kubectl) -> None:
    before = certificate(installed)
    upgrade(installed.kubeconfig, {**VALUES, "agent": {"enabled": True, "period": 1}})

    assert certificate(installed) == before
    assert set(before) == {"tls.crt", "tls.key", "ca.crt"}


def test_a_second_release_is_refused_with_the_reason_and_the_first_goes_on(installed: Kubectl) -> None:
    """Its policies would refuse the first one's writes, without a word."""
    installed("create", "namespace", "another")

    with pytest.raises(HelmRefusedError, match=f"as release {RELEASE} in namespace {NAMESPACE}"):
        install(installed.kubeconfig, VALUES, name="second", namespace="another")

    assert installed.within("another").get("deployments")["items"] == []
    upgrade(installed.kubeconfig, VALUES)


def test_every_replica_of_the_operator_is_behind_the_name_that_agents_call(installed: Kubectl) -> None:
    def addresses() -> set[str]:
        slices = installed.get("endpointslices", "-l", "kubernetes.io/service-name=tonnage-power")["items"]
        return {address for each in slices for end in each["endpoints"] for address in end["addresses"]}

    installed("rollout", "status", "deployment/tonnage", "--timeout=60s")
    pods = installed.get("pods", "-l", "app.kubernetes.io/component=controller")["items"]

    assert addresses() == {pod["status"]["podIP"] for pod in pods}


def test_before_an_uninstall_agents_are_told_to_restore_and_then_they_go(installed: Kubectl) -> None:
    """Runs last. How an agent restores limits at its end: tests/agents/test_agent_process.py."""
    upgrade(installed.kubeconfig, {**VALUES, "agent": {"enabled": True, "onStop": "restore"}})
    installed("rollout", "status", "daemonset/tonnage-agent", "--timeout=120s")
    told = installed.get("configmap/tonnage-agent")["data"]["agent.yaml"]
    uninstall(installed.kubeconfig)

    assert "on_stop: restore" in told
    installed("wait", "--for=delete", "pod", "-l", "app.kubernetes.io/component=agent", "--timeout=60s")
    assert installed.get("secret,configmap,service", "-l", "app.kubernetes.io/name=tonnage")["items"] == []
