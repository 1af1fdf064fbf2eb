"""Solution of a mix problem within a budget of work: search, fit into instances, keep what runs, certify."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pulp

from cluster.plans import Certificate, CutShort, Reason, worse_cut
from placement.budget import Budget
from placement.mix.feasibility import SharedStocks, crowd_at, is_feasible
from placement.mix.heuristics import best_pair
from placement.mix.instance_search import FEW_OFFERS, FEW_TRIALS, cheapest
from placement.mix.milp import build_model, mixes_from
from placement.mix.pool_split import cheapest_split
from placement.mix.problem import Mix, MixAnswer, MixQuestion, total_cost
from placement.mix.pulp_solver import Solved, solve, spent

Mixes = tuple[Mix, ...]
"""One mix per need."""

FIRST_NODES = 50
"""Nodes of the tree search of each model in a problem's first round, at least. Chosen."""
WORK_PER_NODE = 12.0
"""Work of a node. Measured: where there is more of it for each problem, its first round has all the nodes for it."""
COUNT_ROUNDS = ((FEW_OFFERS, FEW_TRIALS), (7, 24), (9, 192))
"""Offers, and trials of each count, in the rounds in which a single need's counts are searched. Chosen."""
MOST_AT_ONCE = 4.0
"""What a first round may spend, in equal shares of all problems in what is left. Chosen: most take less than one."""
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
    counted: int = 0
    """Rounds of counts that were finished."""
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


def begun(question: MixQuestion, budget: Budget, known: Mixes | None = None, bound: float = -math.inf) -> SearchState:
    """State before a search, for a question whose demand can all be served by some offer.

    known: mixes from elsewhere, used if feasible. bound: proven elsewhere; then nothing is tried beyond the budget.
    """
    pairs = list[Mix | None]()
    if budget.allows_more() or not math.isfinite(bound):
        prices = [(need, np.array([offer.price_per_hour for offer in need.offers])) for need in question.needs]
        bound = max(bound, math.fsum(cheapest_split(*each, budget).bound for each in prices))
        pairs = [best_pair(*each, question.stock) for each in prices]
    start = (known or (), tuple(mix for mix in pairs if mix is not None))
    feasible = [each for each in start if len(each) == len(question.needs) and is_feasible(question, each)]
    return SearchState(tuple(feasible), bound, "pairs")


def search(
    questions: Sequence[MixQuestion], known: Sequence[SearchState | Reason], budget: Budget, gap: float
) -> list[SearchState | Reason]:
    """Rounds of search until every problem is solved to within the gap, or the budget is used up.

    Every problem has its first round before one has its second. Each round gives the tree search twice the nodes of the
    previous one, so repeated work costs no more than new work. Within a round the namespace that has had fewest turns
    comes first, so that many services of one do not keep those of another from theirs; of its problems, that of the
    widest gap. Work that one problem leaves is available to the others. A reason in place of a state is proven.
    """
    now = list(known)
    waiting = {
        k: each for k, each in enumerate(known) if isinstance(each, SearchState) and _is_open(questions[k], each, gap)
    }
    # Of several namespaces, the first service's.
    namespaces = [each.needs[0].service.rpartition("/")[0] for each in questions]
    turns = Counter[str]()

    def turn(k: int) -> tuple[int, int, float, int]:
        best = _best(questions[k], waiting[k])
        gap = (best - waiting[k].bound) / max(abs(best), 1e-12) if math.isfinite(best) else math.inf
        return waiting[k].nodes + waiting[k].counted, turns[namespaces[k]], -gap, k

    while waiting:
        k = min(waiting, key=turn)
        if not budget.allows_more():
            for n, each in waiting.items():
                now[n] = replace(each, cut_short=budget.cut_short)
            break
        before = waiting.pop(k)
        turns[namespaces[k]] += 1
        # Fewer nodes than planned where the work would not suffice, none where that is no gain. The cost of a round is
        # assumed to grow with its number of nodes.
        expected = GROWTH * before.round_work
        nodes = max(before.nodes, int(budget.work / WORK_PER_NODE / (1 + len(waiting))))
        if expected > budget.work:
            nodes = int(before.nodes * budget.work / expected)
        if before.round_work and GROWTH * nodes <= before.nodes:
            now[k] = replace(before, cut_short="work")
            continue
        own = budget if before.counted else budget.part(min(1.0, MOST_AT_ONCE / (1 + len(waiting))))
        now[k] = after = _one_round(questions[k], before, nodes, own, gap)
        if isinstance(after, SearchState) and _is_open(questions[k], after, gap):
            waiting[k] = after
    return now


def _is_open(question: MixQuestion, found: SearchState, gap: float) -> bool:
    return not found.is_done and not is_good(question, found, gap)


def is_good(question: MixQuestion, found: SearchState, gap: float) -> bool:
    """Whether the best mix is within that gap of the bound."""
    return _best(question, found) <= found.bound / max(1 - gap, 1e-9) + 1e-6


def _best(question: MixQuestion, found: SearchState) -> float:
    return min((total_cost(question, mixes) for mixes in found.candidates), default=math.inf)


def _one_round(
    question: MixQuestion, known: SearchState, nodes: int, budget: Budget, gap: float
) -> SearchState | Reason:
    """Counts first, where there is a single need; then, where they leave a gap, the model."""
    began_s, before = budget.clock(), budget.work
    if len(question.needs) == 1 and known.counted < len(COUNT_ROUNDS):
        found = _counted(question, known, budget, gap)
    else:
        model = build_model(question, whole_slices=True)
        solved = spent(model.problem, budget, most_nodes=nodes, gap=gap)
        if solved.status == "infeasible":
            return shortage(question, budget)
        mixes = mixes_from(question, model) if solved.has_answer else None
        found = _with(question, replace(known, cut_short=""), solved, mixes)
        found = replace(found, is_done=solved.status == "optimal", nodes=GROWTH * nodes)
    seconds = known.seconds + budget.clock() - began_s
    return replace(found, round_work=before - budget.work, seconds=seconds)


