"""ScalingPolicies on a real API server: targets and services scaled by measured load, and all that holds them back."""

import json
import signal
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cli.main import tonnage
from controller.api.kinds import OWN_KINDS
from controller.api.notation import rfc3339
from controller.process.main import Operator, operate
from controller.settings import OperatorSettings
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.controlplane.conftest import StartServer
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.operators import FENCE, operator, until
from tests.generated.crd_files import files

pytestmark = pytest.mark.controlplane

OURS = "tonnage.dev/v1alpha1"


@dataclass
class FakePrometheus:
    """Query API with one value for every query, and figures of replicas for those that tune their concurrency."""

    value: float | None = 0.0
    """None: the server answers with an error."""
    port: int = 0
    serving: dict[str, float] = field(default_factory=dict)
    """Figures of the replicas, by name; the requests of a preset are `value`."""

    def answer(self, path: str, query: str = "") -> tuple[int, Any]:
        if self.value is None:
            return 503, {"status": "error", "errorType": "unavailable", "error": "down"}
        if path.endswith("query_range"):
            return 200, {"status": "success", "data": {"resultType": "matrix", "result": []}}
        named: dict[str, float] = {}
        if "tonnage_quantity" in query:
            named = self.serving if '"throughput"' in query else {"requests": self.value, "queue": 0.0}
        result = [
            {"metric": {"tonnage_quantity": name}, "value": [time.time(), str(figure)]}
            for name, figure in named.items()
        ] or [{"metric": {}, "value": [time.time(), str(self.value)]}]
        return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}


@contextmanager
def serving(prometheus: FakePrometheus) -> Iterator[FakePrometheus]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            query = urllib.parse.parse_qs(sent).get("query", [""])[0]
            status, body = prometheus.answer(self.path.partition("?")[0], query)
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing: a test's output is its own."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    prometheus.port = server.server_port
    try:
        yield prometheus
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def scaling_operator(kubeconfig: str, prometheus: FakePrometheus) -> Iterator[Operator]:
    """An operator in a thread of the test."""
    stop, started, running = Event(), Event(), []
    settings = OperatorSettings.model_validate(
        {
            "kubeconfig": kubeconfig,
            "host": "127.0.0.1",
            "probe_port": 0,
            "metrics_port": 0,
            "interval_s": 0.2,
            "lease": {"namespace": "default"},
            "autoscaler": autoscaler_settings(prometheus),
        }
    )

    def on_start(operator: Operator) -> None:
        running.append(operator)
        started.set()

    thread = Thread(target=operate, args=(settings, stop, on_start), name="scaling operator")
    thread.start()
    try:
        assert started.wait(60), "the operator starts"
        yield running[0]
    finally:
        stop.set()
        thread.join(30)


