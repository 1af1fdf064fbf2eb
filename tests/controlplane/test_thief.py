"""Whoever has the token of Tonnage's account, with every right that the chart may grant: what he reaches on a real
server, compared with the list that is committed here."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.api.kinds import OWN_KINDS
from controller.api.rbac import OPTIONAL, needed
from controller.placers import MODES
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.builders.crd_cases import FULL
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import pod
from tests.controlplane.operators import FENCE, ROOT, until
from tests.controlplane.plain_api import APPLY_PATCH, JSON, MERGE_PATCH, Answer, PlainApi
from tests.controlplane.servers import StartServer

pytestmark = pytest.mark.controlplane

OWN, TENANT, SYSTEM, APART = "tonnage-system", "tenant", "kube-system", "apart"
"""The release's namespace, one that asked for Tonnage, the system's, and one that asked for nothing."""
ACCOUNT = f"system:serviceaccount:{OWN}:tonnage"
POLICIES = ("fence", "marks", "own-pods", "own-deployments", "own-writes", "own-instances", "own-namespaces")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
SERVICE = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ModelService", "name": "chat", "uid": "1", "controller": True}
NODE = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "2"}
AGAIN = {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}
EPOCH = {"tonnage.dev/epoch": "0"}
GATED: dict[str, Any] = {"schedulingGates": [{"name": "tonnage.dev/placement"}], "schedulerName": "nobody"}
Object = dict[str, Any]
METHODS = {"create": "POST", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE", "update": "PUT",
           "get": "GET"}  # fmt: skip
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

ALLOWED = {
    # Its own work, where tenants asked for it. Documented: any pod of theirs may be evicted or bound.
    ("pods/eviction create", TENANT),
    ("pods/binding create", TENANT),
    ("pods patch: the gate", TENANT),
    ("deployments create: of a service", TENANT),
    ("deployments patch: of a service", TENANT),
    ("deployments/scale patch", TENANT),
    *((f"{kind} {verb}: of a service", TENANT) for kind in ("httproutes", "inferencepools")
      for verb in ("create", "deletecollection", "patch")),
    ("configmaps create", TENANT),
    ("configmaps patch", TENANT),
    ("resourceclaims patch", TENANT),
    ("resourceclaims/status patch", TENANT),
    ("resourceclaimtemplates create", TENANT),
    ("resourceclaimtemplates patch", TENANT),
    # Our own objects and words, wherever they are.
    *(("events create: our own", where) for where in (TENANT, SYSTEM, OWN, APART)),
    *(("events patch: our own", where) for where in (TENANT, SYSTEM, OWN, APART)),
    *((f"{kind}/status patch", where) for kind in ("gangs", "modelservices", "scalingpolicies")
      for where in (TENANT, SYSTEM, OWN, APART)),
    # Where Kueue is installed: what its queues are told of seats.
    ("workloads/status patch", TENANT),
    ("admissionchecks/status patch", ""),
    ("configmaps create: saved fits", TENANT),
    ("configmaps patch: saved fits", TENANT),
    # Saved fits and the Lease. A new Lease has no name that a rule could be about.
    ("configmaps create: saved fits", OWN),
    ("configmaps patch: saved fits", OWN),
    ("leases create", OWN),
    ("leases get", OWN),
    ("leases update", OWN),
    # What is in no namespace: of nodes what is ours, and questions.
    ("faultincidents create", ""),
    ("faultincidents delete", ""),
    *((f"{kind}/status patch", "") for kind in ("faultincidents", "gputypes", "healthpolicies", "modelprofiles",
                                                "powerdomains", "sandboxpolicies", "teams")),
    ("nodes patch: our taint", ""),
    ("nodes/status patch: our condition", ""),
    ("tokenreviews create", ""),
    ("subjectaccessreviews create", ""),
}  # fmt: skip
"""What the thief can do: `resource verb: what`, and the namespace, or "" for what is in none."""


KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


def kueues(kind: str) -> dict[str, Any]:
    """Object of a kind of Kueue."""
    return {"apiVersion": KUEUE.removeprefix("/apis/"), "kind": kind, "metadata": {"name": "x"}}


def kueues_definition(kind: str, scope: str) -> dict[str, Any]:
    """Definition of a kind as Kueue's, without its schema."""
    group, plural = "kueue.x-k8s.io", f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1beta2", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/kueue"},
        },
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [version],
        },
    }


