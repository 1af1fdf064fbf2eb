"""Gangs that preempt on a real API server: as many victims as are needed, and each gang starts at one time."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from simulator.controlplane.binaries import Programs
from simulator.controlplane.server import ControlPlane
from tests.controlplane.auditor import audit
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import pod
from tests.controlplane.operators import ROOT, create_all, operator, until
from tests.controlplane.servers import StartServer, server_of_l4

GANGS, MEMBERS, PER_NODE = 100, 8, 8
"""Gangs; members of each, of one GPU; GPUs of a node. The gangs need every GPU, and low pods have them all."""
PODS = "/api/v1/namespaces/default/pods"
OURS = {"schedulerName": "tonnage", "terminationGracePeriodSeconds": 1}


@pytest.fixture(scope="module")
def server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    return server_of_l4(start_server, tmp_path_factory.mktemp("fleet"), GANGS * MEMBERS // PER_NODE)


@pytest.fixture(scope="module")
def kubectl(server: ControlPlane, programs: Programs) -> Kubectl:
    return with_priorities(server, programs)


def with_priorities(server: ControlPlane, programs: Programs) -> Kubectl:
    """kubectl as administrator of a server with Tonnage's kinds and two priorities."""
    made = Kubectl(programs["kubectl"], server.kubeconfig)
    made("apply", "-f", str(ROOT / "deploy" / "crds"))
    made("create", "namespace", "tonnage-system")
    for name, value in (("low", 1), ("high", 1000)):
        priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        made("create", "-f", "-", stdin={**priority, "value": value})
    return made


def running(kubectl: Kubectl, app: str) -> list[dict[str, Any]]:
    pods = kubectl.get("pods", "-l", f"app={app}")["items"]
    return [each for each in pods if each["status"].get("phase") == "Running"]


def labelled(name: str, priority: str, **labels: str) -> dict[str, Any]:
    made = pod(name, gpus=1, priorityClassName=priority, **OURS)
    made["metadata"]["labels"] = labels
    return made


def create_gangs(server: ControlPlane, priority: str, members: int, *names: str) -> None:
    kind = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Gang", "spec": {"minMembers": members}}
    gangs = [{**kind, "metadata": {"name": name}} for name in names]
    create_all(server.kubeconfig, "/apis/tonnage.dev/v1alpha1/namespaces/default/gangs", gangs)
    pods = [
        labelled(f"{name}-{m}", priority, app=f"{priority}-member", **{"tonnage.dev/gang": name})
        for name in names
        for m in range(members)
    ]
    create_all(server.kubeconfig, PODS, pods)


def longest_span_s(pods: Iterable[dict[str, Any]]) -> float:
    """Longest time from the first to the last bind of a gang, seconds."""
    bound = defaultdict(list)
    for each in pods:
        (said,) = (c for c in each["status"]["conditions"] if c["type"] == "PodScheduled")
        at = datetime.fromisoformat(said["lastTransitionTime"])
        bound[each["metadata"]["labels"]["tonnage.dev/gang"]].append(at)
    return max((max(each) - min(each)).total_seconds() for each in bound.values())


def test_gangs_that_preempt_stop_no_more_than_they_need_and_start_whole_at_one_time(
    server: ControlPlane, kubectl: Kubectl, tmp_path: Path
) -> None:
    """A plan may stop 40 pods, so that it takes many cycles."""
    with operator(server.kubeconfig, tmp_path, pools=[{"placer": "bind"}], interval_s=1.0):
        create_all(server.kubeconfig, PODS, [labelled(f"low-{n}", "low", app="low") for n in range(GANGS * MEMBERS)])
        until(lambda: len(running(kubectl, "low")) == GANGS * MEMBERS, "the fleet is full")
        create_gangs(server, "high", MEMBERS, *(f"g{n}" for n in range(GANGS)))
        until(lambda: len(running(kubectl, "high-member")) == GANGS * MEMBERS, "all members run", within_s=400.0)

        found = audit(kubectl, gangs={f"g{n}": MEMBERS for n in range(GANGS)})
        assert found.is_clean, found
        assert running(kubectl, "low") == []
        assert longest_span_s(running(kubectl, "high-member")) <= 1.0


WIDE, WIDE_GANGS = 64, 3
"""Members of a gang, more than a plan may stop: 10 pods, or 5 % of these 192. Gangs of each priority."""


def test_gangs_above_the_limit_on_evictions_stop_whole_gangs_one_a_plan(
    start_server: StartServer, programs: Programs, tmp_path: Path
) -> None:
    server = server_of_l4(start_server, tmp_path, WIDE_GANGS * WIDE // PER_NODE)
    kubectl = with_priorities(server, programs)
    low, high = ([f"{priority}-{n}" for n in range(WIDE_GANGS)] for priority in ("low", "high"))
    seen = list[tuple[int, int, int]]()
    """At each look: high gangs with a bound member, members of low gangs that are there, and that are to stay."""
    said = set[str]()
    """Why a gang waits."""

    def all_run() -> bool:
        members = kubectl.get("pods", "-l", "app=high-member")["items"]
        started = {each["metadata"]["labels"]["tonnage.dev/gang"] for each in members if "nodeName" in each["spec"]}
        there = kubectl.get("pods", "-l", "app=low-member")["items"]
        seen.append((len(started), len(there), sum("deletionTimestamp" not in each["metadata"] for each in there)))
        conditions = (
            each for gang in kubectl.get("gangs")["items"] for each in gang.get("status", {}).get("conditions", ())
        )
        said.update(f"{each['reason']}: {each['message']}" for each in conditions if each["type"] == "Planned")
        return len([each for each in members if each["status"].get("phase") == "Running"]) == WIDE_GANGS * WIDE

    with operator(server.kubeconfig, tmp_path, pools=[{"placer": "bind"}], interval_s=5.0):
        create_gangs(server, "low", WIDE, *low)
        until(lambda: len(running(kubectl, "low-member")) == WIDE_GANGS * WIDE, "the fleet is full of low gangs")
        create_gangs(server, "high", WIDE, *high)
        until(all_run, "all members of high gangs run", within_s=300.0)

        found = audit(kubectl, gangs=dict.fromkeys(high, WIDE))
        assert found.is_clean, found
        assert running(kubectl, "low-member") == []
        assert all(there <= (WIDE_GANGS - started) * WIDE for started, there, _ in seen), seen
        assert {2 * WIDE, WIDE} <= {stay for *_, stay in seen}, seen
        words = (
            "64 pods of lower priority make room for it; this plan already stops 10 pods, the most that one plan may"
        )
        assert f"TooManyEvictions: {words}; the next one goes on" in said, said
