"""Mix decider: the present number of instances of each GPU type for each model service."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from cluster import actions, workloads
from cluster.plans import Certificate, Phase, Plan, Reason, Routing, ServicePlan, Step, worse_cut
from cluster.snapshot import Snapshot
from placement.budget import Budget
from placement.mix import problem, problem_builder
from placement.mix.admission import Answered, answer_shared
from placement.mix.feasibility import is_feasible, seats_of
from placement.mix.heuristics import best_single_type, seats_left, stocks_without_others
from placement.mix.memory import (
    FoundMixes,
    Kept,
    SearchMemory,
    StandingMixes,
    VariantMemory,
    digest_of,
    own_question,
    profiles_digest,
    stock_that_counts,
)
from placement.mix.optimizer import Mixes, SearchState, answer_mix, concluded, first_unserved, is_good, search
from placement.mix.pool_split import cheapest_split
from placement.mix.problem_builder import need_of
from placement.stock import Footprint

QUESTION_SHARE = 1 / 3
"""Fraction of the remaining work for each problem, so that one hard problem does not prevent the others."""


def explain(
    snapshot: Snapshot, question: problem.MixQuestion, answer: problem.MixAnswer, budget: Budget, memory: VariantMemory
) -> dict[str, tuple[Reason, ...]]:
    """Notes per service, in the order: load, single type, cheaper mix, headroom, SLO.

    Savings are differences between solved problems, not shadow prices: instances are whole, so a marginal price of the
    relaxed model says little about the next one. They are as exact as both solutions; savings beyond the work are left
    out.

    memory: of the plan's explanations, from which a variant that was solved before is taken.
    """

    def resolve(changed: problem.MixQuestion) -> tuple[problem.Mix, ...] | None:
        return memory.mixes(changed, budget.part(QUESTION_SHARE))

    notes: dict[str, list[Reason]] = {need.service: [] for need in question.needs}
    for need, mix in zip(question.needs, answer.mixes, strict=True):
        for g, offer in enumerate(need.offers):
            if count := int(mix.instances[g]):  # the fullest pool is the capacity that binds
                load, variance = problem.pool_load(offer, mix.share[:, g])
                busy, filled = load / count, problem.room_needed(load, variance, need.headroom_share) / count
                words = f"{count} × {offer.instance_type}: {busy:.0%} busy, {filled:.0%} with headroom"
                figures = {"busy_share": busy, "filled_share": filled, "instances": float(count)}
                notes[need.service].append(Reason("PoolLoad", words, figures))
        single = best_single_type(need, question.stock)
        if single is None:
            notes[need.service].append(Reason("NoSingleType", "no single GPU type could serve all of it"))
        elif need.cells:
            saved = problem.mix_cost(need, single) - problem.mix_cost(need, mix)
            name = need.offers[int(single.instances.argmax())].instance_type
            words = f"the cheapest single type, {name}, would cost {saved:.2f} $/h more"
            notes[need.service].append(Reason("SingleType", words, {"saved_per_hour": saved}))
    remaining = stocks_without_others(question.stock, question.needs, answer.mixes)
    for need, mix, left in zip(question.needs, answer.mixes, remaining, strict=True):
        own = replace(question, needs=(need,), stock=left)
        notes[need.service] += _cheaper(own, mix, resolve)
        without = replace(own, needs=(replace(need, headroom_share=0.0),))
        found = resolve(without) if need.headroom_share != 0 else None
        if found is not None:
            bare = problem.mix_cost(need, found[0])
            extra = problem.mix_cost(need, mix) - bare
            share = extra / bare if bare else 0.0
            words = f"headroom for bursts costs {extra:.2f} $/h ({share:.0%})"
            notes[need.service].append(Reason("Headroom", words, {"extra_per_hour": extra, "extra_share": share}))
        notes[need.service] += _looser_slos(snapshot, own, mix, resolve)
    return {service: tuple(reasons) for service, reasons in notes.items()}


Resolve = Callable[[problem.MixQuestion], tuple[problem.Mix, ...] | None]
"""Mixes of a variant; None where they are not known."""
CENT = 0.01
"""Saving below which nothing is said of a cheaper mix, dollars per hour."""


def _cheaper(own: problem.MixQuestion, mix: problem.Mix, resolve: Resolve) -> Iterator[Reason]:
    """The mix that a service would have in a stock without end, and the devices that it needs beside those of `own`."""
    need = own.needs[0]
    binds = any(not stock.is_quota for stock in stock_that_counts(own, need).values())
    found = resolve(replace(own, stock={})) if binds else None
    if found is None or (saved := problem.mix_cost(need, mix) - problem.mix_cost(need, found[0])) < CENT:
        return
    wanted, missing = [], Counter[str]()
    for offer, count in zip(need.offers, found[0].instances.tolist(), strict=True):
        wanted += [f"{count} × {offer.instance_type}"] if count else []
        missing[offer.gpu_type] += count * offer.gpus
    for name in {name for offer in need.offers for name in offer.stocks} & own.stock.keys():
        missing[own.stock[name].gpu_type or name] -= own.stock[name].gpus
    more = ", ".join(f"{count} more {name}" for name, count in missing.items() if count > 0) or "other room on nodes"
    cost = problem.mix_cost(need, found[0])
    words = f"{' and '.join(wanted)} at {cost:.2f} $/h would cost {saved:.2f} $/h less and need {more}"
    yield Reason("Cheaper", words, {"cost_per_hour": cost, "saved_per_hour": saved})


def _looser_slos(snapshot: Snapshot, own: problem.MixQuestion, mix: problem.Mix, resolve: Resolve) -> Iterator[Reason]:
    """Savings from looser SLOs for which profiles exist."""
    need = own.needs[0]
    service = next(service for service in snapshot.services if service.name == need.service)
    profiles = () if service.phase == workloads.CACHE else snapshot.profiles_of(service)
    looser = {p.slo for _, p in profiles if p.slo.tpot_s > need.slo.tpot_s}
    for slo in sorted(looser, key=lambda slo: slo.tpot_s):
        relaxed = need_of(service, snapshot, slo_s=slo.tpot_s)
        found = resolve(replace(own, needs=(relaxed,))) if isinstance(relaxed, problem.Need) else None
        if found is not None and isinstance(relaxed, problem.Need):
            saved = max(0.0, problem.mix_cost(need, mix) - problem.mix_cost(relaxed, found[0]))
            yield Reason(
                "LooserSlo",
                f"{slo.label} per token instead of {need.slo.label} would save {saved:.2f} $/h",
                {"tpot_s": slo.tpot_s, "saved_per_hour": saved},
            )


EXPLAINING_SHARE = 0.2
"""Fraction of the work that is reserved for explanations, where they are wanted; they also use the work that the
solutions leave. Chosen: an explanation solves two or three problems as hard as the original."""
TOGETHER_SHARE = 0.75
"""Fraction of the work that is reserved, where services share a stock, until it is known whether the stock holds all
their solutions. It then goes to the widest gaps, or else to one solution for all of them. Chosen."""

BESIDE_WAITING_SHARE = 0.2
"""Fraction of the work for explanations while pods of no service wait, which are placed instead of waiting for them.
Chosen."""


@dataclass(frozen=True, slots=True)
class MixSettings:
    """Settings of the mix planner, the same for all services."""

    gap: float = 0.001
    """Relative distance from the proven bound at which a mix is good enough."""
    explain: bool = True
    """Whether to compute, by solving again, the savings from one more GPU, a looser SLO or no headroom."""


def plan_mix(
    snapshot: Snapshot, budget: Budget, settings: MixSettings = MixSettings(), memory: SearchMemory | None = None
) -> Plan:
    """Instances, routing and reasons for every service of the snapshot, within a budget of solver work.

    A service that cannot be planned is refused with a reason, and its instances stay unchanged. Where the stock does
    not hold all services, those of high priority come first, and among equals the first. Nothing is scaled when the
    running instances are right. The plan names what was cut short by time.

    memory: of the plan before, from which searches go on; None: they start anew.
    """
    memory = SearchMemory() if memory is None else memory
    refusals, needs = _needs_of(snapshot)
    plans = {name: _refused(name, reason) for name, reason in refusals.items()}
    for known in (memory.found, memory.modes):
        for gone in known.keys() - {need.service for need in needs}:
            del known[gone]
    snapshot, needs, idle, others, caches = _chosen_pools(snapshot, needs, refusals, settings, budget, memory)
    plans |= idle
    others_wait = any(not snapshot.pods.owner[row] for row in snapshot.pods.pending.tolist())

    def ask(some: Sequence[problem.Need], stay: Collection[problem_builder.Claimant]) -> problem.MixQuestion:
        return _question(snapshot, some, stay)

    own_profiles = (each for service in snapshot.services for each in service.own_profiles)
    standing, profiles = memory.standing, profiles_digest((*snapshot.profiles, *own_profiles))
    if standing is not None:
        kept = standing.kept(needs, profiles, ask, others_wait=others_wait)
        if kept is not None:
            return plan_of(snapshot, plans | dict(kept.services), kept.certificate)
    solving = budget.part(1 - EXPLAINING_SHARE if settings.explain else 1.0)
    answered, short, stay = _answer_around_running(snapshot, needs, settings, solving, memory)
    plans |= {name: _refused(name, reason) for name, reason in short.items()}
    memory.variants.begin()
    explaining = budget.brief(BESIDE_WAITING_SHARE) if others_wait else budget
    mixes: dict[str, problem.Mix] = {}
    for question, answer in answered:
        notes = explain(snapshot, question, answer, explaining, memory.variants) if settings.explain else {}
        for need, mix in zip(question.needs, answer.mixes, strict=True):
            mixes[need.service] = mix
            own, cost = answer.certificate, problem.mix_cost(need, mix)
            counts = zip(need.offers, mix.instances.tolist(), strict=True)
            if len(answer.mixes) > 1:  # a service alone cannot save more than all of them together could
                own = replace(own, objective=cost, bound=max(0.0, cost - (own.objective - own.bound)))
            plans[need.service] = ServicePlan(
                service=need.service,
                instances={offer.instance_type: count for offer, count in counts if count},
                cost_per_hour=cost,
                routing=routing_of(need, mix) if any(offer.gpus for offer in need.offers) else None,
                certificate=own,
                notes=(*caches.get(need.service, ()), *notes.get(need.service, ())),
            )
    certificate, memory.standing = None, None
    if answered:
        certificates = [answer.certificate for _, answer in answered]
        bound = _below_other_modes(plans, answered, others, budget)
        certificate = Certificate(
            objective=math.fsum(c.objective for c in certificates),
            bound=bound,
            solver=certificates[0].solver,
            seconds=math.fsum(c.seconds for c in certificates),
            cut_short=worse_cut(*(c.cut_short for c in certificates)),
        )
        if not short:
            own_plans = {name: plans[name] for name in mixes}
            in_order = tuple(mixes[need.service] for need in needs)
            found = FoundMixes(tuple(needs), in_order, stay, own_plans, certificate, profiles)
            memory.standing = StandingMixes.after(found, ask, standing)
    cut_short = (OUT_OF_TIME,) if budget.time_ran_out else ()
    return replace(plan_of(snapshot, plans, certificate), cut_short=cut_short)


def plan_of(snapshot: Snapshot, plans: Mapping[str, ServicePlan], certificate: Certificate | None) -> Plan:
    """The plan with the changes that these mixes need. plans: of all services of the snapshot, by name."""
    names = snapshot.gpu_type_names
    services = {service.name: service for service in snapshot.services}
    changes: dict[str, dict[workloads.InstanceType, int]] = {}
    pools: dict[str, list[workloads.ModelService]] = {}
    directions: dict[str, set[bool]] = {}
    """Whether instances of a service's pools start, and whether some stop."""
    for service in services.values():
        plan = plans[service.name]
        if plan.refusal is not None:
            continue
        now: Mapping[workloads.InstanceType, int] = service.replicas or {}
        profiled = {kind for kind, _ in snapshot.profiles_of(service) if kind.gpu_type in names}
        # A GPU type without a profile is never scaled, not even to zero: the throughput of its instances is unknown. A
        # width without a profile, on a GPU type that has one, was replaced by another width.
        # So were those that an estimate started, and those of a model that the service no longer has.
        gpu_types, own = {each.gpu_type for each in profiled}, {each.pool for each in service.models}
        if service.was_estimated:
            gpu_types.update(names)
        gone = {each for each in now if each.gpu_type in names and each.phase not in own}
        profiled |= plan.instances.keys() | {each for each in now if each.gpu_type in gpu_types} | gone
        in_order = sorted(profiled, key=lambda each: (names.index(each.gpu_type), each))
        wanted = {each: plan.instances.get(each, 0) for each in in_order}
        changes[service.name] = {each: count for each, count in wanted.items() if count != now.get(each, 0)} | {
            each: 0 for each in service.outdated if not plan.instances.get(each)
        }
        whole = service.part_of or service.name
        pools.setdefault(whole, []).append(service)
        directions.setdefault(whole, set()).update(n > now.get(each, 0) for each, n in changes[service.name].items())
    exchanged = (own for name, own in pools.items() if len(directions[name]) > 1 and own[0].is_loading is not None)
    stay = {each.name for own in exchanged if _fit_beside(snapshot, own, plans) for each in own}
    steps: list[Step] = []
    # Last, what stops all of a mode: the guard sees the instances of the other one.
    for name, changed in sorted(changes.items(), key=lambda each: not sum(plans[each[0]].instances.values())):
        service, plan = services[name], plans[name]
        now = service.replicas or {}
        if service.is_loading or name in stay:
            # What serves and is to stop does so until all are ready, also in the other mode of a service.
            serving = {each: count - service.unready.get(each, 0) for each, count in now.items()}
            kept = {each: max(count, serving.get(each, 0)) for each, count in changed.items()}
            changed = {each: count for each, count in kept.items() if count != now.get(each, 0)}
        if changed:
            words = ", ".join(f"{each} {now.get(each, 0)} → {count}" for each, count in changed.items())
            words = f"{service.name}: {words}; the whole mix costs {plan.cost_per_hour:.2f} $/h"
            bound = plan.certificate.bound if plan.certificate else 0.0
            reason = Reason("CheapestMix", words, {"cost_per_hour": plan.cost_per_hour, "bound": bound})
            steps.append(Step(actions.Scale(service.name, changed), reason))
    return Plan(
        phases=(Phase("scale", tuple(steps)),) if steps else (),
        services=tuple(plans[name] for name in services),
        certificates={} if certificate is None else {"mix": certificate},
    )


