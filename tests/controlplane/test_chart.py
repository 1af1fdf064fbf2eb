"""The chart on a real API server: Helm installs it, and the operator lives with the rights that it grants."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from simulator.controlplane.commands import Settings
from simulator.controlplane.programs import Programs
from tests.controlplane.conftest import StartServer
from tests.controlplane.kubectl import Kubectl
from tests.deploy.helm import NAMESPACE, install, rendered, uninstall, upgrade
from tests.deploy.prometheus import until

EXAMPLES = Path(__file__).parents[2] / "examples"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:tonnage"

SERVICE = """
apiVersion: tonnage.dev/v1alpha1
kind: ModelService
metadata: {name: chat, namespace: default}
spec:
  model: small-8b
  slo: {tpot: 120ms}
  demand: {requestsPerSecond: 3, inputTokens: [512], outputTokens: [256], histogram: [[1.0]]}
  gpuTypes: [l4, a10g]
  instance: {cpu: "8", memory: 48Gi}
  template:
    spec:
      containers: [{name: server, image: example.com/server:1}]
"""

MAY = ("list nodes", "watch pods", "patch pods", "create pods/eviction", "create deployments.apps",
       "patch deployments.apps", "watch modelservices.tonnage.dev", "patch modelservices.tonnage.dev/status",
       "create events.events.k8s.io")  # fmt: skip
MAY_NOT = ("create pods/binding", "create pods", "delete pods", "get secrets", "list configmaps", "patch nodes",
           "delete nodes", "delete deployments.apps", "patch modelservices.tonnage.dev", "create pods/exec",
           "delete modelservices.tonnage.dev", "create clusterrolebindings.rbac.authorization.k8s.io",
           "impersonate users", "create serviceaccounts/token")  # fmt: skip


@pytest.fixture(scope="module")
def chart() -> dict[tuple[str, str], dict[str, Any]]:
    """Asked for before the server, so that nothing starts where there is no Helm."""
    return rendered()


@pytest.fixture(scope="module")
def admin(chart: object, start_server: StartServer, programs: Programs) -> Kubectl:
    """Of a server with the nodes of the examples, and their GPU types with it. Nothing is installed yet."""
    server = start_server(Settings(manifests=str(EXAMPLES / "nodes.yaml")))
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig, NAMESPACE)
    kubectl("create", "namespace", NAMESPACE)
    kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    return kubectl


@pytest.fixture(scope="module")
def installed(admin: Kubectl, chart: dict[tuple[str, str], dict[str, Any]]) -> Kubectl:
    """The chart with its defaults where only restricted pods are admitted, and the examples' types and models."""
    install(admin.kubeconfig)
    for kind, name in chart:
        if kind == "CustomResourceDefinition":
            admin.wait("condition=Established", f"crd/{name}")
    admin("apply", "--server-side", "-f", str(EXAMPLES / "gpu-types.yaml"), "-f", str(EXAMPLES / "profiles.yaml"))
    return admin


