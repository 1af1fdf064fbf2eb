"""Status of a ModelService after a cycle: counts, cost, proven bound, routing, conditions."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cluster.changes import with_expected
from cluster.plans import Plan, Reason, ServicePlan, plans_of_services
from cluster.snapshot import Snapshot
from cluster.workloads import InstanceType, ModelService
from controller.api import conditions
from controller.api.model_service import BatchStatus, ModelServiceStatus, RoutingStatus, RoutingWeights
from controller.ports import Outcome
from controller.report.fleet_metrics import Draw, IsRunning, running_instances
from controller.report.statuses import Status, accepted

DIGITS = 6
"""Decimal places of figures; unrounded, a difference in the last bit would cause a write in every cycle."""

LEAST_RISE = 0.001
"""Least rise of a proven bound that is written, as a fraction of the cost. Chosen: the gap at which a search ends."""


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """Inputs of a service's status besides the plan."""

    generation: int
    """metadata.generation for which the plan was made."""
    asked: Mapping[InstanceType, int]
    """Desired instances of its Deployments by instance type."""
    running: Mapping[InstanceType, int]
    """Running instances by instance type."""
    makes_pods: bool
    """Whether it has a template; without one Tonnage does not run it."""
    undone: Reason | None
    """Reason why an action of this cycle on its Deployments failed."""
    no_pods: str = ""
    """Why no pods are created for its Deployments."""
    service: ModelService | None = None
    """As it was planned; None: it is not there any more."""
    draw: Draw | None = None


def service_status_after(before: Status, plan: ServicePlan, facts: ServiceFacts, at_s: float) -> Status:
    """Status as plain data; equal to `before` when nothing changed.

    at_s: now, seconds since the epoch.
    """
    old = ModelServiceStatus.read(before)
    asked = _by_name(facts.asked)
    running = _by_name(facts.running)
    was_estimated = conditions.condition_of(old.conditions, conditions.PROFILE_ESTIMATED) is not None
    claims = _claims(plan, asked, running, facts, was_estimated=was_estimated)
    bound = _bound(old, plan, facts)
    mix = old.mix if plan.refusal else _by_name(plan.instances)
    is_unchanged = (old.replicas or {}) == asked if facts.makes_pods else old.mix == mix
    routing = None
    if plan.routing is not None:
        weights = (
            RoutingWeights(
                gpu_type=each.gpu_type,
                gpus_per_instance=each.gpus,
                capacity_type="spot" if each.spot else "on-demand",
                phase=each.phase or "all",
                share=tuple(tuple(round(float(x), DIGITS) for x in row) for row in plan.routing.weight[:, :, number]),
            )
            for number, each in enumerate(plan.routing.instance_types)
            if plan.routing.weight[:, :, number].any()
        )
        grid = plan.routing.grid
        routing = RoutingStatus(
            input_tokens=tuple(grid.input_tokens), output_tokens=tuple(grid.output_tokens), weights=tuple(weights)
        )
    return ModelServiceStatus(
        observed_generation=facts.generation,
        conditions=conditions.conditions_after(old.conditions, claims, generation=facts.generation, at_s=at_s),
        mix=mix,
        replicas=asked if facts.makes_pods else None,
        running=running if facts.makes_pods else None,
        wanted_instances=sum(asked.values()) if facts.makes_pods else sum(plan.instances.values()),
        running_instances=sum(running.values()),
        last_scale_time=old.last_scale_time if is_unchanged else float(int(at_s)),
        cost_per_hour=old.cost_per_hour if plan.refusal else round(plan.cost_per_hour, DIGITS),
        joules_per_token=float(f"{facts.draw.per_token_j:.2g}") if facts.draw and facts.draw.per_token_j else None,
        batch=_batch(old, plan, facts, at_s),
        bound_per_hour=bound,
        gap=None
        if bound is None
        else round(max(0.0, 1 - bound / plan.cost_per_hour) if plan.cost_per_hour else 0.0, DIGITS),
        routing=routing,
    ).plain()


