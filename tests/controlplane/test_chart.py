"""The chart on a real API server: Helm installs it, and the operator lives with the rights that it grants."""

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cli.main import tonnage
from controller.api.labels import PLACEMENT_GATE
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.agents.agent_process import running, settings_file
from tests.agents.credentials import credentials
from tests.controlplane import manifests
from tests.controlplane.agent_tokens import agent_token
from tests.controlplane.churn import churn
from tests.controlplane.isolation import agent_pod, isolating_agent, policy
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.operators import OperatorProcess, operator, until
from tests.controlplane.servers import StartServer
from tests.controlplane.test_scaling import FakePrometheus, serving
from tests.deploy.answers import unanswered
from tests.deploy.expressions import RULES
from tests.deploy.helm import NAMESPACE, Values, install, rendered, uninstall, upgrade
from tests.deploy.prometheus import running_prometheus, tool

EXAMPLES = Path(__file__).parents[2] / "examples"
MANAGED = "tonnage.dev/managed=true"
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
       "patch gangs.tonnage.dev/status", "patch gputypes.tonnage.dev/status",
       "create events.events.k8s.io",
       "patch events.events.k8s.io")  # fmt: skip
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
    server = start_server(ControlPlaneSettings(manifests=str(EXAMPLES / "nodes.yaml")))
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig, NAMESPACE)
    kubectl("create", "namespace", NAMESPACE)
    kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    return kubectl


@pytest.fixture(scope="module")
def installed(admin: Kubectl, chart: dict[tuple[str, str], dict[str, Any]]) -> Kubectl:
    """The chart with its defaults where only restricted pods are admitted, and the examples' types and models."""
    install(admin.kubeconfig)
    admin("label", "namespace", "default", MANAGED)
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
    account = installed.as_user(ACCOUNT)
    account("auth", "can-i", "create", "configmaps")
    for verb in ("get", "patch"):
        assert not can(installed, f"{verb} configmaps")
        account("auth", "can-i", verb, "configmaps/tonnage-load-fits-0")
        account.refusal("auth", "can-i", verb, "configmaps")


PEOPLE = ("view", "edit", "admin")


def may(kubectl: Kubectl, *who: str) -> dict[tuple[str, str], str]:
    """(resource, name) and verbs of all that an account may do in `default`, without what everybody may."""
    lines = kubectl.within("default")("auth", "can-i", "--list", "--no-headers", *who).splitlines()
    found: dict[tuple[str, str], set[str]] = {}
    for line in lines:
        shown = re.match(r"(\S*)\s+\[.*?\]\s+\[(.*?)\]\s+\[(.*?)\]$", line.strip())
        if shown and shown[1] and not shown[1].startswith("self"):
            found.setdefault((shown[1], shown[2]), set()).update(shown[3].split())
    return {key: ", ".join(sorted(verbs)) for key, verbs in sorted(found.items())}


def test_what_each_account_and_role_may_do_is_what_the_page_says(installed: Kubectl) -> None:
    """By `kubectl auth can-i --list`, as an auditor asks."""
    for role in PEOPLE:
        installed.within("default")("create", "rolebinding", f"a-{role}", f"--clusterrole={role}", f"--user=a-{role}")
    until(lambda: ("gangs.tonnage.dev", "") in may(installed, "--as", "a-admin"), "the roles are aggregated")
    ours = {role: {what: verbs for what, verbs in may(installed, "--as", f"a-{role}").items()
                   if ".tonnage.dev" in what[0]} for role in PEOPLE}  # fmt: skip
    found = sorted(
        (role, resource, verbs)
        for role, rights in {"tonnage": may(installed, "--as", ACCOUNT), **ours}.items()
        for (resource, _), verbs in rights.items()
    )

    page = (EXAMPLES.parent / "docs" / "security.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| (`(?:tonnage|view|edit|admin)`.*?) \| (`.*?) \| (.*) \|$", page, re.MULTILINE)
    stated = sorted(
        (role, resource, verbs)
        for roles, resources, verbs in lines
        for role in re.findall(r"`(.*?)`", roles)
        for resource in re.findall(r"`(.*?)`", resources)
    )
    assert stated == found, "\n".join(map(str, found))


