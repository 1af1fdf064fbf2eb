"""The operator on a real API server: services end to end, all placement modes, and failing leaders."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from simulator.controlplane.server import ControlPlane
from tests.controlplane.auditor import audit
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import GPU, pod
from tests.controlplane.operators import ROOT, create_all, operator, until
from tests.controlplane.servers import StartServer

POOLS = [
    {"placer": "bind", "selector": {"pool": "bind"}},
    {"placer": "dra", "selector": {"pool": "dra"}},
    {"placer": "gate"},
]
DRIVER = "gpu.nvidia.com"
OF_A_SERVICE = ("deployments", "replicasets", "pods", "resourceclaims", "resourceclaimtemplates")
EXAMPLES = ROOT / "examples"


def nodes() -> list[dict[str, Any]]:
    """70 nodes of 8 GPUs for each placement mode: 560 GPUs in each pool. Half of each are A100s, half L4s."""
    made = []
    for number in range(210):
        product = "NVIDIA-A100-SXM4-80GB" if number % 2 else "NVIDIA-L4"
        pool = ("bind", "gate", "dra")[number // 70]
        labels = {"nvidia.com/gpu.product": product, "pool": pool}
        has = {"cpu": "96", "memory": "1Ti", GPU: "8"}
        annotations = {"simulated.tonnage.dev/dra-driver": DRIVER} if pool == "dra" else {}
        metadata = {"name": f"n{number:03d}", "labels": labels, "annotations": annotations}
        made.append({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": has}})
    return made


@pytest.fixture(scope="module")
def server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    """A server of the module's own: an operator places pods of all namespaces."""
    manifests = tmp_path_factory.mktemp("fleet") / "nodes.yaml"
    manifests.write_text(yaml.safe_dump_all(nodes()), encoding="utf-8")
    return start_server(ControlPlaneSettings(manifests=str(manifests)))


@pytest.fixture(scope="module")
def admin(server: ControlPlane, programs: Programs) -> Kubectl:
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    kubectl("apply", "-f", str(ROOT / "deploy" / "crds"))
    for crd in ("gputypes", "modelprofiles", "modelservices", "gangs"):
        kubectl.wait("condition=Established", f"crd/{crd}.tonnage.dev")
    kubectl("create", "namespace", "tonnage-system")
    kubectl("apply", "-f", str(EXAMPLES / "gpu-types.yaml"), "-f", str(EXAMPLES / "profiles.yaml"))
    return kubectl


