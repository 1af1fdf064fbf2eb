"""Objects of one tenant on a real API server that once stopped, or slowed, the placing of everybody's pods."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from controller.api.foreign_kinds import KAI
from controller.snapshot.scalers import MOST_POLICIES
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.builders import groups
from tests.builders.manifests import OURS
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import GPU, pod
from tests.controlplane.operators import ROOT, OperatorProcess, create_all, operator, until
from tests.controlplane.servers import StartServer
from tests.controlplane.test_groups import definition, listed
from tests.controlplane.test_operator import chat

pytestmark = pytest.mark.controlplane

Object = dict[str, Any]


def nodes() -> Iterator[Object]:
    """Forty nodes, each with a taint of its own that nothing here needs to tolerate."""
    for number in range(40):
        labels = {"nvidia.com/gpu.product": "NVIDIA-L4"}
        has = {"cpu": "96", "memory": "1Ti", GPU: "8"}
        taints = [{"key": "of", "value": f"n{number}", "effect": "PreferNoSchedule"}]
        metadata, spec = {"name": f"n{number}", "labels": labels}, {"taints": taints}
        yield {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": {"allocatable": has}}


@pytest.fixture(scope="module")
def admin(start_server: StartServer, programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    manifests = tmp_path_factory.mktemp("tenants") / "nodes.yaml"
    manifests.write_text(yaml.safe_dump_all(nodes()), encoding="utf-8")
    kubectl = Kubectl(programs["kubectl"], start_server(ControlPlaneSettings(manifests=str(manifests))).kubeconfig)
    kubectl("apply", "-f", str(ROOT / "deploy" / "crds"))
    kubectl("create", "namespace", "tonnage-system")
    kubectl("create", "-f", "-", stdin=definition(KAI))
    kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    kubectl("apply", "-f", str(ROOT / "examples" / "gpu-types.yaml"), "-f", str(ROOT / "examples" / "profiles.yaml"))
    return kubectl


@pytest.fixture(scope="module")
def process(admin: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    with operator(admin.kubeconfig, tmp_path_factory.mktemp("operator"), pools=[{"placer": "bind"}]) as process:
        yield process


@pytest.fixture
def tenant(admin: Kubectl, process: OperatorProcess, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """kubectl in a namespace of the tenant's own; what the tenant did harmed nobody by the end."""
    name = "t" + str(abs(hash(request.node.name)))[:8]
    admin("create", "namespace", name)
    yield admin.within(name)
    canary = pod("canary", gpus=1, schedulerName="tonnage", terminationGracePeriodSeconds=0)
    admin.within("default")("create", "-f", "-", stdin=canary)
    until(lambda: "nodeName" in admin.within("default").get("pod", "canary")["spec"], "somebody else's pod is placed")
    assert process.counted("tonnage_cycles_total").get('tonnage_cycles_total{result="failed"}', 0.0) == 0.0
    assert process.probe("/readyz") == 200
    admin.within("default")("delete", "pod", "canary")
    admin("delete", "namespace", name)


def nested(obj: Object, levels: int, path: Path) -> str:
    """File with the object, in which this many levels stand in place of the text DEEP."""
    written = json.dumps(obj).replace('"DEEP"', '{"a":' * levels + "1" + "}" * levels)
    path.write_text(written, encoding="utf-8")
    return str(path)


def refused(kubectl: Kubectl, kind: str, name: str) -> str:
    """Note of the Event that refuses an object; empty while there is none."""
    events = kubectl.get("events.events.k8s.io")["items"]
    about = {"reason": "BadInput", "kind": kind, "name": name}
    notes = [
        each["note"] for each in events if {"reason": each["reason"], **each["regarding"]}.items() >= about.items()
    ]
    return str(notes[0]) if notes else ""


@pytest.mark.parametrize("levels", [600, 2_000])
def test_a_service_that_nests_too_deep_is_refused_alone(tenant: Kubectl, levels: int, tmp_path: Path) -> None:
    """600 levels ended each cycle, and 1,000 the task of all watches."""
    deep = chat()
    deep["spec"]["template"]["spec"]["containers"][0]["more"] = "DEEP"

    tenant("create", "-f", nested(deep, levels, tmp_path / "deep.json"))
    tenant("create", "-f", "-", stdin=chat() | {"metadata": {"name": "right"}})

    until(lambda: refused(tenant, "ModelService", "chat"), "an Event refuses it")
    tenant.wait("condition=Accepted=False", "modelservice/chat")
    # Python's own reader of JSON does not go as deep.
    shown = tenant("get", "modelservice", "chat", "-o", 'jsonpath={.status.conditions[?(@.type=="Accepted")]}')
    accepted = json.loads(shown)
    assert (accepted["status"], accepted["reason"]) == ("False", "BadInput")
    assert accepted["message"] == "spec: has more than 100 levels"
    tenant.wait("condition=Ready", "modelservice/right")


