"""A plan as the difference it makes: what each service, pod and node would be after it, and what that costs. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cluster.plans import Plan, Reason, ServicePlan
from cluster.snapshot import Snapshot
from cluster.workloads import ModelService


@dataclass(frozen=True, slots=True)
class ServiceChange:
    """Instances and cost of one service, now and after the plan."""

    service: str
    before: Mapping[str, int]
    after: Mapping[str, int]
    """Equal to `before` where it was refused: then its instances stay as they are."""
    cost_before: float
    """Dollars per hour."""
    cost_after: float
    reason: Reason | None
    """Why it changes, or why there is no plan for it."""
    is_refused: bool = False
    gap: float = 0.0
    """Share of the planned cost that is not proven to be needed."""

    @property
    def is_change(self) -> bool:
        return dict(self.before) != dict(self.after)


@dataclass(frozen=True, slots=True)
class PodChange:
    """A pod that would start, stop or move."""

    pod: str
    node_before: str | None
    node_after: str | None
    devices: tuple[int, ...]
    """On `node_after`."""
    reason: Reason


@dataclass(frozen=True, slots=True)
class OtherChange:
    """A change of anything else than a service's instances or a pod's seat."""

    subject: str
    """`Kind/name`."""
    sentence: str
    """Where or how it would change."""
    reason: Reason


@dataclass(frozen=True, slots=True)
class PlanDiff:
    services: tuple[ServiceChange, ...]
    pods: tuple[PodChange, ...]
    left_over: tuple[tuple[str, Reason], ...]
    """(workload or step, why it cannot be or must not be)."""
    others: tuple[OtherChange, ...] = ()

    @property
    def cost_before(self) -> float:
        return sum(each.cost_before for each in self.services)

    @property
    def cost_after(self) -> float:
        return sum(each.cost_after for each in self.services)

    @property
    def is_empty(self) -> bool:
        """The cluster is as the plan wants it."""
        return not self.pods and not self.others and not any(each.is_change for each in self.services)


def plan_diff(snapshot: Snapshot, plan: Plan) -> PlanDiff:
    """What `plan` would change in `snapshot`."""
    planned = {each.service: each for each in plan.services}
    return PlanDiff(
        services=tuple(_service(snapshot, s, planned.get(s.name), plan) for s in snapshot.services),
        pods=tuple(_pods(plan)),
        left_over=(
            *((each.workload, each.reason) for each in plan.unplaced),
            *((each.step.action.subject, each.reason) for each in plan.refused),
        ),
        others=tuple(_others(plan)),
    )


def cost_per_hour(snapshot: Snapshot, service: ModelService, instances: Mapping[str, int]) -> float:
    """Dollars per hour of so many instances by GPU type; a type that is not known any more costs nothing."""
    widths = {p.gpu_type: p.gpus_per_instance for p in snapshot.profiles if p.model == service.model}
    prices = {gpu_type.name: gpu_type.price(spot=service.spot) for gpu_type in snapshot.gpu_types}
    return sum(prices.get(name, 0.0) * widths.get(name, 1) * count for name, count in instances.items())


def _service(snapshot: Snapshot, service: ModelService, planned: ServicePlan | None, plan: Plan) -> ServiceChange:
    before = _present(service.replicas or {})
    refusal = planned.refusal if planned else None
    after = before if planned is None or refusal else _present(planned.instances)
    scales = (step.reason for step in plan.steps() if step.action.subject == f"ModelService/{service.name}")
    return ServiceChange(
        service=service.name,
        before=before,
        after=after,
        cost_before=cost_per_hour(snapshot, service, before),
        cost_after=cost_per_hour(snapshot, service, after),
        reason=refusal or next(scales, None),
        is_refused=refusal is not None,
        gap=planned.certificate.gap if planned and planned.certificate else 0.0,
    )


def _present(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in sorted(counts.items()) if count}


def _pods(plan: Plan) -> Iterator[PodChange]:
    for step in plan.steps():
        for seat in step.action.seat_changes:
            yield PodChange(seat.pod, seat.node_before, seat.node_after, seat.devices, step.reason)


def _others(plan: Plan) -> Iterator[OtherChange]:
    """Changes that neither the lines of services nor those of pods show."""
    for step in plan.steps():
        if step.action.columns and not step.action.seat_changes:
            yield OtherChange(step.action.subject, step.action.sentence, step.reason)