@pytest.fixture
def here(admin: Kubectl, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """kubectl in a namespace of the test's own, gone afterwards with all that is in it."""
    name = "t" + str(abs(hash(request.node.name)))[:8]
    admin("create", "namespace", name)
    yield admin.within(name)
    admin("delete", "namespace", name)


def chat(**spec: Any) -> dict[str, Any]:
    """The `chat` service of the examples, with a template to make pods of."""
    documents = yaml.safe_load_all((EXAMPLES / "services.yaml").read_text(encoding="utf-8"))
    found: dict[str, Any] = next(each for each in documents if each["metadata"]["name"] == "chat")
    container = {"name": "server", "image": "example.com/none"}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    return {**found, "spec": {**found["spec"], "template": template, **spec}}


def waiting(mode: str, count: int, namespace: str) -> list[dict[str, Any]]:
    """Pods that wait for Tonnage in one placement mode: every tenth asks for 2 GPUs, the others for 1.

    Those of `dra` have a claim from a template; `dra-gate` are released, the others of `dra` bound.
    """
    gated, bound = {"schedulingGates": [{"name": "tonnage.dev/placement"}]}, {"schedulerName": "tonnage"}
    how = {"bind": bound, "dra": bound, "gate": gated, "dra-gate": gated}[mode]
    selector = {"nodeSelector": {"pool": mode.removesuffix("-gate")}, "terminationGracePeriodSeconds": 0}
    pods = []
    for n in range(count):
        gpus = 1 + (n % 10 == 0)
        if mode.startswith("dra"):
            claim = {"name": "gpus", "resourceClaimTemplateName": f"gpus-{gpus}"}
            pods.append(pod(f"{mode}-{n:04d}", resourceClaims=[claim], **how, **selector))
            pods[-1]["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
        else:
            pods.append(pod(f"{mode}-{n:04d}", gpus=gpus, **how, **selector))
    for each in pods:
        each["metadata"] |= {"namespace": namespace, "labels": {"mode": mode}}
    return pods


def make_templates(kubectl: Kubectl) -> None:
    """Claims for one and for two GPUs."""
    for count in (1, 2):
        request = {"name": "gpus", "exactly": {"deviceClassName": DRIVER, "count": count}}
        template = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": f"gpus-{count}"},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        }
        kubectl("create", "-f", "-", stdin=template)


def path_of_pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def names(pods: list[dict[str, Any]]) -> list[str]:
    return [f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in pods]


def all_run(kubectl: Kubectl, count: int) -> None:
    """`kubectl wait` looks at one pod after the other, which takes a minute for 500."""

    def running() -> int:
        phases = kubectl("get", "pods", "-o", "jsonpath={.items[*].status.phase}").split()
        return phases.count("Running")

    until(lambda: running() == count, f"{count} pods run")


def service(kubectl: Kubectl) -> Any:
    return kubectl.get("modelservice", "chat")


def running_by_product(kubectl: Kubectl) -> dict[str, int]:
    products = {
        node["metadata"]["name"]: node["metadata"]["labels"]["nvidia.com/gpu.product"]
        for node in kubectl.get("nodes")["items"]
    }
    found: dict[str, int] = {}
    for each in kubectl.get("pods")["items"]:
        product = products[each["spec"]["nodeName"]]
        found[product] = found.get(product, 0) + 1
    return found


@pytest.mark.parametrize("mode", ["bind", "dra", "gate"])
def test_a_service_becomes_ready_follows_its_promise_and_leaves_nothing_behind(
    server: ControlPlane, here: Kubectl, tmp_path: Path, mode: str
) -> None:
    with operator(server.kubeconfig, tmp_path, pools=[{"placer": mode}]):
        here("apply", "-f", "-", stdin=chat())
        here.wait("condition=Ready", "modelservice/chat")
        loose = service(here)["status"]
        assert running_by_product(here) == {
            {"a100": "NVIDIA-A100-SXM4-80GB", "l4": "NVIDIA-L4"}[name]: count
            for name, count in loose["replicas"].items()
        }

        # 120 ms allow L4s; no L4 keeps 40 ms for long requests, so the tighter promise must cost more.
        here("apply", "-f", "-", stdin=chat(slo={"tpot": "40ms"}))
        here.wait("condition=Ready", "modelservice/chat")
        tight = service(here)["status"]
        assert tight["costPerHour"] > loose["costPerHour"]
        assert tight["replicas"] != loose["replicas"]
        assert tight["observedGeneration"] == service(here)["metadata"]["generation"]

        here("delete", "modelservice", "chat")
        until(
            lambda: not any(here.get(kind)["items"] for kind in OF_A_SERVICE),
            "everything of the service is gone",
        )


def test_nulls_of_one_service_stop_neither_it_nor_others_and_scaled_to_zero_it_says_so(
    server: ControlPlane, here: Kubectl, tmp_path: Path
) -> None:
    """An empty key in YAML is null, which a CRD accepts where it does not look inside."""
    nulls = chat()
    nulls["spec"]["template"]["spec"] |= {"schedulingGates": None, "affinity": None, "resourceClaims": None}
    term = {"matchExpressions": None, "matchFields": None}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    other = chat() | {"metadata": {"name": "other"}}
    other["spec"]["template"]["spec"] |= {"affinity": {"nodeAffinity": required}, "tolerations": None}
    with operator(server.kubeconfig, tmp_path, pools=POOLS) as process:
        for each in (nulls, other):
            here("create", "-f", "-", stdin=each)
        here("create", "-f", "-", stdin=pod("canary", gpus=1, schedulerName="tonnage", nodeSelector={"pool": "bind"}))
        here.wait("condition=Ready", "modelservice/chat")
        here.wait("condition=Ready", "pod/canary")
        none = {"spec": {"demand": {"requestsPerSecond": 0}}}
        here("patch", "modelservice", "chat", "--type=merge", "-p", json.dumps(none))

        def at_zero() -> bool:
            status, generation = service(here)["status"], service(here)["metadata"]["generation"]
            return status["observedGeneration"] == generation and status["wantedInstances"] == 0

        until(at_zero, "the status shows that no instance is wanted")
        assert "replicas" not in service(here)["status"]
        assert process.counted("tonnage_cycles_total").get('tonnage_cycles_total{result="failed"}', 0.0) == 0.0


def test_a_cycle_that_fails_logs_nothing_that_a_tenant_wrote_and_the_next_one_places_pods(
    server: ControlPlane, here: Kubectl, tmp_path: Path
) -> None:
    """B3: a failed cycle logged its local variables, 100 kB with the environment of every service's template."""
    told = chat()
    told["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": "of-a-tenant"}]
    waits = {"gpus": 1, "schedulerName": "tonnage", "nodeSelector": {"pool": "bind"}}
    # Cycles so far apart that one fails: after three in a row the Lease is left to another replica for 10 s.
    settings = {"pools": POOLS, "interval_s": 2.0}
    with operator(server.kubeconfig, tmp_path, program="tests.controlplane.failing_operator", **settings) as process:
        here("create", "-f", "-", stdin=told)
        until(lambda: process.said("the cycle failed"), "a cycle fails over the service")
        here("delete", "modelservice", "chat")
        here("create", "-f", "-", stdin=pod("canary", **waits))
        here.wait("condition=Ready", "pod/canary")

        failure = json.dumps(process.said("the cycle failed"))
        assert "failing_operator.py" in failure, "the traceback says where"
        assert not any("of-a-tenant" in json.dumps(line) for line in process.lines)
        assert len(failure) < 20_000
        assert process.counted("tonnage_cycles_total")['tonnage_cycles_total{result="failed"}'] >= 1.0


def test_a_leader_whose_cycles_fail_is_not_ready_and_leaves_the_lease_to_another_replica(
    server: ControlPlane, here: Kubectl, tmp_path: Path
) -> None:
    """Its bug is set off by one service; the other replica does not have it."""
    failing, sound = tmp_path / "failing", tmp_path / "sound"
    for folder in (failing, sound):
        folder.mkdir()
    waits = {"gpus": 1, "schedulerName": "tonnage", "nodeSelector": {"pool": "bind"}}
    here("create", "-f", "-", stdin=chat())
    program = "tests.controlplane.failing_operator"
    with operator(server.kubeconfig, failing, program=program, pools=POOLS) as broken:
        until(lambda: broken.said("leadership taken"), "the one with the bug leads")
        with operator(server.kubeconfig, sound, pools=POOLS) as other:
            until(lambda: broken.said("stepping down"), "it steps down")
            assert "3 cycles failed in a row" in (broken.said("stepping down") or {})["why"]
            until(lambda: other.said("leadership taken"), "the other leads")
            here("create", "-f", "-", stdin=pod("canary", **waits))
            here.wait("condition=Ready", "pod/canary")

            assert (broken.probe("/readyz"), broken.probe("/healthz"), other.probe("/readyz")) == (503, 200, 200)
            assert not other.said("the cycle failed")


def test_instances_get_onto_nodes_of_one_way_where_their_type_lies_in_pools_of_several(
    server: ControlPlane, here: Kubectl, tmp_path: Path
) -> None:
    # 70 nodes of either mode, so `bind`, which is the first. The nodes of `gate` that are in use are what fits better.
    pools = [{"placer": "bind", "selector": {"pool": "bind"}}, {"placer": "gate"}]
    fillers = waiting("gate", 12, here.namespace)
    with operator(server.kubeconfig, tmp_path, pools=pools) as process:
        create_all(server.kubeconfig, path_of_pods(here.namespace), fillers)
        all_run(here, 12)
        here("apply", "-f", "-", stdin=chat())
        here.wait("condition=Ready", "modelservice/chat")
        instances = here.get("pods", "-l", "tonnage.dev/service=chat")["items"]
        refused = [line for line in process.lines if "waits for" in str(line)]

    pool_of = {node["metadata"]["name"]: node["metadata"]["labels"]["pool"] for node in here.get("nodes")["items"]}
    assert instances
    assert {pool_of[each["spec"]["nodeName"]] for each in instances} == {"bind"}
    assert all(each["spec"]["schedulerName"] == "tonnage" for each in instances)
    assert not refused


@pytest.mark.parametrize("mode", ["bind", "dra", "dra-gate", "gate"])
def test_500_pods_are_placed_and_no_device_is_given_twice(
    server: ControlPlane, here: Kubectl, tmp_path: Path, mode: str
) -> None:
    pods = waiting(mode, 500, here.namespace)  # 450 × 1 + 50 × 2 = 550 of the pool's 560 GPUs
    make_templates(here)
    with operator(server.kubeconfig, tmp_path, pools=POOLS):
        create_all(server.kubeconfig, path_of_pods(here.namespace), pods)
        all_run(here, 500)

    found = audit(here, names(pods))

    assert found.is_clean, found
    assert found.bound == 500
    # kube-scheduler runs beside and can allocate claims, too: each of these was allocated by Tonnage.
    claims = here.get("resourceclaims")["items"]
    assert len(claims) == (500 if mode.startswith("dra") else 0)
    assert all("tonnage.dev/epoch" in each["metadata"]["annotations"] for each in claims)


def test_an_idle_cycle_writes_nothing(server: ControlPlane, here: Kubectl, tmp_path: Path) -> None:
    with operator(server.kubeconfig, tmp_path, pools=POOLS, resync_s=1.0) as process:
        here("apply", "-f", "-", stdin=chat())
        here.wait("condition=Ready", "modelservice/chat")

        def quiet() -> float:
            return process.counted("tonnage_cycles_total").get('tonnage_cycles_total{result="quiet"}', 0.0)

        def writes() -> float:
            """All but the Lease's renewals, which are updates; nothing else is updated."""
            series = process.counted("tonnage_api_requests_total")
            verbs = ('verb="create"', 'verb="patch"', 'verb="delete"')
            return sum(count for labels, count in series.items() if any(verb in labels for verb in verbs))

        settled = quiet() + 2  # what was said of the last change may still be on its way
        until(lambda: quiet() >= settled, "two quiet cycles")
        before = writes()
        until(lambda: quiet() >= settled + 3, "three more quiet cycles")

        assert writes() == before


def test_the_operator_is_ready_when_it_has_seen_the_cluster_also_without_leading(
    server: ControlPlane, admin: Kubectl, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = {"identity": "of-one-file"}
    with (
        operator(server.kubeconfig, tmp_path / "a", **one) as first,
        operator(server.kubeconfig, tmp_path / "b", **one) as second,
    ):
        until(lambda: first.said("leadership taken") or second.said("leadership taken"), "one leads")
        first, second = (first, second) if first.said("leadership taken") else (second, first)
        until(lambda: second.probe("/readyz") == 200, "the other is ready")

        assert second.probe("/healthz") == 200
        assert second.said("leadership taken") is None


def test_an_operator_that_is_asked_to_end_releases_the_lease_within_10_s(
    server: ControlPlane, admin: Kubectl, tmp_path: Path
) -> None:
    with operator(server.kubeconfig, tmp_path) as process:
        until(lambda: process.said("leadership taken"), "it leads")
        process.send(signal.SIGTERM)
        process.process.wait(10)

    assert process.process.returncode == 0
    assert not admin.within("tonnage-system").get("lease", "tonnage")["spec"].get("holderIdentity")


def test_a_leader_killed_in_the_middle_of_a_plan_leaves_a_cluster_that_its_successor_completes(
    server: ControlPlane, here: Kubectl, tmp_path: Path
) -> None:
    pods = waiting("bind", 500, here.namespace)
    with operator(server.kubeconfig, tmp_path, pools=POOLS) as victim:
        until(lambda: victim.said("leadership taken"), "it leads")
        create_all(server.kubeconfig, path_of_pods(here.namespace), pods)
        until(lambda: audit(here).bound > 0, "the first pod is bound")
        victim.send(signal.SIGKILL)
        victim.process.wait()
    halfway = audit(here, names(pods))
    assert halfway.is_clean, halfway

    with operator(server.kubeconfig, tmp_path, pools=POOLS):
        all_run(here, 500)

    found = audit(here, names(pods))
    assert found.is_clean, found
    assert found.bound == 500


def test_a_leader_frozen_past_its_lease_writes_nothing_when_it_thaws(
    server: ControlPlane, here: Kubectl, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first_pods, later_pods = waiting("bind", 40, here.namespace), waiting("gate", 40, here.namespace)
    with (
        operator(server.kubeconfig, tmp_path / "a", pools=POOLS) as old,
        operator(server.kubeconfig, tmp_path / "b", pools=POOLS) as new,
    ):
        until(lambda: old.said("leadership taken"), "the first leads")
        old.send(signal.SIGSTOP)
        create_all(server.kubeconfig, path_of_pods(here.namespace), first_pods)
        until(lambda: new.said("leadership taken"), "the second takes over")
        old.send(signal.SIGCONT)
        create_all(server.kubeconfig, path_of_pods(here.namespace), later_pods)
        all_run(here, 80)
        epoch = str(new.said("leadership taken")["epoch"])  # type: ignore[index]

        written_by = {each["metadata"]["annotations"]["tonnage.dev/epoch"] for each in here.get("pods")["items"]}
        found = audit(here, names(first_pods + later_pods))

    assert written_by == {epoch}
    assert found.is_clean, found


def notes(kubectl: Kubectl, name: str) -> list[str]:
    """Notes of the Events about an object, in any order."""
    events = kubectl.get("events.events.k8s.io")["items"]
    return [each.get("note", "") for each in events if each["regarding"]["name"] == name]


def test_a_flood_of_one_namespace_leaves_another_its_turn(
    server: ControlPlane, admin: Kubectl, here: Kubectl, tmp_path: Path
) -> None:
    """S6: pods that fit nowhere, each of its own shape and larger than any other, so that they come first."""
    terms = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": [f"v{n}"]}]} for n in range(30)]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    flood = [pod(f"flood-{n}", gpus=9, affinity=affinity, schedulerName="tonnage") for n in range(300)]
    for number, each in enumerate(flood):
        each["metadata"]["namespace"] = here.namespace
        each["spec"]["containers"][0]["resources"]["requests"] = {"cpu": f"{number + 1}m"}
    create_all(server.kubeconfig, path_of_pods(here.namespace), flood)
    canary = pod("canary", gpus=1, schedulerName="tonnage", nodeSelector={"pool": "bind"})
    # Work for some 150 of them in each plan, so that none comes to its end.
    with operator(server.kubeconfig, tmp_path, pools=POOLS, plan_deadline_s=0.1) as process:
        until(lambda: process.said("leadership taken"), "it leads")
        try:
            admin("create", "-f", "-", stdin=canary)
            admin.wait("condition=Ready", "pod/canary")
        finally:
            admin("delete", "pod", "canary", "--ignore-not-found")
        assert not any("DeadlinePassed" in note or "WorkUsedUp" in note for note in notes(here, "flood-0"))


def test_pods_that_kube_scheduler_refuses_take_another_node_or_give_up_what_they_hold(
    server: ControlPlane, admin: Kubectl, here: Kubectl, tmp_path: Path
) -> None:
    """K2, K3: no node offers the devices of this claim, which kube-scheduler alone allocates."""
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    admin("apply", "-f", "-", stdin={**kind, "metadata": {"name": "nobody.example.com"}, "spec": {}})
    request = {"name": "d", "exactly": {"deviceClassName": "nobody.example.com"}}
    claim = {
        **kind,
        "kind": "ResourceClaim",
        "metadata": {"name": "unmet"},
        "spec": {"devices": {"requests": [request]}},
    }
    here("create", "-f", "-", stdin=claim)
    gated = {"schedulingGates": [{"name": "tonnage.dev/placement"}], "nodeSelector": {"pool": "gate"}}
    claims = {"resourceClaims": [{"name": "d", "resourceClaimName": "unmet"}]}
    template = {"metadata": {"labels": {"app": "owned"}}, "spec": pod("owned", gpus=1, **gated, **claims)["spec"]}
    owned = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "owned"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "owned"}}, "template": template},
    }
    chosen = set[str]()

    def two_nodes_were_tried() -> bool:
        for each in here.get("pods", "-l", "app=owned")["items"]:
            chosen.update(filter(None, [each["metadata"].get("annotations", {}).get("tonnage.dev/node")]))
        return len(chosen) > 1

    with operator(server.kubeconfig, tmp_path, pools=[{"placer": "gate"}], release_deadline_s=2.0):
        here("create", "-f", "-", stdin=owned)
        until(two_nodes_were_tried, "the owned pod is taken back, and its owner's next one goes elsewhere")
        here("create", "-f", "-", stdin=pod("bare", gpus=1, **gated, **claims))
        words = "cannot allocate all claims"
        until(lambda: any("NotBound" in n and words in n for n in notes(here, "bare")), "the bare pod says whose words")
        assert any("holds no devices any more" in note for note in notes(here, "bare"))
        # B6: kube-scheduler would give the device of a share to the next pod that asks for a whole one.
        here("create", "-f", "-", stdin=pod("share", annotations={"tonnage.dev/gpu-milli": "500"}, **gated))
        until(lambda: any("no shares" in note for note in notes(here, "share")), "a share is not sent to such a node")
        assert here.get("pod", "share")["spec"]["schedulingGates"] == gated["schedulingGates"]


