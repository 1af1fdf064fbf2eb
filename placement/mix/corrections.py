"""Corrections of a plan of mixes: demand beyond the stock is served in part, and mixes stand until others pay."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cluster.actions import Scale
from cluster.arrays import IntArray
from cluster.plans import Plan, Reason, ServicePlan
from cluster.snapshot import Snapshot
from cluster.workloads import CACHE, InstanceType, ModelService
from placement.budget import Budget
from placement.mix.feasibility import seats_of
from placement.mix.heuristics import stocks_without_others
from placement.mix.instance_search import cheapest
from placement.mix.memory import SearchMemory, digest_of
from placement.mix.optimizer import answer_mix
from placement.mix.planner import MixSettings, plan_mix, plan_of, routing_of, with_caches
from placement.mix.problem import Mix, MixAnswer, MixQuestion, Need, mix_cost
from placement.mix.problem_builder import need_of, stocked

OUT_OF_TIME = Reason("StandingOutOfTime", "time ran out before it was known whether the running instances could stay")
UNCERTAIN_SHARE = 0.05
"""Fraction by which a demand may be higher than it is said to be. Chosen: what is counted over minutes moves by a few
per cent."""
FEE_SHARE = 0.15
"""What each start counts beside its price, in the mean price of the offers: it loads the same weights on any type.
Chosen: a large instance is started rather than several small ones."""
OFFERS, TRIALS = 7, 20
"""Offers of which instances may be started, besides those that run, and trials of each count. Chosen."""


def standing(snapshot: Snapshot, plan: Plan, budget: Budget, gap: float, memory: SearchMemory) -> Plan:
    """Plan in which services keep their mix, scaled to their demand, unless another one pays its starts.

    A start costs the price of the instance while it loads: it is billed and serves nothing. A mix that stops some
    instances and starts others must save what its starts cost more than those of the cheapest mix that only stops or
    only starts some. So must those for demands that are `UNCERTAIN_SHARE` higher and lower: else demand that moves
    around the edge between two mixes would exchange instances without end. A standing mix must have its seats beside
    all others. gap: relative one that is good enough. memory: answers of the plan before to the same questions hold.
    """
    asked = {step.action.service for step in plan.steps() if isinstance(step.action, Scale)}
    plans = {each.service: each for each in plan.services}
    caches = (each for each in snapshot.services if each.phase == CACHE)
    snapshot = with_caches(snapshot, {each.part_of: sum(plans[each.name].instances.values()) for each in caches})
    services = {each.name: each for each in snapshot.services if plans[each.name].refusal is None}
    needs = [need for each in services.values() if isinstance(need := need_of(each, snapshot), Need)]
    if not any(need.service in asked and need.running for need in needs):
        return plan
    told, stock = stocked(snapshot, needs)
    chosen = [Mix(_counts(need, plans[need.service].instances), np.zeros((0, 0))) for need in needs]
    remaining = stocks_without_others(stock, told, chosen)
    found: dict[str, ServicePlan] = {}
    before, memory.stood = memory.stood, {}
    for number, need in enumerate(told):
        if need.service not in asked or not need.running:
            continue
        alone, service = MixQuestion((need,), remaining[number]), services[need.service]
        planned = chosen[number].instances
        question = (digest_of(alone), need.running_counts.tolist(), planned.tolist(), service.start_share, gap)
        answer = before.get(need.service)
        if answer is None or answer[0] != question:
            answer = question, _standing_mix(alone, planned, service, gap, budget.part(1 / (len(told) - number)))
        if not budget.time_ran_out:
            memory.stood[need.service] = answer
        if answer[1] is not None:
            found[need.service] = _kept(need, answer[1], plans[need.service])
    for name in _without_seats(snapshot, needs, plans, found):
        del found[name]
    now = plans | found
    more = math.fsum(each.cost_per_hour - plans[name].cost_per_hour for name, each in found.items())
    certificate = plan.certificates.get("mix")
    certificate = replace(certificate, objective=certificate.objective + more) if certificate else None
    cut_short = plan.cut_short + ((OUT_OF_TIME,) if budget.time_ran_out else ())
    return replace(plan_of(snapshot, now, certificate), cut_short=cut_short)


def _counts(need: Need, instances: Mapping[InstanceType, int]) -> IntArray:
    """Instances of each offer, shape (offers,)."""
    return np.array([instances.get(offer.instance_type, 0) for offer in need.offers], dtype=np.int64)


def _standing_mix(
    alone: MixQuestion, planned: IntArray, service: ModelService, gap: float, budget: Budget
) -> Mix | None:
    """The mix that is chosen instead of the planned instances; None: they start none, or nothing else is found."""
    (need,), have = alone.needs, alone.needs[0].running_counts
    if not (planned > have).any():
        return None
    price = np.array([offer.price_per_hour for offer in need.offers])
    fee = FEE_SHARE * float(price.mean())

    def kept_at(asked: Need, most: float = math.inf) -> Mix | None:
        found, _ = cheapest(MixQuestion((asked,)), price, budget, gap, trials=TRIALS, limit=have)
        if found is None:
            own, fees = replace(alone, needs=(asked,)), price + fee
            found, _ = cheapest(own, fees, budget, gap, offers=OFFERS, trials=TRIALS, fewest=have, most=most)
        return found

    def pays(mix: IntArray, kept: Mix) -> bool:
        starts = np.maximum(mix - have, 0) - np.maximum(kept.instances - have, 0)
        return float((mix - kept.instances) @ price + starts @ price * service.start_share) < -1e-9

    found = kept_at(need, float(planned @ (price + fee)) if (planned >= have).all() else math.inf)
    if found is None or not (planned < have).any() or not pays(planned, found):
        return found
    for factor, kept in ((1 + UNCERTAIN_SHARE, found), (1 - UNCERTAIN_SHARE, None)):
        asked = _scaled(need, factor)
        kept, other = kept or kept_at(asked), answer_mix(replace(alone, needs=(asked,)), budget, gap=gap)
        if not isinstance(other, MixAnswer) or (kept is not None and not pays(other.mixes[0].instances, kept)):
            return found
    return None


def _scaled(need: Need, factor: float) -> Need:
    """The need at its demand times this factor."""
    offers = (replace(o, load=factor * o.load, variance=factor * o.variance) for o in need.offers)
    return replace(need, rate_per_s=factor * need.rate_per_s, offers=tuple(offers))


def _without_seats(
    snapshot: Snapshot, needs: Sequence[Need], plans: Mapping[str, ServicePlan], found: Mapping[str, ServicePlan]
) -> list[str]:
    """Those of the standing mixes that have no seats beside the others and what no mix stops, the last ones first."""
    mixes = {need.service: _counts(need, found.get(need.service, plans[need.service]).instances) for need in needs}
    stay = {
        (need.service, offer.instance_type)
        for need in needs
        for offer, count in zip(need.offers, mixes[need.service].tolist(), strict=True)
        if 0 < need.running_count(offer) <= count
    }
    question, gone = MixQuestion(*stocked(snapshot, needs, stay)), list[str]()
    for name in [need.service for need in needs if need.service in found][::-1]:
        if seats_of(question, tuple(Mix(mixes[need.service], np.zeros((0, 0))) for need in needs)) is not None:
            break
        gone.append(name)
        mixes |= {each.service: _counts(each, plans[name].instances) for each in needs if each.service == name}
    return gone


def _kept(need: Need, mix: Mix, before: ServicePlan) -> ServicePlan:
    """Plan of a service that keeps its mix."""
    cost, counts = mix_cost(need, mix), zip(need.offers, mix.instances.tolist(), strict=True)
    words = f"{before.cost_per_hour:.2f} $/h would suffice, but so many starts would not pay"
    return replace(
        before,
        instances={offer.instance_type: count for offer, count in counts if count},
        cost_per_hour=cost,
        routing=before.routing and routing_of(need, mix),
        certificate=replace(before.certificate, objective=cost) if before.certificate else None,
        notes=(Reason("Standing", words, {"cheapest_per_hour": before.cost_per_hour}), *before.notes),
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
