"""Gangs of unlike roles of each kind on a real API server, through their life, with the projects' own definitions."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from controller.api import foreign_kinds
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.builders import groups
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import GPU, pod
from tests.controlplane.operators import ROOT, operator, until
from tests.controlplane.servers import StartServer
from tests.controlplane.test_groups import definition, listed

pytestmark = pytest.mark.controlplane

Object = dict[str, Any]
GANG = "tonnage.dev/v1alpha1"
JOB_SET, KUBEFLOW, LWS = "jobset.sigs.k8s.io/", "training.kubeflow.org/", "leaderworkerset.sigs.k8s.io/"
STOP_S = 8
"""Seconds in which a pod ends that is deleted: members of a restart wait for it."""


def objects(kind: str, workers: int) -> list[Object]:
    """What says how many members start together: one that leads, without a GPU, and workers with eight each."""

    def made(api_version: str, name: str, spec: Object, of: str = kind) -> Object:
        return {"apiVersion": api_version, "kind": name, "metadata": {"name": of}, "spec": spec}

    roles = (("lead", 1), ("work", workers))
    match kind:
        case "gang":
            parts = [{"name": role, "minMembers": count} for role, count in roles]
            return [made(GANG, "Gang", {"minMembers": 1 + workers, "groups": parts})]
        case "jobset":
            return [groups.job_set(kind, workers=workers)]
        case "lws":
            return [groups.leader_worker_set(kind, size=1 + workers)]
        case "ray":
            return [groups.ray_cluster(kind, workers=workers)]
        case "pytorch" | "mpi":
            return [groups.kubeflow_job({"pytorch": "PyTorchJob", "mpi": "MPIJob"}[kind], kind, workers)]
        case "coscheduling":
            return [groups.pod_group("scheduling.x-k8s.io/v1alpha1", 1 + workers, kind)]
        case "volcano":
            group = groups.pod_group("scheduling.volcano.sh/v1beta1", 1 + workers, kind)
            group["spec"]["minTaskMember"] = dict(roles)
            return [group]
        case "kai":
            parts = [{"name": role, "minMember": count} for role, count in roles]
            return [made("scheduling.run.ai/v2alpha2", "PodGroup", {"minSubGroup": 2, "subGroups": parts})]
        case "grove":
            cliques = [{"name": role, "minReplicas": count, "podReferences": []} for role, count in roles]
            return [made("scheduler.grove.io/v1alpha1", "PodGang", {"podgroups": cliques})]
        case "kubernetes":
            return [groups.pod_group("scheduling.k8s.io/v1alpha2", 1 + workers, kind)]
        case _:
            return []


def marks(kind: str, role: str, number: int) -> tuple[Mapping[str, str], Mapping[str, str], Object]:
    """Labels, annotations and further spec that each project's controller or webhook gives to a pod."""
    leads = role == "lead"
    in_jobset = {JOB_SET + "jobset-name": kind, JOB_SET + "replicatedjob-name": "driver" if leads else "workers"}
    in_lws = {LWS + "name": kind, LWS + "group-index": "0", LWS + "worker-index": str(number)}
    name = {"pytorch": "master", "mpi": "launcher"}.get(kind, "chief") if leads else "worker"
    in_job = {KUBEFLOW + "job-name": kind, KUBEFLOW + "replica-type": name}
    found: dict[str, tuple[Mapping[str, str], Mapping[str, str], Object]] = {
        "gang": ({"tonnage.dev/gang": kind, "tonnage.dev/gang-group": role}, {}, {}),
        "jobset": (in_jobset, {}, {}),
        "lws": (in_lws, {LWS + "size": "4"}, {}),
        "ray": ({"ray.io/cluster": kind, "ray.io/group": "headgroup" if leads else "gpu"}, {}, {}),
        "pytorch": (in_job, {}, {}),
        "mpi": (in_job, {}, {}),
        "kueue": ({"kueue.x-k8s.io/pod-group-name": kind}, {"kueue.x-k8s.io/pod-group-total-count": "4"}, {}),
        "coscheduling": ({"scheduling.x-k8s.io/pod-group": kind}, {}, {}),
        "volcano": ({}, {"scheduling.k8s.io/group-name": kind, "volcano.sh/task-spec": role}, {}),
        "kai": ({"kai.scheduler/subgroup-name": role}, {"pod-group-name": kind}, {}),
        "grove": ({"grove.io/podgang": kind, "grove.io/podclique": role}, {}, {}),
        "kubernetes": ({}, {}, {"schedulingGroup": {"podGroupName": kind}}),
    }
    return found[kind]


