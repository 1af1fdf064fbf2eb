"""Targets as the autoscaler reads them: replicas, readiness, learned lead times, conflicts."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from cluster.autoscaling import MOST_ORDERED
from cluster.workloads import InstanceType
from controller.api.notation import rfc3339
from controller.api.scaling_policy import MOST_REPLICAS, ScalingPolicy, Target
from controller.api.structs import object_from
from controller.kube.discovery import ApiResource, Discovered
from controller.kube.request import KubeReadError, Refusal
from controller.loops.autoscaler.policies import Hpa, conflict_of, conflicts_of
from controller.loops.autoscaler.targets import UNREAD_AFTER_S, KnownKinds, Starts, TargetPod, Targets, TargetState
from tests.clock import HandClock

BEGIN_S = 1_772_366_400.0
DEPLOYMENTS = ApiResource("apps", "v1", "Deployment", "deployments")
SCALE = "/apis/apps/v1/namespaces/default/deployments/web/scale"
PODS = "/api/v1/namespaces/default/pods"


def policy(**spec: Any) -> ScalingPolicy:
    about = {
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 20,
        "demand": {"sources": [{"push": {}}]},
        "capacity": {"perReplica": 10},
        **spec,
    }
    metadata = {"name": "web", "namespace": "default"}
    written = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ScalingPolicy", "metadata": metadata, "spec": about}
    return ScalingPolicy.model_validate(written)


def pod(name: str, created_s: float, ready_s: float | None = None, restarts: int = 0, **meta: Any) -> dict[str, Any]:
    """Pod by seconds since BEGIN_S."""
    ready = {"type": "Ready", "status": "False" if ready_s is None else "True"}
    return {
        "metadata": {"name": name, "uid": name, "creationTimestamp": rfc3339(BEGIN_S + created_s), **meta},
        "status": {
            "phase": "Running",
            "conditions": [{**ready, "lastTransitionTime": rfc3339(BEGIN_S + (ready_s or created_s))}],
            "containerStatuses": [{"restartCount": restarts}],
        },
    }


def pods(*written: dict[str, Any]) -> list[TargetPod]:
    return [object_from(each, TargetPod) for each in written]


class FakeApi:
    """API server with one Deployment and its pods."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.discovered = 0

    async def read(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        self.asked.append(path)
        answer = self.answers.get(path, 404)
        if isinstance(answer, int):
            raise KubeReadError(f"reading {path}", Refusal(answer, "Refused", "no"))
        return json.dumps(answer).encode()

    async def discover(self) -> Discovered:
        self.discovered += 1
        return Discovered((DEPLOYMENTS,))

    def scale(self, wanted: int, *there: dict[str, Any]) -> None:
        self.answers[SCALE] = {"spec": {"replicas": wanted}, "status": {"replicas": len(there), "selector": "app=web"}}
        self.answers[PODS] = {"items": list(there)}


class Reading:
    """Targets that read from a fake API server by a clock of the test's own."""

    def __init__(self) -> None:
        self.api, self.clock = FakeApi(), HandClock(BEGIN_S)
        self.targets = Targets(self.api, KnownKinds(self.api.discover, self.clock), self.clock)

    def turn(self, read: ScalingPolicy | None = None, after_s: float = 15.0) -> TargetState:
        self.clock.now_s += after_s
        asyncio.run(self.targets.turn({"default/web": read or policy()}))
        return self.targets.state("default/web")


def test_pending_replicas_are_ordered_when_their_pods_were_created() -> None:
    starts = Starts(BEGIN_S)

    replicas = starts.see(4, pods(pod("a", 0, 60), pod("b", 100), pod("c", 90)), BEGIN_S + 120)

    assert (replicas.wanted, replicas.ready) == (4, 1)
    # Two pods wait; for the third there is no pod yet.
    assert replicas.ordered_at_s == (BEGIN_S + 90, BEGIN_S + 100, BEGIN_S + 120)


def test_a_replica_without_a_pod_is_awaited_since_it_was_first_missed() -> None:
    starts = Starts(BEGIN_S)
    starts.see(1, (), BEGIN_S + 10)

    assert starts.see(1, (), BEGIN_S + 40).ordered_at_s == (BEGIN_S + 10,)


def test_of_absurdly_many_missing_replicas_only_some_instants_are_kept() -> None:
    """A paused Deployment may ask for 2^31 - 1 replicas and have no pod: a list of so many took 17 GB."""
    seen = Starts(BEGIN_S).see(100_000, pods(pod("a", 5), pod("b", 0)), BEGIN_S + 10)

    assert (seen.wanted, seen.ready) == (100_000, 0)
    assert seen.ordered_at_s == (BEGIN_S, BEGIN_S + 5, *[BEGIN_S + 10] * (MOST_ORDERED - 2))


@pytest.mark.parametrize("selector", ["app=web", ""])
def test_a_target_of_more_replicas_than_a_cluster_holds_is_a_problem(selector: str) -> None:
    reading = Reading()
    reading.api.scale(MOST_REPLICAS)
    reading.api.answers[SCALE]["status"]["selector"] = selector
    read = reading.turn().replicas
    assert read is not None
    assert len(read.ordered_at_s) == MOST_ORDERED

    reading.api.answers[SCALE]["spec"]["replicas"] = MOST_REPLICAS + 1

    assert reading.turn().problem.startswith("TargetTooLarge: Deployment/default/web asks for 100001 replicas")


def test_a_start_that_finishes_is_learned_once() -> None:
    starts = Starts(BEGIN_S)
    starts.see(1, pods(pod("a", 5)), BEGIN_S + 10)
    starts.see(1, pods(pod("a", 5, 95)), BEGIN_S + 100)
    starts.see(1, pods(pod("a", 5, 95)), BEGIN_S + 115)

    assert list(starts.took_s) == [90.0]


def test_starts_before_the_observation_and_restarts_teach_nothing() -> None:
    starts = Starts(BEGIN_S, learned=(80.0,))
    starts.see(2, pods(pod("old", -100, -10), pod("again", -3000, 20, restarts=1)), BEGIN_S + 30)

    assert list(starts.took_s) == [80.0]


def test_a_pod_that_is_being_stopped_is_no_replica() -> None:
    leaving = pod("a", 0, 10, deletionTimestamp=rfc3339(BEGIN_S + 20))

    assert Starts(BEGIN_S).see(1, pods(leaving), BEGIN_S + 30).ready == 0


def test_a_target_is_read_through_its_scale_subresource() -> None:
    reading = Reading()
    reading.api.scale(2, pod("a", 0, 10), pod("b", 0))

    state = reading.turn()

    assert state.replicas is not None
    assert (state.replicas.wanted, state.replicas.ready, state.plural) == (2, 1, "deployments")
    assert reading.api.discovered == 1


def test_the_pods_of_a_settled_target_are_read_once_a_minute() -> None:
    reading = Reading()
    reading.api.scale(1, pod("a", 0, 10))
    for _ in range(4):
        reading.turn()

    assert reading.api.asked.count(PODS) == 1
    reading.turn()
    assert reading.api.asked.count(PODS) == 2


def test_a_target_that_does_not_exist_or_may_not_be_read_is_a_problem() -> None:
    reading = Reading()
    assert reading.turn().problem.startswith("TargetNotFound: there is no Deployment/default/web")

    reading.api.answers[SCALE] = 403
    assert "autoscaler.targets" in reading.turn().problem


def test_a_target_that_cannot_be_read_keeps_its_last_reading_for_a_while() -> None:
    reading = Reading()
    reading.api.scale(1, pod("a", 0, 10))
    read = reading.turn()
    reading.api.answers[SCALE] = 500

    assert reading.turn() == read
    late = reading.turn(after_s=UNREAD_AFTER_S)
    assert late.replicas is None
    assert late.problem.startswith("TargetUnread: ")


def test_a_kind_that_the_server_does_not_have_is_looked_for_once_a_minute() -> None:
    reading = Reading()
    unknown = policy(target={"apiVersion": "example.com/v1", "kind": "Model", "name": "m"})
    for _ in range(4):
        state = reading.turn(unknown)

    assert "no Model in example.com/v1" in state.problem
    assert reading.api.discovered == 1


def test_a_policy_that_is_off_is_not_read() -> None:
    reading = Reading()
    reading.turn(policy(mode="Off"))

    assert reading.api.asked == []


def test_the_instances_of_a_service_are_its_pods() -> None:
    reading = Reading()
    labels = {"tonnage.dev/gpu-type": "A100", "tonnage.dev/gpus-per-instance": "2"}
    reading.api.answers[PODS] = {"items": [pod("a", 0, 10, labels=labels), pod("b", 0, labels=labels)]}
    service = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ModelService", "name": "chat"}

    state = reading.turn(policy(target=service))

    assert state.replicas is not None
    assert (state.replicas.wanted, state.replicas.ready) == (2, 1)
    assert state.ready == {InstanceType("A100", 2): 1}


def test_a_caches_pods_are_no_replicas_of_its_service() -> None:
    """They start in seconds, as no instance that loads a model does."""
    reading, labels = Reading(), {"tonnage.dev/gpu-type": "A100", "tonnage.dev/phase": "cache"}
    reading.api.answers[PODS] = {"items": [pod("a", 0, 300), pod("b", 0, 2, labels=labels)]}
    service = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ModelService", "name": "chat"}

    state = reading.turn(policy(target=service))

    assert state.replicas is not None
    assert (state.replicas.wanted, state.replicas.ready) == (1, 1)


def hpa(kind: str = "Deployment", name: str = "web", namespace: str = "default", **meta: Any) -> Hpa:
    ref = {"apiVersion": "apps/v1", "kind": kind, "name": name}
    return object_from(
        {"metadata": {"name": "hpa", "namespace": namespace, **meta}, "spec": {"scaleTargetRef": ref}}, Hpa
    )


WEB = Target.model_validate({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})


def test_an_hpa_of_the_same_target_is_a_conflict_and_is_named() -> None:
    assert conflict_of(WEB, "default", conflicts_of([hpa()])) == "HorizontalPodAutoscaler/default/hpa"


@pytest.mark.parametrize("other", [hpa(kind="StatefulSet"), hpa(name="api"), hpa(namespace="other")])
def test_an_hpa_of_another_target_is_none(other: Hpa) -> None:
    assert conflict_of(WEB, "default", conflicts_of([other])) == ""


def test_an_hpa_of_keda_is_named_by_its_scaled_object() -> None:
    owned = hpa(ownerReferences=[{"kind": "ScaledObject", "name": "by-queue"}])

    assert conflict_of(WEB, "default", conflicts_of([owned])) == "ScaledObject/default/by-queue"


def test_of_several_autoscalers_of_one_target_the_first_by_name_is_named() -> None:
    hpas = (named(hpa(), "b"), named(hpa(name="api"), "0"), named(hpa(), "a"))

    assert conflict_of(WEB, "default", conflicts_of(iter(hpas))) == "HorizontalPodAutoscaler/default/a"


def named(of: Hpa, name: str) -> Hpa:
    return structs.replace(of, metadata=structs.replace(of.metadata, name=name))