def test_somebody_with_edit_creates_a_service_sees_why_it_waits_and_sees_no_other(
    installed: Kubectl, tmp_path: Path
) -> None:
    for team in ("team-a", "team-b"):
        installed("create", "namespace", team)
        installed("label", "namespace", team, MANAGED)
    installed.within("team-a")("create", "rolebinding", "ann", "--clusterrole=edit", "--user=ann")
    ann = installed.within("team-a").as_user("ann")
    until(lambda: _is_allowed(ann, "create", "modelservices.tonnage.dev"), "the role is aggregated")
    asked = yaml.safe_load(SERVICE)
    asked["metadata"]["namespace"] = "team-a"
    asked["spec"]["demand"]["requestsPerSecond"] = 100_000  # more than all the nodes of the examples serve
    theirs = {**asked, "metadata": {"name": "secret", "namespace": "team-b"}}
    installed.within("team-b")("apply", "-f", "-", stdin=theirs)
    with running_operator(installed, tmp_path):
        ann("apply", "-f", "-", stdin=asked)

        def why() -> str:
            conditions = ann.get("modelservice", "chat").get("status", {}).get("conditions", [])
            ready = (each for each in conditions if each["type"] == "Ready" and each["reason"] == "NotPlanned")
            return next((each["message"] for each in ready), "")

        until(why, "her service says why it waits")
    assert why() in ann("describe", "modelservice", "chat")
    theirs_are = "modelservices,gangs,scalingpolicies,pods,events"
    assert ann.refusal("get", theirs_are, "-n", "team-b").count("forbidden") == 5
    assert ann.refusal("get", theirs_are, "--all-namespaces").count("forbidden") == 5
    installed("delete", "namespace", "team-a", "team-b", "--wait=false")


def test_a_pod_in_a_namespace_that_is_not_managed_is_told_so_and_is_placed_once_it_is(
    installed: Kubectl, tmp_path: Path
) -> None:
    installed("create", "namespace", "apart")
    apart = installed.within("apart")
    with running_operator(installed, tmp_path):
        apart("apply", "-f", "-", stdin=manifests.pod("waits", schedulingGates=[{"name": PLACEMENT_GATE}]))

        def told() -> list[str]:
            found = apart.get("events.events.k8s.io")["items"]
            return [each["note"] for each in found if each["reason"] == "FailedScheduling"]

        until(told, "the pod is told")
        assert [note for note in told() if f"kubectl label namespace apart {MANAGED}" in note] == told()
        installed("label", "namespace", "apart", MANAGED)
        apart("wait", "--for=condition=Ready", "pod/waits", "--timeout=60s")
    installed("delete", "namespace", "apart", "--wait=false")


def _is_allowed(kubectl: Kubectl, verb: str, resource: str) -> bool:
    try:
        return kubectl("auth", "can-i", verb, resource).strip() == "yes"
    except AssertionError:
        return False


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


LEASES_WATTS: Values = {"ray": {"mode": "none"}, "settings": {"power": {"enabled": True}}}
EVERY_PART: Values = {
    "ray": {"mode": "none"},
    "settings": {"power": {"enabled": True}, "health": {"enabled": True}, "isolation": {"enabled": True}},
}


@contextmanager
def running_operator(
    kubectl: Kubectl, folder: Path, values: Values | None = None, **other: Any
) -> Iterator[OperatorProcess]:
    """`tonnage operator run` as the chart's account, with the chart's settings but for its ports and `other`."""
    config = yaml.safe_load(kubectl.kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] = {"token": kubectl("create", "token", "tonnage").strip()}
    kubeconfig = folder / "account.kubeconfig"
    kubeconfig.write_text(json.dumps(config), encoding="utf-8")
    # Rights are what is tested here; Ray beside it would only cost time.
    objects = rendered(values or {"ray": {"mode": "none"}})
    settings = yaml.safe_load(objects["ConfigMap", "tonnage-settings"]["data"]["settings.yaml"])
    with operator(kubeconfig, folder, **settings | {"metrics_port": 0, "probe_port": 0} | other) as process:
        yield process


