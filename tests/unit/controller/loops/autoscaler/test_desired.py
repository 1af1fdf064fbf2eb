from collections.abc import Mapping
from typing import Any

from controller.api.scaling_policy import KIND, ScalingPolicy
from controller.kube.cache import Cache
from controller.loops.autoscaler.endpoints import samples_of
from controller.loops.autoscaler.policies import PolicyReader, desired_replicas
from controller.metrics.registry import Sample
from controller.objects.own_objects import own_resource

PUSH = {"role": "requests", "push": {}}


def _policy(recommended: int | None = 5, **spec: Any) -> ScalingPolicy:
    return ScalingPolicy.model_validate(
        {
            "apiVersion": "tonnage.dev/v1alpha1",
            "kind": "ScalingPolicy",
            "metadata": {"name": "chat", "namespace": "team-a"},
            "spec": {
                "target": {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ModelService", "name": "llama"},
                "maxReplicas": 10,
                "demand": {"sources": [PUSH, {"role": "queue", "prometheus": {"preset": "vllm"}}]},
                **spec,
            },
            "status": {} if recommended is None else {"recommendedReplicas": recommended},
        }
    )


def test_a_recommendation_is_desired() -> None:
    (desired,) = desired_replicas([_policy()], now_s=1000.0)

    assert (desired.namespace, desired.labels, desired.replicas) == ("team-a", {"policy": "chat", "target": "llama"}, 5)
    assert samples_of([desired]) == (Sample("tonnage_desired_replicas", ("team-a/chat",), 5),)


def test_scaling_to_zero_is_desired_too() -> None:
    assert [each.replicas for each in desired_replicas([_policy(0)], now_s=1000.0)] == [0]


def test_without_a_recommendation_nothing_is_desired() -> None:
    assert not list(desired_replicas([_policy(None), _policy(mode="Off")], now_s=1000.0))


def test_only_roles_with_a_push_source_can_be_pushed() -> None:
    class Reader(PolicyReader):
        def all(self) -> Mapping[str, ScalingPolicy]:
            return {"team-a/chat": _policy(), "team-a/off": _policy(mode="Off")}

    reader = Reader(Cache(own_resource(KIND)))

    assert reader.pushed_roles("team-a/chat") == ("requests",)
    assert reader.pushed_roles("team-a/off") is None
    assert reader.pushed_roles("team-b/chat") is None