def can(kubectl: Kubectl, right: str) -> bool:
    verb, _, what = right.partition(" ")
    resource, _, subresource = what.partition("/")
    asked = [verb, resource, *([f"--subresource={subresource}"] if subresource else [])]
    done = subprocess.run(  # noqa: S603
        [
            kubectl.program,
            "--kubeconfig",
            kubectl.kubeconfig,
            "auth",
            "can-i",
            *asked,
            "-n",
            "default",
            "--as",
            ACCOUNT,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() in ("yes", "no"), done.stderr
    return done.stdout.strip() == "yes"


def test_the_account_can_do_its_work_and_nothing_else(installed: Kubectl) -> None:
    found = {right: can(installed, right) for right in (*MAY, *MAY_NOT)}

    assert found == {**dict.fromkeys(MAY, True), **dict.fromkeys(MAY_NOT, False)}


def test_it_leads_in_its_own_namespace_alone(installed: Kubectl) -> None:
    assert not can(installed, "create leases.coordination.k8s.io")
    installed.as_user(ACCOUNT)("auth", "can-i", "create", "leases.coordination.k8s.io")


def test_its_pods_are_admitted_where_only_restricted_pods_are(installed: Kubectl) -> None:
    installed("rollout", "status", "deployment/tonnage", "--timeout=60s")

    pods = installed.get("pods", "-l", "app.kubernetes.io/name=tonnage")["items"]
    assert len(pods) == 2


def test_an_upgrade_changes_what_its_values_change_and_nothing_else(installed: Kubectl) -> None:
    before = versions(installed)

    upgrade(installed.kubeconfig, {"replicas": 3})
    after = versions(installed)
    upgrade(installed.kubeconfig, {"replicas": 2})

    assert {name for name in before if after[name] != before[name]} <= {"Deployment/tonnage"}
    assert installed.get("deployment/tonnage")["spec"]["replicas"] == 2


def versions(kubectl: Kubectl) -> dict[str, str]:
    kinds = "clusterrole,role,networkpolicy,poddisruptionbudget,service,configmap,serviceaccount,deployment"
    items = kubectl.get(kinds, "-l", "app.kubernetes.io/managed-by=Helm")["items"]
    items += kubectl.get("crd")["items"]
    # Status moves the version of a Deployment, not its generation; what has no generation has no status.
    meta = {f"{each['kind']}/{each['metadata']['name']}": each["metadata"] for each in items}
    return {name: str(each.get("generation", each["resourceVersion"])) for name, each in meta.items()}


@contextmanager
def running_operator(kubectl: Kubectl, folder: Path) -> Iterator[dict[str, int]]:
    """`tonnage operator run` as the chart's account with the chart's settings; yields its ports."""
    token = kubectl("create", "token", "tonnage").strip()
    config = yaml.safe_load(kubectl.kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] = {"token": token}
    (folder / "kubeconfig").write_text(json.dumps(config), encoding="utf-8")
    settings = yaml.safe_load(rendered()["ConfigMap", "tonnage-settings"]["data"]["settings.yaml"])
    own = {"metrics_port": 0, "probe_port": 0, "host": "127.0.0.1", "log_format": "json"}
    (folder / "settings.yaml").write_text(json.dumps(settings | own), encoding="utf-8")
    command = [sys.executable, "-m", "cli.main", "operator", "run",
               "--config", folder / "settings.yaml", "--kubeconfig", folder / "kubeconfig"]  # fmt: skip
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TONNAGE_")}
    log = folder / "log"
    with log.open("w") as err, subprocess.Popen(command, stderr=err, env=clean, text=True) as process:  # noqa: S603
        try:
            yield _ports(process, log)
        finally:
            process.terminate()
            process.wait(30)


def _ports(process: "subprocess.Popen[str]", log: Path) -> dict[str, int]:
    until(lambda: process.poll() is not None or '"event": "started"' in log.read_text(), "the operator to start")
    assert process.poll() is None, log.read_text()
    (started,) = [line for line in map(json.loads, log.read_text().splitlines()) if line["event"] == "started"]
    return {"metrics": started["metrics_port"], "probe": started["probe_port"]}


def test_with_these_rights_a_service_becomes_ready_and_goes_without_a_trace(installed: Kubectl, tmp_path: Path) -> None:
    default = installed.within("default")
    with running_operator(installed, tmp_path) as ports:
        default("apply", "--server-side", "-f", "-", stdin=yaml.safe_load(SERVICE))
        default.wait("condition=Ready", "modelservice/chat")

        deployments = default.get("deployments")["items"]
        running = [p for p in default.get("pods")["items"] if p["status"]["phase"] == "Running"]
        assert sum(each["spec"]["replicas"] for each in deployments) == len(running) > 0

        with urlopen(f"http://127.0.0.1:{ports['metrics']}/metrics") as answer:
            metrics = answer.read().decode()
        assert "tonnage_leader 1.0" in metrics
        assert 'code="403"' not in metrics, [line for line in metrics.splitlines() if 'code="403"' in line]
        assert 'tonnage_service_cost_dollars_per_hour{model_service="default/chat"}' in metrics

        default("delete", "modelservice/chat", "--wait=true")
        default("wait", "--for=delete", "pod", "--all", "--timeout=60s")
        assert default.get("deployments")["items"] == []
    assert installed.get("lease/tonnage")["spec"].get("holderIdentity", "") == ""


def test_uninstalled_it_leaves_the_kinds_and_their_objects(installed: Kubectl) -> None:
    """Runs last: the tests above need the release."""
    uninstall(installed.kubeconfig)

    assert not installed.get("clusterrole", "-l", "app.kubernetes.io/managed-by=Helm")["items"]
    assert len(installed.get("gputypes")["items"]) == 4
