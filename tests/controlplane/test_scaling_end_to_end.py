"""Scaling end to end: a fake vLLM, a real Prometheus that scrapes it, a real API server, and the operator."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cluster.errors import BuildError
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from simulator.controlplane.server import ControlPlane
from tests.builders.fake_vllm import MODEL, FakeVllm, MetricsServer
from tests.builders.live_prometheus import LivePrometheus, Scraped
from tests.builders.prometheus_history import import_history
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.operators import ROOT, operator, until
from tests.controlplane.servers import StartServer
from tests.rigs.prometheus import prometheus_program
from tests.until import comes_true

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

QUIET_PER_S, BUSY_PER_S = 4.0, 40.0
"""Offered requests per second before the daily ramp, and at its top."""
RAMP_S, BUSY_S, NOISE = 600, 7200, 0.05
"""Length of the ramp, and of the time until the load falls again; relative noise of the load."""
DAYS = 4
DAY_S = 86_400
AHEAD_S = 420
"""How far the ramp is ahead when a test begins: the time in which it must see the service scaled."""
LEAD_S = 900
"""Lead time of the policy: starts are planned for the middle of the ramp, before it begins."""
MAX_AGE_S = 15
NODES = 12
POLICY = "scalingpolicy/chat"


@dataclass
class Stage:
    """A service whose load rises every day at the same time, today in AHEAD_S."""

    kubectl: Kubectl
    server: ControlPlane
    vllm: FakeVllm
    prometheus: LivePrometheus
    folder: Path
    ramp_at_s: float

    def operator(self, name: str = "one") -> Any:
        folder = self.folder / name
        folder.mkdir()
        demand = {"url": self.prometheus.url, "window_s": 40.0, "lengths_window_s": 60.0}
        autoscaler = {"sync_s": 1.0, "prometheus": demand}
        return operator(self.server.kubeconfig, folder, pools=[{"placer": "bind"}], autoscaler=autoscaler)

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.kubectl.get(POLICY).get("status", {})
        return found

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason."""
        found = {each["type"]: (each["status"], each["reason"]) for each in self.status.get("conditions", [])}
        return found.get(kind, ("", ""))

    def instances(self) -> int:
        return sum(int(each["spec"]["replicas"]) for each in self.kubectl.get("deployments")["items"])

    def running(self) -> int:
        pods = self.kubectl.get("pods", "-l", "tonnage.dev/service=chat")["items"]
        return sum(each["status"].get("phase") == "Running" for each in pods)

    def capacity_per_s(self) -> float:
        """Load that the recommended replicas serve."""
        status = self.status
        return float(status.get("recommendedReplicas", 0)) * float(status.get("replicaLoad", 0.0))


@pytest.fixture(scope="module")
def server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    """A server of the module's own: an operator places pods of all namespaces."""
    manifests = tmp_path_factory.mktemp("fleet") / "nodes.yaml"
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{number:02d}", "labels": {"nvidia.com/gpu.product": "NVIDIA-L4"}},
            "status": {"allocatable": {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8"}},
        }
        for number in range(NODES)
    ]
    manifests.write_text(yaml.safe_dump_all(nodes), encoding="utf-8")
    return start_server(ControlPlaneSettings(manifests=str(manifests)))


@pytest.fixture
def stage(server: ControlPlane, programs: Programs, tmp_path: Path) -> Iterator[Stage]:
    try:
        program = prometheus_program()
    except BuildError as error:
        pytest.skip(f"no Prometheus: {error}")
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    kubectl("apply", "-f", str(ROOT / "deploy" / "crds"))
    for crd in ("gputypes", "modelprofiles", "modelservices", "scalingpolicies"):
        kubectl.wait("condition=Established", f"crd/{crd}.tonnage.dev")
    namespace = f"team-{len(kubectl.get('namespaces')['items'])}"
    for name in {"tonnage-system", namespace} - {
        each["metadata"]["name"] for each in kubectl.get("namespaces")["items"]
    }:
        kubectl("create", "namespace", name)
    kubectl("apply", "-f", str(ROOT / "examples" / "gpu-types.yaml"), "-f", str(ROOT / "examples" / "profiles.yaml"))
    with ExitStack() as stack:
        now_s = int(time.time())
        ramp_at_s = now_s + AHEAD_S
        labels = {"namespace": namespace, "pod": "chat-0"}

        noise = np.random.default_rng(1)

        def rate_at(at_s: float) -> float:
            since_s = (at_s - ramp_at_s) % DAY_S
            top = min(1.0, since_s / RAMP_S) if since_s < BUSY_S else 0.0
            load = QUIET_PER_S + (BUSY_PER_S - QUIET_PER_S) * top
            return load * max(0.0, 1 + NOISE * float(noise.standard_normal()))

        import_history(program, tmp_path, labels, rate_at, now_s - DAYS * DAY_S, now_s - 60)
        vllm = FakeVllm(time.monotonic, offered_per_s=QUIET_PER_S, capacity_per_s=100.0)
        metrics = MetricsServer(vllm)
        stack.callback(metrics.close)
        prometheus = LivePrometheus(program, tmp_path, [Scraped(metrics.port, labels)])
        stack.callback(prometheus.kill)
        prometheus.start()
        yield Stage(kubectl.within(namespace), server, vllm, prometheus, tmp_path, ramp_at_s)
    kubectl("delete", "namespace", namespace)


