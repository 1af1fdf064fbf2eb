"""The operator on a real API server while its brain on Ray is harmed: plans go on, nothing is lost or doubled.

The long form, with every fault and with recovery times, is `python -m benchmarks.chaos`.
"""

import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from simulator.controlplane.server import ControlPlane
from tests.chaos.faults import FAULTS, Fault, Scene, brain_server
from tests.chaos.nodes import ray_nodes
from tests.controlplane.auditor import audit
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import GPU, pod
from tests.controlplane.operators import ROOT, OperatorProcess, create_all, operator, until
from tests.controlplane.servers import StartServer

DEADLINE_S = 1.0
PODS = 40
"""Before, during and after each fault."""
SHORT_FORM = ("kill the brain process", "freeze and thaw a worker node", "kill the head, start it again")


@pytest.fixture(scope="module")
def server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    made = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{n:03d}", "labels": {"nvidia.com/gpu.product": "NVIDIA-L4"}},
            "status": {"allocatable": {"cpu": "96", "memory": "1Ti", GPU: "8"}},
        }
        for n in range(80)
    ]
    manifests = tmp_path_factory.mktemp("fleet") / "nodes.yaml"
    manifests.write_text(yaml.safe_dump_all(made), encoding="utf-8")
    return start_server(ControlPlaneSettings(manifests=str(manifests)))


@pytest.fixture(scope="module")
def admin(server: ControlPlane, programs: Programs) -> Kubectl:
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    kubectl("apply", "-f", str(ROOT / "deploy" / "crds"))
    for crd in ("gputypes", "modelprofiles", "modelservices", "gangs"):
        kubectl.wait("condition=Established", f"crd/{crd}.tonnage.dev")
    kubectl("create", "namespace", "tonnage-system")
    kubectl("apply", "-f", str(ROOT / "examples" / "gpu-types.yaml"))
    return kubectl


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, dict[str, Any]]]:
    """A Ray cluster with a brain server, and the operator's settings for it."""
    token = tmp_path_factory.mktemp("token") / "brain-token"
    token.write_text(secrets.token_hex(16), encoding="ascii")
    with ray_nodes(workers=2) as nodes, brain_server(nodes, token) as (process, address):
        yield Scene(nodes, process), {"mode": "cluster", "address": address, "token_file": str(token)}


def gangs_and_pods(round_: str, namespace: str) -> list[dict[str, Any]]:
    """Pods that Tonnage binds: every tenth asks for 2 GPUs, the others for 1."""
    made = [pod(f"{round_}-{n:03d}", gpus=1 + (n % 10 == 0), schedulerName="tonnage") for n in range(PODS)]
    for each in made:
        each["metadata"]["namespace"] = namespace
    return made


def planned(process: OperatorProcess, by: str) -> float:
    return process.counted("tonnage_brain_plans_total").get(f'tonnage_brain_plans_total{{by="{by}"}}', 0.0)


def slow_plans(process: OperatorProcess) -> float:
    """Plans that took longer than the deadline and a second. DEADLINE_S is chosen so that a bucket ends there."""
    stages = process.counted("tonnage_cycle_stage_seconds_bucket")
    within = stages.get(f'tonnage_cycle_stage_seconds_bucket{{le="{DEADLINE_S + 1.0}",stage="plan"}}', 0.0)
    return stages.get('tonnage_cycle_stage_seconds_bucket{le="+Inf",stage="plan"}', 0.0) - within


@contextmanager
def namespace(admin: Kubectl) -> Iterator[Kubectl]:
    name = f"chaos-{secrets.token_hex(3)}"
    admin("create", "namespace", name)
    yield admin.within(name)
    admin("delete", "namespace", name)