@contextmanager
def drawing_row(kubectl: Kubectl, folder: Path, process: OperatorProcess, node: str) -> Iterator[None]:
    """A row with one node, and an agent for it with fake devices."""
    labels = kubectl.get("node", node)["metadata"]["labels"]
    spec = {
        "type": "row",
        "budgetWatts": 3000,
        "nodes": {"key": "kubernetes.io/hostname", "values": [labels["kubernetes.io/hostname"]]},
    }
    row = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "PowerDomain", "metadata": {"name": "row"}, "spec": spec}
    kubectl("apply", "--server-side", "-f", "-", stdin=row)
    started = process.said("started")
    assert started is not None
    agent = settings_file(
        folder / "agent",
        node=node,
        port=int(started["power_port"]),
        token=agent_token(kubectl, node),
        backend="pretend",
        pretend={"devices": 2},
    )
    with running(agent):
        yield
    kubectl("delete", "powerdomain/row")


@contextmanager
def isolating(kubectl: Kubectl, process: OperatorProcess, beside: str) -> Iterator[None]:
    """A SandboxPolicy with a running pod, and an agent that reports on it from another node."""
    default = kubectl.within("default")
    nodes = [each["metadata"]["name"] for each in kubectl.get("nodes")["items"]]
    node = next(name for name in nodes if name != beside)
    default("apply", "--server-side", "-f", "-", stdin=listed(policy("coders"), agent_pod("coder", node)))
    default.wait("condition=Ready", "pod/coder")
    started = process.said("started")
    assert started is not None
    with isolating_agent(node, int(started["power_port"]), agent_token(kubectl, node)) as agent:
        agent.steadily = "ToolCallKilled/OUTGREW_CLAIM"
        yield
    kubectl("delete", "sandboxpolicy/coders")


@contextmanager
def served_on_one_node(kubectl: Kubectl, service: dict[str, Any]) -> Iterator[str]:
    """The node of all instances of a service: its draw is known only where every one of them is measured."""
    kubectl("apply", "--server-side", "-f", "-", stdin=service)
    become_ready(kubectl)
    (node,) = {each["spec"]["nodeName"] for each in kubectl.get("pods")["items"]}
    yield node


def become_ready(kubectl: Kubectl) -> None:
    """Longer than kubectl's own helper waits: instances start only after a Lease was taken and pods were made."""
    kubectl("wait", "--for=condition=Ready", "modelservice/chat", "--timeout=240s")


def test_with_these_rights_a_service_becomes_ready_and_goes_without_a_trace(installed: Kubectl, tmp_path: Path) -> None:
    default = installed.within("default")
    with running_operator(installed, tmp_path) as process:
        default("apply", "--server-side", "-f", "-", stdin=yaml.safe_load(SERVICE))
        become_ready(default)

        deployments = default.get("deployments")["items"]
        running = [p for p in default.get("pods")["items"] if p["status"]["phase"] == "Running"]
        assert sum(each["spec"]["replicas"] for each in deployments) == len(running) > 0
        assert process.counted("tonnage_service_cost_dollars_per_hour")
        answered = process.counted("tonnage_api_requests_total")
        refused = {labels: count for labels, count in answered.items() if 'code="403"' in labels}
        # The one that asks whether the fence stands, as an earlier leader would write.
        assert refused == {'tonnage_api_requests_total{code="403",verb="create"}': 1.0}

        default("delete", "modelservice/chat", "--wait=true")
        default("wait", "--for=delete", "pod", "--all", "--timeout=240s")
        assert default.get("deployments")["items"] == []


