"""Status of a ModelService after a cycle: counts, cost, proven bound, routing, conditions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from cluster.errors import ActionError
from cluster.plans import Plan, Reason, Routing, ServicePlan
from cluster.snapshot import Snapshot
from cluster.workloads import InstanceType
from controller.api import conditions as api_conditions
from controller.api.kind import Kind
from controller.api.model_service import KIND as SERVICE, ModelServiceStatus, RoutingStatus, RoutingWeights, status_from
from controller.kube.cluster_view import ClusterView, SeenService
from controller.kube.request import APPLY_PATCH
from controller.kube.sender import Write, WriteJob
from controller.ports import PLANNED_LOCALLY, Outcome
from controller.report.fleet_metrics import running_instances

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


def status_after(before: Mapping[str, Any], plan: ServicePlan, facts: ServiceFacts, at_s: float) -> dict[str, Any]:
    """Status as plain data; equal to `before` when nothing changed.

    at_s: now, seconds since the epoch.
    """
    old = status_from(before)
    asked = _by_name(facts.asked)
    running = _by_name(facts.running)
    conditions = old.conditions
    for kind, (status, reason) in _claims(plan, asked, running, facts).items():
        conditions = api_conditions.set_condition(
            conditions, kind, status, reason.code, reason.words, generation=facts.generation, at_s=at_s
        )
    bound = _bound(old, plan, facts)
    mix = old.mix if plan.refusal else _by_name(plan.instances)
    is_unchanged = (old.replicas or {}) == asked if facts.makes_pods else old.mix == mix
    return ModelServiceStatus(
        observed_generation=facts.generation,
        conditions=conditions,
        mix=mix,
        replicas=asked if facts.makes_pods else None,
        running=running if facts.makes_pods else None,
        wanted_instances=sum(asked.values()) if facts.makes_pods else sum(plan.instances.values()),
        running_instances=sum(running.values()),
        last_scale_time=old.last_scale_time if is_unchanged else float(int(at_s)),
        cost_per_hour=old.cost_per_hour if plan.refusal else round(plan.cost_per_hour, DIGITS),
        bound_per_hour=bound,
        gap=None
        if bound is None
        else round(max(0.0, 1 - bound / plan.cost_per_hour) if plan.cost_per_hour else 0.0, DIGITS),
        routing=_routing(plan.routing) if plan.routing else None,
    ).plain()


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


Claim = tuple[api_conditions.ConditionStatus, Reason]


def _claims(
    plan: ServicePlan, asked: Mapping[str, int], running: Mapping[str, int], facts: ServiceFacts
) -> dict[str, Claim]:
    accepted: Claim = ("True", Reason("Valid", "its fields and the objects that it names are valid"))
    if plan.refusal and plan.refusal.code == api_conditions.BAD_INPUT:  # the cause is the service itself, not the fleet
        accepted = ("False", plan.refusal)
    return {
        api_conditions.ACCEPTED: accepted,
        api_conditions.PLANNED: ("False", plan.refusal) if plan.refusal else ("True", _found(plan)),
        api_conditions.READY: _ready(plan, asked, running, facts),
        api_conditions.DEGRADED: _degraded(plan, asked, running),
    }


def _found(plan: ServicePlan) -> Reason:
    mix = ", ".join(f"{count} × {each}" for each, count in sorted(plan.instances.items())) or "no instance"
    words = f"{mix} at {plan.cost_per_hour:.2f} $/h"
    locally = next((note.words for note in plan.notes if note.code == PLANNED_LOCALLY), None)
    return Reason("MixFound", words) if locally is None else Reason("MixFoundLocally", f"{words}; {locally}")


def _ready(plan: ServicePlan, asked: Mapping[str, int], running: Mapping[str, int], facts: ServiceFacts) -> Claim:
    if plan.refusal:
        return "False", Reason("NotPlanned", plan.refusal.words)
    if not facts.makes_pods:
        return "Unknown", Reason("PlannedOnly", "it has no spec.template to create pods from: it is only planned")
    if facts.undone:
        return "False", facts.undone
    wanted = _by_name(plan.instances)
    if dict(asked) != wanted:
        return "False", Reason("Scaling", f"{_sum(asked)} instances are requested, {_sum(wanted)} planned")
    if any(running.get(name, 0) < count for name, count in wanted.items()):
        return "False", Reason("InstancesMissing", f"{_sum(running)} of {_sum(wanted)} instances run")
    return "True", Reason("AllInstancesRun", f"all {_sum(wanted)} instances of the mix run")


def _degraded(plan: ServicePlan, asked: Mapping[str, int], running: Mapping[str, int]) -> Claim:
    missing = sum(max(0, count - running.get(name, 0)) for name, count in asked.items())
    if running and missing:
        return "True", Reason("InstancesMissing", f"{missing} of {_sum(asked)} instances do not run")
    if plan.refusal and running:
        return "True", Reason("NotPlanned", f"its instances stay unchanged: {plan.refusal.words}")
    return "False", Reason("AsAsked", "no degradation is known")


def _sum(counts: Mapping[str, int]) -> int:
    return sum(counts.values())


def _routing(routing: Routing) -> RoutingStatus:
    return RoutingStatus(
        input_tokens=tuple(routing.grid.input_tokens),
        output_tokens=tuple(routing.grid.output_tokens),
        weights=tuple(
            RoutingWeights(
                gpu_type=each.gpu_type,
                gpus_per_instance=each.gpus,
                capacity_type="spot" if each.spot else "on-demand",
                share=tuple(tuple(round(float(x), DIGITS) for x in row) for row in routing.weight[:, :, number]),
            )
            for number, each in enumerate(routing.instance_types)
        ),
    )


Status = Mapping[str, Any]


def found_after(before: Status, finding: Reason | None, generation: int, at_s: float) -> Status:
    """The status with a decider's finding as its condition Found; False once the finding is gone, absent before any."""
    old = api_conditions.ObservedStatus.model_validate({key: before[key] for key in ("conditions",) if key in before})
    if finding is None and all(each.type != api_conditions.FOUND for each in old.conditions):
        return before
    reason = finding or Reason("NothingFound", "no decider states anything about it now")
    status: api_conditions.ConditionStatus = "True" if finding else "False"
    conditions = api_conditions.set_condition(
        old.conditions, api_conditions.FOUND, status, reason.code, reason.words, generation=generation, at_s=at_s
    )
    return {**before, "conditions": api_conditions.ObservedStatus(conditions=conditions).plain()["conditions"]}


