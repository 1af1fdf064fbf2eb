"""Several models behind one service, adapters, and models that nobody measured, on a real API server."""

import json
from pathlib import Path
from typing import Any

from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import GPU
from tests.controlplane.operators import ROOT, operator, until
from tests.controlplane.servers import StartServer
from tests.mix_exact.phases import own
from tests.unit.placement.mix.test_models import PRICES, QUALITY, RATES, fleet

H100 = "NVIDIA-H100-80GB-HBM3"


def nodes() -> list[dict[str, Any]]:
    made = []
    for name, product in (("n0", "l4"), ("n1", "h100"), ("n2", H100), ("n3", H100)):
        metadata = {"name": name, "labels": {"nvidia.com/gpu.product": product}}
        has = {"cpu": "96", "memory": "1Ti", GPU: "8"}
        made.append({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": has}})
    return made


def template(*args: str, variants: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    container = {"name": "server", "image": "example.com/none", "args": list(args)}
    return {
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
        **({"variants": variants} if variants else {}),
    }


def test_models_adapters_and_estimates_run_as_their_mix_says(
    start_server: StartServer, programs: Programs, tmp_path: Path
) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes()}))
    server = start_server(ControlPlaneSettings(manifests=str(tmp_path / "nodes.json")))
    admin = Kubectl(programs["kubectl"], server.kubeconfig)
    admin("apply", "-f", str(ROOT / "deploy" / "crds"))
    for crd in ("gputypes", "modelprofiles", "modelservices"):
        admin.wait("condition=Established", f"crd/{crd}.tonnage.dev")
    admin("create", "namespace", "tonnage-system")
    variants = [{"model": "large", "args": ["--quantization=fp8"]}]
    args = ("--model=$(TONNAGE_MODEL)", "--lora-modules", "$(TONNAGE_ADAPTERS)")
    quality = {"of": QUALITY, "mean": 0.75}
    *objects, service = fleet(RATES, PRICES, quality=quality, adapters=["a=/a", "b=/b"])
    service["spec"]["template"] = template(*args, variants=variants)
    unmeasured = own("GPUType", "big", nodeLabel={"values": [H100]}, memory="80Gi", pricePerHour={"onDemand": 7.5})
    for each in (*objects, unmeasured):
        admin("apply", "-f", "-", stdin=each)

    def status(name: str = "s") -> dict[str, Any]:
        found: dict[str, Any] = admin.get("modelservice", name).get("status", {})
        return found

    def containers(model: str) -> list[dict[str, Any]]:
        items = admin.get("pods", "-l", f"tonnage.dev/service=s,tonnage.dev/model={model}")["items"]
        return [each["spec"]["containers"][0] for each in items]

    with operator(server.kubeconfig, tmp_path, pools=[{"placer": "bind"}]) as process:
        admin("apply", "-f", "-", stdin=service)
        admin.wait("condition=Ready", "modelservice/s")
        assert status()["replicas"] == status()["running"] == {"small/l4": 2, "large/h100": 2}
        assert status()["costPerHour"] == 18.0
        assert {each["phase"] for each in status()["routing"]["weights"]} == {"small", "large"}
        names = {each["metadata"]["name"] for each in admin.get("deployments")["items"]}
        assert names == {"s-small-l4", "s-large-h100"}
        (small, _), (large, _) = containers("small"), containers("large")
        assert small["args"] == ["--model=$(TONNAGE_MODEL)", "--lora-modules", "a=/a", "b=/b"]
        assert large["args"] == [*small["args"], "--quantization=fp8"]
        assert {e["name"]: e["value"] for e in large["env"]} == {
            "TONNAGE_ADAPTERS": "a=/a b=/b",
            "TONNAGE_MODEL": "large",
        }

        # All models are equally good: the cheap one answers all, and the other one's instances stop.
        admin("patch", "modelservice", "s", "--type=merge", "-p", json.dumps({"spec": {"quality": None}}))
        until(lambda: status().get("running") == {"small/l4": 5}, "the cheapest model answers all")
        admin.wait("condition=Ready", "modelservice/s")

        # A model that nobody measured is served at once, and says by what.
        guess = own("ModelService", "guess", model="never-measured", slo={"tpot": "60ms"}, template=template("--x"),
                    demand=service["spec"]["demand"])  # fmt: skip
        admin("apply", "-f", "-", stdin=guess)
        admin.wait("condition=Ready", "modelservice/guess")
        admin.wait("condition=ProfileEstimated", "modelservice/guess")
        assert sum(status("guess")["running"].values()) > 0
        (told,) = (each for each in status("guess")["conditions"] if each["type"] == "ProfileEstimated")
        assert "assumed size of 70 billion" in told["message"]
        assert process.counted("tonnage_cycles_total").get('tonnage_cycles_total{result="failed"}', 0.0) == 0.0