@dataclass
class Stage:
    """A cluster with an operator and its Prometheus."""

    kubectl: Kubectl
    prometheus: FakePrometheus
    ports: Mapping[str, int] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)

    def deployment(self, name: str, replicas: int = 1) -> None:
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "example.com/web"}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        self.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})

    def policy(self, name: str, target: dict[str, str] | None = None, **spec: Any) -> None:
        """Policy of a Deployment of the same name, one replica of which serves a load of 10."""
        about = {
            "target": target or {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "maxReplicas": 20,
            "demand": {"sources": [{"prometheus": {"query": "arrivals"}, "maxAge": "5s"}]},
            "capacity": {"perReplica": 10},
            "mode": "Auto",
            **spec,
        }
        given = {key: value for key, value in about.items() if value is not None}
        self.create({"apiVersion": OURS, "kind": "ScalingPolicy", "metadata": {"name": name}, "spec": given})

    def create(self, obj: dict[str, Any]) -> None:
        self.kubectl("apply", "--server-side", "-f", "-", stdin=obj)
        self.made.append(f"{obj['kind']}/{obj['metadata']['name']}")

    def replicas(self, name: str) -> int:
        found: int = self.kubectl.get("deployment", name)["spec"]["replicas"]
        return found

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.kubectl.get("scalingpolicy", name).get("status", {})
        return found

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        conditions = self.status(name).get("conditions", [])
        return next(((each["status"], each["reason"]) for each in conditions if each["type"] == kind), ("", ""))


def install_kinds(kubectl: Kubectl) -> None:
    for definition in files().values():
        kubectl("create", "-f", "-", stdin=yaml.safe_load(definition))
    for kind in OWN_KINDS:
        kubectl.wait("condition=Established", f"crd/{kind.definition}")


def autoscaler_settings(prometheus: FakePrometheus) -> dict[str, Any]:
    """Sources and targets are read every second."""
    return {
        "sync_s": 1.0,
        "prometheus": {"url": f"http://127.0.0.1:{prometheus.port}", "allow_queries": True},
        "push": {"enabled": True, "port": 0, "audience": ""},
        "config_maps": True,
    }


@pytest.fixture(scope="module")
def whole(start_server: StartServer, programs: Programs) -> Iterator[Stage]:
    server = start_server(ControlPlaneSettings(nodes=3))
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    install_kinds(kubectl)
    with serving(FakePrometheus()) as prometheus, scaling_operator(str(server.kubeconfig), prometheus) as running:
        yield Stage(kubectl, prometheus, running.ports)


@pytest.fixture
def stage(whole: Stage) -> Iterator[Stage]:
    whole.prometheus.value = 35.0
    whole.prometheus.serving.clear()
    whole.made.clear()
    yield whole
    for made in reversed(whole.made):
        whole.kubectl("delete", made, "--wait=false", "--ignore-not-found")


def tonnage_says(stage: Stage, *arguments: str) -> str:
    """Output of a verb of the command line; other policies need not be in order."""
    done = CliRunner().invoke(tonnage, [*arguments, "--kubeconfig", str(stage.kubectl.kubeconfig)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.output


def test_a_deployment_in_force_follows_its_load_up_and_down(stage: Stage) -> None:
    stage.deployment("web")
    stage.policy("web", behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})

    until(lambda: stage.replicas("web") > 3, "35 need four replicas of 10 at the least")
    until(lambda: stage.status("web").get("desiredReplicas") == stage.replicas("web"), "the status shows them")
    assert stage.condition("web", "MetricsAvailable") == ("True", "Fresh")

    explained = tonnage_says(stage, "scaling", "explain", "web")
    assert f"{stage.replicas('web')} replicas desired" in explained
    assert "web" in tonnage_says(stage, "get", "scalingpolicies", "-A")

    stage.prometheus.value = 8.0
    until(lambda: stage.replicas("web") < 4, "8 need fewer")
    assert stage.replicas("web") >= 1
    events = stage.kubectl.get("events", "--field-selector=involvedObject.kind=ScalingPolicy")["items"]
    assert any(each["reason"] == "Scaled" for each in events)


def test_a_recommendation_changes_nothing(stage: Stage) -> None:
    stage.deployment("advised")
    stage.policy("advised", mode="Recommend")

    until(lambda: stage.status("advised").get("recommendedReplicas", 0) > 3, "the status shows what it would be")
    assert stage.replicas("advised") == 1
    assert stage.condition("advised", "Ready") == ("True", "Recommending")
    managers = {
        each["manager"]
        for each in stage.kubectl.get("deployment", "advised", "--show-managed-fields")["metadata"]["managedFields"]
    }
    assert not any(name.startswith("tonnage") for name in managers)


def test_a_target_of_an_hpa_is_never_written(stage: Stage) -> None:
    stage.deployment("contested")
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "contested"}
    spec = {"scaleTargetRef": ref, "minReplicas": 1, "maxReplicas": 3}
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "theirs"},
        "spec": spec,
    }
    stage.create(hpa)
    stage.policy("contested")

    until(lambda: stage.condition("contested", "Conflict")[0] == "True", "the conflict is reported")
    conditions = stage.status("contested")["conditions"]
    (words,) = (each["message"] for each in conditions if each["type"] == "Conflict")
    assert "HorizontalPodAutoscaler/default/theirs" in words
    assert stage.replicas("contested") == 1

    stage.kubectl("delete", "hpa", "theirs")
    until(lambda: stage.replicas("contested") > 3, "it scales once the other autoscaler is gone")


def test_without_metrics_replicas_stay_as_they_are(stage: Stage) -> None:
    stage.deployment("blind")
    stage.policy("blind")
    until(lambda: stage.replicas("blind") > 3, "it scales")
    many = stage.replicas("blind")

    stage.prometheus.value = None
    until(lambda: stage.condition("blind", "MetricsAvailable")[0] == "False", "the outage is reported")
    until(lambda: stage.condition("blind", "MetricsAvailable")[1] == "Stale", "the last sample is too old")
    assert stage.replicas("blind") >= many
    assert stage.condition("blind", "Ready") == ("False", "MetricsMissing")
    assert "default/blind: Stale: the last sample of the load is too old" in tonnage_says(stage, "doctor")