def _fit_beside(snapshot: Snapshot, pools: Sequence[workloads.ModelService], plans: Mapping[str, ServicePlan]) -> bool:
    """Whether there is room for what these pools start beside all that they stop."""
    needs = [need for each in pools if isinstance(need := need_of(each, snapshot), problem.Need)]
    stays = {(need.service, kind) for need in needs for kind, count in (need.running or {}).items() if count}
    both = []
    for need in needs:
        wanted = [plans[need.service].instances.get(offer.instance_type, 0) for offer in need.offers]
        both.append(problem.Mix(np.maximum(wanted, need.running_counts), np.zeros((0, 0))))
    return seats_of(_question(snapshot, needs, stays), tuple(both)) is not None


UNDECIDED_CODES = ("WorkUsedUp", "DeadlinePassed")
"""Refusals for lack of work or time, where more of it might serve the service."""
OUT_OF_TIME = Reason("MixOutOfTime", "time for services ran out before the work for them was done")


def _needs_of(snapshot: Snapshot) -> tuple[dict[str, Reason], list[problem.Need]]:
    """Refusals of services without a problem that can be solved, and the needs of the others."""
    refusals: dict[str, Reason] = {}
    needs: list[problem.Need] = []
    for service in snapshot.services:
        found = problem_builder.need_of(service, snapshot)
        if isinstance(found, problem.Need):
            found = first_unserved(problem.MixQuestion((found,))) or found
        if isinstance(found, Reason):
            refusals[service.name] = found
        else:
            needs.append(found)
    return refusals, needs


