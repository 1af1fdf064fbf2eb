"""Corrections of a plan of mixes: demand beyond the stock is served in part, and recent changes are left alone."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from cluster.actions import Scale
from cluster.plans import Plan, Reason, ServicePlan
from cluster.snapshot import Snapshot
from cluster.workloads import ModelService
from placement.budget import Budget
from placement.mix.feasibility import seating
from placement.mix.optimizer import answer_mix
from placement.mix.planner import MixSettings, plan_mix, routing_of
from placement.mix.problem import Mix, MixAnswer, MixQuestion, Need, mix_cost
from placement.mix.problem_builder import need_of, stocked
from placement.stock import InstanceGroup, Stock

OUT_OF_TIME = Reason("HoldOutOfTime", "time ran out before it was known whether the running instances could stay")


def held(snapshot: Snapshot, plan: Plan, budget: Budget, *, hold_s: float) -> Plan:
    """Plan of mixes without the changes that can wait.

    Those are changes of services that changed less than `hold_s` ago, and whose present instances can serve their
    demand and have seats. Such a service's plan is its present mix, with a routing that fits it, and the certificate of
    the cheaper one. Without the first condition, demand that oscillates around the edge between two mixes would start
    and stop instances without end. Without the others, a burst of demand would be served late, and instances would wait
    for seats that other pods took.
    """
    recent = {
        service.name: service
        for service in snapshot.services
        if service.scaled_at_s is not None and abs(snapshot.at_s - service.scaled_at_s) < hold_s
    }
    asked = {step.action.service for step in plan.steps() if isinstance(step.action, Scale)} & recent.keys()
    asked -= _without_seats(snapshot, [recent[name] for name in sorted(asked)])
    if not asked:
        return plan
    kept: dict[str, ServicePlan] = {}
    for number, name in enumerate(sorted(asked)):
        part = budget.part(1 / (len(asked) - number))
        before = next(each for each in plan.services if each.service == name)
        if present := _present_plan(snapshot, recent[name], before, part):
            kept[name] = present
    phases = []
    for phase in plan.phases:
        steps = (s for s in phase.steps if not (isinstance(s.action, Scale) and s.action.service in kept))
        phases.append(replace(phase, steps=tuple(steps)))
    return replace(
        plan,
        cut_short=plan.cut_short + ((OUT_OF_TIME,) if budget.time_ran_out else ()),
        phases=tuple(phase for phase in phases if phase.steps),
        services=tuple(kept.get(each.service, each) for each in plan.services),
    )


def _without_seats(snapshot: Snapshot, services: Sequence[ModelService]) -> set[str]:
    """Those of the services whose present instances, running or requested, have no seats beside all other pods.

    Each is judged alone: where two of them wait for one seat, the one that does not get it is found in the next plan.
    """
    needs = [need for service in services if isinstance(need := need_of(service, snapshot), Need)]
    if not needs:
        return set()
    told, stock = stocked(snapshot, needs, {(need.service, o.instance_type) for need in needs for o in need.offers})
    found = set()
    for need in told:
        wanted = Counter[InstanceGroup]()
        for offer in need.offers:
            wanted[offer.group] += need.running_count(offer)
        if seating(stock, wanted) is None:
            found.add(need.service)
    return found


def _present_plan(snapshot: Snapshot, service: ModelService, before: ServicePlan, budget: Budget) -> ServicePlan | None:
    """Plan of the service's present instances; None when they cannot serve the present demand, or work ran out."""
    need = need_of(service, snapshot)
    if not isinstance(need, Need) or not service.replicas:
        return None
    have = need.running_counts
    stock = {o.instance_type.name: Stock(int(n) * o.gpus) for n, o in zip(have, need.offers, strict=True)}
    need = replace(need, offers=tuple(replace(o, places=(o.instance_type.name,)) for o in need.offers))
    answer = answer_mix(MixQuestion((need,), stock=stock), budget)
    if not isinstance(answer, MixAnswer):
        return None
    mix, certificate = Mix(have, answer.mixes[0].share), before.certificate
    words = f"{before.cost_per_hour:.2f} $/h would suffice; the service changed recently and still meets its demand"
    return ServicePlan(
        service=service.name,
        instances={name: count for name, count in service.replicas.items() if count},
        cost_per_hour=mix_cost(need, mix),
        routing=routing_of(need, mix),
        certificate=replace(certificate, objective=mix_cost(need, mix)) if certificate else None,
        notes=(Reason("Held", words, {"cheapest_per_hour": before.cost_per_hour}), *before.notes),
    )


PARTS = 16
"""Equal parts of a demand, of which as many as possible are served. Chosen: four trials find their number."""


def with_parts(
    snapshot: Snapshot, plan: Plan, expected: Collection[str], budget: Budget, settings: MixSettings
) -> Plan:
    """Plan in which these services have mixes for a part of their demand, where the stock is short of all of it.

    A demand that a forecast chose has a margin. To refuse all of it where the stock lacks the margin would leave the
    service with the instances of an earlier, smaller demand, and so miss requests that the stock could serve. A service
    keeps its refusal, and its instances, where such a mix would cost less than they do. expected: services whose demand
    is an expected one. The plan stays as it is where no part is served.
    """
    refusals = {each.service: each.refusal for each in plan.services if each.refusal is not None}
    short = {name for name, why in refusals.items() if name in expected and why.code == "InventoryShort"}
    if not short:
        return plan
    asked = {each.name: each.demand for each in snapshot.services if each.demand is not None}
    served, missed, best = 0, PARTS, None
    while missed - served > 1:
        parts = (served + missed) // 2
        reduced = []
        for each in snapshot.services:
            if each.name in short and (demand := asked.get(each.name)) is not None:
                each = replace(each, demand=replace(demand, rate_per_s=demand.rate_per_s * parts / PARTS))
            reduced.append(each)
        trials = (missed - served - 1).bit_length()
        tried = plan_mix(replace(snapshot, services=tuple(reduced)), budget.part(1 / trials), settings)
        if any(each.refusal for each in tried.services if each.service in short):
            missed = parts
        else:
            served, best = parts, tried
    if best is None:
        return plan
    costs = {each.service: each.cost_per_hour for each in best.services}
    notes: dict[str, Reason] = {}
    for service in snapshot.services:
        if service.name not in short:
            continue
        counts = (service.replicas or {}).items()
        now = sum(snapshot.price_per_hour(service, each) * count for each, count in counts)
        if costs[service.name] < now - 1e-9:
            return plan
        rate_per_s = asked[service.name].rate_per_s
        held_per_s = rate_per_s * served / PARTS
        words = (
            f"the stock holds {held_per_s:.1f} of the {rate_per_s:.1f} requests/s that are expected, not all of them"
        )
        figures = {"served_per_s": held_per_s, "expected_per_s": rate_per_s}
        notes[service.name] = Reason("PartOfDemand", words, figures)
    services = (
        replace(each, notes=(notes[each.service], *each.notes)) if each.service in notes else each
        for each in best.services
    )
    return replace(best, services=tuple(services))