def test_the_concurrency_of_replicas_is_tuned_in_the_policys_status_and_a_config_map(stage: Stage) -> None:
    """Four replicas that serve 8 requests at once within the bound of latency: more may be tried."""
    stage.deployment("tuned", replicas=4)
    until(lambda: stage.kubectl.get("deployment", "tuned")["status"].get("readyReplicas") == 4, "they are ready")
    stage.prometheus.serving = {
        "throughput": 16.0, "completed": 500.0, "request_p95": 3.0, "in_flight": 32.0,
        "replicas": 4.0, "replicas_before": 4.0, "input_mean": 300.0, "output_mean": 100.0,
    }  # fmt: skip

    def are_old() -> bool:
        """Whether all replicas have been ready for an hour, as nothing is tuned while some are new; makes them so."""
        old = {"type": "Ready", "status": "True", "lastTransitionTime": since}
        new = [
            pod["metadata"]["name"]
            for pod in stage.kubectl.get("pods", "-l", "app=tuned")["items"]
            if not any(old.items() <= each.items() for each in pod["status"]["conditions"])
        ]
        for name in new:
            patch = json.dumps({"status": {"conditions": [old]}})
            stage.kubectl("patch", "pod", name, "--subresource=status", "--type=strategic", "-p", patch)
        return not new

    since = rfc3339(time.time() - 3600.0)
    until(are_old, "kubelets write their status no more", pause_s=1.0)
    source = {"role": "requests", "prometheus": {"preset": "vllm"}}
    concurrency = {"tune": True, "min": 1, "max": 64, "start": 20, "p95": "10s", "interval": "60s"}
    concurrency["configMap"] = "tuned-limit"
    about = {"demand": {"sources": [source]}, "concurrency": concurrency, "minReplicas": 4, "maxReplicas": 4}
    stage.policy("tuned", mode="Off", **about)
    # What an earlier leader has learned: 8 requests at once were served within the bound.
    arm = {"limit": 8, "weight": 5, "throughput": 1.386, "p95": 1.099}
    context = {
        "gpuType": "",
        "inputBucket": 4,
        "outputBucket": 3,
        "usedAt": 7,
        "limit": 8,
        "ceiling": 64,
        "arms": [arm],
    }
    learned = {
        "limit": 8, "inForce": 8, "time": "2026-03-01T12:00:00Z", "reason": "Settled", "decisions": 7,
        "learned": [context],
    }  # fmt: skip
    patch = json.dumps({"status": {"concurrency": learned}})
    stage.kubectl("patch", "scalingpolicy", "tuned", "--subresource=status", "--type=merge", "-p", patch)

    stage.policy("tuned", **about)
    until(lambda: are_old() and stage.status("tuned")["concurrency"]["reason"] == "Raised", "it goes on", pause_s=1.0)

    tuned = stage.status("tuned")["concurrency"]
    assert (tuned["limit"], tuned["inForce"], tuned["decisions"] >= 8) == (10, 10, True), "from the status"
    assert stage.condition("tuned", "ConcurrencyTuned") == ("True", "Raised")
    published = lambda: stage.kubectl.get("configmap", "tuned-limit").get("data")  # noqa: E731
    until(lambda: published() == {"concurrency": "10"}, "the limit in force is where gateways read it")
    assert stage.replicas("tuned") == 4
    assert "concurrency: 10 requests at once by replica, in force" in tonnage_says(stage, "scaling", "explain", "tuned")


def test_a_target_that_does_not_exist_is_reported(stage: Stage) -> None:
    stage.policy("nothing")

    until(lambda: stage.condition("nothing", "Ready") == ("False", "TargetNotFound"), "there is no such Deployment")


def gpu_type(stage: Stage) -> dict[str, Any]:
    """GPUType of the simulated nodes."""
    node, *_ = stage.kubectl.get("nodes")["items"]
    product = node["metadata"]["labels"]["nvidia.com/gpu.product"]
    spec = {"nodeLabel": {"values": [product]}, "memory": "80Gi", "pricePerHour": {"onDemand": 2.0}}
    return {"apiVersion": OURS, "kind": "GPUType", "metadata": {"name": "scaled-gpu"}, "spec": spec}


PROFILE = {
    "apiVersion": OURS,
    "kind": "ModelProfile",
    "metadata": {"name": "scaled"},
    "spec": {
        "model": "scaled",
        "gpuType": "scaled-gpu",
        "grid": {"inputTokens": [1000], "outputTokens": [100]},
        "throughput": [{"slo": {"tpot": "40ms"}, "requestsPerSecond": [[2.0]]}],
    },
}
SERVICE = {
    "apiVersion": OURS,
    "kind": "ModelService",
    "metadata": {"name": "chat"},
    "spec": {"model": "scaled", "slo": {"tpot": "40ms"}, "headroom": 0},
}