MODE_SHARE = 0.25
"""Fraction of the remaining work for each mode of a service whose phases may be apart, or which may have a cache.
Chosen."""
MOST_SIZES = 16
"""Sizes of a cache, and modes without one, that are solved. Chosen."""


@dataclass(frozen=True, slots=True)
class _Mode:
    """A service's pools for whole requests, or for their phases, with or without a cache."""

    names: tuple[str, ...]
    needs: tuple[problem.Need, ...] = ()
    """Of these pools; empty: it cannot be served so."""
    cached: int = 0
    """Instances of its cache."""
    fewest: int = 0
    """Least size of those caches that its bound is of; the largest is its own."""
    cost: float = math.inf
    """Dollars per hour, as if it had the stock alone."""
    bound: float = math.inf
    why: Reason | None = None
    """Why it cannot be served so, where its pools could be alone."""
    kept: Mapping[str, Kept] = field(default_factory=dict)
    """Searches for it."""


def _chosen_pools(
    snapshot: Snapshot,
    needs: list[problem.Need],
    refusals: dict[str, Reason],
    settings: MixSettings,
    budget: Budget,
    memory: SearchMemory,
) -> tuple[
    Snapshot,
    list[problem.Need],
    dict[str, ServicePlan],
    dict[tuple[str, ...], _Mode],
    dict[str, tuple[Reason, ...]],
]:
    """Prefill and decode together or apart, and the size of the cache, for each service that may have them: whichever
    costs the least by itself.

    Running instances stay in their mode unless the other one's cost, with its starts, is less; and as they are where
    no mode is found, with the reason as a refusal.

    Sets        m ∈ {together, apart} × {0 … K}: modes of a service, with k instances of its cache; o ∈ offers of a
                mode's pools: one pool of whole requests, or one of prefill and one of decode, and one of memory;
                b: buckets of lengths
    Data        load_bo, variance_bo: of whole requests within both SLOs; of prefill, its time or that of the transfer
                of the prompt's cache, whichever is longer, with as many waiting as are in time for `slo.ttft`; of
                decode, so many fewer in flight that the cache's time on both networks is within `slo.tpot`;
                of k instances of memory, k; hit_k: fraction of the prompts' tokens that k instances hold, by which
                prefill is shorter in these loads
    Variables   z_m ∈ {0, 1}; per pool those of `placement.mix.milp`
    Objective   min Σ_m z_m · Σ price_o·y_o
    Constraints Σ_m z_m = 1; per pool of the mode with z_m = 1 those of `placement.mix.milp`

    Sizes of the cache are solved only where their bounds are below the best cost so far: of a range the largest, whose
    bound holds for all of it, as a smaller cache saves no other instances; then the halves of what is left.

    Returns the snapshot whose services know their caches, the needs of the chosen modes, the plans of all other pools,
    which hold no instances, the best other mode of each service by the chosen one's pools, and what is said of caches.
    """
    services, by_name = {each.name: each for each in snapshot.services}, {need.service: need for need in needs}

    def cost_of(mode: _Mode) -> float:
        runs = any(sum((services[each].replicas or {}).values()) for each in mode.names)
        cache = next((services[each] for each in pools if services[each].phase == workloads.CACHE), None)
        runs &= cache is None or sum((cache.replicas or {}).values()) == mode.cached
        return mode.cost if runs else mode.cost * (1 + services[mode.names[0]].start_share)

    idle: dict[str, ServicePlan] = {}
    others: dict[tuple[str, ...], _Mode] = {}
    said: dict[str, tuple[Reason, ...]] = {}
    sizes: dict[str, int] = {}
    for name in dict.fromkeys(service.part_of for service in snapshot.services if service.part_of):
        pools = tuple(service.name for service in snapshot.services if service.part_of == name)
        phases = tuple(each for each in pools if services[each].phase != workloads.CACHE)
        modes, sized = _modes(snapshot, by_name, (name, *pools), settings, budget, memory)
        chosen, *rest = sorted(modes, key=cost_of)
        if math.isinf(chosen.cost) and any(sum((services[each].replicas or {}).values()) for each in pools):
            whys = (each.why for each in modes if each.why)
            unserved = refusals.get(name) or next(whys, None) or Reason("NoMode", f"{name}: no mode serves it")
            for each in (name, *pools):
                refusals[each] = unserved
                by_name.pop(each, None)
            continue
        if rest or sized:
            others[chosen.names] = min((*rest, *sized), key=lambda mode: mode.bound)
        words, saved = "", dict[str, float]()
        if phases:
            is_apart = phases[0] in chosen.names
            words = "prefill and decode are apart" if is_apart else "prefill and decode are together"
            of_other = [each for each in rest if (phases[0] in each.names) != is_apart]
            other = min(of_other, key=lambda mode: mode.cost)
            if math.isfinite(other.cost):
                amount = saved["saved_per_hour"] = other.cost - chosen.cost
                words += f", which costs {abs(amount):.2f} $/h {'less' if amount >= 0 else 'more, and no starts'}"
            elif why := refusals.get(other.names[0]):
                words += f": {why.words}"
        for each in (name, *pools) if math.isfinite(chosen.cost) else pools:
            if each not in chosen.names:
                refusals.pop(each, None)
                by_name.pop(each, None)
                idle[each] = ServicePlan(each, {}, 0.0, None, None, (Reason("Phases", words, saved),) if words else ())
        by_name |= {need.service: need for need in chosen.needs}
        memory.kept |= chosen.kept
        if chosen.cached and (cache := services[name].cache):
            said[chosen.names[-1]] = (_worth_of_cache(cache, chosen, modes),)
        sizes[name] = chosen.cached
    return with_caches(snapshot, sizes), [by_name[each] for each in services if each in by_name], idle, others, said


