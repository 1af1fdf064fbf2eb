"""Pods of other controllers on a real API server: gangs without a label of ours, rollouts, and Kueue's gate."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.api.foreign_kinds import FOREIGN_KINDS, ForeignKind
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.builders import groups
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import GPU, pod
from tests.controlplane.operators import ROOT, operator, until
from tests.controlplane.servers import StartServer

pytestmark = pytest.mark.controlplane

KUBERNETES = "scheduling.k8s.io/v1alpha2"
SERVED = ("--feature-gates=GenericWorkload=true", f"--runtime-config={KUBERNETES}=true")
"""Flags of a server with the alpha API of Kubernetes' own PodGroups."""

Object = dict[str, Any]
OWNERS: dict[str, Object | None] = {
    "job": groups.job("job", suspend=True),
    "jobset": groups.job_set("jobset"),
    "lws": groups.leader_worker_set("lws"),
    "ray": groups.ray_cluster("ray"),
    "pytorch": groups.kubeflow_job("PyTorchJob", "pytorch"),
    "mpi": groups.kubeflow_job("MPIJob", "mpi", workers=4),
    "kueue": None,
    "kubernetes": groups.pod_group(KUBERNETES, name="kubernetes"),
    "coscheduling": groups.pod_group("scheduling.x-k8s.io/v1alpha1", name="coscheduling"),
    "kai": groups.pod_group("scheduling.run.ai/v2alpha2", name="kai"),
    "volcano": groups.pod_group("scheduling.volcano.sh/v1beta1", name="volcano"),
}
"""Object of each group of four pods with eight GPUs; the pods that Kubernetes' Job controller makes are its own."""
MARKED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "jobset": ({"jobset.sigs.k8s.io/jobset-name": "jobset", "jobset.sigs.k8s.io/replicatedjob-name": "workers"}, {}),
    "lws": (
        {"leaderworkerset.sigs.k8s.io/name": "lws", "leaderworkerset.sigs.k8s.io/group-index": "0"},
        {"leaderworkerset.sigs.k8s.io/size": "4"},
    ),
    "ray": ({"ray.io/cluster": "ray"}, {}),
    "pytorch": ({"training.kubeflow.org/job-name": "pytorch"}, {}),
    "mpi": ({"training.kubeflow.org/job-name": "mpi", "training.kubeflow.org/replica-type": "worker"}, {}),
    "kueue": ({"kueue.x-k8s.io/pod-group-name": "kueue"}, {"kueue.x-k8s.io/pod-group-total-count": "4"}),
    "kubernetes": ({}, {}),
    "coscheduling": ({"scheduling.x-k8s.io/pod-group": "coscheduling"}, {}),
    "kai": ({}, {"pod-group-name": "kai"}),
    "volcano": ({}, {"scheduling.k8s.io/group-name": "volcano"}),
}
"""Labels and annotations that each project's controller or webhook gives to pods."""


def nodes() -> Iterator[Object]:
    """Four nodes for each kind, of which the last is closed."""
    for kind in (*OWNERS, "loss", "gated", "surge", "ordered"):
        for number in range(4):
            labels = {"nvidia.com/gpu.product": "NVIDIA-L4", "group": kind, "flavour": str(number)}
            has = {"cpu": "96", "memory": "1Ti", GPU: "8"}
            metadata = {"name": f"{kind}-{number}", "labels": labels}
            spec = {"unschedulable": True} if number == 3 else {}
            yield {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": metadata,
                "spec": spec,
                "status": {"allocatable": has},
            }


DEFINITIONS = Path(__file__).parent / "definitions"
"""CustomResourceDefinitions as their projects publish them: fields that are not theirs are dropped or refused."""


