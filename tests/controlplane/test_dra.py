"""Dynamic resource allocation on a real API server, with the rights that the chart grants and no others."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from controller.dra.allocation import deallocation_writes
from controller.dra.objects import ResourceClaim
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.controlplane.auditor import audit
from tests.controlplane.claims_audit import claim_names, double_devices
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import GPU, pod
from tests.controlplane.operators import ROOT, OperatorProcess, operator, until
from tests.controlplane.plain_api import Answer, PlainApi
from tests.controlplane.servers import StartServer
from tests.deploy.helm import NAMESPACE, install

DRIVER = "gpu.nvidia.com"
BOUND: dict[str, Any] = {"schedulerName": "tonnage", "terminationGracePeriodSeconds": 0}
VALUES = {"managedNamespaces": "all", "settings": {"pools": [{"placer": "dra"}]}}


@pytest.fixture(scope="module")
def admin(start_server: StartServer, programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """Of a server with 3 nodes of 8 GPUs in slices, one without slices, and the chart for a pool of `dra`."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    metadata = {"labels": labels, "annotations": {"simulated.tonnage.dev/dra-driver": DRIVER}}
    status = {"allocatable": {"cpu": "96", "memory": "1Ti", GPU: "8"}}
    nodes = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {**metadata, "name": f"n{n}"}, "status": status}
        for n in range(3)
    ]
    bare = {"allocatable": {"cpu": "96", "memory": "1Ti"}}
    nodes.append({"apiVersion": "v1", "kind": "Node", "metadata": {"labels": labels, "name": "parts"}, "status": bare})
    manifests = tmp_path_factory.mktemp("fleet") / "nodes.yaml"
    manifests.write_text(yaml.safe_dump_all(nodes), encoding="utf-8")
    server = start_server(ControlPlaneSettings(manifests=str(manifests)))
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig, NAMESPACE)
    kubectl("create", "namespace", NAMESPACE)
    install(kubectl.kubeconfig, VALUES)
    kubectl.wait("condition=Established", "crd/gputypes.tonnage.dev")
    kubectl("apply", "--server-side", "-f", str(ROOT / "examples" / "gpu-types.yaml"))
    return kubectl


