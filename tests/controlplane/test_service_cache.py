"""A service with a pool for the cache of its prompts, on a real API server: its pods, memory, status, its end."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import GPU
from tests.controlplane.operators import ROOT, operator, until
from tests.controlplane.servers import StartServer
from tests.controlplane.test_service_phases import nodes
from tests.unit.placement.mix.test_phases import fleet

HITS = [{"within": "10s", "share": 0.25}, {"within": "150s", "share": 0.5}]
"""6 prompts/s of 1000 tokens of 100 kB are 0.6 GB/s: 64 GiB hold those of 115 s, and find 0.4375; two find half."""


def manifests() -> list[dict[str, Any]]:
    made = fleet(phased=False, whole=1.0)
    for each in made:
        if each["kind"] == "ModelProfile":
            each["spec"]["throughput"][0]["decodedPerSecond"] = [[100.0]]
    container = {
        "name": "server",
        "image": "example.com/none",
        "args": ["--model=m"],
        "resources": {"requests": {"cpu": "8"}},
    }
    variants = [{"phase": "cache", "image": "example.com/cache", "args": ["--port=7000"]}]
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}, "variants": variants}
    more = {"slo": {"tpot": "60ms"}, "headroom": 0, "template": template, "cache": {"memory": "1Ti", "hits": HITS}}
    made[-1] = {**made[-1], "spec": {**made[-1]["spec"], **more}}
    return made


@pytest.mark.parametrize("mode", ["bind", "gate"])
def test_a_cache_runs_beside_its_service_is_sized_anew_and_goes(
    start_server: StartServer, programs: Programs, tmp_path: Path, mode: str
) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes()}))
    server = start_server(ControlPlaneSettings(manifests=str(tmp_path / "nodes.json")))
    admin = Kubectl(programs["kubectl"], server.kubeconfig)
    admin("apply", "-f", str(ROOT / "deploy" / "crds"))
    for crd in ("gputypes", "modelprofiles", "modelservices"):
        admin.wait("condition=Established", f"crd/{crd}.tonnage.dev")
    admin("create", "namespace", "tonnage-system")
    *others, service = manifests()
    for each in others:
        admin("apply", "-f", "-", stdin=each)

    def status() -> dict[str, Any]:
        found: dict[str, Any] = admin.get("modelservice", "s")["status"]
        return found

    def counted(what: str) -> dict[str, int]:
        """Instances by type; memory costs the same beside any devices, so those of the cache are one type here."""
        found = Counter[str]()
        for name, count in status().get(what, {}).items():
            found["cache" if name.startswith("cache/") else name] += count
        return dict(found)

    def is_running(wanted: dict[str, int]) -> bool:
        return counted("running") == wanted == counted("replicas")

    def patched(**spec: Any) -> None:
        admin("patch", "modelservice", "s", "--type=merge", "-p", json.dumps({"spec": spec}))

    with operator(server.kubeconfig, tmp_path, pools=[{"placer": mode}]) as process:
        admin("apply", "-f", "-", stdin=service)
        admin.wait("condition=Ready", "modelservice/s")
        # 1/(1 - 0.4375·0.99) = 1.76 requests/s and instance: 4 × cheap for 6. Without a cache 6 × cheap.
        assert is_running({"cheap": 4, "cache": 1})
        assert status()["costPerHour"] == pytest.approx(4.256)
        assert {each["gpuType"] for each in status()["routing"]["weights"]} == {"cheap"}
        (pod,) = admin.get("pods", "-l", "tonnage.dev/service=s,tonnage.dev/phase=cache")["items"]
        (container,) = pod["spec"]["containers"]
        assert (container["image"], container["args"]) == ("example.com/cache", ["--port=7000"])
        own_bytes = {"cpu": "0", "memory": str(2**36)}
        assert container["resources"] == {"requests": own_bytes, "limits": own_bytes}
        assert {"name": "TONNAGE_CACHE_BYTES", "value": str(2**36)} in container["env"]
        assert pod["spec"]["nodeName"] in ("n2", "n3")
        servers = [p for p in admin.get("pods", "-l", "tonnage.dev/service=s")["items"] if p is not pod]
        assert sum(GPU in each["spec"]["containers"][0]["resources"]["limits"] for each in servers) == 4

        # Three times the demand: what was 115 s of prompts are 38.
        patched(demand={"requestsPerSecond": 18})
        until(lambda: counted("running").get("cache", 0) > 1 and is_running(counted("mix")), "the cache grows")
        admin.wait("condition=Ready", "modelservice/s")

        # Dear memory: the devices that it saved are there before it goes.
        patched(demand={"requestsPerSecond": 6}, cache={"pricePerGiBHour": 1})
        until(lambda: is_running({"cheap": 6}), "the service has no cache, and the instances that it needs without one")
        patched(cache={"pricePerGiBHour": 0.004})
        until(lambda: is_running({"cheap": 4, "cache": 1}), "it has one again")

        patched(cache=None)
        until(lambda: is_running({"cheap": 6}), "a cache that is asked for no more goes")
        assert not admin.get("pods", "-l", "tonnage.dev/service=s,tonnage.dev/phase=cache")["items"]

        admin("delete", "modelservice", "s")
        until(lambda: not admin.get("deployments")["items"], "everything of the service is gone")
        assert process.counted("tonnage_cycles_total").get('tonnage_cycles_total{result="failed"}', 0.0) == 0.0