def test_a_gang_that_claims_a_priority_stops_no_pod_of_a_higher_class(
    server: ControlPlane, admin: Kubectl, here: Kubectl, tmp_path: Path
) -> None:
    """S4: whoever may create a Gang may not use every PriorityClass."""
    there = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n000"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [there]}}
    spec = {"schedulerName": "tonnage", "affinity": {"nodeAffinity": required}, "terminationGracePeriodSeconds": 0}
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    admin("create", "-f", "-", stdin={**kind, "metadata": {"name": "foremost"}, "value": 1000})
    movable = {"tonnage.dev/movable": "true"}
    with operator(server.kubeconfig, tmp_path, pools=POOLS):
        mine = pod("mine", gpus=8, annotations=movable, priorityClassName="foremost", **spec)
        here("create", "-f", "-", stdin=mine)
        here.wait("condition=Ready", "pod/mine")
        gang = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Gang", "metadata": {"name": "pushy"}}
        here("create", "-f", "-", stdin={**gang, "spec": {"minMembers": 2, "priority": 2_000_000}})
        for number in range(2):
            member = pod(f"pushy-{number}", gpus=4, **spec)
            member["metadata"]["labels"] = {"tonnage.dev/gang": "pushy"}
            here("create", "-f", "-", stdin=member)
        until(lambda: notes(here, "pushy"), "the gang's wait is told")

        assert here.get("pod", "mine")["status"]["phase"] == "Running"
        assert not any("reempted" in note or "victed" in note for note in notes(here, "mine"))
    admin("delete", "priorityclass", "foremost")