def test_the_doctor_finds_the_installed_chart_sound_while_its_operator_runs(installed: Kubectl, tmp_path: Path) -> None:
    """Rights are checked for the service account of the Deployment that it found, not for the user of the command."""
    with running_operator(installed, tmp_path) as process:
        until(lambda: process.said("leadership taken"), "it leads")
        status, found = examined(installed)

    verdicts = {check: {each["verdict"] for each in findings} for check, findings in found.items()}
    # The pods of the Deployment are simulated, so nothing answers where their metrics should be.
    assert verdicts.pop("metrics") == {"warning"}
    assert set().union(*verdicts.values()) == {"ok"}, found
    assert ACCOUNT in found["rbac"][0]["words"]
    assert "2 of 2 replicas are ready" in found["operator"][0]["words"]
    assert status == 0


def test_the_doctor_names_the_right_that_was_taken_from_the_account(installed: Kubectl) -> None:
    binding = installed.get("clusterrolebinding", "tonnage-place-gate")
    installed("delete", "clusterrolebinding", "tonnage-place-gate")
    try:
        status, found = examined(installed)
    finally:
        kept = {key: binding["metadata"][key] for key in ("name", "labels", "annotations")}
        installed("create", "-f", "-", stdin={**binding, "metadata": kept})

    (failure,) = [each for each in found["rbac"] if each["verdict"] == "failure"]
    assert "patch pods" in failure["words"]
    assert ACCOUNT in failure["words"]
    assert "place-gate" in failure["remedy"]
    assert status == 1


def test_the_doctor_names_a_kind_that_somebody_changed_beside_helm(installed: Kubectl) -> None:
    """Helm ends an upgrade at such a definition, after it changed other objects."""
    kind, schema = "crd/gangs.tonnage.dev", "/spec/versions/0/schema/openAPIV3Schema/description"
    before = installed.get(kind, "--show-managed-fields")
    description = before["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"]

    def replaced(path: str, value: object) -> None:
        change = [{"op": "replace", "path": path, "value": value}]
        installed("patch", kind, "--type=json", "-p", json.dumps(change))

    replaced(schema, "changed by hand")
    try:
        _, found = examined(installed)
    finally:
        replaced(schema, description)
        # The next test's upgrade would end at it, as the doctor says.
        replaced("/metadata/managedFields", before["metadata"]["managedFields"])

    (warning,) = [each for each in found["crds"] if each["verdict"] == "warning"]
    assert warning["words"].startswith("gangs.tonnage.dev was written by ")
    assert "kubectl" in warning["words"]
    assert "--force-conflicts" in warning["remedy"]


def examined(kubectl: Kubectl) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """Exit status and findings of `tonnage doctor`, by check."""
    asked = ["doctor", "-o", "json", "--kubeconfig", str(kubectl.kubeconfig)]
    result = CliRunner().invoke(tonnage, asked)
    found: dict[str, list[dict[str, str]]] = {}
    for each in json.loads(result.stdout)["findings"]:
        found.setdefault(each["check"], []).append(each)
    return result.exit_code, found