def _modes(
    snapshot: Snapshot,
    by_name: Mapping[str, problem.Need],
    everything: tuple[str, ...],
    settings: MixSettings,
    budget: Budget,
    memory: SearchMemory,
) -> tuple[list[_Mode], list[_Mode]]:
    """Modes of a service that were solved, and further ones, of which a bound is known. everything: it and its pools.

    The modes of a service with a cache are many: those of the plan before hold while it asks the same, and their search
    goes on where work ended it.
    """
    services = {each.name: each for each in snapshot.services if each.name in everything}
    cache = next((each for each in services.values() if each.phase == workloads.CACHE), None)
    whole = _question(snapshot, [by_name[each] for each in everything if each in by_name])
    question = (digest_of(whole, of_all_stock=True), cache.cache, cache.replicas) if cache else ()
    known = memory.modes.get(everything[0])
    if known is not None and cache and known[0] == question:
        modes, sized = list(known[1]), list(known[2])
    else:
        phases = tuple(each.name for each in services.values() if each.phase not in ("", workloads.CACHE))
        modes, sized = [], []
        for names in (everything[:1], phases) if phases else (everything[:1],):
            own = tuple(by_name[each] for each in names if each in by_name)
            modes.append(_Mode(names, own if len(own) == len(names) else ()))
            if cache and cache.cache:
                offers = (offer for need in whole.needs if need.service == cache.name for offer in need.offers)
                most = int(min(cache.cache.most, math.fsum(seats_left(offer, whole.stock) for offer in offers)))
                both, runs = (*names, cache.name), min(most, sum((cache.replicas or {}).values()))
                modes += _with_cache(snapshot, both, max(1, runs), runs, budget)
                sized += _with_cache(snapshot, both, 1, runs - 1, budget)
                sized += _with_cache(snapshot, both, runs + 1, most, budget)
        modes = [_solved(snapshot, each, settings, budget.part(MODE_SHARE), memory) for each in modes]
    while budget.allows_more() and len(modes) < MOST_SIZES:
        best, mode = min(each.cost for each in modes), min(sized, key=lambda each: each.bound, default=None)
        if mode is None or mode.bound >= best * (1 - settings.gap):
            break
        price = mode.needs[-1].offers[0].price_per_hour
        others = mode.bound - mode.fewest * price
        sized = [each for each in sized if each is not mode]
        # Beyond these, instances cost more than they can save.
        worth = mode.cached if not price or math.isinf(best) else max(mode.fewest, int((best - others) / price))
        if worth < mode.cached:
            sized += _with_cache(snapshot, mode.names, mode.fewest, worth, budget, others)
            continue
        modes.append(_solved(snapshot, mode, settings, budget.part(MODE_SHARE), memory))
        if math.isfinite(modes[-1].bound):
            others = max(others, modes[-1].bound - mode.cached * price)
        middle = (mode.fewest + mode.cached - 1) // 2
        sized += _with_cache(snapshot, mode.names, mode.fewest, middle, budget, others)
        sized += _with_cache(snapshot, mode.names, middle + 1, mode.cached - 1, budget, others)
    if cache and not budget.time_ran_out and math.isfinite(min(each.cost for each in modes)):
        memory.modes[everything[0]] = question, tuple(modes), tuple(sized)
    return modes, sized