def test_shares_of_gpus_count_against_the_quota_of_their_namespace(
    server: ControlPlane, here: Kubectl, tmp_path: Path
) -> None:
    """Kubernetes counts devices that containers request, and a share requests none."""
    hard = {"requests.nvidia.com/gpu": "0", "tonnage.dev/gpu-milli": "1000"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "share"}, "spec": {"hard": hard}}
    here("create", "-f", "-", stdin=quota)
    until(lambda: here.get("resourcequota", "share").get("status", {}).get("hard"), "Kubernetes heeds the quota")
    waits = {"schedulerName": "tonnage", "nodeSelector": {"pool": "bind"}, "terminationGracePeriodSeconds": 0}
    with operator(server.kubeconfig, tmp_path, pools=POOLS):
        for name in ("first", "second"):
            here("create", "-f", "-", stdin=pod(name, annotations={"tonnage.dev/gpu-milli": "600"}, **waits))
            if name == "first":
                here.wait("condition=Ready", "pod/first")
        assert "exceeded quota" in here.refusal("create", "-f", "-", stdin=pod("whole", gpus=1, **waits))
        until(lambda: any("QuotaExceeded" in note for note in notes(here, "second")), "the second says why it waits")
        assert "nodeName" not in here.get("pod", "second")["spec"]

        here("delete", "pod", "first")

        here.wait("condition=Ready", "pod/second")


