from typing import Any

from controller.api.scaling_policy import ScalingPolicy
from controller.loops.autoscaler.endpoints import samples_of
from controller.loops.autoscaler.policies import desired_replicas, pushed_roles
from controller.metrics.registry import Sample

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
    policies = {"team-a/chat": _policy(), "team-a/off": _policy(mode="Off")}

    assert pushed_roles(policies, "team-a/chat") == ("requests",)
    assert pushed_roles(policies, "team-a/off") is None
    assert pushed_roles(policies, "team-b/chat") is None
