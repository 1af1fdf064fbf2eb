"""Kueue's own controller beside Tonnage on a real API server: its cohort is obeyed, and nothing runs that it holds."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from simulator.controlplane.binaries import Programs
from simulator.controlplane.server import ControlPlane
from tests.controlplane.auditor import audit
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.kueue import kueue_on, skip_unless_built
from tests.controlplane.manifests import GPU, pod_spec
from tests.controlplane.operators import ROOT, operator, until
from tests.controlplane.servers import StartServer, server_of_l4

NODES, PER_NODE = 2, 8
QUOTA = NODES * PER_NODE // 2
"""Devices of each queue; both are in one cohort."""
PODS = 4
"""Pods of a job, of one device each, which start together."""
TEAMS = ("red", "blue")
V = "kueue.x-k8s.io/v1beta2"


@pytest.fixture(scope="module")
def server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    skip_unless_built()
    return server_of_l4(start_server, tmp_path_factory.mktemp("fleet"), NODES)


@pytest.fixture(scope="module")
def kubectl(server: ControlPlane, programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """As administrator of a server with Kueue's controller, a queue for each team, and a price."""
    made = Kubectl(programs["kubectl"], server.kubeconfig)
    made("apply", "-f", str(ROOT / "deploy" / "crds"))
    made("wait", "--for=condition=Established", "crd", "--all")
    made("create", "namespace", "tonnage-system")
    label = {"key": "nvidia.com/gpu.product", "values": ["NVIDIA-L4"]}
    l4 = {"nodeLabel": label, "memory": "24Gi", "pricePerHour": {"onDemand": 1.5}}
    create(made, "GPUType", "l4", l4, version="tonnage.dev/v1alpha1")
    with kueue_on(server, made, tmp_path_factory.mktemp("kueue")):
        set_up_queues(made)
        yield made


def create(kubectl: Kubectl, kind: str, name: str, spec: Mapping[str, Any], *within: str, version: str = V) -> None:
    kubectl("create", *within, "-f", "-", stdin={"apiVersion": version, "kind": kind, "metadata": {"name": name},
                                                 "spec": spec})  # fmt: skip


def set_up_queues(kubectl: Kubectl) -> None:
    """Two teams with a queue each in one cohort; a share that is lent comes back."""
    create(kubectl, "ResourceFlavor", "l4", {"nodeLabels": {"nvidia.com/gpu.product": "NVIDIA-L4"}})
    for team in TEAMS:
        kubectl("create", "namespace", team)
        quota = {"name": "l4", "resources": [{"name": GPU, "nominalQuota": QUOTA}]}
        create(kubectl, "ClusterQueue", team, {
            "cohortName": "all", "namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": [{"coveredResources": [GPU], "flavors": [quota]}],
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "Never"}})  # fmt: skip
        create(kubectl, "LocalQueue", "queue", {"clusterQueue": team}, "-n", team)