def test_a_service_is_planned_within_the_quota_of_its_namespace(
    server: ControlPlane, here: Kubectl, tmp_path: Path
) -> None:
    """Its instances were planned and its Deployments made, and admission refused their pods."""
    count = {"requests.nvidia.com/gpu": "0"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}, "spec": {"hard": count}}
    here("create", "-f", "-", stdin=quota)
    until(lambda: here.get("resourcequota", "gpus").get("status", {}).get("hard"), "Kubernetes heeds the quota")

    def why() -> str:
        conditions = service(here).get("status", {}).get("conditions", [])
        return next((each["message"] for each in conditions if each["type"] == "Planned"), "")

    with operator(server.kubeconfig, tmp_path, pools=[{"placer": "bind"}]):
        here("apply", "-f", "-", stdin=chat())
        until(lambda: f"{GPU} of ResourceQuota" in why(), "the quota is named as the reason")
        assert here.get("deployments")["items"] == []

        # The examples' service needs fewer than 40 devices.
        here(
            "patch",
            "resourcequota",
            "gpus",
            "--type=merge",
            "-p",
            json.dumps({"spec": {"hard": {next(iter(count)): "40"}}}),
        )

        here.wait("condition=Ready", "modelservice/chat")
    here("delete", "modelservice", "chat")