def run_all(kubectl: Kubectl, count: int) -> None:
    def running() -> int:
        return kubectl("get", "pods", "-o", "jsonpath={.items[*].status.phase}").split().count("Running")

    until(lambda: running() == count, f"{count} pods run")


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.name in SHORT_FORM], ids=lambda each: each.name)
def test_pods_are_placed_once_each_whatever_becomes_of_the_brain(
    server: ControlPlane, admin: Kubectl, scene: tuple[Scene, dict[str, Any]], tmp_path: Path, fault: Fault
) -> None:
    harmed, brain = scene
    settings = {"brain": brain, "pools": [{"placer": "bind"}], "plan_deadline_s": DEADLINE_S, "resync_s": 1.0}
    with namespace(admin) as here, operator(server.kubeconfig, tmp_path, **settings) as process:
        until(lambda: planned(process, "ray") > 0, "Ray plans")
        path, everything = f"/api/v1/namespaces/{here.namespace}/pods", []

        def create(round_: str) -> None:
            everything.extend(gangs_and_pods(round_, here.namespace))
            create_all(server.kubeconfig, path, everything[-PODS:])

        create("before")
        run_all(here, PODS)
        undo = fault.do(harmed)
        create("during")
        run_all(here, 2 * PODS)  # placed while the fault lasts
        undo()
        before = planned(process, "ray")
        create("after")
        run_all(here, 3 * PODS)
        until(lambda: planned(process, "ray") > before, "Ray plans again")

        found = audit(here, [f"{here.namespace}/{each['metadata']['name']}" for each in everything])
        assert found.is_clean, found
        assert slow_plans(process) == 0
        assert process.process.poll() is None


def test_a_leader_that_thaws_after_its_successor_took_the_brain_writes_nothing(
    server: ControlPlane, admin: Kubectl, scene: tuple[Scene, dict[str, Any]], tmp_path: Path
) -> None:
    _, brain = scene
    settings = {"brain": brain, "pools": [{"placer": "bind"}], "plan_deadline_s": DEADLINE_S, "resync_s": 1.0}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        namespace(admin) as here,
        operator(server.kubeconfig, tmp_path / "a", **settings) as old,
        operator(server.kubeconfig, tmp_path / "b", **settings) as new,
    ):
        path, first = f"/api/v1/namespaces/{here.namespace}/pods", gangs_and_pods("first", here.namespace)
        until(lambda: planned(old, "ray") > 0, "the first plans on Ray")
        old.send(signal.SIGSTOP)
        create_all(server.kubeconfig, path, first)
        until(lambda: new.said("leadership taken"), "the second takes over")
        until(lambda: planned(new, "ray") > 0, "the second plans on Ray")
        old.send(signal.SIGCONT)
        later = gangs_and_pods("later", here.namespace)
        create_all(server.kubeconfig, path, later)
        run_all(here, 2 * PODS)

        epoch = str(new.said("leadership taken")["epoch"])  # type: ignore[index]
        assert {each["metadata"]["annotations"]["tonnage.dev/epoch"] for each in here.get("pods")["items"]} == {epoch}
        found = audit(here, [f"{here.namespace}/{each['metadata']['name']}" for each in first + later])
        assert found.is_clean, found


def test_the_brain_embedded_in_the_operator_places_pods_and_ends_with_it(
    server: ControlPlane, admin: Kubectl, tmp_path: Path
) -> None:
    settings = {"brain": {"mode": "embedded"}, "pools": [{"placer": "bind"}], "resync_s": 1.0}
    with namespace(admin) as here, operator(server.kubeconfig, tmp_path, **settings) as process:
        until(lambda: planned(process, "ray") > 0, "Ray plans")
        create_all(
            server.kubeconfig, f"/api/v1/namespaces/{here.namespace}/pods", gangs_and_pods("one", here.namespace)
        )
        run_all(here, PODS)
        pid = process.process.pid
        children = [p for p in Path("/proc").glob("[0-9]*/stat") if _parent(p) == pid]
        assert children
    assert process.process.returncode == 0, process.lines[-5:]
    until(lambda: not any(child.exists() for child in children), "its children are gone")


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
