"""The search for mixes: from what needs no solver to the full model, as far as the time allows."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from cluster.arrays import IntArray
from cluster.plans import Reason
from placement.mix.feasibility import is_feasible
from placement.mix.heuristics import price_bound, start_mixes, whole_slices
from placement.mix.milp import build_model, mixes_from
from placement.mix.problem import Mix, MixQuestion, objective_of
from placement.mix.pulp_solver import Solved, solve

Mixes = tuple[Mix, ...]
"""One mix per need."""


LAST_WORD_S = 0.1
"""A proof that there is no answer may take this long beyond the deadline to say what is missing."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What is known: feasible mixes, and a proven bound on the objective."""

    candidates: tuple[Mixes, ...]
    bound: float
    solver: str


def search(
    question: MixQuestion,
    *,
    left_s: Callable[[], float],
    gap: float,
    solver: str | None = None,
    known: Mixes | None = None,
) -> Found | Reason:
    """Mixes and a bound for a question with some demand, all of which some offer can serve.

    left_s: seconds that remain, asked before each stage. known: mixes from elsewhere, used if they are feasible.
    """
    start = [mixes for mixes in (known, start_mixes(question)) if mixes is not None and is_feasible(question, mixes)]
    found = Found(tuple(start), price_bound(question), "greedy")
    if _good_enough(question, found, gap):
        return found
    split = _split(question, found, left_s, gap, solver)
    if isinstance(split, Reason):
        return split
    found = split
    if not _good_enough(question, found, gap) and left_s() > 0 and any(n.slice_factor for n in question.needs):
        whole = build_model(question, whole_slices=True)
        solved = solve(whole.problem, limit_s=left_s(), gap=gap, solver=solver)
        if solved.status == "infeasible":
            return Reason("InventoryShort", "the load fits the stock when slices are split, but not with whole slices")
        found = _with(question, found, solved, mixes_from(question, whole) if solved.has_answer else None)
    if not found.candidates:
        return Reason("DeadlinePassed", "no mix was found before the deadline, and none was ruled out")
    return found


def _split(
    question: MixQuestion, found: Found, left_s: Callable[[], float], gap: float, solver: str | None
) -> Found | Reason:
    """Let slices be split: that is fast, bounds the rest from below, and rounded it is mostly as cheap."""
    if left_s() <= 0:
        return found
    split = build_model(question, whole_slices=False)
    solved = solve(split.problem, limit_s=left_s(), gap=gap, solver=solver)
    if solved.status == "infeasible":
        return shortage(question, limit_s=max(left_s(), LAST_WORD_S), solver=solver)
    if not solved.has_answer:
        return _with(question, found, solved, None)
    relaxed = mixes_from(question, split)
    rounded = tuple(whole_slices(need, mix) for need, mix in zip(question.needs, relaxed, strict=True))
    found = _with(question, found, solved, rounded)
    if not _good_enough(question, found, gap) and left_s() > 0:
        # Rounding slice by slice cost an instance, but the same ones may hold whole slices in another way. Where they
        # do, that is found fast; where they do not, the proof may be long, and the full model is better.
        instances = tuple(mix.instances for mix in relaxed)
        found = _with(question, found, solved, mixes_on(question, instances, min(1.0, left_s() / 3), solver))
    return found


def mixes_on(
    question: MixQuestion, instances: tuple[IntArray, ...], limit_s: float, solver: str | None
) -> Mixes | None:
    """A way in which exactly these instances serve the demand in whole slices, found by the deadline, or None."""
    model = build_model(question, whole_slices=True)
    for (k, g), count in model.y.items():
        count.bounds(int(instances[k][g]), int(instances[k][g]))
    solved = solve(model.problem, limit_s=limit_s, solver=solver)
    mixes = mixes_from(question, model) if solved.has_answer else None
    return mixes if mixes is not None and is_feasible(question, mixes) else None


def _with(question: MixQuestion, found: Found, solved: Solved, mixes: Mixes | None) -> Found:
    """What is known, with one more proof and, where the check finds no fault with it, one more candidate."""
    fresh = (mixes,) if mixes is not None and is_feasible(question, mixes) else ()
    name = found.solver if solved.solver == "none" else solved.solver
    return Found(found.candidates + fresh, max(found.bound, solved.bound), name)


def _good_enough(question: MixQuestion, found: Found, gap: float) -> bool:
    best = min((objective_of(question, mixes) for mixes in found.candidates), default=math.inf)
    return best <= found.bound / max(1 - gap, 1e-9) + 1e-6


def shortage(question: MixQuestion, *, limit_s: float, solver: str | None = None) -> Reason:
    """Why a question that has no answer has none: the cheapest set of GPUs that would do."""
    found = _missing(question, limit_s, solver, fractions=False)
    return found or Reason("InventoryShort", "the stock cannot serve the demand")


def certain_shortage(question: MixQuestion, *, limit_s: float, solver: str | None = None) -> Reason | None:
    """A fast proof that the stock is short, and by how much at least; None where there is no such proof.

    It counts instances in fractions, so it misses shortages of less than an instance.
    """
    return _missing(question, limit_s, solver, fractions=True)


def _missing(question: MixQuestion, limit_s: float, solver: str | None, *, fractions: bool) -> Reason | None:
    model = build_model(question, whole_slices=False, ask_what_is_short=True)
    solved = solve(model.problem, limit_s=limit_s, solver=solver, fractions=fractions)
    if not solved.has_answer:
        return None
    values = {name: float(variable.value() or 0) for name, variable in model.short.items()}
    missing = {name: math.ceil(value - 1e-4) for name, value in values.items() if value > 1e-4}
    if not missing:
        return None
    words = ", ".join(f"{count} more {name} (of {question.stock[name].gpus})" for name, count in missing.items())
    least = "at least " if fractions else ""
    return Reason(
        "InventoryShort",
        f"the stock cannot serve the demand; {least}{words} would do",
        {name: float(count) for name, count in missing.items()},
    )
