"""A pod that kube-scheduler or a kubelet refuses, from the objects of a cluster to the next plan."""

import json
from typing import Any

import pytest

from cluster.actions import Bind, Evict
from cluster.plans import Plan
from controller.api.labels import PLACEMENT_GATE
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import decide
from controller.kube.cache import Cache
from controller.kube.sender import Stamp
from controller.kube_world.cached_view import DEPLOYMENTS, CachedView, is_ours
from controller.kube_world.planning_view import PlanningView
from controller.kube_world.refusals import FAILED_PODS
from controller.placers import NodePool, placing_writes
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import gpu_type, node, pod
from tests.builders.watch_events import as_stored, listed
from tests.clock import HandClock

SAYS = "0/2 nodes are available: 1 node(s) didn't have the moon, 1 node(s) didn't match Pod's node affinity/selector."
OWNER = [{"kind": "ReplicaSet", "name": "set", "uid": "s", "controller": True, "apiVersion": "apps/v1"}]
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
PORT = {"containerPort": 80, "hostPort": 80}


class Stage:
    """Two nodes and a pod, with the operator's view of them."""

    def __init__(self, mode: str, waits: dict[str, Any]) -> None:
        self.pool, self.waits = NodePool(mode, {}), waits
        fleet = [node(name) for name in ("a", "b")]
        for each in fleet:
            each["metadata"]["labels"] |= {"zone": each["metadata"]["name"]}
            each["status"]["allocatable"] |= {"example.com/nic": "4"}
        self.cluster = LiveCluster([gpu_type(), *fleet, waits], is_ours=is_ours)
        self.failed = Cache(FAILED_PODS)
        view = CachedView(self.cluster.observer, Cache(DEPLOYMENTS), failed=self.failed)
        self.planning = PlanningView(view, [self.pool], clock=HandClock(), release_deadline_s=60.0)

    def plan(self) -> Plan:
        return decide(self.planning.snapshot(), Decisions(), deadline_s=60.0, clock=HandClock())

    def placed(self, **status: Any) -> tuple[dict[str, Any], str]:
        """The pod as Tonnage's own write places it, and its node; it is not in the cluster yet."""
        (bind,) = self.plan().actions
        assert isinstance(bind, Bind)
        seen = self.planning.view.pod(bind.pod)
        assert seen is not None
        (write,) = placing_writes(seen, bind, {}, [self.pool], Stamp(1, self.cluster.clock.now_s))
        assert write.body is not None
        after = json.loads(json.dumps(self.waits))
        after["metadata"]["annotations"] = write.body["metadata"]["annotations"]
        if "spec" in write.body:
            terms = write.body["spec"]["affinity"]["nodeAffinity"]
            after["spec"] |= {"schedulingGates": []}
            after["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {}).update(terms)
        else:
            after["spec"]["nodeName"] = bind.node
        return {**after, "status": status}, bind.node


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"nodeSelector": {"nvidia.com/gpu.product": "A100"}},
        {"topologySpreadConstraints": [SPREAD]},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["c"]}]}]}}}},
    ],
)  # fmt: skip
def test_the_next_pod_of_an_owner_goes_to_another_node_than_the_one_that_was_refused(spec: dict[str, Any]) -> None:
    waits = pod("p", gpus=1, schedulingGates=[{"name": PLACEMENT_GATE}], **spec)
    waits["metadata"]["ownerReferences"] = OWNER
    waits["spec"]["containers"][0]["ports"] = [PORT]
    stage = Stage("gate", waits)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": SAYS}
    refused, where = stage.placed(phase="Pending", conditions=[condition])

    stage.cluster.put(refused)
    at_once = stage.plan()
    stage.cluster.clock.now_s += 5.0
    late = stage.plan()
    stage.cluster.remove(refused)
    stage.cluster.put(waits)
    (again,) = stage.plan().actions

    assert at_once.actions == ()
    assert late.actions == (Evict("default/p", where),)
    assert SAYS in next(step.reason.words for step in late.steps())
    assert isinstance(again, Bind)
    assert again.node != where


def test_a_pod_that_a_kubelet_does_not_admit_is_followed_by_one_elsewhere() -> None:
    waits = pod("p", gpus=1, schedulerName="tonnage")
    waits["spec"]["containers"][0]["resources"]["limits"]["example.com/nic"] = "1"
    stage = Stage("bind", waits)
    stage.failed.take_page(listed([]), 0.0, is_first=True)
    refused, where = stage.placed(phase="Failed", reason="OutOfexample.com/nic", startTime="1970-01-01T00:16:40Z")

    stage.failed.take_page(listed([as_stored(refused)]), 0.0, is_first=True)
    (again,) = stage.plan().actions

    assert isinstance(again, Bind)
    assert again.node != where
