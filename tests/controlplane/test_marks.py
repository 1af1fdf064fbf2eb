"""Admission policies on a real API server: what only Tonnage may say of a pod, and all that Tonnage may change."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.actions import Bind
from controller.api.structs import Pod, object_from
from controller.kube.sender import Stamp
from controller.kube_world.cached_view import seen_pod
from controller.placers import NodePool, placing_writes
from simulator.controlplane.server import ControlPlane
from tests.controlplane.manifests import pod
from tests.controlplane.operators import FENCE, until
from tests.controlplane.plain_api import MERGE_PATCH, Answer, PlainApi

pytestmark = pytest.mark.controlplane

TONNAGE = "system:serviceaccount:tonnage-system:tonnage"
GATED = {"schedulingGates": [{"name": "tonnage.dev/placement"}]}
MARKS = {"tonnage.dev/node": "a", "tonnage.dev/devices": "0", "tonnage.dev/epoch": "1", "tonnage.dev/placed-at": "x"}
REQUIRED, PREFERRED = (f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred"))
SSD = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


class Namespace:
    """One namespace as a tenant and as Tonnage see it; pods have names of their own."""

    def __init__(self, kubeconfig: Path, name: str) -> None:
        self.name = name
        self.tenant, self.tonnage = PlainApi(kubeconfig, "tenant"), PlainApi(kubeconfig, TONNAGE)
        self._made = 0

    def path(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.name}/pods" + (f"/{name}" if name else "")

    def deployment(self, name: str) -> str:
        return f"/apis/apps/v1/namespaces/{self.name}/deployments/{name}"

    def deploy(self, who: PlainApi, name: str, owners: Sequence[Mapping[str, Any]] = ()) -> Answer:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("p")["spec"]}
        spec = {"selector": {"matchLabels": {"a": "b"}}, "replicas": 0, "template": template}
        metadata = {"name": name, "ownerReferences": list(owners)}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
        return who.send("POST", self.deployment("").rstrip("/"), body)

    def create(self, annotations: Mapping[str, str] | None = None, gpus: int = 0, **spec: Any) -> tuple[str, Answer]:
        """A pod of the tenant's: (name, answer)."""
        self._made += 1
        made = pod(f"p{self._made}", gpus=gpus, annotations=annotations, **{"schedulerName": "nobody", **spec})
        return made["metadata"]["name"], self.tenant.send("POST", self.path(), made)

    def created(self, annotations: Mapping[str, str] | None = None, gpus: int = 0, **spec: Any) -> str:
        name, answer = self.create(annotations, gpus, **spec)
        assert answer.is_ok, answer.message
        return name

    def annotate(self, who: PlainApi, name: str, what: Mapping[str, str | None], sub: str = "") -> Answer:
        body = {"metadata": {"annotations": dict(what)}}
        return who.send("PATCH", self.path(name) + sub, body, content_type=MERGE_PATCH)

    def release(self, name: str, **more: Any) -> Answer:
        """Tonnage's own patch; `more` are further fields of the pod."""
        pin = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}
        affinity = {"nodeAffinity": {REQUIRED: pin}}
        spec = {"schedulingGates": [], "affinity": affinity, **more.pop("spec", {})}
        metadata = {"annotations": MARKS, **more.pop("metadata", {})}
        return self.tonnage.send("PATCH", self.path(name), {"metadata": metadata, "spec": spec},
                                 content_type=MERGE_PATCH)  # fmt: skip


def install(admin: PlainApi, namespace: str) -> list[str]:
    """Policies of the chart in one namespace, so that other tests on this server do not meet them."""
    made = []
    for name in ("marks", "own-pods", "own-deployments"):
        policy, binding = yaml.safe_load_all((FENCE / f"{name}.yaml").read_text(encoding="utf-8"))
        for each in (policy, binding):
            each["metadata"]["name"] += f"-{namespace}"
        binding["spec"]["policyName"] = policy["metadata"]["name"]
        there = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
        binding["spec"]["matchResources"] = there
        for path, each in ((POLICIES, policy), (f"{POLICIES[:-3]}ybindings", binding)):
            answer = admin.send("POST", path, each)
            assert answer.is_ok, answer.message
            made.append(f"{path}/{each['metadata']['name']}")
    return made