def _service() -> dict[str, Any]:
    """A service without a hand-written demand: its rate and its lengths are measured."""
    container = {"name": "server", "image": "example.com/none"}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    spec = {
        "model": "small-8b",
        "slo": {"tpot": "120ms"},
        "gpuTypes": ["l4"],
        "instance": {"cpu": "8", "memory": "48Gi"},
        "template": template,
    }
    return {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ModelService", "metadata": {"name": "chat"}, "spec": spec}


def _policy() -> dict[str, Any]:
    source = {"role": "requests", "prometheus": {"preset": "vllm", "labels": {"model_name": MODEL}}}
    spec = {
        "target": {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ModelService", "name": "chat"},
        "mode": "Auto",
        "maxReplicas": 90,
        "leadTime": {"fixed": f"{LEAD_S}s"},
        "forecast": {"history": f"{DAYS * 24}h"},
        "demand": {"sources": [{**source, "maxAge": f"{MAX_AGE_S}s"}]},
    }
    return {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ScalingPolicy", "metadata": {"name": "chat"}, "spec": spec}


def _is_ready_for_the_ramp(stage: Stage) -> bool:
    """Whether four times the present load would be served, and the instances for it run."""
    status = stage.status
    wanted = status.get("recommendedReplicas", 0)
    serves = wanted * status.get("replicaLoad", 0.0) >= 4 * QUIET_PER_S
    return bool(serves and status.get("currentReplicas", 0) >= wanted and stage.running() >= wanted)


def test_a_service_is_scaled_before_its_daily_ramp_and_holds_while_prometheus_is_gone(stage: Stage) -> None:
    stage.kubectl("apply", "-f", "-", stdin=_service())
    stage.kubectl("apply", "-f", "-", stdin=_policy())
    with stage.operator():
        until(lambda: _is_ready_for_the_ramp(stage), "the service is ready for the ramp", within_s=AHEAD_S)
        assert time.time() < stage.ramp_at_s
        assert stage.status["load"] < 1.5 * QUIET_PER_S
        assert stage.condition("ForecastTrusted")[0] == "True"

        stage.vllm.change(offered_per_s=6 * QUIET_PER_S)
        until(lambda: stage.status["load"] > 5 * QUIET_PER_S, "the ramp is measured")
        until(lambda: stage.capacity_per_s() >= 6 * QUIET_PER_S, "what is offered is served")

        stage.prometheus.kill()
        killed_at_s, held = time.time(), stage.instances()
        until(lambda: stage.condition("MetricsAvailable")[0] == "False", "the outage is reported")
        assert time.time() - killed_at_s < MAX_AGE_S + 30
        assert not comes_true(lambda: stage.instances() < held, killed_at_s + 4 * MAX_AGE_S - time.time(), pause_s=1.0)
        stage.prometheus.start()
        until(lambda: stage.condition("MetricsAvailable")[0] == "True", "the metrics are back")
        assert stage.instances() >= held


def test_a_leader_that_is_killed_in_the_ramp_loses_nothing_and_nothing_is_scaled_twice(stage: Stage) -> None:
    stage.kubectl("apply", "-f", "-", stdin=_service())
    stage.kubectl("apply", "-f", "-", stdin=_policy())
    with stage.operator("one") as one, stage.operator("two") as two:
        until(lambda: _is_ready_for_the_ramp(stage), "the service is ready for the ramp", within_s=AHEAD_S)
        leader, standby = (one, two) if one.said("leadership taken") else (two, one)
        seen = [stage.instances()]
        stage.vllm.change(offered_per_s=6 * QUIET_PER_S)
        leader.send(signal.SIGKILL)

        def serves_the_ramp() -> bool:
            seen.append(stage.instances())
            status = stage.status
            is_measured = status["load"] > 5 * QUIET_PER_S
            # It read the history again, and the saved fit, so its forecast is as good as the first one's.
            return bool(
                is_measured
                and stage.condition("ForecastTrusted")[0] == "True"
                and stage.capacity_per_s() >= 6 * QUIET_PER_S
            )

        until(lambda: standby.said("leadership taken"), "the other one leads")
        until(serves_the_ramp, "it serves the ramp")
        settled = stage.status
        # What is offered could be served all the time, and each recommendation was carried out once, not twice.
        assert min(seen) * settled["replicaLoad"] >= 6 * QUIET_PER_S
        assert max(seen) < 2 * max(settled["recommendedReplicas"], seen[0])
        assert stage.running() <= stage.instances()
        fitted = standby.counted("tonnage_background_tasks_total")
        assert fitted['tonnage_background_tasks_total{kind="load_fits",result="done"}'] == 0