@pytest.fixture
def here(admin: Kubectl, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    name = "t" + str(abs(hash(request.node.name)))[:8]
    admin("create", "namespace", name)
    yield admin.within(name)
    admin("delete", "namespace", name)


def as_account(admin: Kubectl, folder: Path) -> Path:
    """A kubeconfig of the chart's account."""
    config = yaml.safe_load(admin.kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] = {"token": admin("create", "token", "tonnage").strip()}
    kubeconfig = folder / "account.kubeconfig"
    kubeconfig.write_text(json.dumps(config), encoding="utf-8")
    return kubeconfig


@contextmanager
def allocating(admin: Kubectl, folder: Path, **settings: Any) -> Iterator[OperatorProcess]:
    """An operator as the chart's account, which may do what the chart lets it."""
    kubeconfig = as_account(admin, folder)
    told = {"lease": {"namespace": NAMESPACE, "name": "tonnage"}, **VALUES["settings"], **settings}
    with operator(kubeconfig, folder, **told) as process:
        yield process
        assert not [each for each in process.counted("tonnage_api_requests_total") if 'code="403"' in each]


def claim(name: str, count: int, **exactly: Any) -> dict[str, Any]:
    request = {"name": "gpus", "exactly": {"deviceClassName": DRIVER, "count": count, **exactly}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }


def user(name: str, claim_name: str, **spec: Any) -> dict[str, Any]:
    made = pod(name, resourceClaims=[{"name": "gpus", "resourceClaimName": claim_name}], **{**BOUND, **spec})
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
    return made


def phases(kubectl: Kubectl) -> dict[str, str]:
    return {each["metadata"]["name"]: each["status"]["phase"] for each in kubectl.get("pods")["items"]}


def all_run(kubectl: Kubectl, count: int) -> None:
    until(lambda: list(phases(kubectl).values()).count("Running") == count, f"{count} pods run", within_s=60)


def devices_of(kubectl: Kubectl, name: str) -> list[tuple[str, str]]:
    found = kubectl.get("resourceclaim", name).get("status", {}).get("allocation", {}).get("devices", {})
    return sorted((each["pool"], each["device"]) for each in found.get("results", []))


def test_devices_that_kube_scheduler_gave_away_are_not_given_again(
    admin: Kubectl, here: Kubectl, tmp_path: Path
) -> None:
    theirs = {"schedulerName": "default-scheduler", "nodeSelector": {"kubernetes.io/hostname": "n0"}}
    here("create", "-f", "-", stdin=claim("theirs", 3))
    here("create", "-f", "-", stdin=user("theirs", "theirs", **theirs))
    all_run(here, 1)
    with allocating(admin, tmp_path):
        for n in range(6):  # 5 GPUs are left of n0
            here("create", "-f", "-", stdin=claim(f"c{n}", 1))
            here("create", "-f", "-", stdin=user(f"p{n}", f"c{n}", nodeSelector=theirs["nodeSelector"]))
        all_run(here, 6)
        found = audit(here)

        assert found.is_clean, found
        assert sum(phase == "Pending" for phase in phases(here).values()) == 1


def test_pods_that_share_a_claim_run_together_on_its_devices(admin: Kubectl, here: Kubectl, tmp_path: Path) -> None:
    with allocating(admin, tmp_path):
        here("create", "-f", "-", stdin=claim("shared", 2))
        for name in ("a", "b", "c"):
            here("create", "-f", "-", stdin=user(name, "shared"))
        all_run(here, 3)

    pods = here.get("pods")["items"]
    reserved = here.get("resourceclaim", "shared")["status"]["reservedFor"]
    assert len({each["spec"]["nodeName"] for each in pods}) == 1
    assert len(devices_of(here, "shared")) == 2
    assert {each["uid"] for each in reserved} == {each["metadata"]["uid"] for each in pods}
    assert audit(here).is_clean


def test_all_devices_of_a_node_are_given_to_one_claim(admin: Kubectl, here: Kubectl, tmp_path: Path) -> None:
    whole = claim("whole", 0)
    whole["spec"]["devices"]["requests"][0]["exactly"] = {"deviceClassName": DRIVER, "allocationMode": "All"}
    with allocating(admin, tmp_path):
        here("create", "-f", "-", stdin=whole)
        here("create", "-f", "-", stdin=user("p", "whole"))
        all_run(here, 1)

    node = here.get("pod", "p")["spec"]["nodeName"]
    assert devices_of(here, "whole") == [(node, f"gpu-{n}") for n in range(8)]


def test_an_allocation_whose_pod_cannot_follow_it_is_taken_back_and_made_elsewhere(
    admin: Kubectl, here: Kubectl, tmp_path: Path
) -> None:
    """As a leader leaves it that dies between claim and pod, on a node that is cordoned meanwhile."""
    here("create", "-f", "-", stdin=claim("c", 2))
    here("create", "-f", "-", stdin=user("p", "c"))
    here("annotate", "resourceclaim", "c", "tonnage.dev/epoch=1")
    uid = here.get("pod", "p")["metadata"]["uid"]
    results = [{"request": "gpus", "driver": DRIVER, "pool": "n1", "device": f"gpu-{n}"} for n in range(2)]
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    status = {
        "allocation": {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": uid}],
    }
    here(*("patch", "resourceclaim", "c", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})))
    admin("cordon", "n1")
    try:
        with allocating(admin, tmp_path, release_deadline_s=2):
            all_run(here, 1)
    finally:
        admin("uncordon", "n1")

    assert here.get("pod", "p")["spec"]["nodeName"] != "n1"
    assert len(devices_of(here, "c")) == 2
    assert audit(here).is_clean


