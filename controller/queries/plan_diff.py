"""Difference that a plan makes: each service and pod before and after it, with costs. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.plans import Plan, Reason, ServicePlan
from cluster.snapshot import Snapshot
from cluster.workloads import InstanceType, ModelService


@dataclass(frozen=True, slots=True)
class ServiceChange:
    """Instances and cost of one service, now and after the plan."""

    service: str
    before: Mapping[InstanceType, int]
    after: Mapping[InstanceType, int]
    """Instances by instance type after the plan; equal to `before` when the service was refused."""
    cost_before: float
    """US dollars per hour, as `cost_after`."""
    cost_after: float
    reason: Reason | None
    """Reason of the change, or of the refusal."""
    is_refused: bool = False
    gap: float = 0.0
    """Fraction of the planned cost above the proven lower bound."""
    is_planned_only: bool = False
    """Whether the plan does nothing about it: its instances are run by other means."""

    @property
    def is_change(self) -> bool:
        return dict(self.before) != dict(self.after)


@dataclass(frozen=True, slots=True)
class PodChange:
    """Pod that would start, stop or move."""

    pod: str
    node_before: str | None
    node_after: str | None
    devices: tuple[int, ...]
    """Devices on `node_after`."""
    reason: Reason


@dataclass(frozen=True, slots=True)
class OtherChange:
    """Change of anything but a service's instances or a pod's node and devices."""

    subject: str
    """Changed object, `Kind/name`."""
    change: str
    """The change as a sentence."""
    reason: Reason


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """All changes of a plan."""

    services: tuple[ServiceChange, ...]
    pods: tuple[PodChange, ...]
    left_over: tuple[tuple[str, Reason], ...]
    """Unplaced workloads and refused steps, as (subject, reason)."""
    others: tuple[OtherChange, ...] = ()
    awaited: tuple[str, ...] = ()
    """Pods of services that are scaled up, as `Pod/namespace/name`: the next plan places them, once they exist."""

    @property
    def cost_before(self) -> float:
        return sum(each.cost_before for each in self.services)

    @property
    def cost_after(self) -> float:
        return sum(each.cost_after for each in self.services)

    @property
    def is_empty(self) -> bool:
        """Whether the plan changes nothing."""
        return not self.pods and not self.others and not any(each.is_change for each in self.services)


def plan_diff(snapshot: Snapshot, plan: Plan) -> PlanDiff:
    """Changes that `plan` would make in `snapshot`."""
    from controller.deciders.edits import AWAITS_POD  # loads what plans, which a look at costs alone does not need

    planned = {each.service: each for each in plan.services}
    return PlanDiff(
        services=tuple(_service(snapshot, s, planned.get(s.name), plan) for s in snapshot.services),
        pods=tuple(
            PodChange(seat.pod, seat.node_before, seat.node_after, seat.devices, step.reason)
            for step in plan.steps()
            for seat in step.action.seat_changes
        ),
        left_over=(
            *((each.workload, each.reason) for each in plan.unplaced if each.reason.code != AWAITS_POD),
            *((each.step.action.subject, each.reason) for each in plan.refused),
        ),
        others=tuple(
            OtherChange(step.action.subject, step.action.sentence, step.reason)
            for step in plan.steps()
            if step.action.columns and not step.action.seat_changes
        ),
        awaited=tuple(each.workload for each in plan.unplaced if each.reason.code == AWAITS_POD),
    )


def cost_per_hour(snapshot: Snapshot, service: ModelService, instances: Mapping[InstanceType, int]) -> float:
    """Cost of these instances, US dollars per hour; a type that no longer exists costs nothing."""
    return sum((snapshot.price_per_hour(service, each) * count for each, count in instances.items()), 0.0)


def _service(snapshot: Snapshot, service: ModelService, planned: ServicePlan | None, plan: Plan) -> ServiceChange:
    before = _present(service.replicas or {})
    refusal = planned.refusal if planned else None
    after = before if planned is None or refusal else _present(planned.instances)
    scales = (step.reason for step in plan.steps() if step.action.subject == f"ModelService/{service.name}")
    why = next(scales, None)
    return ServiceChange(
        service=service.name,
        before=before,
        after=after,
        cost_before=cost_per_hour(snapshot, service, before),
        cost_after=cost_per_hour(snapshot, service, after),
        reason=refusal or why,
        is_refused=refusal is not None,
        gap=planned.certificate.gap if planned and planned.certificate else 0.0,
        is_planned_only=service.is_planned_only and why is None,
    )


def _present(counts: Mapping[InstanceType, int]) -> dict[InstanceType, int]:
    return {name: count for name, count in sorted(counts.items()) if count}
