"""A service whose prefill and decode are apart, on a real API server: its pods, flags, status, and the way back."""

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import GPU
from tests.controlplane.operators import ROOT, operator, until
from tests.controlplane.servers import StartServer
from tests.unit.placement.mix.test_phases import fleet

VARIANTS = [
    {"args": ["--kv-transfer"], "env": {"LEVEL": "info"}},
    {"phase": "prefill", "args": ["--role=prefill"], "image": "example.com/prefill"},
    {"phase": "decode", "gpuType": "cheap", "args": ["--role=decode", "--max-num-seqs=64"]},
    {"phase": "decode", "gpuType": "dear", "args": ["--never"]},
]


def nodes() -> list[dict[str, Any]]:
    made = []
    for name, gpu_type in (("n0", "dear"), ("n1", "dear"), ("n2", "cheap"), ("n3", "cheap")):
        metadata = {"name": name, "labels": {"nvidia.com/gpu.product": gpu_type}}
        has = {"cpu": "96", "memory": "1Ti", GPU: "8"}
        made.append({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": has}})
    return made


def service(**spec: Any) -> dict[str, Any]:
    """Prefill is fast on the dear type, and decode cheap on the other."""
    container = {"name": "server", "image": "example.com/none", "args": ["--model=m"]}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}, "variants": VARIANTS}
    made = fleet(ttft="500ms", whole=2.0)[-1]
    return {**made, "metadata": {"name": "s"}, "spec": {**made["spec"], "template": template, **spec}}


@pytest.mark.parametrize("mode", ["bind", "gate"])
def test_pools_by_phase_run_with_their_own_flags_are_scaled_and_told_and_join_again(
    start_server: StartServer, programs: Programs, tmp_path: Path, mode: str
) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes()}))
    server = start_server(ControlPlaneSettings(manifests=str(tmp_path / "nodes.json")))
    admin = Kubectl(programs["kubectl"], server.kubeconfig)
    admin("apply", "-f", str(ROOT / "deploy" / "crds"))
    for crd in ("gputypes", "modelprofiles", "modelservices"):
        admin.wait("condition=Established", f"crd/{crd}.tonnage.dev")
    admin("create", "namespace", "tonnage-system")
    for each in fleet(ttft="500ms", whole=2.0)[:-1]:
        admin("apply", "-f", "-", stdin=each)

    def status() -> dict[str, Any]:
        found: dict[str, Any] = admin.get("modelservice", "s")["status"]
        return found

    def containers(phase: str) -> list[dict[str, Any]]:
        items = admin.get("pods", "-l", f"tonnage.dev/service=s,tonnage.dev/phase={phase}")["items"]
        return [each["spec"]["containers"][0] for each in items]

    def is_served() -> bool:
        """Whether some instance is ready, as one has to be at each look, also while the pools change."""
        pods = admin.get("pods", "-l", "tonnage.dev/service=s")["items"]
        told = {(each["type"], each["status"]) for pod in pods for each in pod["status"].get("conditions", ())}
        assert ("Ready", "True") in told
        return True

    with operator(server.kubeconfig, tmp_path, pools=[{"placer": mode}]) as process:
        admin("apply", "-f", "-", stdin=service())
        admin.wait("condition=Ready", "modelservice/s")
        assert status()["replicas"] == status()["running"] == {"prefill/dear": 2, "decode/cheap": 3}
        assert (status()["costPerHour"], status()["wantedInstances"]) == (11.0, 5)
        used = [each for each in status()["routing"]["weights"] if each["share"] == [[1]]]
        assert {each["phase"]: each["gpuType"] for each in used} == {"prefill": "dear", "decode": "cheap"}
        (prefill, _), (decode, *_) = containers("prefill"), containers("decode")
        assert (prefill["image"], prefill["args"]) == (
            "example.com/prefill",
            ["--model=m", "--kv-transfer", "--role=prefill"],
        )
        assert decode["args"] == ["--model=m", "--kv-transfer", "--role=decode", "--max-num-seqs=64"]
        assert (decode["image"], decode["env"]) == ("example.com/none", [{"name": "LEVEL", "value": "info"}])
        events = admin.get("events.events.k8s.io")["items"]
        assert {e["regarding"]["name"] for e in events if e["regarding"]["kind"] == "ModelService"} == {"s"}

        # Twice the demand: both pools grow.
        more = {"spec": {"demand": {"requestsPerSecond": 12}}}
        admin("patch", "modelservice", "s", "--type=merge", "-p", json.dumps(more))
        until(lambda: status()["running"] == {"prefill/dear": 3, "decode/cheap": 4}, "both pools have grown")

        # Without phases the pools are scaled to none, and whole requests are served by instances of their own.
        admin("patch", "modelservice", "s", "--type=merge", "-p", json.dumps({"spec": {"phases": None}}))
        until(lambda: is_served() and set(status().get("running", ())) == {"dear"}, "prefill and decode are together")
        admin.wait("condition=Ready", "modelservice/s")
        assert (containers("prefill"), containers("decode")) == ([], [])

        admin("delete", "modelservice", "s")
        until(lambda: not admin.get("deployments")["items"], "everything of the service is gone")
        assert process.counted("tonnage_cycles_total").get('tonnage_cycles_total{result="failed"}', 0.0) == 0.0