def _sized(service: workloads.ModelService, count: int) -> workloads.ModelService:
    """The service with so many instances of its cache."""
    if service.cache is None or service.cache.instances == count:
        return service
    return replace(service, cache=replace(service.cache, instances=count))


def with_caches(snapshot: Snapshot, sizes: Mapping[str, int]) -> Snapshot:
    """The snapshot whose services know their caches. sizes: instances of the cache by the whole service's name."""
    if not any(sizes.values()):
        return snapshot
    services = (_sized(each, sizes.get(each.part_of or each.name, 0)) for each in snapshot.services)
    return replace(snapshot, services=tuple(services))


def _with_cache(
    snapshot: Snapshot, names: tuple[str, ...], fewest: int, most: int, budget: Budget, others: float = 0.0
) -> Iterator[_Mode]:
    """These pools with caches of `fewest` to `most` instances, as a mode of the most; none where they are not possible.

    names: with the cache's last. others: bound on the cost of the other pools.
    """
    own = (_sized(each, most) for each in snapshot.services if each.name in names and fewest <= most)
    needs = [need for each in own if isinstance(need := need_of(each, snapshot), problem.Need)]
    if len(needs) == len(names) and not any(first_unserved(problem.MixQuestion((each,))) for each in needs):
        # A smaller cache saves no instances of the other pools.
        others = max(others, math.fsum(_bound_alone(need, budget) for need in needs[:-1]))
        bound = others + fewest * needs[-1].offers[0].price_per_hour
        yield _Mode(names, tuple(needs), most, fewest, bound=bound)