def ask(kubectl: Kubectl, team: str, name: str, gpus: int = 1) -> None:
    """A job of its team's queue: suspended, as Kueue's webhook would make it, and of indexed pods that are one gang."""
    spec = pod_spec(gpus=gpus, schedulerName="tonnage", restartPolicy="Never", terminationGracePeriodSeconds=1)
    job = {"completions": PODS, "parallelism": PODS, "completionMode": "Indexed", "suspend": True,
           "template": {"spec": spec}}  # fmt: skip
    meta = {"name": name, "namespace": team, "labels": {"kueue.x-k8s.io/queue-name": "queue"}}
    kubectl(
        "create", "-n", team, "-f", "-", stdin={"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job}
    )


def admitted(kubectl: Kubectl) -> set[str]:
    """Jobs that Kueue has admitted, `namespace/name`."""
    return {
        f"{each['metadata']['namespace']}/{each['metadata']['ownerReferences'][0]['name']}"
        for each in kubectl.get("workloads", "-A")["items"]
        for said in each.get("status", {}).get("conditions", ())
        if said["type"] == "Admitted" and said["status"] == "True"
    }


def placed(kubectl: Kubectl) -> dict[str, int]:
    """Pods with a node that do not end, by job."""
    found: dict[str, int] = {}
    for each in kubectl.get("pods", "-A")["items"]:
        if each["spec"].get("nodeName") and not each["metadata"].get("deletionTimestamp"):
            job = f"{each['metadata']['namespace']}/{each['metadata']['labels']['job-name']}"
            found[job] = found.get(job, 0) + 1
    return found


class Look:
    """Looks at what is placed again and again: whatever Kueue has not admitted must not be."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl, self.looks = kubectl, 0

    def runs(self, **jobs: int) -> bool:
        """Whether so many whole jobs of each team run."""
        before, found = admitted(self._kubectl), placed(self._kubectl)
        assert found.keys() <= before | admitted(self._kubectl), "nothing is placed that is not admitted"
        self.looks += 1
        whole = [job.partition("/")[0] for job, pods in found.items() if pods == PODS]
        return len(whole) == len(found) and {team: whole.count(team) for team in jobs} == jobs


def test_a_cohort_is_obeyed_and_nothing_is_placed_that_kueue_has_not_admitted(
    server: ControlPlane, kubectl: Kubectl, tmp_path: Path
) -> None:
    """One team gets the idle quota of the other, which takes it back: Kueue suspends whole jobs, and no pod of them is
    placed meanwhile."""
    with operator(server.kubeconfig, tmp_path, pools=[{"placer": "bind"}]):
        look = Look(kubectl)
        for n in range(5):
            ask(kubectl, "red", f"r{n}")
        until(lambda: look.runs(red=4), "the first has all 16, and its fifth job waits")
        for n in range(2):
            ask(kubectl, "blue", f"b{n}")
        until(lambda: look.runs(red=2, blue=2), "the second has its quota back")
        for n in range(2):
            kubectl("delete", "job", "-n", "blue", f"b{n}")
        until(lambda: look.runs(red=4, blue=0), "the first has all again")
        assert look.looks > 5
        found: Any = audit(kubectl)
        assert found.is_clean, found
        kubectl("delete", "jobs", "--all", "-n", "red")
        until(lambda: kubectl.get("pods", "-A")["items"] == [], "all is gone")


def said_of(kubectl: Kubectl, team: str, job: str) -> tuple[str, str]:
    """State and words of the admission check of a job's workload."""
    for each in kubectl.get("workloads", "-n", team)["items"]:
        if each["metadata"]["ownerReferences"][0]["name"] == job:
            for said in each.get("status", {}).get("admissionChecks", ()):
                return said["state"], said["message"]
    return "", ""


def test_an_admission_check_says_whether_there_is_a_seat_and_at_what_price(
    server: ControlPlane, kubectl: Kubectl, tmp_path: Path
) -> None:
    """By its quota Kueue would admit four pods of eight devices each, for which there are no nodes."""
    create(kubectl, "AdmissionCheck", "seat", {"controllerName": "tonnage.dev/seat"})
    quota = {"name": "l4", "resources": [{"name": GPU, "nominalQuota": 64}]}
    groups = [{"coveredResources": [GPU], "flavors": [quota]}]
    changed = {"spec": {"resourceGroups": groups, "admissionChecksStrategy": {"admissionChecks": [{"name": "seat"}]}}}
    kubectl("patch", "clusterqueue", "red", "--type=merge", "-p", json.dumps(changed))
    with operator(server.kubeconfig, tmp_path, pools=[{"placer": "bind"}]):
        ask(kubectl, "red", "wide", gpus=8)
        states = set[str]()

        def is_refused() -> bool:
            state, words = said_of(kubectl, "red", "wide")
            states.add(state)
            return "no seat" in words

        until(is_refused, "there is no seat for so many")
        ask(kubectl, "red", "small", gpus=2)
        look = Look(kubectl)
        until(lambda: look.runs(red=1), "a job with a seat runs, and the other holds no quota for ever")
        pods = kubectl.get("pods", "-n", "red", "-l", "job-name=small")["items"]
        noted = {each["metadata"]["annotations"]["tonnage.dev/answered-seats"] for each in pods}
        assert len(noted) == 1
        taken = [(each["spec"]["nodeName"], each["metadata"]["annotations"]["tonnage.dev/devices"]) for each in pods]
        told = [(seat["node"], ",".join(map(str, seat["devices"]))) for seat in json.loads(noted.pop())["seats"]]
        assert sorted(taken) == sorted(told), "they run on the seats that the answer named"
        assert said_of(kubectl, "red", "small") == ("Ready", "8 devices on 1 nodes, $12.00 an hour")
        assert "red/wide" not in admitted(kubectl)
        assert states <= {"", "Pending", "Retry"}