KINDS = ("gang", "jobset", "lws", "ray", "pytorch", "mpi", "kueue", "coscheduling", "volcano", "kai", "grove",
         "kubernetes")  # fmt: skip
OWNED = {"ray": "rayclusters", "pytorch": "pytorchjobs", "mpi": "mpijobs"}
COUNTED = ("gang", "ray", "pytorch", "mpi", "coscheduling", "volcano", "kai", "grove")
"""Kinds whose object says another number when they are scaled; the others are made anew, or do not say it."""
SUSPENDED = ("jobset", "ray", "pytorch", "mpi")
"""Kinds whose object says that it is suspended; of the others only the pods go and come."""


def nodes() -> Iterator[Object]:
    """Four nodes for each kind, of which two are closed."""
    for kind in KINDS:
        for number in range(4):
            labels = {"nvidia.com/gpu.product": "NVIDIA-L4", "group": kind}
            has = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: "8"}
            spec = {"unschedulable": True} if number > 1 else {}
            yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{kind}-{number}", "labels": labels},
                   "spec": spec, "status": {"allocatable": has}}  # fmt: skip


class Fleet:
    """The cluster with the controllers of all projects, whose part the test plays."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl
        self._owners: dict[str, Object] = {}

    def define(self, kind: str, workers: int = 3) -> None:
        for each in objects(kind, workers):
            self.kubectl("create", "-f", "-", stdin=each)
        if kind in OWNED:
            found = self.kubectl.get(OWNED[kind], kind)
            named = {key: found["metadata"][key] for key in ("name", "uid")}
            self._owners[kind] = {"apiVersion": found["apiVersion"], "kind": found["kind"], "controller": True, **named}

    def resize(self, workers: int) -> None:
        for kind in COUNTED:
            for each in objects(kind, workers):
                group = each["apiVersion"].partition("/")[0]
                what = f"{each['kind'].lower()}s.{group}"
                patch = yaml.safe_dump({"spec": each["spec"]})
                self.kubectl("patch", what, each["metadata"]["name"], "--type=merge", "-p", patch)

    def suspend(self, *, is_on: bool) -> None:
        for kind in SUSPENDED:
            each = objects(kind, 3)[0]
            spec = {"suspend": is_on} if kind in ("jobset", "ray") else {"runPolicy": {"suspend": is_on}}
            what = f"{each['kind'].lower()}s.{each['apiVersion'].partition('/')[0]}"
            self.kubectl("patch", what, kind, "--type=merge", "-p", yaml.safe_dump({"spec": spec}))

    def delete(self, run: str, *numbers: int) -> None:
        """Pods that are gone at once, as when their node was lost."""
        self.kubectl(
            "delete", "pod", "--force", "--grace-period=0", *(f"{k}-{run}-{n}" for k in KINDS for n in numbers)
        )

    def member(self, kind: str, run: str, number: int) -> Object:
        role = "work" if number else "lead"
        labels, annotations, spec = marks(kind, role, number)
        made = pod(f"{kind}-{run}-{number}", gpus=8 if number else 0, schedulerName="tonnage",
                   annotations={**annotations, "simulated.tonnage.dev/stop-seconds": str(STOP_S)},
                   nodeSelector={"group": kind}, terminationGracePeriodSeconds=60, **spec)  # fmt: skip
        made["metadata"]["labels"] = {**labels, "run": run, "of": kind}
        made["metadata"]["ownerReferences"] = [self._owners[kind]] if kind in self._owners else []
        return made

    def start(self, run: str, *numbers: int) -> None:
        self.kubectl("create", "-f", "-", stdin=listed(self.member(k, run, n) for k in KINDS for n in numbers))

    def pods(self) -> list[Object]:
        found: list[Object] = self.kubectl.get("pods")["items"]
        return found

    def bound(self, run: str) -> dict[str, int]:
        there = [each["metadata"]["labels"] for each in self.pods() if "nodeName" in each["spec"]]
        return {kind: sum(each["run"] == run and each["of"] == kind for each in there) for kind in KINDS}

    def nodes(self, verb: str, *numbers: int) -> None:
        self.kubectl(verb, *(f"{kind}-{number}" for kind in KINDS for number in numbers))

    def decided(self) -> None:
        """Wait until a later pod than all others has its node, so that all had their turn."""
        made = pod("later", schedulerName="tonnage", nodeSelector={"group": "gang"}, terminationGracePeriodSeconds=0)
        made["metadata"]["labels"] = {"run": "later", "of": "later"}
        self.kubectl("create", "-f", "-", stdin=made)
        until(lambda: "nodeName" in self.kubectl.get("pod", "later")["spec"], "a later pod is placed")
        self.kubectl("delete", "pod", "later", "--force", "--grace-period=0")


@pytest.fixture(scope="module")
def fleet(start_server: StartServer, programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("kinds")
    manifests = folder / "nodes.yaml"
    manifests.write_text(yaml.safe_dump_all(nodes()), encoding="utf-8")
    flags = ("--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true")
    server = start_server(ControlPlaneSettings(manifests=str(manifests), api_flags=flags))
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    kubectl("apply", "-f", str(ROOT / "deploy" / "crds"))
    kubectl("create", "namespace", "tonnage-system")
    read = [kind for kind in foreign_kinds.FOREIGN_KINDS if kind.group not in ("batch", "scheduling.k8s.io")]
    kubectl("create", "-f", "-", stdin=listed(map(definition, read)))
    kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    kubectl("apply", "-f", str(ROOT / "examples" / "gpu-types.yaml"))
    with operator(server.kubeconfig, folder, pools=[{"placer": "bind"}]):
        yield Fleet(kubectl.within("default"))


def all_of(count: int) -> dict[str, int]:
    return dict.fromkeys(KINDS, count)


def test_a_gang_of_unlike_roles_starts_grows_restarts_and_resumes_as_one_whatever_its_kind(fleet: Fleet) -> None:
    # Whole or nothing: the one that leads would fit beside two of its three workers.
    for kind in KINDS:
        fleet.define(kind)
    fleet.start("a", 0, 1, 2, 3)
    fleet.decided()
    assert fleet.bound("a") == all_of(0)
    fleet.nodes("uncordon", 2)
    until(lambda: fleet.bound("a") == all_of(4), "all start where all fit")

    # Scaled up, and down again.
    fleet.resize(4)
    fleet.nodes("uncordon", 3)
    fleet.start("a", 4)
    until(lambda: fleet.bound("a") == all_of(5), "one more joins")
    fleet.delete("a", 4)
    fleet.resize(3)
    fleet.decided()
    assert fleet.bound("a") == all_of(4), "the others run on"

    # Restarted: one node is free, which would hold two of the new members.
    fleet.kubectl("delete", "pod", "--wait=false", "-l", "run=a")
    fleet.start("b", 0, 1, 2, 3)
    seen = list[dict[str, tuple[int, int]]]()

    def is_restarted() -> bool:
        of = dict.fromkeys(KINDS, (0, 0))
        for each in fleet.pods():
            labels, (old, new) = each["metadata"]["labels"], of[each["metadata"]["labels"]["of"]]
            starts = labels["run"] == "b" and "nodeName" in each["spec"]
            of[labels["of"]] = old + (labels["run"] == "a"), new + starts
        seen.append(of)
        return all(new == 4 for _, new in of.values())

    until(is_restarted, "the new members start")
    beside = {kind for each in seen for kind, (old, new) in each.items() if old >= 3 and new}
    assert not beside, "no part of a gang runs beside its predecessor"

    # The last member is lost, and comes again beside those that run.
    fleet.delete("b", 3)
    fleet.decided()
    assert fleet.bound("b") == all_of(3)
    fleet.start("b", 3)
    until(lambda: fleet.bound("b") == all_of(4), "the last member joins the others again")

    # Suspended, and resumed where two of three workers would fit.
    fleet.suspend(is_on=True)
    fleet.delete("b", 0, 1, 2, 3)
    fleet.nodes("cordon", 2, 3)
    fleet.suspend(is_on=False)
    fleet.start("c", 0, 1, 2, 3)
    fleet.decided()
    assert fleet.bound("c") == all_of(0)
    fleet.nodes("uncordon", 3)
    until(lambda: fleet.bound("c") == all_of(4), "all start again where all fit")