log = structlog.get_logger(__name__)

STATUS_MANAGER = "tonnage-status"


def status_jobs(
    sightings: ClusterView,
    snapshot: Snapshot,
    plan: Plan,
    outcome: Outcome,
    generations: Mapping[str, int],
    at_s: float,
) -> Iterator[WriteJob]:
    """Writes of the changed statuses.

    snapshot: the cluster after the plan. generations: metadata.generation of each service when the plan was made.
    at_s: now, seconds since the epoch.
    """
    running = running_instances(snapshot, lambda name: bool((pod := sightings.pod(name)) and pod.is_running))
    desired = {service.name: service.replicas or {} for service in snapshot.services}
    undone = {each.step.action.subject: each.reason for each in outcome.undone}
    found = {finding.about: finding.reason for finding in plan.findings}
    for service in plan.services:
        seen = sightings.service(service.service)
        if seen is None or service.service not in generations:
            continue
        facts = ServiceFacts(
            generation=generations[service.service],
            asked=desired.get(service.service, {}),
            running=running.get(service.service, {}),
            makes_pods=seen.template is not None,
            undone=undone.get(f"ModelService/{service.service}"),
        )
        finding = found.get(f"ModelService/{service.service}")
        yield from each_alone("ModelService", seen.name, _service_job(seen, service, facts, finding, at_s))


def each_alone(kind: str, name: str, jobs: Iterator[WriteJob]) -> Iterator[WriteJob]:
    """The writes of one object; none, and a line in the log, where its status cannot be computed."""
    try:
        yield from tuple(jobs)
    except Exception:  # one object must not stop the others
        log.exception("a status could not be computed", subject=f"{kind}/{name}")


def _service_job(
    seen: SeenService, service: ServicePlan, facts: ServiceFacts, finding: Reason | None, at_s: float
) -> Iterator[WriteJob]:
    status = found_after(status_after(seen.status, service, facts, at_s), finding, facts.generation, at_s)
    if status != seen.status:
        yield WriteJob(f"ModelService/{seen.name}", status_write(SERVICE, seen.name, seen.uid, status))


def status_write(kind: Kind, name: str, uid: str, status: Mapping[str, Any]) -> Write:
    """Server-side apply of a status to the object with this uid, not to a newer one of the same name.

    name: `name`, or `namespace/name` where the kind has namespaces.
    """
    namespace, _, bare = name.rpartition("/")
    metadata = {"name": bare, "uid": uid} | ({"namespace": namespace} if kind.is_namespaced else {})
    return Write(
        "PATCH",
        f"{kind.path_of(name)}/status",
        {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "status": status},
        APPLY_PATCH,
        {"fieldManager": STATUS_MANAGER, "force": "true"},
    )


def log_unwritten(error: ActionError) -> None:
    """Log that a status, or a published limit, could not be written."""
    log.warning("a report was not written; a later cycle tries again", why=str(error))