def definition(kind: ForeignKind) -> Object:
    """CustomResourceDefinition of a kind: its project's, where that is here, or one that takes any object."""
    published = DEFINITIONS / f"{kind.plural}.{kind.group}.yaml"
    if published.exists():
        found: Object = yaml.safe_load(published.read_text(encoding="utf-8"))
        return found
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.versions[0], "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind.name, "plural": kind.plural, "singular": kind.name.lower(), "listKind": f"{kind.name}List"}
    # The API server asks for this on groups of Kubernetes.
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}", "annotations": approved},
        "spec": {"group": kind.group, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def member(kind: str, number: int, owner: Object | None) -> Object:
    labels, annotations = MARKED[kind]
    group = {"schedulingGroup": {"podGroupName": kind}} if kind == "kubernetes" else {}
    made = pod(f"{kind}-{number}", gpus=8, annotations=annotations, schedulerName="tonnage",
               nodeSelector={"group": kind}, terminationGracePeriodSeconds=0, **group)  # fmt: skip
    roles = {"jobset.sigs.k8s.io/replicatedjob-name": "driver"} if (kind, number) == ("jobset", 0) else {}
    made["metadata"]["labels"] = labels | roles
    if owner is not None:
        named = {key: owner["metadata"][key] for key in ("name", "uid")}
        whose = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True, **named}
        made["metadata"]["ownerReferences"] = [whose]
    return made


@pytest.fixture(scope="module")
def here(start_server: StartServer, programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """kubectl beside an operator, with one group of each kind: its object first, then its pods."""
    folder = tmp_path_factory.mktemp("groups")
    manifests = folder / "nodes.yaml"
    manifests.write_text(yaml.safe_dump_all(nodes()), encoding="utf-8")
    server = start_server(ControlPlaneSettings(manifests=str(manifests), api_flags=SERVED))
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    kubectl("apply", "-f", str(ROOT / "deploy" / "crds"))
    kubectl("create", "namespace", "tonnage-system")
    foreign = [kind for kind in FOREIGN_KINDS if kind.group not in ("batch", "scheduling.k8s.io")]
    kubectl("create", "-f", "-", stdin=listed(map(definition, foreign)))
    kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    kubectl("apply", "-f", str(ROOT / "examples" / "gpu-types.yaml"))
    with operator(
        server.kubeconfig, folder, pools=[{"placer": "gate", "selector": {"group": "gated"}}, {"placer": "bind"}]
    ):
        ours = kubectl.within("default")
        ours("create", "-f", "-", stdin=listed(in_pool(kind, owner) for kind, owner in OWNERS.items() if owner))
        stored = {kind: ours.get(plural, kind) for kind, plural in OWNED.items()}
        members = (member(kind, number, stored.get(kind)) for kind in MARKED for number in range(4))
        ours("create", "-f", "-", stdin=listed(members))
        yield ours


OWNED = {"ray": "rayclusters", "pytorch": "pytorchjobs", "mpi": "mpijobs"}
"""Kinds that are the controllers of their pods themselves."""


def listed(objects: Iterable[Object]) -> Object:
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}


def in_pool(kind: str, owner: Object) -> Object:
    if kind == "job":
        spec = owner["spec"]["template"]["spec"]
        spec |= {"schedulerName": "tonnage", "nodeSelector": {"group": kind}, "restartPolicy": "Never",
                 "terminationGracePeriodSeconds": 0}  # fmt: skip
        spec["containers"][0]["image"] = "example.com/none"
    return owner


def pods(here: Kubectl, kind: str) -> list[Object]:
    mine = (each for each in here.get("pods")["items"] if each["spec"]["nodeSelector"].get("group") == kind)
    return [each for each in mine if each["metadata"]["name"] != "canary"]


def bound(here: Kubectl, kind: str) -> int:
    return sum("nodeName" in each["spec"] for each in pods(here, kind))


