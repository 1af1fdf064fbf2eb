"""Against flapping: a service that was changed a moment ago and still serves its demand is left alone for a while."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from cluster.actions import Scale
from cluster.plans import Phase, Plan, Reason, ServicePlan
from cluster.snapshot import Snapshot
from cluster.workloads import ModelService
from placement.budget import Budget
from placement.mix.optimizer import answer_mix
from placement.mix.planner import routing_of
from placement.mix.problem import Mix, MixAnswer, MixQuestion, Need, Stock, mix_cost
from placement.mix.problem_builder import need_of

OUT_OF_TIME = Reason("HoldOutOfTime", "time ran out before it was known whether what runs could be left alone")


def held(snapshot: Snapshot, plan: Plan, budget: Budget, *, hold_s: float) -> Plan:
    """A plan of mixes without changes that can wait: those of services that changed less than `hold_s` ago, and whose
    instances as they are now can serve their demand.

    Such a service's plan is what it has, with a routing that fits it, and the certificate of what would be cheaper.
    Without the second condition a burst of demand would be served late; without the first, demand that swings about the
    edge between two mixes would start and stop instances for ever.
    """
    recent = {s.name: s for s in snapshot.services if _is_recent(s, snapshot.at_s, hold_s)}
    asked = {step.action.service for step in plan.steps() if isinstance(step.action, Scale)} & recent.keys()
    if not asked:
        return plan
    kept: dict[str, ServicePlan] = {}
    for number, name in enumerate(sorted(asked)):
        part = budget.part(1 / (len(asked) - number))
        before = next(each for each in plan.services if each.service == name)
        if as_it_is := _as_it_is(snapshot, recent[name], before, part):
            kept[name] = as_it_is
    return replace(
        plan,
        cut_short=plan.cut_short + ((OUT_OF_TIME,) if budget.time_ran_out else ()),
        phases=tuple(phase for each in plan.phases if (phase := _without(each, kept)).steps),
        services=tuple(kept.get(each.service, each) for each in plan.services),
    )


def _is_recent(service: ModelService, at_s: float, hold_s: float) -> bool:
    return service.scaled_at_s is not None and at_s - service.scaled_at_s < hold_s


def _without(phase: Phase, kept: Mapping[str, ServicePlan]) -> Phase:
    steps = (s for s in phase.steps if not (isinstance(s.action, Scale) and s.action.service in kept))
    return replace(phase, steps=tuple(steps))


def _as_it_is(snapshot: Snapshot, service: ModelService, before: ServicePlan, budget: Budget) -> ServicePlan | None:
    """What its instances do for the demand of now; None when they cannot serve it, or the work does not tell."""
    need = need_of(service, snapshot)
    if not isinstance(need, Need) or not service.replicas:
        return None
    have = np.array([need.running_count(offer) for offer in need.offers], dtype=np.int64)
    stock = {o.gpu_type: Stock(int(n) * o.gpus) for n, o in zip(have, need.offers, strict=True)}
    answer = answer_mix(MixQuestion((need,), stock=stock), budget)
    if not isinstance(answer, MixAnswer):
        return None
    mix = Mix(have, answer.mixes[0].share)
    words = f"{before.cost_per_hour:.2f} $/h would do; it was changed a moment ago and still serves its demand"
    certificate = before.certificate
    return ServicePlan(
        service=service.name,
        instances={name: count for name, count in service.replicas.items() if count},
        cost_per_hour=mix_cost(need, mix),
        routing=routing_of(need, mix),
        certificate=replace(certificate, objective=mix_cost(need, mix)) if certificate else None,
        notes=(Reason("Held", words, {"cheapest_per_hour": before.cost_per_hour}), *before.notes),
    )