@pytest.mark.parametrize("levels", [600, 2_000])
def test_a_group_whose_object_nests_too_deep_starts_as_any_other(tenant: Kubectl, levels: int, tmp_path: Path) -> None:
    owner = groups.pod_group(KAI.api_versions[0], least=4)
    owner["spec"]["more"] = "DEEP"
    tenant("create", "-f", nested(owner, levels, tmp_path / "deep.json"))

    tenant("create", "-f", "-", stdin=listed(member(number) for number in range(4)))

    until(lambda: all("nodeName" in each["spec"] for each in tenant.get("pods")["items"]), "all four are placed")


def member(number: int) -> Object:
    made = pod(f"train-{number}", gpus=1, schedulerName="tonnage", terminationGracePeriodSeconds=0)
    made["metadata"]["annotations"] = {"pod-group-name": "train"}
    return made


MANY = 3_000
TERM = {"matchExpressions": [{"key": "k", "operator": "Exists"}]}
DEAR: dict[str, Object] = {
    # The API server adds two, for nodes that are not ready or not reached.
    "has 3002 tolerations": {"tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in range(MANY)]},
    # Each of 3,000 terms has the whole selector: 3,000 × (2 × 3,000 + 1).
    "has 18003000 requirements and values": {
        "nodeSelector": {f"k{n}": "v" for n in range(MANY)},
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM] * MANY}}
        },
    },
}


@pytest.mark.parametrize("says", DEAR)
def test_pods_with_thousands_of_constraints_are_refused_whether_they_wait_or_run(
    tenant: Kubectl, process: OperatorProcess, says: str
) -> None:
    """Ten that ran took a minute and 2 GB to read, and ten that waited took seconds of every plan."""
    waits = [pod(f"waits-{n}", gpus=1, schedulerName="tonnage", **DEAR[says]) for n in range(10)]
    runs = [pod(f"runs-{n}", nodeName=f"n{n}", terminationGracePeriodSeconds=0, **DEAR[says]) for n in range(10)]

    tenant("create", "-f", "-", stdin=listed([*waits, *runs]))

    until(lambda: says in refused(tenant, "Pod", "waits-0"), "an Event refuses one that waits")
    assert not any("nodeName" in tenant.get("pod", f"waits-{n}")["spec"] for n in range(10))
    assert resident_mb(process) < 400


def resident_mb(process: OperatorProcess) -> float:
    status = Path(f"/proc/{process.process.pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def scaled(target: Object, **more: Any) -> Object:
    spec = {"target": target, "maxReplicas": 5, "demand": {"sources": [{"push": {}}]}, "capacity": {"perReplica": 1}}
    metadata = {"name": target["name"]}
    return {"apiVersion": OURS, "kind": "ScalingPolicy", "metadata": metadata, "spec": {**spec, **more}}


def test_a_policy_whose_target_asks_for_absurdly_many_replicas_takes_no_memory(
    tenant: Kubectl, process: OperatorProcess
) -> None:
    """A paused Deployment has no pod. Each replica that was awaited had an instant in a list, 17 GB of them."""
    labels = {"app": "vast"}
    template = {"metadata": {"labels": labels}, "spec": pod("vast")["spec"]}
    spec = {"replicas": 2**31 - 1, "paused": True, "selector": {"matchLabels": labels}, "template": template}
    vast = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "vast"}, "spec": spec}
    policy = scaled({"apiVersion": "apps/v1", "kind": "Deployment", "name": "vast"})

    tenant("create", "-f", "-", stdin=listed([vast, policy]))

    tenant.wait("condition=Ready=False", "scalingpolicy/vast")
    until(lambda: "TargetTooLarge" in ready(tenant, "vast"), "the policy says why it decides nothing")
    assert resident_mb(process) < 400