@dataclass
class Thief:
    """The account, with all rights of its roles, and an administrator who lays out what he tries to change."""

    admin: PlainApi
    thief: PlainApi
    done: set[tuple[str, str]] = field(default_factory=set)
    tried: set[tuple[str, str, str]] = field(default_factory=set)
    """API group, resource and verb of what was tried."""

    def tries(
        self,
        verb: str,
        path: str,
        body: Any,
        what: str = "",
        kind: str = MERGE_PATCH,
        at: str = "",
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """path: without the namespace, as `/api/v1/pods/x`; at: namespace."""
        where = path.removeprefix("/apis/").removeprefix("/api/").split("/")
        group, rest = ("", where[1:]) if path.startswith("/api/") else (where[0], where[2:])
        resource = "/".join(rest[::2])
        self.tried.add((group, resource, verb))
        method = METHODS[verb]
        by = {"fieldManager": "tonnage-epoch-0"} | ({"force": "true"} if kind == APPLY_PATCH else {})
        whole = inside(path, at)
        answer = self.thief.send(
            method,
            whole,
            body,
            content_type=JSON if method == "POST" else kind,
            query=by if method == "PATCH" else query,
        )
        if answer.is_ok:
            self.done.add((f"{resource} {verb}" + (f": {what}" if what else ""), at))
        return answer

    def lays(self, path: str, body: Any, at: str = "") -> str:
        """Creates an object as administrator. Returns its name."""
        answer = self.admin.send("POST", inside(path, at), body)
        assert answer.is_ok or answer.status == 409, answer.message
        return str(body["metadata"]["name"])


def inside(path: str, namespace: str) -> str:
    if not namespace:
        return path
    parts = path.split("/")
    at = 3 if path.startswith("/api/") else 4
    return "/".join([*parts[:at], "namespaces", namespace, *parts[at:]])


def in_a_namespace(the: Thief, at: str) -> None:
    """Every write that the account may have, on objects of this namespace."""
    pods, deployments = "/api/v1/pods", "/apis/apps/v1/deployments"
    claims, events = "/apis/resource.k8s.io/v1/resourceclaims", "/apis/events.k8s.io/v1/events"
    gated, free = pod("gated", **GATED), pod("free", schedulerName="nobody")
    the.lays(pods, gated, at)
    the.lays(pods, free, at)
    the.tries("patch", f"{pods}/gated", {"metadata": {"labels": {"app": "stolen"}}}, "its labels", at=at)
    evil = {"containers": [{"name": "main", "image": "example.com/evil"}]}
    the.tries("patch", f"{pods}/free", {"metadata": {"annotations": EPOCH}, "spec": evil}, "its image", STRATEGIC_PATCH,
              at)  # fmt: skip
    the.tries("patch", f"{pods}/free", {"metadata": {"annotations": EPOCH}}, "a mark on another's", at=at)
    opened = {"metadata": {"annotations": EPOCH}, "spec": {"schedulingGates": []}}
    the.tries("patch", f"{pods}/gated", opened, "the gate", at=at)
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "free", "annotations": EPOCH},
               "target": {"kind": "Node", "name": NODE["name"]}}  # fmt: skip
    the.tries("create", f"{pods}/free/binding", binding, at=at)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "free", "annotations": EPOCH}}
    the.tries("create", f"{pods}/free/eviction", eviction, at=at)

    theirs = deployment("theirs", [])
    the.lays(deployments, theirs, at)
    the.tries("patch", f"{deployments}/theirs", {"metadata": {"annotations": EPOCH}, "spec": {"replicas": 0}},
              "of others", at=at)  # fmt: skip
    scaled = f"{deployments}/theirs/scale"
    the.tries("patch", scaled, {"spec": {"replicas": 0}}, at=at)
    answer = the.admin.send("PATCH", inside(scaled, at), {"spec": {"replicas": 0}}, content_type=MERGE_PATCH)
    assert answer.is_ok, f"the policies are about Tonnage's account alone: {answer.message}"
    for number, (what, owners, spec) in enumerate(DEPLOYED):
        the.tries("create", deployments, deployment(f"d{number}", owners, **spec), what, at=at)
    # Where creating one was refused there is none to be changed, and an apply would create it.
    applied = deployment("d0", [SERVICE])
    the.tries("patch", f"{deployments}/d0", applied, "of a service", APPLY_PATCH, at)
    applied = deployment("d0", [SERVICE], hostPID=True)
    the.tries("patch", f"{deployments}/d0", applied, "the node's processes", APPLY_PATCH, at)

    for kind, version in ROUTES.items():
        path = f"/apis/{version}/{kind.lower()}s"
        the.lays(path, route(kind, "theirs", []), at)
        the.tries("patch", f"{path}/theirs", route(kind, "theirs", [SERVICE]), "of others", APPLY_PATCH, at)
        for number, (what, owners, _) in enumerate(DEPLOYED[:3]):
            the.tries("create", path, route(kind, f"r{number}", owners), what, at=at)
        the.tries("patch", f"{path}/r0", route(kind, "r0", [SERVICE]), "of a service", APPLY_PATCH, at)
        the.lays(path, route(kind, "ours", [SERVICE]), at)
        for what, name in (("of others", "theirs"), ("of a service", "ours")):
            the.tries("deletecollection", path, None, what, at=at, query={"fieldSelector": f"metadata.name={name}"})
        kept = the.admin.send("GET", inside(f"{path}/theirs", at))
        assert kept.is_ok, "what others wrote is there"

    for word, name in (("", "theirs"), (": saved fits", "tonnage-load-fits-0")):
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        the.tries("create", "/api/v1/configmaps", made, word.removeprefix(": "), at=at)
        if word or at != OWN:
            the.tries("patch", f"/api/v1/configmaps/{name}", made, word.removeprefix(": "), APPLY_PATCH, at)
    if at == OWN:
        the.lays("/api/v1/configmaps", {"metadata": {"name": "tonnage-settings"}, "data": {"settings.yaml": "a"}}, at)
        stolen = {"data": {"settings.yaml": "fenced: false"}}
        the.tries("patch", "/api/v1/configmaps/tonnage-settings", stolen, "its settings", at=at)

    the.lays(claims, {"metadata": {"name": "c"}, "spec": {"devices": {}}}, at)
    marked = {"metadata": {"annotations": EPOCH}}
    the.tries("patch", f"{claims}/c", marked, at=at)
    the.tries("patch", f"{claims}/c/status", {"status": {}}, at=at)
    template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                "metadata": {"name": "t", "annotations": EPOCH}, "spec": {"spec": {"devices": {}}}}  # fmt: skip
    the.tries("create", f"{claims[:-1]}templates", template, at=at)
    the.tries("patch", f"{claims[:-1]}templates/t", template, kind=APPLY_PATCH, at=at)

    the.lays(events, event_of("kubelet", at, "theirs"), at)
    the.tries("patch", f"{events}/theirs", {**marked, "series": AGAIN}, "of others", at=at)
    for what, name in (("our own", "tonnage.dev/controller"), ("in another's name", "kubelet")):
        event = event_of(name, at, name.partition(".")[0])
        the.tries("create", events, event, what, at=at)
        the.tries("patch", f"{events}/{event['metadata']['name']}", {**marked, "series": AGAIN}, what, at=at)

    for kind in (kind for kind in OWN_KINDS if kind.is_namespaced and kind.has_status):
        path = f"/apis/tonnage.dev/v1alpha1/{kind.plural}"
        the.lays(path, {"apiVersion": "tonnage.dev/v1alpha1", "kind": kind.name, "metadata": {"name": "x"},
                        **minimal(kind.name)}, at)  # fmt: skip
        the.tries("patch", f"{path}/x/status", {"status": {"observedGeneration": 1}}, at=at)
    the.lays(f"{KUEUE}/workloads", kueues("Workload"), at)
    the.tries("patch", f"{KUEUE}/workloads/x/status", {"status": {"is": "said"}}, at=at)

    leases = "/apis/coordination.k8s.io/v1/leases"
    the.tries("create", leases, {"metadata": {"name": "stolen"}, "spec": {}}, at=at)
    found = the.tries("get", f"{leases}/tonnage", None, at=at)
    the.tries("update", f"{leases}/tonnage", found.body, kind=JSON, at=at)