def _counted(question: MixQuestion, known: SearchState, budget: Budget, gap: float) -> SearchState:
    """After the counts of a single need that cost less than its best mix."""
    (need,) = question.needs
    prices = np.array([offer.price_per_hour for offer in need.offers])
    offers, trials = COUNT_ROUNDS[known.counted]
    best, bound = _best(question, known), known.bound if question.is_exact else -math.inf
    mix, bound = cheapest(question, prices, budget, gap, most=best, bound=bound, offers=offers, trials=trials)
    is_whole = offers >= len(need.offers) and (known.counted or bound <= known.bound)
    return replace(
        known,
        candidates=known.candidates + (((mix,),) if mix is not None else ()),
        bound=max(known.bound, bound) if question.is_exact else known.bound,
        solver="search",
        counted=len(COUNT_ROUNDS) if is_whole else known.counted + 1,
        cut_short=budget.cut_short,
    )


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


def _verdict(question: MixQuestion) -> str:
    """What it proves that the model of a question has no solution."""
    return "does not fit" if question.is_exact else "not known, as small instances count as the largest of their stock"


def shortage(question: MixQuestion, budget: Budget) -> Reason:
    """Reason why a question has no solution: the cheapest set of missing GPUs."""
    found = _missing(question, budget, max(budget.left_s, LAST_WORD_S), fractions=False)
    return found or Reason("InventoryShort", f"{_verdict(question)}: the stock cannot serve the demand in whole slices")


def certain_shortage(question: MixQuestion, budget: Budget) -> Reason | None:
    """Fast proof that the stock is short, and by how much at least; None where there is no such proof.

    It counts instances in fractions, so it misses shortages of less than an instance.
    """
    return _missing(question, budget, budget.left_s, fractions=True) if budget.allows_more() else None


def _missing(question: MixQuestion, budget: Budget, limit_s: float, *, fractions: bool) -> Reason | None:
    model = build_model(question, whole_slices=False, ask_what_is_short=True)
    solved = solve(model.problem, most_nodes=LAST_WORD_NODES, limit_s=limit_s, fractions=fractions)
    budget.spend(solved.work, solved.cut_short)
    if not solved.has_answer:
        return None
    values = {name: float(variable.value() or 0) for name, variable in model.short.items()}
    seats = {where: float(pulp.value(count) or 0) for where, count in model.seats.items()}
    short: dict[SharedStocks, float] = {}
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
        f"{_verdict(question)}: {least}{words} would suffice",
        {name: float(count) for name, count in missing.items()},
    )


WORK_PER_S = 4_000.0
"""Solver work per second of the deadline, in simplex iterations (`placement.mix.pulp_solver`). Measured on a core of
2026 by `python -m benchmarks.mix`: 8,000 to 30,000 per second. A core half as fast therefore finishes in time; a
fast one finishes early, which is the price of the same result on every machine."""


def work_of(within_s: float) -> float:
    """Solver work for the mix of a whole plan, given the deadline in seconds."""
    return WORK_PER_S * within_s


def answer_mix(
    question: MixQuestion,
    budget: Budget,
    *,
    gap: float = 0.0,
    known: Mixes | None = None,
    bound: float = -math.inf,
) -> MixAnswer | Reason:
    """Cheapest mixes found within the budget, with the proven bound, or the reason why there are none.

    gap: relative distance from the bound that is good enough: the search then ends.
    known: mixes that limit the cost of the result, if they are feasible. bound: on the objective, proven elsewhere.
    Reasons: `BucketUnserved` (no type can), `InventoryShort` (proven), `WorkUsedUp` and `DeadlinePassed` (neither
    solution nor proof).
    """
    unserved = first_unserved(question)
    if unserved is not None:
        return unserved
    (found,) = search([question], [begun(question, budget, known, bound)], budget, gap)
    return concluded(question, found, gap)


def concluded(question: MixQuestion, found: SearchState | Reason, gap: float) -> MixAnswer | Reason:
    """Result of a search."""
    if isinstance(found, Reason):
        return found
    if not found.candidates:
        if found.cut_short == "time":
            return Reason("DeadlinePassed", "not known: no mix was found before the deadline, and none was ruled out")
        words = "not known: no mix was found with this deadline's work; a longer deadline allows more work"
        return Reason("WorkUsedUp", words)
    mixes = min(found.candidates, key=lambda mixes: total_cost(question, mixes))
    cost = total_cost(question, mixes)
    # Solvers prove bounds within their tolerances; a bound slightly above the objective means "equal".
    bound = cost if cost - found.bound <= 1e-6 * max(1.0, cost) else found.bound
    cut_short = "" if is_good(question, found, gap) else found.cut_short
    return MixAnswer(mixes, cost, Certificate(cost, bound, found.solver, found.seconds, cut_short))


def first_unserved(question: MixQuestion) -> Reason | None:
    """First bucket that no offer can serve, as a reason."""
    for need in question.needs:
        for b, cell in enumerate(need.cells):
            if not any(np.isfinite(offer.load[b]) for offer in need.offers):
                bucket = need.grid.label(*cell)
                return Reason(
                    "BucketUnserved",
                    f"{need.service} does not fit: no GPU type can serve {bucket} within {need.slo.label} per token",
                    {"rate_per_s": float(need.rate_per_s[b]), "tpot_s": need.slo.tpot_s},
                )
    return None