@pytest.fixture(scope="module")
def here(control_plane: ControlPlane, namespace: str) -> Iterator[Namespace]:
    found = Namespace(control_plane.kubeconfig, namespace)
    installed = install(found.tenant, namespace)
    until(lambda: refused(found.create(MARKS)[1]), "the policy on marks is in force")
    until(lambda: refused(found.release(found.created(**GATED), metadata={"labels": {"a": "b"}})), "so is that on pods")
    never = count()
    until(lambda: refused(found.deploy(found.tonnage, f"never{next(never)}")), "and that on deployments")
    yield found
    for path in installed:
        found.tenant.send("DELETE", path)
    for each in (found.tenant, found.tonnage):
        each.close()


def refused(answer: Answer, words: str = "") -> bool:
    return not answer.is_ok and "ValidatingAdmissionPolicy" in answer.message and words in answer.message


def test_nobody_but_tonnage_reserves_a_device_with_annotations(here: Namespace) -> None:
    """S1: pods that nobody schedules, each with the marks of a placed one, would take every GPU of the fleet."""
    for mark in MARKS:
        assert refused(here.create({mark: "0"})[1], mark), mark
    name = here.created(**GATED)
    assert refused(here.annotate(here.tenant, name, MARKS), "tonnage.dev/node")
    assert refused(here.annotate(here.tenant, name, MARKS, "/status"), "tonnage.dev/node")
    binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "a"},
               "metadata": {"name": name, "annotations": MARKS}}  # fmt: skip
    assert refused(here.tenant.send("POST", here.path(name) + "/binding", binding), "tonnage.dev/node")
    assert here.release(name).is_ok
    assert here.annotate(here.tenant, name, {"note": "mine"}).is_ok, "others change the rest of such a pod"
    assert refused(here.annotate(here.tenant, name, {"tonnage.dev/devices": None}), "tonnage.dev/devices")


def test_what_a_pod_asks_of_gpus_stays_once_it_is_placed(here: Namespace) -> None:
    """S3: a running pod of 1000 thousandths that becomes one of 1, or moves to other devices, frees devices in use."""
    name = here.created({"tonnage.dev/gpu-milli": "300", "tonnage.dev/gpu-types": "l4"}, **GATED)
    assert here.annotate(here.tenant, name, {"tonnage.dev/gpu-milli": "400"}).is_ok, "while it waits"
    ungated = {"spec": {"schedulingGates": []}}
    answer = here.tenant.send("PATCH", here.path(name), ungated, content_type=MERGE_PATCH)
    assert refused(answer, "released by Tonnage alone")
    assert here.release(name).is_ok
    for what in ({"tonnage.dev/gpu-milli": "1"}, {"tonnage.dev/gpu-milli": None}, {"tonnage.dev/gpu-types": "a"}):
        assert refused(here.annotate(here.tenant, name, what), "fixed once the pod is placed")
    assert refused(here.annotate(here.tenant, name, {"tonnage.dev/devices": "4"}), "tonnage.dev/devices")
    assert refused(here.annotate(here.tenant, here.created(), {"tonnage.dev/gpu-milli": "1000"}), "wait for Tonnage")


@pytest.mark.parametrize(
    ("annotations", "spec", "words"),
    [
        ({"tonnage.dev/gpu-milli": "1"}, {"gpus": 8, **GATED}, "beside whole GPUs"),
        ({"tonnage.dev/gpu-milli": "1001"}, GATED, "1 to 1000"),
        ({"tonnage.dev/gpu-milli": "0"}, GATED, "1 to 1000"),
        ({"tonnage.dev/gpu-milli": "9" * 5000}, GATED, "1 to 1000"),
        ({"tonnage.dev/gpu-milli": "1000"}, {}, "wait for Tonnage"),
        ({"tonnage.dev/gpu-milli": "1000"}, {"nodeName": "a", "schedulerName": "tonnage"}, "wait for Tonnage"),
        ({"tonnage.dev/gpu-types": ",".join(["a"] * 65)}, GATED, "at most 64"),
        ({"tonnage.dev/gpu-types": "a" * 4097}, GATED, "4096 characters"),
    ],
)
def test_what_a_pod_asks_of_gpus_is_bounded(
    here: Namespace, annotations: dict[str, str], spec: dict[str, Any], words: str
) -> None:
    """S2, S5: a share beside whole GPUs counted as the share alone, and 250 kB of names took half a minute to read."""
    assert refused(here.create(annotations, **spec)[1], words)
    assert here.create({"tonnage.dev/gpu-milli": "1000", "tonnage.dev/gpu-types": ",".join(["a"] * 64)}, **GATED)[
        1
    ].is_ok