COUNTED_S = 60.0
"""Seconds after which progress is counted again, and those within which instances are taken to have run on."""


def _batch(old: ModelServiceStatus, plan: ServicePlan, facts: ServiceFacts, at_s: float) -> BatchStatus | None:
    """Progress of the requests that may wait: what running instances had time for since it was last counted."""
    service = facts.service
    if service is None or service.deferred is None or service.demand is None:
        return None
    before, deadline_s = old.batch, service.deferred.deadline_s
    if before and before.deadline is not None and int(before.deadline) != int(deadline_s):  # as statuses write them
        before = None
    done, since_s = (before.done, at_s - before.time) if before else (0.0, 0.0)
    if before and 0 <= since_s < COUNTED_S:
        return before
    served = min((note.figures.get("served_per_s", math.inf) for note in plan.notes), default=math.inf)
    rate = min(service.deferred_per_s, max(0.0, served - (service.demand.rate_per_s - service.deferred_per_s)))
    rate = 0.0 if plan.refusal else rate
    runs = sum(facts.running.values()) / max(1, sum(plan.instances.values())) if facts.makes_pods else 1.0
    answered = rate * min(1.0, runs) * min(max(0.0, since_s), 5 * COUNTED_S)
    done = round(min(service.deferred.requests, done + answered), DIGITS)
    return BatchStatus(done=done, time=float(int(at_s)), deadline=deadline_s)


MOVED_SHARE = 0.1
"""Least change of a service's draw by token that is told, as a fraction. Chosen; the metric has each change."""


def steady(
    draws: Mapping[str, Draw], told: Mapping[str, tuple[Draw, float]], at_s: float
) -> dict[str, tuple[Draw, float]]:
    """What is told of the power of each service, and since when: what was told, while that is new or near enough."""
    found = {}
    for name, draw in draws.items():
        before, since_s = told.get(name, (draw, -math.inf))
        is_near = math.isclose(before.per_token_j or 0.0, draw.per_token_j or 0.0, rel_tol=MOVED_SHARE)
        found[name] = (before, since_s) if is_near or at_s - since_s < COUNTED_S else (draw, at_s)
    return found


def _by_name(instances: Mapping[InstanceType, int]) -> dict[str, int]:
    return {each.name: count for each, count in sorted(instances.items()) if count}


def _bound(old: ModelServiceStatus, plan: ServicePlan, facts: ServiceFacts) -> float | None:
    """Proven lower bound of the mix's cost. A valid bound is not replaced by a weaker one of a busier cycle, nor by one
    that is hardly better: otherwise the status would change in every cycle."""
    if plan.refusal or plan.certificate is None:
        return None
    bound, cost = round(plan.certificate.bound, DIGITS), round(plan.cost_per_hour, DIGITS)
    before = old.bound_per_hour
    is_same = old.observed_generation == facts.generation and old.cost_per_hour == cost
    if is_same and before is not None and before <= cost and bound < before + LEAST_RISE * cost:
        return before
    return bound


def _claims(
    plan: ServicePlan, asked: Mapping[str, int], running: Mapping[str, int], facts: ServiceFacts, *, was_estimated: bool
) -> Iterator[conditions.Claim]:
    if plan.refusal and plan.refusal.code == conditions.BAD_INPUT:  # the cause is the service itself, not the fleet
        yield conditions.ACCEPTED, "False", plan.refusal
    else:
        yield accepted(())
    mix = ", ".join(f"{count} × {each}" for each, count in sorted(plan.instances.items())) or "no instance"
    found = Reason("MixFound", f"{mix} at {plan.cost_per_hour:.2f} $/h")
    yield (conditions.PLANNED, "False", plan.refusal) if plan.refusal else (conditions.PLANNED, "True", found)
    yield conditions.READY, *_ready(plan, asked, running, facts)
    yield conditions.DEGRADED, *_degraded(plan, asked, running)
    if facts.service and facts.service.estimated:
        yield conditions.PROFILE_ESTIMATED, "True", Reason("Estimated", facts.service.estimated)
    elif was_estimated:
        yield conditions.PROFILE_ESTIMATED, "False", Reason("Measured", "all its profiles are measured")