def test_of_very_many_policies_of_a_namespace_the_first_are_evaluated_and_have_metrics(
    tenant: Kubectl, process: OperatorProcess
) -> None:
    """Thousands took seconds of every cycle, and a dozen series each."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"}
    many = [scaled(target) | {"metadata": {"name": f"p{n:03}"}} for n in range(MOST_POLICIES + 1)]

    tenant("create", "-f", "-", stdin=listed(many))

    until(lambda: ready(tenant, "p256") == "NamespaceBoundExceeded", "the last says why it is not evaluated")
    until(lambda: ready(tenant, "p000") == "TargetNotFound", "the first is evaluated")
    assert len(process.counted("tonnage_scaling_metrics_missing")) <= MOST_POLICIES + 1  # that of the other test, too


def ready(kubectl: Kubectl, policy: str) -> str:
    """Reason of the condition Ready of a ScalingPolicy."""
    conditions = kubectl.get("scalingpolicy", policy).get("status", {}).get("conditions", [])
    return next((str(each["reason"]) for each in conditions if each["type"] == "Ready"), "")


def test_pods_that_name_a_group_with_a_name_longer_than_names_are_refused(tenant: Kubectl) -> None:
    """Each reason and Event about the group repeated the 200 kB."""
    long = pod("long", gpus=1, annotations={"pod-group-name": "x" * 200_000}, schedulerName="tonnage")

    tenant("create", "-f", "-", stdin=long)

    until(lambda: "name a group with" in refused(tenant, "Pod", "long"), "an Event refuses it")
    assert len(refused(tenant, "Pod", "long")) < 400


def test_a_gang_of_absurd_size_lifts_no_pod_over_the_quota_of_its_namespace(tenant: Kubectl) -> None:
    """Ten times 2^50 devices of 1000 thousandths each are more than 64 bits hold: the sum was negative."""
    quota = {"hard": {"tonnage.dev/gpu-milli": "1000"}}
    tenant(
        "create",
        "-f",
        "-",
        stdin={"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}, "spec": quota},
    )
    gang = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Gang", "metadata": {"name": "absurd"}}
    tenant("create", "-f", "-", stdin={**gang, "spec": {"minMembers": 10}})
    members = [pod(f"absurd-{n}", gpus=2**50, schedulerName="tonnage") for n in range(10)]
    for each in members:
        each["metadata"]["labels"] = {"tonnage.dev/gang": "absurd"}
    tenant("create", "-f", "-", stdin=listed(members))
    until(lambda: len(tenant.get("pods")["items"]) == 10, "the gang is there")

    more = [pod(f"more-{n}", gpus=1, schedulerName="tonnage", terminationGracePeriodSeconds=0) for n in range(3)]
    tenant("create", "-f", "-", stdin=listed(more))

    def waits() -> list[str]:
        events = tenant.get("events.events.k8s.io")["items"]
        return [each["regarding"]["name"] for each in events if "QuotaExceeded" in each["note"]]

    until(lambda: len({name for name in waits() if name.startswith("more-")}) == 2, "two of three are past the quota")
    placed = [f"more-{n}" for n in range(3) if "nodeName" in tenant.get("pod", f"more-{n}")["spec"]]
    assert len(placed) == 1


def test_a_service_that_a_finalizer_keeps_from_its_end_holds_no_stock(
    tenant: Kubectl, process: OperatorProcess
) -> None:
    """It was planned as any other, so that its mix stood in the way of everybody else's, and each plan wrote a line."""
    kept = asking(100, "kept") | {"metadata": {"name": "kept", "finalizers": ["example.com/never"]}}
    tenant("create", "-f", "-", stdin=kept)
    tenant.wait("condition=Planned", "modelservice/kept")

    tenant("delete", "modelservice", "kept", "--wait=false")
    tenant("delete", "deployment", "--all")
    # 100 requests per second are 175 of 320 devices.
    tenant("create", "-f", "-", stdin=asking(100, "other"))

    tenant.wait("condition=Ready", "modelservice/other")
    lines = len(process.lines)
    tenant("create", "-f", "-", stdin=pod("one", gpus=1, schedulerName="tonnage", terminationGracePeriodSeconds=0))
    until(lambda: "nodeName" in tenant.get("pod", "one")["spec"], "further plans were carried out")
    assert "action not done" not in [line.get("event") for line in process.lines[lines:]]
    tenant("patch", "modelservice", "kept", "--type=merge", "-p", '{"metadata": {"finalizers": null}}')


def asking(rate: float, name: str) -> Object:
    """A service with so many requests per second, which the nodes here serve."""
    made = chat(gpuTypes=["l4"])
    return {
        **made,
        "metadata": {"name": name},
        "spec": {**made["spec"], "demand": made["spec"]["demand"] | {"requestsPerSecond": rate}},
    }


def test_2500_objects_of_one_namespace_delay_nobody_elses_pods(admin: Kubectl, tenant: Kubectl) -> None:
    waits_s, others = [], admin.within("default")
    made = [
        {
            "apiVersion": OURS,
            "kind": "Gang",
            "metadata": {"name": f"many-{n:04d}", "namespace": tenant.namespace},
            "spec": {"minMembers": 2},
        }
        for n in range(2500)
    ]
    path = f"/apis/{OURS}/namespaces/{tenant.namespace}/gangs"
    creating = Thread(target=create_all, args=(admin.kubeconfig, path, made))
    creating.start()
    told = 0
    while told < len(made):
        name = f"canary-{len(waits_s)}"
        others("create", "-f", "-", stdin=pod(name, gpus=1, schedulerName="tonnage", terminationGracePeriodSeconds=0))
        began_s = time.monotonic()
        until(lambda: "nodeName" in others.get("pod", name)["spec"], "somebody else's pod is placed")  # noqa: B023
        waits_s.append(time.monotonic() - began_s)
        others("delete", "pod", name)
        told = sum("status" in each for each in tenant.get("gangs")["items"])
    creating.join()

    p95_s = sorted(waits_s)[int(0.95 * len(waits_s))]
    print(f"{len(waits_s)} canaries beside 2,500 objects: p95 {p95_s:.2f} s")  # noqa: T201 - the figure, with `-s`
    assert len(waits_s) >= 5
    assert p95_s <= 5.0, waits_s
