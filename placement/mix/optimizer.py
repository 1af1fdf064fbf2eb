"""From a question to an answer by a deadline: search, fit into instances, keep what runs, certify."""

from dataclasses import replace

import numpy as np

from cluster.arrays import IntArray
from cluster.clock import Clock
from cluster.plans import Certificate, Reason
from placement.mix.feasibility import is_feasible
from placement.mix.instance_packing import fit_into_instances
from placement.mix.problem import Mix, MixAnswer, MixQuestion, Need, objective_of, total_cost
from placement.mix.search import Found, Mixes, mixes_on, search

KEEPING_SHARE = 0.2
"""Share of the deadline kept for asking whether what runs would do as well. Chosen: mostly a tenth is enough."""


def answer_mix(
    question: MixQuestion,
    *,
    deadline_s: float,
    clock: Clock,
    gap: float = 0.0,
    solver: str | None = None,
    known: Mixes | None = None,
) -> MixAnswer | Reason:
    """The cheapest mixes that were found in `deadline_s` seconds, with what is proven; or why there are none.

    gap: relative distance from the bound that is good enough: then the search ends, and instances that run are kept.
    solver: see `placement.mix.pulp_solver.solve`. known: mixes that the answer must not be dearer than, if they are
    feasible. Reasons: `BucketUnserved` (no type can), `InventoryShort` (proven), `DeadlinePassed` (neither answer nor
    proof).
    """
    began = clock()
    unserved = first_unserved(question)
    if unserved is not None:
        return unserved
    if not any(need.cells for need in question.needs):
        nothing = tuple(_idle(need) for need in question.needs)
        return _certified(question, nothing, Found((), objective_of(question, nothing), "none"), clock() - began)

    def left_s() -> float:
        return deadline_s - (clock() - began)

    asked_before = all(need.running is not None for need in question.needs)
    reserve_s = KEEPING_SHARE * deadline_s if asked_before else 0.0
    found = search(question, left_s=lambda: left_s() - reserve_s, gap=gap, solver=solver, known=known)
    if isinstance(found, Reason):
        return found
    fluid = min(total_cost(question, mixes) for mixes in found.candidates)
    fitted = _fitted(question, found.candidates)
    good = max(found.bound / (1 - gap), objective_of(question, fitted[0])) + 1e-6 if fitted else 0.0
    if fitted and asked_before and _may_keep(question, fitted[0], good):
        fitted = _fitted(question, _running_mixes(question, left_s(), solver)) + fitted
    if not fitted:
        return Reason("InventoryShort", "the stock holds the load as a whole, but not slice by slice on instances")
    answer = _certified(question, next(m for m in fitted if objective_of(question, m) <= good), found, clock() - began)
    return replace(answer, fluid_cost_per_hour=min(fluid, answer.cost_per_hour))


def _fitted(question: MixQuestion, candidates: tuple[Mixes, ...]) -> tuple[Mixes, ...]:
    """The candidates as single instances can serve them, cheapest first."""
    if question.per_instance:
        tried = (fit_into_instances(question, mixes) for mixes in candidates)
        candidates = tuple(mixes for mixes in tried if mixes is not None and is_feasible(question, mixes))
    return tuple(sorted(candidates, key=lambda mixes: objective_of(question, mixes)))


def _may_keep(question: MixQuestion, best: Mixes, good: float) -> bool:
    """Whether other instances than the best ones run now, at an objective that is good enough."""
    running = tuple(replace(mix, instances=_running(need)) for need, mix in zip(question.needs, best, strict=True))
    same = all((r.instances == mix.instances).all() for r, mix in zip(running, best, strict=True))
    return not same and objective_of(question, running) <= good


def _running(need: Need) -> IntArray:
    return np.array([need.running_count(offer) for offer in need.offers], dtype=np.int64)


def _running_mixes(question: MixQuestion, limit_s: float, solver: str | None) -> tuple[Mixes, ...]:
    """How the running instances could serve the demand: one way, or none."""
    mixes = mixes_on(question, tuple(_running(need) for need in question.needs), limit_s, solver)
    return () if mixes is None else (mixes,)


def first_unserved(question: MixQuestion) -> Reason | None:
    """The first bucket that no offer can serve, as a reason."""
    for need in question.needs:
        for b, cell in enumerate(need.cells):
            if not any(np.isfinite(offer.load[b]) for offer in need.offers):
                return Reason(
                    "BucketUnserved",
                    f"{need.service}: no GPU type can serve {need.grid.label(*cell)} within {need.slo.label} per token",
                    {"rate_per_s": float(need.rate_per_s[b]), "tpot_s": need.slo.tpot_s},
                )
    return None


def _certified(question: MixQuestion, mixes: Mixes, found: Found, seconds: float) -> MixAnswer:
    objective = objective_of(question, mixes)
    # Solvers prove bounds to within their tolerances; one that passes the objective by dust means "equal".
    bound = objective if objective - found.bound <= 1e-6 * max(1.0, objective) else found.bound
    cost = total_cost(question, mixes)
    return MixAnswer(mixes, cost, Certificate(objective, bound, found.solver, seconds), cost)


def _idle(need: Need) -> Mix:
    return Mix(np.zeros(len(need.offers), dtype=np.int64), np.zeros((0, len(need.offers))))