State = tuple[conditions.ConditionStatus, Reason]


def _ready(plan: ServicePlan, asked: Mapping[str, int], running: Mapping[str, int], facts: ServiceFacts) -> State:
    if plan.refusal:
        return "False", Reason("NotPlanned", plan.refusal.words)
    if not facts.makes_pods:
        return "Unknown", Reason("PlannedOnly", "it has no spec.template to create pods from: it is only planned")
    if facts.undone:
        return "False", facts.undone
    wanted = _by_name(plan.instances)
    if dict(asked) != wanted:
        return "False", Reason(
            "Scaling", f"{sum(asked.values())} instances are requested, {sum(wanted.values())} planned"
        )
    if any(running.get(name, 0) < count for name, count in wanted.items()):
        why = f"; no pods are created: {facts.no_pods}" if facts.no_pods else ""
        words = f"{sum(running.values())} of {sum(wanted.values())} instances run{why}"
        return "False", Reason("InstancesMissing", words)
    return "True", Reason("AllInstancesRun", f"all {sum(wanted.values())} instances of the mix run")


def _degraded(plan: ServicePlan, asked: Mapping[str, int], running: Mapping[str, int]) -> State:
    missing = sum(max(0, count - running.get(name, 0)) for name, count in asked.items())
    if running and missing:
        return "True", Reason("InstancesMissing", f"{missing} of {sum(asked.values())} instances do not run")
    if plan.refusal and running:
        return "True", Reason("NotPlanned", f"its instances stay unchanged: {plan.refusal.words}")
    return "False", Reason("AsAsked", "no degradation is known")


def facts_of_services(
    snapshot: Snapshot,
    plan: Plan,
    outcome: Outcome,
    generations: Mapping[str, int],
    is_running: IsRunning,
    draws: Mapping[str, Draw],
) -> dict[str, tuple[ServicePlan, ServiceFacts]]:
    """Planned services by name, each with its facts.

    snapshot: the cluster after the plan. generations: metadata.generation of each service when the plan was made.
    draws: what is told of their power.
    """
    running = running_instances(snapshot, is_running)
    snapshot = with_expected(snapshot, plan.expected)
    undone = {each.step.action.subject: each.reason for each in outcome.undone}
    asked = {service.name: service.replicas or {} for service in snapshot.services}
    pools: dict[str, list[ModelService]] = {}
    """The service itself and its pools by phase, by its name."""
    for service in snapshot.services:
        pools.setdefault(service.part_of or service.name, []).append(service)

    def by_phase(name: str, counts: Mapping[str, Mapping[InstanceType, int]]) -> dict[InstanceType, int]:
        own = ((each.phase, kind, n) for each in pools.get(name, ()) for kind, n in counts.get(each.name, {}).items())
        return {replace(kind, phase=phase or kind.phase): count for phase, kind, count in own}

    return {
        name: (
            each,
            ServiceFacts(
                generation=generations[name],
                asked=by_phase(name, asked),
                running=by_phase(name, running),
                makes_pods=name in pools and not pools[name][0].is_planned_only,
                undone=next((why for p in pools.get(name, ()) if (why := undone.get(f"ModelService/{p.name}"))), None),
                no_pods=next((pool.no_pods for pool in pools.get(name, ()) if pool.no_pods), ""),
                service=pools[name][0] if name in pools else None,
                draw=draws.get(name),
            ),
        )
        for name, each in plans_of_services(plan.services, snapshot.services).items()
        if name in generations
    }
