"""Search for mixes: first without a solver, then in rounds of growing solver work where the gap is widest.

The state of each problem is kept from round to round. Each round gives the tree search twice the nodes of the previous
one, so repeated work costs no more than new work.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pulp

from cluster.arrays import IntArray
from cluster.plans import CutShort, Reason, worse_cut
from placement.budget import Budget
from placement.mix.feasibility import is_feasible
from placement.mix.heuristics import price_bound, start_mixes, whole_slices
from placement.mix.milp import build_model, mixes_from
from placement.mix.problem import Mix, MixQuestion, Need, objective_of
from placement.mix.pulp_solver import Solved, Terms, solve, spent
from placement.mix.rounding import split_and_rounded
from placement.mix.seats import Crowd, crowd_at

Mixes = tuple[Mix, ...]
"""One mix per need."""

FIRST_NODES = 50
"""Nodes of the tree search of each model in a problem's first round. Chosen: 11 of 12 cases of `python -m
benchmarks.mix` with four GPU types need fewer."""
GROWTH = 2
"""Factor on the nodes from one round to the next."""
LAST_WORD_NODES = 500
"""Nodes for naming the missing devices, once it is proven that there is no solution."""
LAST_WORD_S = 0.1
"""Seconds beyond the deadline that naming them may take."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchState:
    """State of a problem's search: feasible mixes, a proven bound on the objective, and the next round."""

    candidates: tuple[Mixes, ...]
    bound: float
    solver: str
    is_split_solved: bool = False
    """Whether the model with split slices needs no further round."""
    is_done: bool = False
    """Whether no further round can find more."""
    nodes: int = FIRST_NODES
    """Nodes for each model in the next round."""
    round_work: float = 0.0
    """Work of the last round, in simplex iterations."""
    cut_short: CutShort = ""
    """Limit that ended the last round."""
    seconds: float = 0.0
    """Duration of all rounds."""


def begun(
    question: MixQuestion, known: Mixes | None = None, bound: float = -math.inf, budget: Budget | None = None
) -> SearchState:
    """State before any solver runs, for a question whose demand can all be served by some offer.

    known: mixes from elsewhere, used if they are feasible. bound: proven elsewhere. budget: for splits of any fraction
    of instances, with mixes near them; None, or one that is used up: there are none.
    """
    if not any(need.cells for need in question.needs):
        idle = tuple(_idle(need) for need in question.needs)
        return SearchState((idle,), objective_of(question, idle), "none", is_done=True)
    proven, near = _near_splits(question, budget) if budget is not None and budget.allows_more() else (-math.inf, None)
    start = [each for each in (known, start_mixes(question), near) if each is not None and is_feasible(question, each)]
    return SearchState(tuple(start), max(bound, proven, price_bound(question)), "greedy")


def _near_splits(question: MixQuestion, budget: Budget) -> tuple[float, Mixes]:
    """A lower bound on the objective, and mixes of little more, both without regard to the stock."""
    bounds, mixes = [], []
    for need in question.needs:
        if not need.cells:
            mixes.append(_idle(need))
            continue
        prices = np.array([offer.price_per_hour for offer in need.offers])
        split, mix = split_and_rounded(need, prices, budget)
        bounds.append(split.bound)
        mixes.append(mix)
    return math.fsum(bounds), tuple(mixes)


def _idle(need: Need) -> Mix:
    return Mix(np.zeros(len(need.offers), dtype=np.int64), np.zeros((0, len(need.offers))))


def search(
    questions: Sequence[MixQuestion], known: Sequence[SearchState | Reason], budget: Budget, terms: Terms
) -> list[SearchState | Reason]:
    """Rounds of search until every problem is solved to within the gap, or the budget is used up.

    Every problem has its first round before one has its second. Within a round the namespace that has had fewest turns
    comes first, so that many services of one do not keep those of another from theirs; of its problems, that of the
    widest gap. Work that one problem leaves is available to the others. A reason in place of a state is proven.
    """
    now = list(known)
    waiting = {
        k: each for k, each in enumerate(known) if isinstance(each, SearchState) and _is_open(questions[k], each, terms)
    }
    namespaces, turns = [_namespace(each) for each in questions], Counter[str]()

    def turn(k: int) -> tuple[int, int, float, int]:
        return waiting[k].nodes, turns[namespaces[k]], -_gap(questions[k], waiting[k]), k

    while waiting:
        k = min(waiting, key=turn)
        if not budget.allows_more():
            for n, each in waiting.items():
                now[n] = replace(each, cut_short=budget.cut_short)
            break
        before = waiting.pop(k)
        turns[namespaces[k]] += 1
        nodes = _nodes_within(budget, before)
        after = _one_round(questions[k], before, nodes, budget, terms) if nodes else replace(before, cut_short="work")
        if nodes and isinstance(after, SearchState) and _is_open(questions[k], after, terms):
            waiting[k] = after
        now[k] = after
    return now


def _namespace(question: MixQuestion) -> str:
    """Namespace of a question's services; of several namespaces, the first one's."""
    return question.needs[0].service.rpartition("/")[0]


def _is_open(question: MixQuestion, found: SearchState, terms: Terms) -> bool:
    return not found.is_done and not is_good(question, found, terms.gap)


def is_good(question: MixQuestion, found: SearchState, gap: float) -> bool:
    """Whether the best mix is within that gap of the bound."""
    return _best(question, found) <= found.bound / max(1 - gap, 1e-9) + 1e-6


def _best(question: MixQuestion, found: SearchState) -> float:
    return min((objective_of(question, mixes) for mixes in found.candidates), default=math.inf)


def _gap(question: MixQuestion, found: SearchState) -> float:
    """Gap as in `Certificate`; infinite where there is no solution yet."""
    best = _best(question, found)
    return (best - found.bound) / max(abs(best), 1e-12) if math.isfinite(best) else math.inf


def _nodes_within(budget: Budget, found: SearchState) -> int:
    """Nodes for the next round: fewer than planned where the work would not suffice, none where that is no gain.

    The cost of a round is assumed to grow with its number of nodes.
    """
    expected = GROWTH * found.round_work
    nodes = found.nodes if expected <= budget.work else int(found.nodes * budget.work / expected)
    return nodes if not found.round_work or GROWTH * nodes > found.nodes else 0


def _one_round(
    question: MixQuestion, known: SearchState, nodes: int, budget: Budget, terms: Terms
) -> SearchState | Reason:
    """Solves the split model first, unless it is solved; then, where it leaves a gap, the model with whole slices."""
    began_s, before = budget.clock(), budget.work
    found: SearchState | Reason = replace(known, cut_short="")
    if isinstance(found, SearchState) and not found.is_split_solved:
        found = _split(question, found, nodes, budget, terms)
    if isinstance(found, SearchState) and _is_open(question, found, terms):
        found = _whole(question, found, nodes, budget, terms)
    if isinstance(found, Reason):
        return found
    seconds = known.seconds + budget.clock() - began_s
    return replace(found, nodes=GROWTH * nodes, round_work=before - budget.work, seconds=seconds)


def _split(question: MixQuestion, found: SearchState, nodes: int, budget: Budget, terms: Terms) -> SearchState | Reason:
    """Solves the model with split slices: fast, a lower bound for the rest, and mostly as cheap when rounded."""
    split = build_model(question, whole_slices=False)
    solved = spent(split.problem, budget, terms, most_nodes=nodes)
    if solved.status == "infeasible":
        return shortage(question, budget, terms.solver)
    if not solved.has_answer:
        return _with(question, found, solved, None)
    relaxed = mixes_from(question, split)
    rounded = tuple(whole_slices(need, mix) for need, mix in zip(question.needs, relaxed, strict=True))
    is_solved = solved.status == "optimal"
    found = replace(_with(question, found, solved, rounded), is_split_solved=is_solved)
    if not any(need.slice_factor for need in question.needs):
        return replace(found, is_done=is_solved)
    if is_good(question, found, terms.gap) or not budget.allows_more():
        return found
    # Rounding slice by slice cost an instance, but the same instances may hold whole slices in another arrangement. If
    # they do, that is found fast; if they do not, the proof may be long, and the full model is better.
    instances = tuple(mix.instances for mix in relaxed)
    return _with(question, found, solved, mixes_on(question, instances, nodes, budget, terms))


def _whole(question: MixQuestion, found: SearchState, nodes: int, budget: Budget, terms: Terms) -> SearchState | Reason:
    """Solves the model itself, with whole slices."""
    if not budget.allows_more():
        return replace(found, cut_short=budget.cut_short)
    whole = build_model(question, whole_slices=True)
    solved = spent(whole.problem, budget, terms, most_nodes=nodes)
    if solved.status == "infeasible":
        return Reason("InventoryShort", "the load fits the stock when slices are split, but not with whole slices")
    after = _with(question, found, solved, mixes_from(question, whole) if solved.has_answer else None)
    return replace(after, is_done=solved.status == "optimal")


def mixes_on(
    question: MixQuestion, instances: tuple[IntArray, ...], nodes: int, budget: Budget, terms: Terms
) -> Mixes | None:
    """Mixes in which exactly these instances serve the demand in whole slices; None where the tree search finds none.

    nodes: limit of the tree search.
    """
    model = build_model(question, whole_slices=True)
    for (k, g), count in model.y.items():
        count.bounds(int(instances[k][g]), int(instances[k][g]))
    solved = spent(model.problem, budget, replace(terms, gap=0.0), most_nodes=nodes)
    mixes = mixes_from(question, model) if solved.has_answer else None
    return mixes if mixes is not None and is_feasible(question, mixes) else None


def _with(question: MixQuestion, found: SearchState, solved: Solved, mixes: Mixes | None) -> SearchState:
    """State with one more proof and, where the check finds no violation, one more candidate."""
    fresh = (mixes,) if mixes is not None and is_feasible(question, mixes) else ()
    return replace(
        found,
        candidates=found.candidates + fresh,
        bound=max(found.bound, solved.bound) if question.is_exact else found.bound,
        solver=found.solver if solved.solver == "none" else solved.solver,
        cut_short=worse_cut(found.cut_short, solved.cut_short),
    )


def shortage(question: MixQuestion, budget: Budget, solver: str | None = None) -> Reason:
    """Reason why a question has no solution: the cheapest set of missing GPUs."""
    found = _missing(question, budget, max(budget.left_s, LAST_WORD_S), solver, fractions=False)
    return found or Reason("InventoryShort", "the stock cannot serve the demand")


def certain_shortage(question: MixQuestion, budget: Budget, solver: str | None = None) -> Reason | None:
    """Fast proof that the stock is short, and by how much at least; None where there is no such proof.

    It counts instances in fractions, so it misses shortages of less than an instance.
    """
    return _missing(question, budget, budget.left_s, solver, fractions=True) if budget.allows_more() else None


def _missing(
    question: MixQuestion, budget: Budget, limit_s: float, solver: str | None, *, fractions: bool
) -> Reason | None:
    model = build_model(question, whole_slices=False, ask_what_is_short=True)
    solved = solve(model.problem, most_nodes=LAST_WORD_NODES, limit_s=limit_s, solver=solver, fractions=fractions)
    budget.spend(solved.work, solved.cut_short)
    if not solved.has_answer:
        return None
    values = {name: float(variable.value() or 0) for name, variable in model.short.items()}
    seats = {where: float(pulp.value(count) or 0) for where, count in model.seats.items()}
    short: dict[Crowd, float] = {}
    for name in (name for name, value in values.items() if value > 1e-4):
        crowd = crowd_at(question, seats, name)
        short[crowd] = short.get(crowd, 0.0) + values[name]
    if not short:
        return None
    missing = {crowd.name: math.ceil(value - 1e-4) for crowd, value in short.items()}
    words = ", ".join(f"{missing[crowd.name]} more {crowd.name} (of {crowd.gpus})" for crowd in short)
    least = "at least " if fractions else ""
    return Reason(
        "InventoryShort",
        f"the stock cannot serve the demand; {least}{words} would suffice",
        {name: float(count) for name, count in missing.items()},
    )
