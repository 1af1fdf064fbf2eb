"""Solution of a mix problem within a budget of work: search, fit into instances, keep what runs, certify."""

import math
from dataclasses import replace

import numpy as np

from cluster.arrays import IntArray
from cluster.plans import Certificate, Reason
from placement.budget import Budget
from placement.mix.feasibility import is_feasible
from placement.mix.instance_packing import fit_into_instances
from placement.mix.problem import MixAnswer, MixQuestion, Need, objective_of, total_cost
from placement.mix.pulp_solver import Terms
from placement.mix.search import Mixes, SearchState, begun, is_good, mixes_on, search

WORK_PER_S = 4_000.0
"""Solver work per second of the deadline, in simplex iterations (`placement.mix.pulp_solver`). Measured on a core of
2026 by `python -m benchmarks.mix`: 8,000 to 30,000 per second. A core half as fast therefore finishes in time; a
fast one finishes early, which is the price of the same result on every machine."""
KEEPING_NODES = 200
"""Nodes of the tree search that checks whether the running instances suffice. Chosen: mostly it takes one."""


def work_of(within_s: float) -> float:
    """Solver work for the mix of a whole plan, given the deadline in seconds."""
    return WORK_PER_S * within_s


def answer_mix(
    question: MixQuestion,
    budget: Budget,
    *,
    gap: float = 0.0,
    solver: str | None = None,
    known: Mixes | None = None,
    bound: float = -math.inf,
) -> MixAnswer | Reason:
    """Cheapest mixes found within the budget, with the proven bound, or the reason why there are none.

    gap: relative distance from the bound that is good enough: the search then ends, and running instances are kept.
    solver: see `placement.mix.pulp_solver.solve`. bound: on the objective, proven elsewhere.
    known: mixes that limit the cost of the result, if they are feasible.
    Reasons: `BucketUnserved` (no type can), `InventoryShort` (proven), `WorkUsedUp` and `DeadlinePassed` (neither
    solution nor proof).
    """
    unserved = first_unserved(question)
    if unserved is not None:
        return unserved
    terms = Terms(gap, solver)
    (found,) = search([question], [begun(question, known, bound, budget)], budget, terms)
    return concluded(question, found, budget, terms)


def concluded(question: MixQuestion, found: SearchState | Reason, budget: Budget, terms: Terms) -> MixAnswer | Reason:
    """Result of a search."""
    if isinstance(found, Reason):
        return found
    if not found.candidates:
        return _nothing_found(found)
    began_s = budget.clock()
    fluid = min(total_cost(question, mixes) for mixes in found.candidates)
    fitted = _fitted(question, found.candidates)
    if not fitted:
        return Reason("InventoryShort", "the stock holds the load as a whole, but not slice by slice on instances")
    good = max(found.bound / (1 - terms.gap), objective_of(question, fitted[0])) + 1e-6
    if _may_keep(question, fitted[0], good):
        fitted = _fitted(question, _running_mixes(question, budget, terms)) + fitted
    mixes = next(mixes for mixes in fitted if objective_of(question, mixes) <= good)
    seconds = found.seconds + budget.clock() - began_s
    answer = _certified(question, mixes, found, seconds, terms)
    return replace(answer, fluid_cost_per_hour=min(fluid, answer.cost_per_hour))


def _nothing_found(found: SearchState) -> Reason:
    if found.cut_short == "time":
        return Reason("DeadlinePassed", "no mix was found before the deadline, and none was ruled out")
    words = "no mix was found with this deadline's work, and none was ruled out; a longer deadline allows more work"
    return Reason("WorkUsedUp", words)


def _fitted(question: MixQuestion, candidates: tuple[Mixes, ...]) -> tuple[Mixes, ...]:
    """Candidates as single instances can serve them, cheapest first."""
    if question.per_instance:
        tried = (fit_into_instances(question, mixes) for mixes in candidates)
        candidates = tuple(mixes for mixes in tried if mixes is not None and is_feasible(question, mixes))
    return tuple(sorted(candidates, key=lambda mixes: objective_of(question, mixes)))


def _may_keep(question: MixQuestion, best: Mixes, good: float) -> bool:
    """Whether other instances than the best ones run now, at an objective that is good enough."""
    if not all(need.running is not None for need in question.needs) or not any(need.cells for need in question.needs):
        return False
    running = tuple(replace(mix, instances=_running(need)) for need, mix in zip(question.needs, best, strict=True))
    same = all((r.instances == mix.instances).all() for r, mix in zip(running, best, strict=True))
    return not same and objective_of(question, running) <= good


def _running(need: Need) -> IntArray:
    return np.array([need.running_count(offer) for offer in need.offers], dtype=np.int64)


def _running_mixes(question: MixQuestion, budget: Budget, terms: Terms) -> tuple[Mixes, ...]:
    """Mixes of the running instances that serve the demand: one, or none.

    Solved whatever work is left: a change of running instances for lack of work to keep them would help no service.
    """
    if budget.left_s <= 0:
        budget.say_time_ran_out()
        return ()
    running = tuple(_running(need) for need in question.needs)
    mixes = mixes_on(question, running, KEEPING_NODES, budget, terms)
    return () if mixes is None else (mixes,)


def first_unserved(question: MixQuestion) -> Reason | None:
    """First bucket that no offer can serve, as a reason."""
    for need in question.needs:
        for b, cell in enumerate(need.cells):
            if not any(np.isfinite(offer.load[b]) for offer in need.offers):
                return Reason(
                    "BucketUnserved",
                    f"{need.service}: no GPU type can serve {need.grid.label(*cell)} within {need.slo.label} per token",
                    {"rate_per_s": float(need.rate_per_s[b]), "tpot_s": need.slo.tpot_s},
                )
    return None


def _certified(question: MixQuestion, mixes: Mixes, found: SearchState, seconds: float, terms: Terms) -> MixAnswer:
    objective = objective_of(question, mixes)
    # Solvers prove bounds within their tolerances; a bound slightly above the objective means "equal".
    bound = objective if objective - found.bound <= 1e-6 * max(1.0, objective) else found.bound
    cost = total_cost(question, mixes)
    cut_short = "" if is_good(question, found, terms.gap) else found.cut_short
    return MixAnswer(mixes, cost, Certificate(objective, bound, found.solver, seconds, cut_short), cost)