def test_a_claim_that_cannot_be_served_is_told_in_an_event(admin: Kubectl, here: Kubectl, tmp_path: Path) -> None:
    expression = f"device.attributes['{DRIVER}'].productName == 'NVIDIA-B200'"
    with allocating(admin, tmp_path):
        here("create", "-f", "-", stdin=claim("c", 1, selectors=[{"cel": {"expression": expression}}]))
        here("create", "-f", "-", stdin=user("p", "c"))

        def told() -> bool:
            events = here.get("events.events.k8s.io")["items"]
            return any(
                each["reason"] == "FailedScheduling" and each["note"].startswith("NoDeviceMatches: ") for each in events
            )

        until(told, "an event that says why", within_s=60)


def test_what_a_pod_held_is_free_when_it_is_gone(admin: Kubectl, here: Kubectl, tmp_path: Path) -> None:
    """The controller of claims takes allocations back; Tonnage gives the devices away again."""
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "eight"},
        "spec": {"spec": claim("", 8)["spec"]},
    }
    here("create", "-f", "-", stdin=template)
    with allocating(admin, tmp_path):
        for turn in range(2):
            for n in range(3):  # all 24 GPUs, twice
                each = user(f"p{turn}{n}", "")
                each["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "eight"}]
                here("create", "-f", "-", stdin=each)
            all_run(here, 3)
            assert audit(here).is_clean
            assert all(claim_names(each) for each in here.get("pods")["items"])
            here("delete", "pods", "--all", "--wait=false")
            until(lambda: not here.get("pods")["items"], "the pods are gone", within_s=60)


def slices_with_parts() -> list[dict[str, Any]]:
    """Of node `parts`: a GPU that is broken, one with several allocations, and one with four parts."""

    def uses(quarters: int, *parts: int) -> dict[str, Any]:
        return {"memory": {"value": f"{20 * quarters}Gi"}, **{f"part-{n}": {"value": "1"} for n in parts}}

    def device(name: str, kind: str, **more: Any) -> dict[str, Any]:
        attributes = {"type": {"string": kind}}
        return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}, **more}

    of_part = [{"consumesCounters": [{"counterSet": "gpu-2", "counters": uses(1, n)}]} for n in range(4)]
    listed = [
        device("gpu-0", "gpu", taints=[{"key": "broken", "effect": "NoExecute"}]),
        device("gpu-1", "shared", allowMultipleAllocations=True),
        device("gpu-2", "gpu", consumesCounters=[{"counterSet": "gpu-2", "counters": uses(4, *range(4))}]),
        *(device(f"gpu-2-part-{n}", "mig", **each) for n, each in enumerate(of_part)),
    ]
    spec = {
        "driver": DRIVER,
        "nodeName": "parts",
        "pool": {"name": "parts", "generation": 1, "resourceSliceCount": 2},
    }
    lists = {
        "devices": {"devices": listed},
        "counters": {"sharedCounters": [{"name": "gpu-2", "counters": uses(4, *range(4))}]},
    }
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"parts-{name}"},
            "spec": {**spec, **each},
        }
        for name, each in lists.items()
    ]


