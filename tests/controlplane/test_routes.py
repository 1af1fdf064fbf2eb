"""Routes of a service on a real API server with the projects' own definitions: in step with its mix, gone with it."""

import json
from pathlib import Path
from typing import Any

from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.operators import ROOT, operator, until
from tests.controlplane.servers import StartServer
from tests.controlplane.test_service_phases import nodes, service
from tests.unit.placement.mix.test_phases import fleet

DEFINITIONS = Path(__file__).parent / "definitions"
KINDS = ("httproutes.gateway.networking.k8s.io", "inferencepools.inference.networking.k8s.io")


def test_a_route_and_its_pools_follow_the_mix_are_repaired_and_end_with_the_service(
    start_server: StartServer, programs: Programs, tmp_path: Path
) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes()}))
    server = start_server(ControlPlaneSettings(manifests=str(tmp_path / "nodes.json")))
    admin = Kubectl(programs["kubectl"], server.kubeconfig)
    admin("apply", "-f", str(ROOT / "deploy" / "crds"))
    for each in KINDS:
        admin("create", "-f", str(DEFINITIONS / f"{each}.yaml"))
        admin.wait("condition=Established", f"crd/{each}")
    for crd in ("gputypes", "modelprofiles", "modelservices"):
        admin.wait("condition=Established", f"crd/{crd}.tonnage.dev")
    admin("create", "namespace", "tonnage-system")
    for each in fleet(ttft="500ms", whole=2.0)[:-1]:
        admin("apply", "-f", "-", stdin=each)

    def backends() -> dict[str, int]:
        routes = admin.get("httproutes")["items"]
        rules = [rule for each in routes for rule in each["spec"]["rules"]]
        return {ref["name"]: ref["weight"] for rule in rules for ref in rule["backendRefs"]}

    def pods_of(pool: str) -> set[str]:
        """Types of the instances that a pool selects."""
        chosen: dict[str, Any] = admin.get("inferencepool", pool)["spec"]["selector"]["matchLabels"]
        selector = ",".join(f"{key}={value}" for key, value in chosen.items())
        return {each["metadata"]["name"].rsplit("-", 2)[0] for each in admin.get("pods", "-l", selector)["items"]}

    with operator(server.kubeconfig, tmp_path, pools=[{"placer": "bind"}], routes=True) as process:
        routes = {"gateway": "infra/inference", "hostnames": ["s.example.com"], "picker": "s-epp"}
        admin("apply", "-f", "-", stdin=service(routes=routes))
        admin.wait("condition=Ready", "modelservice/s")
        until(lambda: backends() == {"s-decode-cheap": 1000}, "requests go to the instances of decode")
        assert pods_of("s-decode-cheap") == {"s-decode-cheap"}
        (route,) = admin.get("httproutes")["items"]
        assert route["spec"]["parentRefs"][0]["namespace"] == "infra"
        assert route["metadata"]["ownerReferences"][0]["name"] == "s"

        # Without phases whole requests are served by instances of another type.
        admin("patch", "modelservice", "s", "--type=merge", "-p", json.dumps({"spec": {"phases": None}}))
        until(lambda: backends() == {"s-dear": 1000}, "the route follows the mix")
        assert pods_of("s-dear") == {"s-dear"}

        admin("delete", "httproute", "s")
        until(lambda: backends() == {"s-dear": 1000}, "a route that somebody deleted is there again", within_s=90)

        # Of what is there under such names and labels, all that Tonnage wrote goes with the spec's routes, and no more.
        other = {**route, "metadata": {"name": "other", "namespace": "default"}}
        admin("apply", "-f", "-", stdin=other)
        written = admin.get("inferencepool", "s-dear")
        labels = {"tonnage.dev/service": "s"}  # as somebody's own may have, who tells their pools by it
        mine = {**written, "metadata": {"name": "mine", "namespace": "default", "labels": labels}}
        admin("apply", "-f", "-", stdin=mine)
        admin("patch", "modelservice", "s", "--type=merge", "-p", json.dumps({"spec": {"routes": None}}))

        def left() -> list[str]:
            return [each["metadata"]["name"] for kind in KINDS for each in admin.get(kind)["items"]]

        until(lambda: left() == ["other", "mine"], "the route and its pools are gone with spec.routes")
        admin("delete", "httproute", "other")
        admin("delete", "inferencepool", "mine")
        admin("patch", "modelservice", "s", "--type=merge", "-p", json.dumps({"spec": {"routes": routes}}))
        until(lambda: backends() == {"s-dear": 1000}, "and are there again with them")

        admin("delete", "modelservice", "s")
        until(lambda: not admin.get("httproutes")["items"] and not admin.get("inferencepools")["items"],
              "routes and pools are gone with the service")  # fmt: skip
        assert process.counted("tonnage_cycles_total").get('tonnage_cycles_total{result="failed"}', 0.0) == 0.0
