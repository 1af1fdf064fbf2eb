"""Sensitivity of a mix: the binding limit, and the savings from one more GPU, a looser SLO or less headroom."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from cluster.plans import Reason
from cluster.snapshot import Snapshot
from placement.budget import Budget
from placement.mix.feasibility import crowd_at, seats_of
from placement.mix.heuristics import best_single_type, fit_into_instances, stocks_without_others
from placement.mix.memory import VariantMemory
from placement.mix.problem import Mix, MixAnswer, MixQuestion, Need, mix_cost, pool_load, room_needed, total_cost
from placement.mix.problem_builder import need_of

MOST_PACKED = 10_000
"""Instances of all services up to which slices are packed into single ones. The time grows with their square: 10,000
take 0.6 s, 100,000 take 27 s."""
CENT = 0.005
"""Dollars per hour below which a difference is not worth a sentence."""


QUESTION_SHARE = 1 / 3
"""Fraction of the remaining work for each problem, so that one hard problem does not prevent the others."""


def explain(
    snapshot: Snapshot, question: MixQuestion, answer: MixAnswer, budget: Budget, memory: VariantMemory
) -> dict[str, tuple[Reason, ...]]:
    """Notes per service, in the order: load, single type, whole slices, stock, headroom, SLO.

    Savings are differences between solved problems, not shadow prices: instances are whole, so a marginal price of the
    relaxed model says little about the next one. They are as exact as both solutions; savings beyond the work are left
    out.

    memory: of the plan's explanations, from which a variant that was solved before is taken.
    """

    def resolve(changed: MixQuestion) -> float | None:
        return memory.cost_per_hour(changed, budget.part(QUESTION_SHARE))

    notes: dict[str, list[Reason]] = {need.service: [] for need in question.needs}
    for need, mix in zip(question.needs, answer.mixes, strict=True):
        for g, offer in enumerate(need.offers):
            if count := int(mix.instances[g]):  # the fullest pool is the capacity that binds
                load, variance = pool_load(offer, mix.share[:, g])
                busy, filled = load / count, room_needed(load, variance, need.headroom_share) / count
                words = f"{count} × {offer.instance_type}: {busy:.0%} busy, {filled:.0%} with headroom"
                figures = {"busy_share": busy, "filled_share": filled, "instances": float(count)}
                notes[need.service].append(Reason("PoolLoad", words, figures))
        single = best_single_type(need, question.stock)
        if single is None:
            notes[need.service].append(Reason("NoSingleType", "no single GPU type could serve all of it"))
        elif need.cells:
            saved = mix_cost(need, single) - mix_cost(need, mix)
            name = need.offers[int(single.instances.argmax())].instance_type
            words = f"the cheapest single type, {name}, would cost {saved:.2f} $/h more"
            notes[need.service].append(Reason("SingleType", words, {"saved_per_hour": saved}))
    shared: list[Reason] = []
    # Not told of more instances than can be looked through one by one: without nodes, any demand has its instances.
    if sum(int(mix.instances.sum()) for mix in answer.mixes) <= MOST_PACKED:
        fitted = answer.mixes if question.per_instance else fit_into_instances(question, answer.mixes)
        if fitted is None:
            words = "the stock does not suffice to keep every slice on one instance"
            shared.append(Reason("WholeSlices", words))
        elif (extra := total_cost(question, fitted) - answer.fluid_cost_per_hour) > CENT:
            verb = "costs" if question.per_instance else "would cost"
            words = f"keeping every slice on one instance {verb} {extra:.2f} $/h"
            shared.append(Reason("WholeSlices", words, {"extra_per_hour": extra}))
    # Where the search for the answer itself was cut short, that for a question as large would be as well.
    if not answer.certificate.cut_short:
        shared += _stock(question, answer, resolve)
    remaining = stocks_without_others(question.stock, question.needs, answer.mixes)
    for need, mix, left in zip(question.needs, answer.mixes, remaining, strict=True):
        own = replace(question, needs=(need,), stock=left)
        notes[need.service] += shared
        without = replace(own, needs=(replace(need, headroom_share=0.0),))
        bare = resolve(without) if need.headroom_share != 0 else None
        if bare is not None:
            extra = mix_cost(need, mix) - bare
            share = extra / bare if bare else 0.0
            words = f"headroom for bursts costs {extra:.2f} $/h ({share:.0%})"
            notes[need.service].append(Reason("Headroom", words, {"extra_per_hour": extra, "extra_share": share}))
        notes[need.service] += _looser_slos(snapshot, own, mix, resolve)
    return {service: tuple(reasons) for service, reasons in notes.items()}


Resolve = Callable[[MixQuestion], float | None]
"""Cost per hour of a variant; None where it is not known."""


def _stock(question: MixQuestion, answer: MixAnswer, resolve: Resolve) -> Iterator[Reason]:
    """Savings from the next instance's devices of each exhausted type."""
    seats = seats_of(question, answer.mixes) or {}
    left = dict(question.stock)
    for (group, name), count in seats.items():
        left[name] = left[name].minus(group.footprint, count)
    for crowd, at in {crowd_at(question, seats, name): name for name in [*question.stock][::-1]}.items():
        takers = [offer for need in question.needs for offer in need.offers if at in offer.stocks]
        smallest = min((offer.footprint for offer in takers), default=None)
        if smallest is None or any(left[name].holds(smallest) for name in crowd.stocks):
            continue
        richer = resolve(replace(question, stock={**question.stock, at: question.stock[at].plus(smallest.gpus)}))
        if richer is not None:
            saved = max(0.0, answer.cost_per_hour - richer)
            yield Reason(
                "StockBinds",
                f"all {crowd.gpus} {crowd.name} are used; {smallest.gpus} more would save {saved:.2f} $/h",
                {"gpus": float(crowd.gpus), "saved_per_hour": saved},
            )


def _looser_slos(snapshot: Snapshot, own: MixQuestion, mix: Mix, resolve: Resolve) -> Iterator[Reason]:
    """Savings from looser SLOs for which profiles exist."""
    need = own.needs[0]
    service = next(service for service in snapshot.services if service.name == need.service)
    looser = {p.slo for p in snapshot.profiles if p.model == service.model and p.slo.tpot_s > need.slo.tpot_s}
    for slo in sorted(looser, key=lambda slo: slo.tpot_s):
        relaxed = need_of(service, snapshot, slo_s=slo.tpot_s)
        cost = resolve(replace(own, needs=(relaxed,))) if isinstance(relaxed, Need) else None
        if cost is not None:
            saved = max(0.0, mix_cost(need, mix) - cost)
            yield Reason(
                "LooserSlo",
                f"{slo.label} per token instead of {need.slo.label} would save {saved:.2f} $/h",
                {"tpot_s": slo.tpot_s, "saved_per_hour": saved},
            )