def test_tonnage_changes_nothing_of_a_pod_but_its_gate_its_node_and_its_annotations(here: Namespace) -> None:
    others = {"schedulingGates": [*GATED["schedulingGates"], {"name": "kueue.x-k8s.io/admission"}]}
    image = {"containers": [{"name": "main", "image": "example.com/evil"}]}
    tries: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (GATED, {"metadata": {"labels": {"a": "b"}}}, "annotations only"),
        (GATED, {"metadata": {"annotations": {"note": "x"}}}, "annotations only"),
        (GATED, {"metadata": {"finalizers": ["example.com/x"]}}, "annotations only"),
        (GATED, {"spec": image}, "required node affinity and its scheduling gate"),
        (GATED, {"spec": {"activeDeadlineSeconds": 1}}, "required node affinity and its scheduling gate"),
        (GATED, {"spec": {"nodeSelector": {"disk": "ssd"}}}, "required node affinity and its scheduling gate"),
        (GATED, {"spec": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [SSD]}}}}}, "by its name"),
        (GATED, {"spec": {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": SSD}]}}}}, "required"),
        (others, {}, "the scheduling gate tonnage.dev/placement only"),
    ]
    for spec, more, words in tries:
        assert refused(here.release(here.created(**spec), **more), words), more
    assert here.release(here.created(nodeSelector={"pool": "a"}, **GATED)).is_ok


EXISTS = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}, {"key": "n", "operator": "Gt", "values": ["1"]}]}
NOT_B = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["b"]}]}
APART = [{"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone", "matchLabelKeys": ["v"]}]


@pytest.mark.parametrize(
    "affinity",
    [
        {},
        {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": SSD}]}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [SSD, EXISTS, {}, {**SSD, **NOT_B}, NOT_B]}}},
        {"podAntiAffinity": {REQUIRED: APART}, "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [EXISTS]}}},
        {"podAntiAffinity": {REQUIRED: APART}},
    ],
)
def test_a_gated_pod_may_be_tied_to_a_node_whatever_its_affinity(here: Namespace, affinity: dict[str, Any]) -> None:
    """The API server lets the scheduling directives of a gated pod become tighter, in ways that it checks strictly."""
    name = here.created(affinity=affinity, **GATED)
    made = here.tenant.send("GET", here.path(name)).body
    seen = seen_pod(f"{here.name}/{name}", object_from(made, Pod))

    (write,) = placing_writes(seen, Bind(seen.name, "a", ()), {}, [NodePool("gate", {})], Stamp(1, 0.0))
    answer = here.tonnage.send(write.method, write.path, write.body, content_type=MERGE_PATCH)

    assert answer.is_ok, answer.message
    after = answer.body["spec"]["affinity"]
    terms = after["nodeAffinity"].pop(REQUIRED)["nodeSelectorTerms"]
    assert all({"key": "metadata.name", "operator": "In", "values": ["a"]} in t["matchFields"] for t in terms if t)
    before = made["spec"].get("affinity", {})
    before.get("nodeAffinity", {}).pop(REQUIRED, None)
    assert {"nodeAffinity": {}, **before} == after


def test_tonnage_writes_deployments_of_services_only(here: Namespace) -> None:
    owner = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ModelService", "name": "chat", "uid": "1"}
    controller = {**owner, "controller": True}
    for owners in ([], [owner]):
        assert refused(here.deploy(here.tonnage, "d", owners), "of a ModelService only")
    assert here.deploy(here.tonnage, "d", [controller]).is_ok
    scaled = {"spec": {"replicas": 1}, "metadata": {"ownerReferences": [controller]}}
    assert here.tonnage.send("PATCH", here.deployment("d"), scaled, content_type=MERGE_PATCH).is_ok
    assert here.deploy(here.tenant, "theirs").is_ok
    answer = here.tonnage.send("PATCH", here.deployment("theirs"), scaled, content_type=MERGE_PATCH)
    assert refused(answer, "of a ModelService only"), "nor does it adopt those of others"