def test_a_group_of_any_kind_starts_whole_or_not_at_all(here: Kubectl) -> None:
    """Three nodes of four are open to each group; its Event, on the object that people look at, says that it waits."""
    here("patch", "job", "job", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    regarded = {kind: ("Workload" if owner is None else str(owner["kind"])) for kind, owner in OWNERS.items()}

    def waits() -> set[tuple[str, str]]:
        events = [each["regarding"] for each in here.get("events.events.k8s.io")["items"]]
        return {(each["kind"], each["name"].partition(":")[0]) for each in events}

    wanted = {(regarded[kind], kind) for kind in OWNERS}
    until(lambda: wanted <= waits(), "an Event of each group")
    assert {kind: bound(here, kind) for kind in OWNERS} == dict.fromkeys(OWNERS, 0)

    here("uncordon", *(f"{kind}-3" for kind in OWNERS))

    until(lambda: all(bound(here, kind) == 4 for kind in OWNERS), "all four of each group run")


def test_a_job_that_is_suspended_holds_nothing_and_starts_whole_when_it_is_resumed(here: Kubectl) -> None:
    until(lambda: bound(here, "job") == 4, "the job runs")

    here("patch", "job", "job", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    until(lambda: not pods(here, "job"), "its pods are gone")
    here("cordon", "job-3")
    here("patch", "job", "job", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    until(lambda: len(pods(here, "job")) == 4, "they are made again")
    here("apply", "-f", "-", stdin=canary())
    until(lambda: "nodeName" in here.get("pod", "canary")["spec"], "a later pod is placed")
    assert bound(here, "job") == 0, "with three open nodes none of the four starts"

    here("delete", "pod", "canary")
    here("uncordon", "job-3")
    until(lambda: bound(here, "job") == 4, "all four run")


def canary() -> Object:
    return pod(
        "canary", gpus=8, schedulerName="tonnage", nodeSelector={"group": "job"}, terminationGracePeriodSeconds=0
    )


def test_a_gang_that_restarts_after_a_loss_has_only_new_members(here: Kubectl) -> None:
    """One of two is deleted, and its owner makes a new one, for which there is room. The other is stopped, too."""
    gang = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Gang", "metadata": {"name": "loss"}}
    here("create", "-f", "-", stdin={**gang, "spec": {"minMembers": 2, "onMemberLoss": "Restart"}})
    # Not a Job, whose controller waits for ten seconds and then for twenty until it replaces a pod.
    here("create", "-f", "-", stdin=replica_set("loss", 2))
    until(lambda: bound(here, "loss") == 2, "the gang runs")
    until(lambda: here.get("gang", "loss").get("status", {}).get("wholeSince"), "and its status says so")
    before = {each["metadata"]["uid"] for each in pods(here, "loss")}

    here("delete", "pod", pods(here, "loss")[0]["metadata"]["name"])

    def is_new() -> bool:
        alive = [each for each in pods(here, "loss") if each["status"]["phase"] in ("Pending", "Running")]
        return len(alive) == 2 and all("nodeName" in e["spec"] and e["metadata"]["uid"] not in before for e in alive)

    until(is_new, "both are new")


def replica_set(name: str, replicas: int) -> Object:
    labels = {"tonnage.dev/gang": name}
    spec = pod(name, gpus=8, schedulerName="tonnage", nodeSelector={"group": name}, terminationGracePeriodSeconds=0)
    template = {"metadata": {"labels": labels}, "spec": spec["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def whole_node(group: str) -> Object:
    """Pod that takes all GPUs of a node of its group."""
    return pod("any", gpus=8, schedulerName="tonnage", nodeSelector={"group": group}, terminationGracePeriodSeconds=0)


def test_a_pod_with_kueues_gate_beside_ours_is_placed_once_kueue_has_admitted_it(here: Kubectl) -> None:
    """Kueue takes its gate off and adds the labels of a flavour, which decide where the pod goes."""
    ours, kueues = {"name": "tonnage.dev/placement"}, {"name": "kueue.x-k8s.io/admission"}
    gated = {"gpus": 8, "nodeSelector": {"group": "gated"}, "terminationGracePeriodSeconds": 0}
    here("create", "-f", "-", stdin=pod("queued", schedulingGates=[kueues, ours], **gated))
    here("create", "-f", "-", stdin=pod("later", schedulingGates=[ours], **gated))
    until(lambda: "nodeName" in here.get("pod", "later")["spec"], "a later pod is placed")
    queued = here.get("pod", "queued")
    assert queued["spec"]["schedulingGates"] == [kueues, ours]
    assert not queued["metadata"].get("annotations"), "nothing is promised to it"
    assert not events_of(here, "queued"), "nor is it said that it could not be placed"
    free = next(n for n in range(3) if here.get("pod", "later")["spec"]["nodeName"] != f"gated-{n}")

    admitted = {"spec": {"schedulingGates": [ours], "nodeSelector": {"group": "gated", "flavour": str(free)}}}
    here("patch", "pod", "queued", "--type=merge", "-p", json.dumps(admitted))

    until(lambda: here.get("pod", "queued")["spec"].get("nodeName") == f"gated-{free}", "it runs on its flavour")


def events_of(here: Kubectl, name: str) -> list[Object]:
    return [each for each in here.get("events.events.k8s.io")["items"] if each["regarding"]["name"] == name]


def test_a_rollout_with_surge_waits_for_room_and_keeps_its_replicas_and_its_budget(here: Kubectl) -> None:
    labels = {"app": "surge"}
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    template = {"metadata": {"labels": labels}, "spec": whole_node("surge")["spec"]}
    spec = {"replicas": 3, "strategy": rolling, "selector": {"matchLabels": labels}, "template": template}
    here(
        "create",
        "-f",
        "-",
        stdin={"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "surge"}, "spec": spec},
    )
    budget = {"minAvailable": 3, "selector": {"matchLabels": labels}}
    here(
        "create",
        "-f",
        "-",
        stdin={"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "surge"}, "spec": budget},
    )
    until(lambda: available(here) == 3, "three replicas run on three open nodes")

    here("patch", "deployment", "surge", "-p", json.dumps(of_version("2")))
    until(lambda: len(pods(here, "surge")) == 4, "a fourth is made")
    (fourth,) = [each["metadata"]["name"] for each in pods(here, "surge") if "nodeName" not in each["spec"]]
    until(lambda: any(each["reason"] == "FailedScheduling" for each in events_of(here, fourth)), "it says why it waits")
    assert available(here) == 3
    seen = []
    here("uncordon", "surge-3")

    def is_rolled_out() -> bool:
        status = here.get("deployment", "surge")["status"]
        seen.append(status.get("availableReplicas", 0))
        return status.get("updatedReplicas") == 3 and status["replicas"] == 3 and seen[-1] == 3

    until(is_rolled_out, "all three are of the new version")
    assert min(seen) == 3
    assert not [each for each in here.get("events.events.k8s.io")["items"] if each["reason"] in ("Evicted", "Preempted")
                and each["regarding"]["name"].startswith("surge")]  # fmt: skip


def available(here: Kubectl) -> int:
    return int(here.get("deployment", "surge")["status"].get("availableReplicas", 0))


def of_version(version: str) -> Object:
    return {"spec": {"template": {"metadata": {"annotations": {"example.com/version": version}}}}}


def test_a_statefulset_rolls_out_one_replica_after_the_other_on_a_full_fleet(here: Kubectl) -> None:
    """Its three replicas fill the three open nodes: each new one takes the place of the one before."""
    labels = {"app": "ordered"}
    template = {"metadata": {"labels": labels}, "spec": whole_node("ordered")["spec"]}
    spec = {"replicas": 3, "serviceName": "ordered", "selector": {"matchLabels": labels}, "template": template}
    made_of = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "ordered"}, "spec": spec}
    here("delete", "statefulset", "ordered", "--ignore-not-found", "--cascade=foreground")  # of an earlier try
    here("create", "-f", "-", stdin=made_of)

    def is_at(version: str | None) -> bool:
        """By the pods themselves: while one is replaced, the status still counts it for a moment."""
        running = {
            each["metadata"]["name"]: each["metadata"].get("annotations", {}).get("example.com/version")
            for each in pods(here, "ordered")
            if not each["metadata"].get("deletionTimestamp") and each["status"]["phase"] == "Running"
        }
        return running == {f"ordered-{n}": version for n in range(3)}

    until(lambda: is_at(None), "three run")
    here("patch", "statefulset", "ordered", "-p", json.dumps(of_version("2")))
    until(lambda: is_at("2"), "three of the new version run")

    made = {each["metadata"]["name"]: each for each in pods(here, "ordered")}
    created = [made[f"ordered-{n}"]["metadata"]["creationTimestamp"] for n in range(3)]
    assert created == sorted(created, reverse=True), "from the last to the first"
    assert len({each["spec"]["nodeName"] for each in made.values()}) == 3