def in_none(the: Thief) -> None:
    """Every write on what is in no namespace."""
    of_ours = {"key": "tonnage.dev/quarantine", "effect": "NoSchedule"}
    others = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoExecute"}
    mark = {"metadata": {"annotations": EPOCH}}
    tried: tuple[tuple[str, Object], ...] = (
        ("our taint", {**mark, "spec": {"taints": [of_ours]}}),
        ("a taint of others", {**mark, "spec": {"taints": [of_ours, others]}}),
        ("cordon", {**mark, "spec": {"unschedulable": True}}),
        ("a label", {"metadata": {"annotations": EPOCH, "labels": {"node-role.kubernetes.io/master": ""}}}),
        ("an annotation of others", {"metadata": {"annotations": {**EPOCH, "csi.volume.kubernetes.io/nodeid": "{}"}}}),
    )
    for what, body in tried:
        the.tries("patch", f"/api/v1/nodes/{NODE['name']}", body, what)
    statuses: tuple[tuple[str, Object], ...] = (
        ("our condition", {"conditions": [{"type": "CollectiveHealthy", "status": "False"}]}),
        ("a condition of others", {"conditions": [{"type": "Ready", "status": "False"}]}),
        ("its capacity", {"capacity": {"nvidia.com/gpu": "64"}, "allocatable": {"nvidia.com/gpu": "64"}}),
        ("its addresses", {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}),
    )
    for what, body in statuses:
        the.tries("patch", f"/api/v1/nodes/{NODE['name']}/status", {"status": body}, what, STRATEGIC_PATCH)
    own = "/apis/tonnage.dev/v1alpha1"
    incident = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "FaultIncident", "metadata": {"name": "y"}, "spec": {}}
    the.tries("create", f"{own}/faultincidents", incident)
    for kind in (kind for kind in OWN_KINDS if not kind.is_namespaced and kind.has_status):
        made = {
            "apiVersion": "tonnage.dev/v1alpha1",
            "kind": kind.name,
            "metadata": {"name": "x"},
            **minimal(kind.name),
        }
        the.lays(f"{own}/{kind.plural}", made)
        the.tries("patch", f"{own}/{kind.plural}/x/status", {"status": {"observedGeneration": 1}})
    the.lays(f"{KUEUE}/admissionchecks", kueues("AdmissionCheck"))
    the.tries("patch", f"{KUEUE}/admissionchecks/x/status", {"status": {"is": "said"}})
    the.tries("delete", f"{own}/faultincidents/y", None)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "x"}}
    the.tries("create", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    access = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
              "spec": {"user": "x", "nonResourceAttributes": {"path": "/", "verb": "get"}}}  # fmt: skip
    the.tries("create", "/apis/authorization.k8s.io/v1/subjectaccessreviews", access)