def pushed(stage: Stage, token: str, body: dict[str, Any]) -> int:
    url = f"http://127.0.0.1:{stage.ports['push']}/v1/demand"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_service_without_demand_is_planned_from_pushed_demand(stage: Stage) -> None:
    stage.kubectl("create", "serviceaccount", "pusher")
    stage.kubectl("create", "role", "pusher", "--verb=update", "--resource=scalingpolicies.tonnage.dev/demand")
    stage.kubectl("create", "rolebinding", "pusher", "--role=pusher", "--serviceaccount=default:pusher")
    token = stage.kubectl("create", "token", "pusher").strip()
    for obj in (gpu_type(stage), PROFILE, SERVICE):
        stage.create(obj)
    source = {"role": "requests", "push": {}, "maxAge": "10m"}
    of_service = {"apiVersion": OURS, "kind": "ModelService", "name": "chat"}
    stage.policy("chat", of_service, demand={"sources": [source]}, capacity=None)

    def planned() -> tuple[str, str]:
        conditions = stage.kubectl.get("modelservice", "chat").get("status", {}).get("conditions", [])
        return next(((each["status"], each["reason"]) for each in conditions if each["type"] == "Planned"), ("", ""))

    until(lambda: planned() == ("False", "DemandUnknown"), "nothing is known of its demand")
    histogram = {"inputTokens": [1000], "outputTokens": [100], "requests": [[5000]]}
    body = {"policy": "default/chat", "requests": 5.0, "histogram": histogram}
    until(lambda: pushed(stage, token, body) == 202, "the push is taken")

    until(lambda: planned()[0] == "True", "it is planned from what was pushed")
    # 5 requests per second at 2 per instance: three at the least.
    until(lambda: stage.kubectl.get("modelservice", "chat")["status"].get("wantedInstances", 0) >= 3, "enough of them")
    assert stage.status("chat")["replicaLoad"] == pytest.approx(2.0)
    assert stage.condition("chat", "Ready") == ("True", "Scaling")


def test_the_fence_refuses_the_scale_of_a_former_leader(stage: Stage) -> None:
    account = "system:serviceaccount:tonnage-system:tonnage"
    stage.kubectl("create", "namespace", "tonnage-system")
    stage.kubectl("create", "clusterrolebinding", "fenced", "--clusterrole=cluster-admin", f"--user={account}")
    lease = {"metadata": {"name": "tonnage", "namespace": "tonnage-system"}, "spec": {"leaseTransitions": 5}}
    there = stage.kubectl.within("tonnage-system")
    there("create", "-f", "-", stdin={"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease})
    fence = (FENCE / "fence.yaml").read_text(encoding="utf-8")
    for document in yaml.safe_load_all(fence):
        stage.kubectl("create", "-f", "-", stdin=document)
    stage.deployment("fenced")
    patch = json.dumps(
        [{"op": "test", "path": "/spec/replicas", "value": 1}, {"op": "add", "path": "/spec/replicas", "value": 2}]
    )
    scale = ("patch", "deployment", "fenced", "--subresource=scale", "--type=json", "-p", patch)
    leader = stage.kubectl.as_user(account)

    def refusal() -> str:
        done = leader._run(*scale, "--dry-run=server", "--field-manager=tonnage-epoch-4", stdin=None)
        return done.stderr

    until(lambda: "tonnage.dev/epoch is 4, that of the Lease is 5" in refusal(), "the policy is active")
    assert "tonnage.dev/epoch is " in leader.refusal(*scale)  # no epoch at all
    leader(*scale, "--field-manager=tonnage-epoch-5")
    assert stage.replicas("fenced") == 2
    leader.refusal(*scale, "--field-manager=tonnage-epoch-5")  # it no longer asks for one


def test_a_leader_that_is_killed_in_a_ramp_loses_nothing_and_scales_nothing_twice(
    start_server: StartServer, programs: Programs, tmp_path: Path
) -> None:
    server = start_server(ControlPlaneSettings(nodes=1))
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    install_kinds(kubectl)
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with serving(FakePrometheus(15.0)) as prometheus, ExitStack() as running:
        about = {"lease": {"namespace": "default"}, "autoscaler": autoscaler_settings(prometheus)}
        one = running.enter_context(operator(server.kubeconfig, folders[0], **about))
        until(lambda: one.said("leadership taken"), "the first one leads")
        two = running.enter_context(operator(server.kubeconfig, folders[1], **about))
        stage = Stage(kubectl, prometheus)
        stage.deployment("ramp")
        # Each step up is at most four replicas in 5 s, so that the ramp takes several decisions.
        steps = {"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 5}]}}
        stage.policy("ramp", behavior=steps)
        until(lambda: stage.replicas("ramp") > 1, "it scales")

        prometheus.value = 150.0
        seen = [stage.replicas("ramp")]
        until(lambda: seen.append(stage.replicas("ramp")) or seen[-1] >= 6, "the ramp has begun")  # type: ignore[func-returns-value]
        one.send(signal.SIGKILL)
        until(lambda: two.said("leadership taken"), "the other one leads")
        until(lambda: seen.append(stage.replicas("ramp")) or seen[-1] == 20, "it goes on to the bound")  # type: ignore[func-returns-value]

    assert seen == sorted(seen), "no step was taken back"
    assert all(after - before <= 8 for before, after in pairwise(seen)), "no step was made twice"
