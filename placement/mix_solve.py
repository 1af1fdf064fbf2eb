"""From a question to an answer by a deadline: start, solve, round, fit into instances, check, certify."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import IntArray
from cluster.plans import Certificate, Reason
from placement.instances import fit_into_instances
from placement.mix import Mix, MixAnswer, MixQuestion, Need, objective_of, total_cost
from placement.mix_check import is_feasible
from placement.mix_model import build_model, mixes_from
from placement.mix_start import start_mixes, whole_slices
from placement.solving import Solved, solve

Clock = Callable[[], float]
"""Seconds from any fixed instant; only differences count."""

Mixes = tuple[Mix, ...]
"""One mix per need."""


@dataclass(frozen=True, slots=True, eq=False)
class _Stage:
    """What is known so far: feasible mixes, and a proven bound on the objective."""

    candidates: tuple[Mixes, ...]
    bound: float
    solver: str


def answer_mix(
    question: MixQuestion, *, deadline_s: float, clock: Clock, gap: float = 0.0, solver: str | None = None
) -> MixAnswer | Reason:
    """The cheapest mixes that were found in `deadline_s` seconds, with what is proven; or why there are none.

    gap: relative distance from the bound that is good enough. solver: see `placement.solving.solve`.
    Reasons: `BucketUnserved` (no type can), `InventoryShort` (proven), `DeadlinePassed` (neither answer nor proof).
    """
    began = clock()
    unserved = first_unserved(question)
    if unserved is not None:
        return unserved
    if not any(need.cells for need in question.needs):
        nothing = tuple(_idle(need) for need in question.needs)
        return _certified(question, nothing, _Stage((), 0.0, "none"), clock() - began)

    def left_s() -> float:
        return deadline_s - (clock() - began)

    stage = _search(question, left_s, gap, solver)
    if isinstance(stage, Reason):
        return stage
    fluid = min(total_cost(question, mixes) for mixes in stage.candidates)
    fitted = _fitted(question, stage.candidates)
    if fitted and _is_worth_keeping(question, fitted[0]):
        fitted = _fitted(question, _running_mixes(question, left_s(), solver)) + fitted
    if not fitted:
        return Reason("InventoryShort", "the stock holds the load as a whole, but not slice by slice on instances")
    answer = _certified(question, _cheapest(question, fitted), stage, clock() - began)
    return replace(answer, fluid_cost_per_hour=min(fluid, answer.cost_per_hour))


def _fitted(question: MixQuestion, candidates: tuple[Mixes, ...]) -> tuple[Mixes, ...]:
    """The candidates as single instances can serve them, cheapest first."""
    if question.per_instance:
        tried = (fit_into_instances(question, mixes) for mixes in candidates)
        candidates = tuple(mixes for mixes in tried if mixes is not None and is_feasible(question, mixes))
    return tuple(sorted(candidates, key=lambda mixes: objective_of(question, mixes)))


def _cheapest(question: MixQuestion, candidates: tuple[Mixes, ...]) -> Mixes:
    """The first of the cheapest: what runs stands first, so that nothing changes for nothing."""
    least = min(objective_of(question, mixes) for mixes in candidates)
    return next(mixes for mixes in candidates if objective_of(question, mixes) <= least + 1e-6)


def _is_worth_keeping(question: MixQuestion, best: Mixes) -> bool:
    """Whether the running instances are known, are other ones, and cost no more than the best that was found."""
    if any(need.running is None for need in question.needs):
        return False
    running = tuple(replace(mix, instances=_running(need)) for need, mix in zip(question.needs, best, strict=True))
    same = all((r.instances == mix.instances).all() for r, mix in zip(running, best, strict=True))
    return not same and objective_of(question, running) <= objective_of(question, best) + 1e-6


def _running(need: Need) -> IntArray:
    return np.array([need.running_count(offer) for offer in need.offers], dtype=np.int64)


def _running_mixes(question: MixQuestion, limit_s: float, solver: str | None) -> tuple[Mixes, ...]:
    """How the running instances could serve the demand: one way, or none."""
    mixes = _mixes_on(question, tuple(_running(need) for need in question.needs), limit_s, solver)
    return () if mixes is None else (mixes,)


def _mixes_on(
    question: MixQuestion, instances: tuple[IntArray, ...], limit_s: float, solver: str | None
) -> Mixes | None:
    """A way in which exactly these instances serve the demand in whole slices, found by the deadline, or None."""
    model = build_model(question, whole_slices=True)
    for (k, g), count in model.y.items():
        count.bounds(int(instances[k][g]), int(instances[k][g]))
    solved = solve(model.problem, limit_s=limit_s, solver=solver)
    mixes = mixes_from(question, model) if solved.has_answer else None
    return mixes if mixes is not None and is_feasible(question, mixes) else None


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


def _search(question: MixQuestion, left_s: Callable[[], float], gap: float, solver: str | None) -> _Stage | Reason:
    """Split slices first: that bounds the rest from below and is mostly as cheap; whole slices where it is not."""
    start = start_mixes(question)
    stage = _Stage((start,) if start is not None else (), 0.0, "greedy")
    split = build_model(question, whole_slices=False)
    solved = solve(split.problem, limit_s=left_s(), gap=gap, solver=solver)
    if solved.status == "infeasible":
        return shortage(question, limit_s=max(left_s(), 0.1), solver=solver)
    relaxed = mixes_from(question, split) if solved.has_answer else None
    rounded = _rounded(question, relaxed) if relaxed is not None else None
    stage = _with(question, stage, solved, rounded)
    if relaxed is not None and not _good_enough(question, stage, gap):
        # Rounding slice by slice cost an instance, but the same ones may hold whole slices in another way. Where they
        # do, that is found fast; where they do not, the proof may be long, and the full model is better.
        instances = tuple(mix.instances for mix in relaxed)
        stage = _with(question, stage, solved, _mixes_on(question, instances, min(1.0, left_s() / 3), solver))
    if _good_enough(question, stage, gap) or all(need.slice_factor is None for need in question.needs):
        return stage if stage.candidates else _late(question)
    whole = build_model(question, whole_slices=True)
    solved = solve(whole.problem, limit_s=left_s(), gap=gap, solver=solver)
    if solved.status == "infeasible":
        return Reason("InventoryShort", "the load fits the stock when slices are split, but not with whole slices")
    stage = _with(question, stage, solved, mixes_from(question, whole) if solved.has_answer else None)
    return stage if stage.candidates else _late(question)


def _rounded(question: MixQuestion, mixes: Mixes) -> Mixes:
    return tuple(whole_slices(need, mix) for need, mix in zip(question.needs, mixes, strict=True))


def _with(question: MixQuestion, stage: _Stage, solved: Solved, mixes: Mixes | None) -> _Stage:
    """The stage with one more proof and, where the check finds no fault with it, one more candidate."""
    fresh = (mixes,) if mixes is not None and is_feasible(question, mixes) else ()
    name = stage.solver if solved.solver == "none" else solved.solver
    return _Stage(stage.candidates + fresh, max(stage.bound, solved.bound), name)


def _good_enough(question: MixQuestion, stage: _Stage, gap: float) -> bool:
    best = min((objective_of(question, mixes) for mixes in stage.candidates), default=math.inf)
    return best <= stage.bound / max(1 - gap, 1e-9) + 1e-6


def _late(question: MixQuestion) -> Reason:
    names = ", ".join(need.service for need in question.needs)
    return Reason("DeadlinePassed", f"{names}: no mix was found before the deadline, and none was ruled out")


def shortage(question: MixQuestion, *, limit_s: float, solver: str | None = None) -> Reason:
    """Which GPUs are missing for the question to have an answer: the cheapest set that would do."""
    model = build_model(question, whole_slices=False, ask_what_is_short=True)
    solved = solve(model.problem, limit_s=limit_s, solver=solver)
    missing = {name: round(v.value() or 0) for name, v in model.short.items()} if solved.has_answer else {}
    missing = {name: count for name, count in missing.items() if count}
    words = ", ".join(f"{count} more {name} (of {question.stock[name].gpus})" for name, count in missing.items())
    return Reason(
        "InventoryShort",
        f"the stock cannot serve the demand; {words} would do" if words else "the stock cannot serve the demand",
        {name: float(count) for name, count in missing.items()},
    )


def _certified(question: MixQuestion, mixes: Mixes, stage: _Stage, seconds: float) -> MixAnswer:
    objective = objective_of(question, mixes)
    # Solvers prove bounds to within their tolerances; one that passes the objective by dust means "equal".
    bound = objective if objective - stage.bound <= 1e-6 * max(1.0, objective) else stage.bound
    cost = total_cost(question, mixes)
    return MixAnswer(mixes, cost, Certificate(objective, bound, stage.solver, seconds), cost)


def _idle(need: Need) -> Mix:
    return Mix(np.zeros(len(need.offers), dtype=np.int64), np.zeros((0, len(need.offers))))