def _worth_of_cache(cache: workloads.PromptCache, chosen: _Mode, modes: Sequence[_Mode]) -> Reason:
    """What the chosen size of a cache brings, in dollars."""
    paid = chosen.needs[-1].offers[0].price_per_hour * chosen.cached
    words = f"{chosen.cached} instances of {cache.memory_bytes / 2**30:g} GiB cost {paid:.2f} $/h"
    figures = {"instances": float(chosen.cached)}
    without = min(each.cost for each in modes if not each.cached)
    if math.isfinite(without):
        figures["saved_per_hour"] = without - chosen.cost
        words += f", and {without - chosen.cost:.2f} $/h less are paid in all than without them"
    return Reason("Cache", words, figures)


def _solved(snapshot: Snapshot, mode: _Mode, settings: MixSettings, budget: Budget, memory: SearchMemory) -> _Mode:
    """The mode with its cost and bound, as if its pools had the stock alone."""
    if not mode.needs:
        return mode
    everything = _question(snapshot, mode.needs)
    questions = [replace(everything, needs=(need,)) for need in everything.needs]
    states = search(questions, [memory.begun(each, budget) for each in questions], budget, settings.gap)
    before = dict(memory.kept)
    memory.keep(questions, states)
    mode = replace(mode, kept=dict(memory.kept))
    memory.kept = before | memory.kept
    apart = [concluded(each, state, settings.gap) for each, state in zip(questions, states, strict=True)]
    answers: list[problem.MixAnswer | Reason] = list(apart)
    if not _fit_together(everything, apart) and all(isinstance(each, problem.MixAnswer) for each in apart):
        answers = [answer_mix(everything, budget, gap=settings.gap)]
    if undone := [each for each in answers if isinstance(each, Reason)]:
        is_open = any(each.code in UNDECIDED_CODES for each in undone)
        bound = math.fsum(_bound_alone(each, budget) for each in mode.needs) if is_open else math.inf
        return replace(mode, bound=bound, why=undone[0])
    found = [each for each in answers if isinstance(each, problem.MixAnswer)]
    bound = math.fsum(each.certificate.bound for each in found)
    return replace(mode, cost=sum(each.cost_per_hour for each in found), bound=bound)


