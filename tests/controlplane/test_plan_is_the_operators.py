"""`tonnage plan` on a real API server is what the operator then does in its next cycle."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cli.inputs.planning import Planned
from cli.main import tonnage
from cli.printing.plan_output import document
from cli.verbs.bundle import bundle_at
from cluster.actions import ACTIONS
from controller.api.notation import instant
from controller.settings import settings_from
from simulator.controlplane.binaries import Programs
from simulator.controlplane.server import ControlPlane
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import pod
from tests.controlplane.operators import ROOT, OperatorProcess, operator, until
from tests.controlplane.servers import StartServer, example_server, kubectl_with_kinds

pytestmark = pytest.mark.controlplane

EXAMPLES = ROOT / "examples"
GATED = {"schedulingGates": [{"name": "tonnage.dev/placement"}]}
LONG_AGO = "2026-01-01T00:00:00Z"
SETTINGS: dict[str, Any] = {"pools": [{"placer": "gate"}], "release_deadline_s": 8.0}
"""Where they are not the defaults, which `operator` shortens for other tests, they would be seen to differ."""

Deed = tuple[str, str]
"""Section of the plan, and the action in it as JSON."""


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> ControlPlane:
    """A server of the module's own: plans are made for all that is in it."""
    return example_server(start_server)


@pytest.fixture(scope="module")
def kubectl(server: ControlPlane, programs: Programs) -> Kubectl:
    """As administrator; kinds, examples and the settings of an operator are there, as the chart stores them."""
    kubectl = kubectl_with_kinds(server, programs)
    kubectl("create", "namespace", "tonnage-system")
    kubectl("apply", "-f", str(EXAMPLES / "gpu-types.yaml"), "-f", str(EXAMPLES / "profiles.yaml"))
    labels = {"app.kubernetes.io/name": "tonnage", "app.kubernetes.io/component": "controller"}
    metadata = {"name": "tonnage-settings", "namespace": "tonnage-system", "labels": labels}
    stored = {"metadata": metadata, "data": {"settings.yaml": yaml.safe_dump(SETTINGS)}}
    kubectl.within("tonnage-system")("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "ConfigMap", **stored})
    return kubectl


def deeds(plan: dict[str, Any]) -> set[Deed]:
    """The actions of a plan as `tonnage plan -o json` prints it, whatever their order and their reasons."""
    sections = [kind.section for kind in ACTIONS]
    return {
        (section, json.dumps({name: value for name, value in each.items() if name != "reason"}, sort_keys=True))
        for section in sections
        for each in plan.get(section, ())
    }


def planned(server: ControlPlane) -> set[Deed]:
    result = CliRunner().invoke(tonnage, ["plan", "-o", "json", "--kubeconfig", str(server.kubeconfig)])
    assert result.exit_code == 0, result.output
    assert "the operator's settings from ConfigMap/tonnage-system/tonnage-settings" in result.stderr
    return deeds(json.loads(result.stdout))


def first_cycle(process: OperatorProcess) -> set[Deed]:
    """What the operator did in its first cycle, from its record."""
    started = process.said("started")
    assert started is not None
    address = f"http://127.0.0.1:{started['probe_port']}"
    until(lambda: bundle_at(address, 10.0).entries, "a cycle is recorded")
    first = next(bundle_at(address, 10.0).cycles())
    return deeds(document(Planned(first.snapshot, first.guarded, settings_from({}))))


def in_gang(name: str, gang: str, **spec: Any) -> dict[str, Any]:
    member = pod(name, **spec)
    member["metadata"]["labels"] = {"tonnage.dev/gang": gang}
    return member


def gang(name: str, members: int) -> dict[str, Any]:
    meta = {"metadata": {"name": name}, "spec": {"minMembers": members}}
    return {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Gang", **meta}


def chat() -> dict[str, Any]:
    """The `chat` service of the examples, with a template to make pods of."""
    documents = yaml.safe_load_all((EXAMPLES / "services.yaml").read_text(encoding="utf-8"))
    found: dict[str, Any] = next(each for each in documents if each["metadata"]["name"] == "chat")
    template = {"spec": {"containers": [{"name": "server", "image": "example.com/none"}]}}
    return {**found, "spec": {**found["spec"], "template": template}}


def test_what_waits_is_placed_and_services_are_scaled_as_planned(
    server: ControlPlane, kubectl: Kubectl, tmp_path: Path
) -> None:
    foreign = pod("foreign", gpus=1, schedulerName="another")
    objects = [chat(), gang("train", 3), pod("single", gpus=2, **GATED), foreign]
    for each in (*objects, *(in_gang(f"train-{n}", "train", gpus=8, **GATED) for n in range(3))):
        kubectl("create", "-f", "-", stdin=each)

    plan = planned(server)
    with operator(server.kubeconfig, tmp_path, **SETTINGS) as process:
        done = first_cycle(process)
        kubectl.wait("condition=Ready", "modelservice/chat")

    assert {section for section, _ in plan} == {"scale", "placements"}
    assert len([section for section, _ in plan if section == "placements"]) == 4  # not the pod of another scheduler
    assert plan == done


def test_what_has_stood_for_too_long_is_stopped_as_planned_by_a_leader_that_has_just_begun(
    server: ControlPlane, kubectl: Kubectl, tmp_path: Path
) -> None:
    """Half a gang runs and the rest fits nowhere; a released pod fits no node; the service changed a moment ago."""
    ours = {"tonnage.dev/node": "l4-2"}
    halves = [in_gang(f"half-{n}", "half", gpus=1, nodeName="l4-2", annotations=ours) for n in range(2)]
    wide = [in_gang(f"half-{n}", "half", gpus=64, **GATED) for n in (2, 3)]
    placed = {"tonnage.dev/node": "l4-3", "tonnage.dev/movable": "true"}
    nowhere = {"nodeSelector": {"kubernetes.io/hostname": "l4-3", "example.com/no": "such"}}
    stuck = pod("stuck", gpus=1, annotations=placed, **nowhere)
    kubectl("create", "configmap", "owner")
    whose = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "controller": True}
    stuck["metadata"]["ownerReferences"] = [whose | {"uid": kubectl.get("configmap", "owner")["metadata"]["uid"]}]
    for each in (gang("half", 4), *halves, *wide, stuck):
        kubectl("create", "-f", "-", stdin=each)
    # Instants from before the pod do not count, so this one is its creation, and the deadline passes since then.
    released = kubectl.get("pod", "stuck")["metadata"]["creationTimestamp"]
    kubectl("annotate", "pod", "stuck", f"tonnage.dev/placed-at={released}")
    since = json.dumps({"status": {"halfStartedSince": LONG_AGO}})
    kubectl("patch", "gang", "half", "--subresource=status", "--type=merge", "-p", since)
    until(lambda: time.time() > instant(released) + SETTINGS["release_deadline_s"], "the deadline passes")

    plan = planned(server)
    with operator(server.kubeconfig, tmp_path, **SETTINGS) as process:
        done = first_cycle(process)

    assert plan == {
        ("evictions", json.dumps({"node": "l4-2", "pod": "default/half-0"})),
        ("evictions", json.dumps({"node": "l4-2", "pod": "default/half-1"})),
        ("evictions", json.dumps({"node": "l4-3", "pod": "default/stuck"})),
    }
    assert plan == done
