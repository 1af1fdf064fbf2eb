"""Demand beyond the stock: the mix for the largest part of an expected demand that the stock holds.

A demand that a forecast chose has a margin. To refuse all of it where the stock lacks the margin would leave the
service with the instances of an earlier, smaller demand, and so miss requests that the stock could serve.
"""

from collections.abc import Collection
from dataclasses import replace

from cluster.plans import Plan, Reason, ServicePlan
from cluster.snapshot import Snapshot
from cluster.workloads import ModelService
from placement.budget import Budget
from placement.mix.planner import MixSettings, plan_mix

PARTS = 16
"""Equal parts of a demand, of which as many as possible are served. Chosen: four trials find their number."""


def with_parts(
    snapshot: Snapshot, plan: Plan, expected: Collection[str], budget: Budget, settings: MixSettings
) -> Plan:
    """Plan in which these services have mixes for a part of their demand, where the stock is short of all of it.

    A service keeps its refusal, and its instances, where such a mix would cost less than they do. expected: services
    whose demand is an expected one. The plan stays as it is where no part is served.
    """
    short = {each.service for each in plan.services if each.service in expected and _is_short(each)}
    if not short:
        return plan
    parts, best = _most_parts(snapshot, short, budget, settings)
    if best is None or not all(_is_more(snapshot, best, name) for name in short):
        return plan
    asked = {each.name: each.demand.rate_per_s for each in snapshot.services if each.demand is not None}
    services = tuple(
        replace(each, notes=(_note(asked[each.service], parts), *each.notes)) if each.service in short else each
        for each in best.services
    )
    return replace(best, services=services)


def _is_short(plan: ServicePlan) -> bool:
    return plan.refusal is not None and plan.refusal.code == "InventoryShort"


def _most_parts(
    snapshot: Snapshot, short: Collection[str], budget: Budget, settings: MixSettings
) -> tuple[int, Plan | None]:
    """The most parts that are served for all of these services, and the plan for them; None where none is found."""
    served, missed, best = 0, PARTS, None
    while missed - served > 1:
        parts = (served + missed) // 2
        trials = (missed - served - 1).bit_length()
        tried = plan_mix(_reduced(snapshot, short, parts), budget.part(1 / trials), settings)
        if any(each.refusal for each in tried.services if each.service in short):
            missed = parts
        else:
            served, best = parts, tried
    return served, best


def _reduced(snapshot: Snapshot, short: Collection[str], parts: int) -> Snapshot:
    return replace(
        snapshot,
        services=tuple(_with_parts(each, parts) if each.name in short else each for each in snapshot.services),
    )


def _with_parts(service: ModelService, parts: int) -> ModelService:
    demand = service.demand
    if demand is None:
        return service
    return replace(service, demand=replace(demand, rate_per_s=demand.rate_per_s * parts / PARTS))


def _is_more(snapshot: Snapshot, plan: Plan, name: str) -> bool:
    """Whether the service's mix costs at least as much as its instances do now."""
    service = next(each for each in snapshot.services if each.name == name)
    now = sum(snapshot.price_per_hour(service, each) * count for each, count in (service.replicas or {}).items())
    return next(each.cost_per_hour for each in plan.services if each.service == name) >= now - 1e-9


def _note(rate_per_s: float, parts: int) -> Reason:
    served = rate_per_s * parts / PARTS
    words = f"the stock holds {served:.1f} of the {rate_per_s:.1f} requests/s that are expected, not all of them"
    return Reason("PartOfDemand", words, {"served_per_s": served, "expected_per_s": rate_per_s})