def test_every_panel_variable_and_alert_shows_a_running_operator(installed: Kubectl, tmp_path: Path) -> None:
    """Without error and without an empty answer, while pods come and go; also what only mishaps move stands at 0."""
    default = installed.within("default")
    gate = {"schedulingGates": [{"name": PLACEMENT_GATE}], "terminationGracePeriodSeconds": 0}
    served = yaml.safe_load(SERVICE)
    unmeasured = yaml.safe_load(SERVICE)
    unmeasured["metadata"]["name"] = "unmeasured"
    del unmeasured["spec"]["demand"]
    wide = manifests.pod("too-wide", gpus=16, **gate)
    upgrade(installed.kubeconfig, EVERY_PART)
    power = {"enabled": True, "port": 0, "tls": credentials().power}
    installed("apply", "-f", str(EXAMPLES / "health.yaml"))
    with (
        serving(LongMeasured(4.0, serving=SERVED)) as demand,
        running_operator(installed, tmp_path, EVERY_PART, power=power, autoscaler=reads(demand)) as process,
        served_on_one_node(default, served) as node,
        drawing_row(installed, tmp_path, process, node),
        isolating(installed, process, node),
        running_prometheus(tmp_path, process.metrics_port, RULES, every="1s") as prometheus,
        churn(
            installed.kubeconfig,
            "/api/v1/namespaces/default/pods",
            lambda number: manifests.pod(f"churn-{number}", gpus=1, **gate),
        ),
    ):
        default("apply", "--server-side", "-f", "-", stdin=listed(unmeasured, wide, *scaled()))
        until_empty(lambda: [each for each in unanswered(prometheus) if "teams" not in each])
        installed("apply", "-f", "-", stdin=yaml.safe_load(TEAM))
        until_empty(lambda: [each for each in unanswered(prometheus) if "teams" in each])

        lines = process.metrics()
    installed("delete", "team", "research")
    default("delete", "modelservices,scalingpolicies,deployments,pods", "--all", "--wait=true")
    check = subprocess.run([tool("promtool"), "check", "metrics"], input=lines, capture_output=True, check=False)  # noqa: S603
    assert (check.returncode, check.stdout + check.stderr) == (0, b"")


TEAM = """
apiVersion: tonnage.dev/v1alpha1
kind: Team
metadata: {name: research}
spec: {namespaces: {kubernetes.io/metadata.name: default}}
"""

SERVED = {"throughput": 8.0, "completed": 500.0, "request_p95": 3.0, "in_flight": 8.0, "replicas": 1.0}
"""Figures of the one replica, by which its concurrency is tuned."""


class LongMeasured(FakePrometheus):
    """Query API with two days of history, so that forecasts and their coverage are known at once."""

    def answer(self, path: str, query: str = "") -> tuple[int, Any]:
        if not path.endswith("query_range"):
            return super().answer(path, query)
        now_s = time.time()
        values = [[now_s - 60.0 * ago, str(4 + ago % 5)] for ago in range(2880, 0, -1)]
        return 200, {
            "status": "success",
            "data": {"resultType": "matrix", "result": [{"metric": {}, "values": values}]},
        }


def reads(demand: FakePrometheus) -> dict[str, Any]:
    server = {"url": f"http://127.0.0.1:{demand.port}", "allow_queries": True}
    return {"sync_s": 1.0, "prometheus": server}


def scaled() -> tuple[dict[str, Any], ...]:
    """A Deployment, and a policy that recommends its replicas, limited by `maxReplicas`, and their concurrency."""
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "example.com/web"}]}}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    policy = {
        "target": target,
        "maxReplicas": 5,
        "demand": {
            "sources": [{"prometheus": {"query": "arrivals"}}, {"role": "queue", "prometheus": {"preset": "vllm"}}]
        },
        "capacity": {"perReplica": 1},
        "concurrency": {"max": 64, "p95": "10s"},
    }
    return (
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        },
        {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ScalingPolicy", "metadata": {"name": "web"}, "spec": policy},
    )


def listed(*objects: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}


def until_empty(lacking: Callable[[], list[str]]) -> None:
    """Looks once a second for two minutes at most; what is lacking then is what the test says."""
    pause, found = threading.Event(), of_the_first_minute(lacking())
    for _ in range(120):
        if not found:
            return
        pause.wait(1.0)
        found = of_the_first_minute(lacking())
    assert found == []


LATER = re.compile("coverage", re.IGNORECASE)
"""A forecast covers its first sample a minute after it was made. tests/deploy/test_on_prometheus.py looks at it."""


def of_the_first_minute(lacking: list[str]) -> list[str]:
    return [each for each in lacking if not LATER.search(each)]


def test_uninstalled_it_leaves_the_kinds_and_their_objects(installed: Kubectl) -> None:
    """Runs last: the tests above need the release."""
    uninstall(installed.kubeconfig)

    assert not installed.get("clusterrole", "-l", "app.kubernetes.io/managed-by=Helm")["items"]
    assert len(installed.get("gputypes")["items"]) == 4
