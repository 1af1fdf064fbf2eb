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

    memory: of the plan's explanations, from which a variant that was solved before is taken.
    """
    notes: dict[str, list[Reason]] = {}
    for need, mix in zip(question.needs, answer.mixes, strict=True):
        notes[need.service] = [*_loads(need, mix), *_single_type(question, need, mix)]

    def resolve(changed: MixQuestion) -> float | None:
        return memory.cost_per_hour(changed, budget.part(QUESTION_SHARE))

    # Where the search for the answer itself was cut short, that for a question as large would be as well.
    stock = () if answer.certificate.cut_short else _stock(question, answer, resolve)
    for reason in (*_whole_slices(question, answer), *stock):
        for need in question.needs:
            notes[need.service].append(reason)
    remaining = stocks_without_others(question.stock, question.needs, answer.mixes)
    for need, mix, left in zip(question.needs, answer.mixes, remaining, strict=True):
        own = replace(question, needs=(need,), stock=left)
        notes[need.service] += [
            *_headroom(own, mix, resolve),
            *_looser_slos(snapshot, own, mix, resolve),
        ]
    return {service: tuple(reasons) for service, reasons in notes.items()}


Resolve = Callable[[MixQuestion], float | None]
"""Cost per hour of a variant; None where it is not known."""


def _loads(need: Need, mix: Mix) -> Iterator[Reason]:
    """Load of each pool, with and without its headroom: the fullest one is the capacity that binds."""
    for g, offer in enumerate(need.offers):
        count = int(mix.instances[g])
        if count:
            load, variance = pool_load(offer, mix.share[:, g])
            room = room_needed(load, variance, need.headroom_share)
            yield Reason(
                "PoolLoad",
                f"{count} × {offer.instance_type}: {load / count:.0%} busy, {room / count:.0%} with headroom",
                {"busy_share": load / count, "filled_share": room / count, "instances": float(count)},
            )


def _single_type(question: MixQuestion, need: Need, mix: Mix) -> Iterator[Reason]:
    single = best_single_type(need, question.stock)
    if single is None:
        yield Reason("NoSingleType", "no single GPU type could serve all of it")
    elif need.cells:
        saved = mix_cost(need, single) - mix_cost(need, mix)
        name = need.offers[int(single.instances.argmax())].instance_type
        yield Reason(
            "SingleType",
            f"the cheapest single type, {name}, would cost {saved:.2f} $/h more",
            {"saved_per_hour": saved},
        )


def _whole_slices(question: MixQuestion, answer: MixAnswer) -> Iterator[Reason]:
    """Cost of keeping every slice on one instance instead of cutting it between two.

    Not told of more instances than can be looked through one by one: without nodes, any demand has its instances.
    """
    if sum(int(mix.instances.sum()) for mix in answer.mixes) > MOST_PACKED:
        return
    fitted = answer.mixes if question.per_instance else fit_into_instances(question, answer.mixes)
    if fitted is None:
        yield Reason("WholeSlices", "the stock does not suffice to keep every slice on one instance")
    elif (extra := total_cost(question, fitted) - answer.fluid_cost_per_hour) > CENT:
        verb = "costs" if question.per_instance else "would cost"
        yield Reason(
            "WholeSlices",
            f"keeping every slice on one instance {verb} {extra:.2f} $/h",
            {"extra_per_hour": extra},
        )


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


def _headroom(own: MixQuestion, mix: Mix, resolve: Resolve) -> Iterator[Reason]:
    need = own.needs[0]
    bare = resolve(replace(own, needs=(replace(need, headroom_share=0.0),))) if need.headroom_share != 0 else None
    if bare is not None:
        extra = mix_cost(need, mix) - bare
        share = extra / bare if bare else 0.0
        yield Reason(
            "Headroom",
            f"headroom for bursts costs {extra:.2f} $/h ({share:.0%})",
            {"extra_per_hour": extra, "extra_share": share},
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
