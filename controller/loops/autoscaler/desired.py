"""Desired replicas of all ScalingPolicies, from the statuses that the leader wrote: for clients outside of Tonnage."""

from collections.abc import Iterable, Iterator, Mapping

from autoscaler.demand.loads import Role
from controller.api.scaling_policy import ScalingPolicy
from controller.loops.autoscaler.external_metrics import METRIC, DesiredReplicas
from controller.metrics.registry import Sample


def desired_replicas(policies: Iterable[ScalingPolicy], now_s: float) -> Iterator[DesiredReplicas]:
    """Recommendations; a policy that has none, or is off, is left out: missing is not zero."""
    for policy in policies:
        replicas, spec, metadata = policy.status.recommended_replicas, policy.spec, policy.metadata
        if replicas is not None and spec.mode != "Off":
            at_s = policy.status.load_time or now_s
            yield DesiredReplicas(metadata.namespace, metadata.name, spec.target.name, replicas, at_s)


def samples_of(desired: Iterable[DesiredReplicas]) -> tuple[Sample, ...]:
    """The same for /metrics."""
    return tuple(Sample(METRIC, (f"{each.namespace}/{each.policy}",), each.replicas) for each in desired)


def pushed_roles(policies: Mapping[str, ScalingPolicy], name: str) -> tuple[Role, ...] | None:
    """Roles that a policy lets be pushed; None: there is no such policy."""
    policy = policies.get(name)
    if policy is None or policy.spec.mode == "Off":
        return None
    return tuple(source.role for source in policy.spec.demand.sources if source.push is not None)