PRIVILEGED = [{"name": "main", "image": "example.com/none", "securityContext": {"privileged": True}}]
DEPLOYED: tuple[tuple[str, list[Any], dict[str, Any]], ...] = (
    ("of a service", [SERVICE], {}),
    ("of nobody", [], {}),
    ("of a service and a node", [SERVICE, NODE], {}),
    ("privileged", [SERVICE], {"containers": PRIVILEGED}),
    ("privileged at its start", [SERVICE], {"initContainers": PRIVILEGED}),
    ("the node's files", [SERVICE], {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
    ("the node's network", [SERVICE], {"hostNetwork": True}),
    ("another account", [SERVICE], {"serviceAccountName": "admin"}),
    ("another account by its old name", [SERVICE], {"serviceAccount": "admin"}),
    ("another label of SELinux", [SERVICE], {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}),
)


ROUTES = {"HTTPRoute": "gateway.networking.k8s.io/v1", "InferencePool": "inference.networking.k8s.io/v1"}


def route(kind: str, name: str, owners: list[Any]) -> dict[str, Any]:
    """Object of a kind by which requests come to pods, valid by its project's definition."""
    pool = {"selector": {"matchLabels": {"app": "a"}}, "targetPorts": [{"number": 80}],
            "endpointPickerRef": {"name": "epp", "port": {"number": 9002}}}  # fmt: skip
    spec = pool if kind == "InferencePool" else {"rules": [{"backendRefs": [{"name": "a", "port": 80}]}]}
    metadata = {"name": name, "ownerReferences": owners, "annotations": EPOCH}
    return {"apiVersion": ROUTES[kind], "kind": kind, "metadata": metadata, "spec": spec}


def deployment(name: str, owners: list[Any], **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod("p")["spec"] | spec}
    metadata = {"name": name, "ownerReferences": owners, "annotations": EPOCH}
    whole = {"selector": {"matchLabels": labels}, "replicas": 0, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": whole}


def event_of(reporter: str, namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "annotations": EPOCH},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": reporter,
        "reportingInstance": "i",
        "action": "A",
        "reason": "R",
        "type": "Normal",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "free", "namespace": namespace},
    }


def minimal(kind: str) -> dict[str, Any]:
    """The least that makes an object of a kind valid: the first of its full examples."""
    return {"spec": FULL[kind]["spec"]}


@pytest.fixture(scope="module")
def thief(start_server: StartServer, programs: Programs) -> Iterator[Thief]:
    server = start_server(ControlPlaneSettings())
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    kubectl("apply", "-f", str(ROOT / "deploy" / "crds"))
    for kind in OWN_KINDS:
        kubectl.wait("condition=Established", f"crd/{kind.definition}")
    admin = PlainApi(server.kubeconfig)
    for kueues_kind, scope in (("Workload", "Namespaced"), ("AdmissionCheck", "Cluster")):
        definition = kueues_definition(kueues_kind, scope)
        admin.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        kubectl.wait("condition=Established", f"crd/{definition['metadata']['name']}")
    for kind, version in ROUTES.items():
        defined = f"{kind.lower()}s.{version.partition('/')[0]}"
        kubectl("create", "-f", str(Path(__file__).parent / "definitions" / f"{defined}.yaml"))
        kubectl.wait("condition=Established", f"crd/{defined}")
    for name, labels in ((OWN, {}), (APART, {}), (TENANT, {"tonnage.dev/managed": "true"})):
        admin.send("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    admin.send("POST", "/api/v1/nodes", {"metadata": {"name": NODE["name"]}})
    lease = {"metadata": {"name": "tonnage"}, "spec": {"leaseTransitions": 0, "holderIdentity": "other"}}
    admin.send("POST", f"/apis/coordination.k8s.io/v1/namespaces/{OWN}/leases", lease)
    grant(admin)
    for name in POLICIES:
        policy, binding = yaml.safe_load_all((FENCE / f"{name}.yaml").read_text(encoding="utf-8"))
        assert admin.send("POST", f"{ADMISSION}ies", policy).is_ok
        assert admin.send("POST", f"{ADMISSION}ybindings", binding).is_ok
    found = Thief(admin, PlainApi(server.kubeconfig, ACCOUNT, group=""))
    probe = deployment("probe", [SERVICE], hostPID=True)

    def refuses(path: str, body: Any, at: str, words: str) -> bool:
        answer = found.thief.send("POST", inside(path, at), body)
        return not answer.is_ok and words in answer.message

    until(lambda: refuses("/apis/apps/v1/deployments", probe, TENANT, "own-instances"), "the policies are in force")
    number = count()

    def refuses_anew(at: str, words: str) -> bool:
        """An object of a name of its own each time, since one that is accepted stays."""
        name = f"probe{next(number)}"
        event = event_of("kubelet", at, name), "/apis/events.k8s.io/v1/events"
        made = {"metadata": {"name": name}}, "/api/v1/configmaps"
        body, path = event if at == TENANT else made
        return refuses(path, body, at, words)

    until(lambda: refuses_anew(TENANT, "its own name"), "so is that on all writes")
    until(lambda: refuses_anew(APART, "NamespaceNotManaged"), "and that on namespaces")
    yield found
    admin.close()
    found.thief.close()


def grant(admin: PlainApi) -> None:
    """Every right of every feature, as the chart may grant it; what has a name in a Role of the account's namespace."""
    # Scale subresources are granted by name in the chart's values.
    rules, named = [{"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]}], []
    for _, each in needed(frozenset(MODES), (OWN, "tonnage"), OPTIONAL):
        rule = {"apiGroups": [each.group], "resources": [each.resource], "verbs": [each.verb]}
        if each.namespace:
            named.append({**rule, "resourceNames": [each.name]} if each.name else rule)
        else:
            rules.append(rule)
    subjects = [{"kind": "ServiceAccount", "name": "tonnage", "namespace": OWN}]
    for kind, where, given in (("ClusterRole", "/", rules), ("Role", f"/namespaces/{OWN}/", named)):
        metadata = {"name": "thief"}
        answer = admin.send("POST", f"{RBAC}{where}{kind.lower()}s", {"metadata": metadata, "rules": given})
        assert answer.is_ok, answer.message
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "thief"}
        bound = {"metadata": metadata, "roleRef": reference, "subjects": subjects}
        assert admin.send("POST", f"{RBAC}{where}{kind.lower()}bindings", bound).is_ok


def test_a_thief_gains_what_is_written_here_and_no_more(thief: Thief) -> None:
    in_none(thief)
    for namespace in (TENANT, SYSTEM, OWN, APART):
        in_a_namespace(thief, namespace)

    assert thief.done - ALLOWED == set(), "he does more than is written here"
    assert ALLOWED - thief.done == set(), "he does less: the list is too long, or the operator cannot work"
    asked = needed(frozenset(MODES), (OWN, "tonnage"), OPTIONAL)
    writes = {(p.group, p.resource, p.verb) for _, p in asked if p.verb not in ("get", "list", "watch")}
    assert writes - thief.tried == {("resource.k8s.io", "resourceclaims/binding", "patch")}, "a right that nobody tried"


def test_a_namespace_may_be_exempt_from_the_baseline(thief: Thief) -> None:
    thief.admin.send(
        "POST",
        "/api/v1/namespaces",
        {"metadata": {"name": "exempt", "labels": {"tonnage.dev/instances": "any", "tonnage.dev/managed": "true"}}},
    )
    made = deployment("d", [SERVICE], serviceAccountName="loader", hostIPC=True)

    answer = thief.thief.send("POST", inside("/apis/apps/v1/deployments", "exempt"), made)

    assert answer.is_ok, json.dumps(answer.body)