def test_a_node_that_refuses_pods_takes_no_more_for_a_while(
    server: ControlPlane, admin: Kubectl, here: Kubectl, tmp_path: Path
) -> None:
    """B4: n000 offers 12 devices and its kubelet has 8, as with devices that died while they are allocatable."""

    def offer(gpus: str) -> None:
        status = {"status": {"allocatable": {GPU: gpus}, "capacity": {GPU: gpus}}}
        admin("patch", "node", "n000", "--subresource=status", "--type=merge", "-p", json.dumps(status))

    wide = {"gpus": 12, "schedulerName": "tonnage", "nodeSelector": {"pool": "bind"}}
    offer("12")
    try:
        with operator(server.kubeconfig, tmp_path, pools=POOLS) as process:
            here("create", "-f", "-", stdin=pod("first", **wide))
            here.wait("jsonpath={.status.phase}=Failed", "pod/first")
            assert here.get("pod", "first")["status"]["reason"] == "UnexpectedAdmissionError"
            here("create", "-f", "-", stdin=pod("second", **wide))
            until(lambda: any("n000" not in note for note in notes(here, "second")), "the second waits and says why")

            assert "nodeName" not in here.get("pod", "second")["spec"], "one pod is lost, and no further one"
            until(lambda: any("refused" in note for note in notes(admin, "n000")), "an Event of the node tells of it")
            assert process.counted("tonnage_findings").get('tonnage_findings{reason="PodsRefused"}') == 1.0
    finally:
        offer("8")