def test_parts_shares_and_tolerated_devices_go_to_tonnage_and_to_kube_scheduler_once(
    admin: Kubectl, here: Kubectl, tmp_path: Path
) -> None:
    """Both allocate on one node, one after the other; the API server takes what Tonnage writes."""

    def ask(name: str, kind: str, scheduler: str = "tonnage", **exactly: Any) -> None:
        selector = {"cel": {"expression": f"device.attributes['{DRIVER}'].type == '{kind}'"}}
        spec = {"schedulerName": scheduler, "nodeSelector": {"kubernetes.io/hostname": "parts"}}
        here("create", "-f", "-", stdin=claim(name, 1, selectors=[selector], deviceClassName="parts", **exactly))
        here("create", "-f", "-", stdin=user(name, name, **spec))

    def running() -> set[str]:
        return {name for name, phase in phases(here).items() if phase == "Running"}

    def of_share(memory: str) -> dict[str, Any]:
        return {"capacity": {"requests": {"memory": memory}}}

    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "parts"}}
    for each in (*slices_with_parts(), {**device_class, "spec": {"selectors": selectors}}):
        admin("create", "-f", "-", stdin=each)
    try:
        ask("theirs", "mig", "default-scheduler")
        ask("their-share", "shared", "default-scheduler", **of_share("30Gi"))
        until(lambda: running() == {"theirs", "their-share"}, "kube-scheduler's pods run", within_s=60)
        with allocating(admin, tmp_path):
            for n in range(4):  # three parts are left of four
                ask(f"part-{n}", "mig")
            ask("whole", "gpu")
            ask("share", "shared", **of_share("40Gi"))
            # The controller that evicts for taints wants the effect named.
            tolerations = [{"key": "broken", "operator": "Exists", "effect": "NoExecute"}]
            ask("tolerates", "gpu", tolerations=tolerations)
            until(lambda: len(running()) == 2 + 3 + 1 + 1, "all run that have room", within_s=120)
        ask("last-share", "shared", "default-scheduler", **of_share("10Gi"))
        ask("no-share", "shared", "default-scheduler", **of_share("10Gi"))
        until(lambda: len(running()) == 8, "kube-scheduler counts what Tonnage gave", within_s=120)
        found = audit(here)

        # Several pods are on one GPU here; the claims say of which part.
        assert (found.lost, found.failed, found.over_capacity, found.misplaced) == ((), (), (), ())
        assert list(double_devices(here)) == []
        assert "whole" not in running()
        assert sorted(devices_of(here, name)[0][1] for name in running() if devices_of(here, name)) == [
            "gpu-0",
            *["gpu-1"] * 3,
            *(f"gpu-2-part-{n}" for n in range(4)),
        ]
    finally:
        for each in slices_with_parts():
            admin("delete", "resourceslice", each["metadata"]["name"])


def test_what_an_earlier_leader_still_writes_of_a_claim_is_refused_by_the_server(
    admin: Kubectl, here: Kubectl, tmp_path: Path
) -> None:
    """The status gives devices away. It cannot carry an epoch itself: that of the claim counts, set just before."""
    spec = {"holderIdentity": "", "leaseDurationSeconds": 15, "leaseTransitions": 1000}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "tonnage"}, "spec": spec}
    admin("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=lease)
    here("create", "-f", "-", stdin=claim("c", 1))
    here("create", "-f", "-", stdin=claim("d", 1))
    api = PlainApi(as_account(admin, tmp_path))

    def sent(name: str, epoch: int, *, marked: bool = True) -> list[Answer]:
        """What a leader of this epoch writes to take a claim's devices back, one after the other.

        marked: whether it sends the first of the two writes, or has sent that while it led.
        """
        there = msgspec.json.decode(here("get", "resourceclaim", name, "-o", "json"), type=ResourceClaim)
        mark, status = deallocation_writes(there, epoch)
        return [
            api.send(write.method, write.path, write.body, content_type=write.content_type)
            for write in ((mark, status) if marked else (status,))
        ]

    try:
        until(lambda: sent("c", 999)[0].status == 403, "the fence knows of the Lease")
        mark, status = sent("c", 999)
        assert (mark.status, status.status) == (403, 403)
        assert "tonnage.dev/epoch is 999, that of the Lease is 1000" in mark.message
        assert "tonnage.dev/epoch is missing" in status.message

        here("annotate", "resourceclaim", "d", "tonnage.dev/epoch=999")  # as it marked the claim when it still led
        (status,) = sent("d", 999, marked=False)
        assert status.status == 403
        assert "tonnage.dev/epoch is 999, that of the Lease is 1000" in status.message

        assert [each.status for each in sent("d", 1000)] == [200, 200], "its successor's are not"
    finally:
        api.close()
        admin("delete", "lease", "tonnage")