def _bound_alone(need: problem.Need, budget: Budget) -> float:
    """Lower bound on the cost of a service that has any stock."""
    prices = np.array([offer.price_per_hour for offer in need.offers])
    return cheapest_split(need, prices, budget).bound


def _below_other_modes(
    plans: dict[str, ServicePlan], answered: Sequence[Answered], others: Mapping[tuple[str, ...], _Mode], budget: Budget
) -> float:
    """Lower bound on the cost of all mixes in any mode, after the services' own bounds are lowered to those of theirs.

    Where services share a stock, another mode of one might leave more of it to the others: then all bounds are of
    services that have the stock alone.
    """
    total = math.fsum(answer.certificate.bound for _, answer in answered)
    for names, other in others.items():
        for name in names:
            own = plans[name].certificate
            sum_of_mode = math.fsum(c.bound for each in names if (c := plans[each].certificate))
            if own is not None and sum_of_mode > other.bound:
                lower = max(0.0, own.bound - (sum_of_mode - other.bound))
                total -= own.bound - lower
                plans[name] = replace(plans[name], certificate=replace(own, bound=lower))
    mode_of = {name: names for names in others for name in names}
    sharing = [{mode_of.get(need.service, (need.service,)) for need in question.needs} for question, _ in answered]
    if any(len(modes) > 1 and modes & others.keys() for modes in sharing):
        alone: dict[tuple[str, ...], float] = {}
        for need in (need for question, _ in answered for need in question.needs):
            names = mode_of.get(need.service, (need.service,))
            alone[names] = alone.get(names, 0.0) + _bound_alone(need, budget)
        total = min(
            total, math.fsum(min(bound, others[n].bound if n in others else bound) for n, bound in alone.items())
        )
    return max(0.0, total)


def _question(
    snapshot: Snapshot, needs: Sequence[problem.Need], stay: Collection[problem_builder.Claimant] = ()
) -> problem.MixQuestion:
    return problem.MixQuestion(*problem_builder.stocked(snapshot, needs, stay))


def _answer_around_running(
    snapshot: Snapshot, needs: list[problem.Need], settings: MixSettings, budget: Budget, memory: SearchMemory
) -> tuple[list[Answered], dict[str, Reason], frozenset[problem_builder.Claimant]]:
    """Answers with seats around the running instances that stay, reasons for the other services, and what stays.

    First all of them might stop, so that others find the room that they would leave. Where those that do not stop are
    in the way, they count as where they are, and the question is answered again: a plan moves none of them to make room
    for a wider one. An answer that this deadline's work does not suffice for is not taken: the one before serves more,
    if one instance of it may have to wait.
    """
    footprints: dict[str, set[Footprint]] = {}
    for need in needs:
        for offer in (each for each in need.offers if each.gpus):
            footprints.setdefault(offer.gpu_type, set()).add(offer.footprint)
    answered, short = _answer_by_priority(snapshot, needs, settings, budget, memory, ())
    stay: frozenset[problem_builder.Claimant] = frozenset()
    while True:
        # Instances of a type of which these mixes stop none. They may be in the way of others on their GPU type where
        # those have another footprint.
        mixes = {need.service: mix for q, a in answered for need, mix in zip(q.needs, a.mixes, strict=True)}
        more = frozenset(
            (need.service, offer.instance_type)
            for question, _ in answered
            for need in question.needs
            for offer, count in zip(need.offers, mixes[need.service].instances.tolist(), strict=True)
            if 0 < need.running_count(offer) <= count
        )
        more -= stay
        if not any(len(footprints.get(instance_type.gpu_type, ())) > 1 for _, instance_type in more):
            return answered, short, stay
        served = [need for need in needs if need.service in mixes]
        around = _question(snapshot, served, stay | more)
        if is_feasible(around, tuple(mixes[need.service] for need in served)) or not budget.allows_more():
            return answered, short, stay
        stay |= more
        again, short_then = _answer_by_priority(snapshot, needs, settings, budget, memory.in_place, stay)
        if any(short_then[name].code in UNDECIDED_CODES for name in short_then.keys() - short.keys()):
            return answered, short, stay
        answered, short = again, short_then


def _answer_by_priority(
    snapshot: Snapshot,
    needs: list[problem.Need],
    settings: MixSettings,
    budget: Budget,
    memory: SearchMemory,
    stay: Collection[problem_builder.Claimant],
) -> tuple[list[Answered], dict[str, Reason]]:
    """Solutions for as many needs as the stock holds, in order of priority, and reasons for the others."""
    everything = _question(snapshot, needs, stay)
    known: dict[str, Mixes] = {}
    if memory.pool(everything) is None:  # otherwise the stock is known not to hold their separate solutions
        questions = [replace(everything, needs=(need,)) for need in everything.needs]
        begun = [memory.begun(question, budget) for question in questions]
        for question, state in zip(questions, begun, strict=True):  # the cheapest mix so far
            if state.candidates:
                objective = partial(problem.total_cost, question)
                known[question.needs[0].service] = min(state.candidates, key=objective)
        # Where these are all and the stock does not hold them, better ones for each alone would hardly fit, either.
        chosen = tuple(mix for mixes in known.values() for mix in mixes)
        if len(questions) == 1 or (len(chosen) == len(questions) and is_feasible(everything, chosen)):
            apart = _answer_separately(everything, questions, begun, settings.gap, budget, memory)
            if _fit_together(everything, apart):
                return [(q, a) for q, a in zip(questions, apart, strict=True) if isinstance(a, problem.MixAnswer)], {}
            known = {n.service: a.mixes for n, a in zip(needs, apart, strict=True) if isinstance(a, problem.MixAnswer)}

    def ask(some: Sequence[problem.Need]) -> problem.MixQuestion:
        return _question(snapshot, some, stay)

    return answer_shared(ask, needs, known, budget, settings.gap, memory)


def _answer_separately(
    everything: problem.MixQuestion,
    questions: Sequence[problem.MixQuestion],
    begun: Sequence[SearchState],
    gap: float,
    budget: Budget,
    memory: SearchMemory,
) -> list[problem.MixAnswer | Reason]:
    """Solution of each need, as if it had the stock alone.

    Many small problems are far easier than a large one, and while the stock holds them all their solutions are the
    same. Where a stock is shared, part of the work is reserved for the case that it does not hold them all.
    """

    def solved(known: Sequence[SearchState | Reason], within: Budget) -> list[problem.MixAnswer | Reason]:
        states[:] = search(questions, known, within, gap)
        memory.keep(questions, states)
        memory.open = []
        for question, state in zip(questions, states, strict=True):
            if isinstance(state, SearchState) and not state.is_done and not is_good(question, state, gap):
                memory.open.append(own_question(question, np.zeros(len(question.needs[0].offers)), gap, state.bound))
        return [concluded(q, each, gap) for q, each in zip(questions, states, strict=True)]

    states: list[SearchState | Reason] = []
    if not everything.stock or len(questions) == 1:
        return solved(begun, budget)
    answers = solved(begun, budget.part(1 - TOGETHER_SHARE))
    is_cut = any(isinstance(each, problem.MixAnswer) and each.certificate.cut_short for each in answers)
    if not is_cut or not _fit_together(everything, answers):
        return answers
    better = solved(states, budget)
    return better if _fit_together(everything, better) else answers


def _fit_together(everything: problem.MixQuestion, apart: Sequence[problem.MixAnswer | Reason]) -> bool:
    """Whether there is a solution for every need and the stock holds them all."""
    mixes = [answer.mixes[0] for answer in apart if isinstance(answer, problem.MixAnswer)]
    return len(mixes) == len(apart) and is_feasible(everything, tuple(mixes))


def _refused(name: str, reason: Reason) -> ServicePlan:
    return ServicePlan(service=name, instances={}, cost_per_hour=0.0, routing=None, certificate=None, refusal=reason)


def routing_of(need: problem.Need, mix: problem.Mix) -> Routing:
    """Fraction of each bucket's requests for each instance type."""
    weight = np.zeros((*need.grid.shape, len(need.offers)))
    rates = Counter[tuple[int, int]]()
    for cell, rate in zip(need.cells, need.rate_per_s.tolist(), strict=True):
        rates[cell] += rate
    for cell, rate, share in zip(need.cells, need.rate_per_s.tolist(), mix.share, strict=True):
        weight[cell] += share * (rate / rates[cell])
    weight.setflags(write=False)
    return Routing(need.grid, tuple(offer.instance_type for offer in need.offers), weight)
