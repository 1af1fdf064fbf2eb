"""Services that a stock may not hold together: which are served, and with which mixes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.plans import Reason
from placement.budget import Budget
from placement.mix import columns
from placement.mix.feasibility import is_feasible
from placement.mix.instance_search import cheapest
from placement.mix.memory import SearchMemory
from placement.mix.milp import no_prices, relaxed_prices
from placement.mix.optimizer import answer_mix, certain_shortage
from placement.mix.own_search import searched
from placement.mix.problem import Mix, MixAnswer, MixQuestion, Need

Ask = Callable[[Sequence[Need]], MixQuestion]
"""Question of some of the needs, with the stock that they may use."""
Answered = tuple[MixQuestion, MixAnswer]

MOST_ROUNDS = 12
"""Rounds of columns. Chosen: later ones add little, and the joint model needs the work as well."""
SMOOTHING = 0.5
"""Step from the last prices towards those of the columns. Chosen; at 0.3 and 0.7 results are alike."""
PRICE_SHARE = 0.5
"""Fraction of the work that first prices may take, before mixes are searched. Chosen: 150 services use it up."""
COLUMN_SHARE = 0.9
"""Fraction of the work for columns. Chosen: with 12 services the joint model rarely finds more."""
ROOT_WORK = 40.0
"""Work of the joint model before its tree search, per bucket and offer that can serve it. Measured: its relaxation
takes 2 to 3, and 12 services with five types take 20 to 60 times as much for 50 nodes; it is not begun where the work
does not suffice."""
JOINT_SHARE = 0.7
"""Fraction of the work for the joint model where it is small: it is exact, and fast for a few services."""
OWN_SHARE = 0.25
"""Fraction of the remaining work for the models of one service at the best prices. Chosen."""
ONE_MORE_SHARE = 0.25
"""Fraction of the remaining work for a proof that one more service does not fit, so that later ones get their turn."""
ONE_MORE_GAP = 0.05
"""Relative gap of mixes that only show that the services fit."""

UNDECIDED = Reason(
    "WorkUsedUp",
    "not known: no mix was found beside the services before it; a longer deadline allows more work",
)


@dataclass(frozen=True, slots=True)
class _Admission:
    """State of an admission."""

    pool: columns.ColumnPool
    chosen: columns.Chosen

    @property
    def served(self) -> list[int]:
        return [k for k, column in enumerate(self.chosen) if column is not None]

    @property
    def objective(self) -> float:
        return sum(column.objective for column in self.chosen if column is not None)

    def missing(self, refusals: Mapping[str, Reason]) -> int | None:
        """First need in the order of admission that is neither served nor refused."""
        for k in self.pool.order:
            if self.chosen[k] is None and self.pool.question.needs[k].service not in refusals:
                return k
        return None


def answer_shared(
    ask: Ask,
    needs: Sequence[Need],
    known: Mapping[str, Sequence[Mix]],
    budget: Budget,
    gap: float,
    memory: SearchMemory,
) -> tuple[list[Answered], dict[str, Reason]]:
    """Mixes of all needs that the stock holds together, and reasons for the others.

    Services are admitted in order: higher priority first, and among equals the first; none is given up for later ones.
    Mixes are chosen from columns of each service (`placement.mix.columns`), which is far faster than one model for all.
    The joint model has the last word where columns do not suffice: it proves that a service does not fit, and closes
    the gap.

    known: mixes of some needs, by service.
    """
    question = ask(needs)
    pool = memory.pool(question)
    if pool is None:
        served = (np.isfinite(offer.load).sum() for need in question.needs for offer in need.offers)
        pool = columns.ColumnPool(question, no_prices(question), root_work=ROOT_WORK * int(sum(served)))
        for n, need in enumerate(question.needs):
            for mix in known.get(need.service, ()):
                pool.add(n, mix)
        memory.seed(pool)
        memory.keep_pool(pool)
    if pool.settled is not None and pool.settled.certificate.gap <= gap:
        return [(pool.question, pool.settled)], {}
    memory.deepen(pool)
    if not pool.has_running:
        pool.has_running = True
        _keep_running(pool, budget)
    root_work = pool.root_work
    if root_work <= budget.work:
        answer = answer_mix(pool.question, budget.part(JOINT_SHARE), gap=gap)
        if isinstance(answer, MixAnswer):
            if not answer.certificate.cut_short:
                pool.settled = answer
                return [(pool.question, answer)], {}
            for row, mix in enumerate(answer.mixes):
                pool.add(row, mix)
    admission = _with_columns(pool, memory, budget.part(COLUMN_SHARE), gap)
    memory.open = [] if _is_good(admission, gap) else memory.questions_of(pool, gap)
    refusals: dict[str, Reason] = {}
    while (k := admission.missing(refusals)) is not None:
        # Already to ask takes a look at all needs, so that hundreds of them would take minutes.
        found = _one_more(ask, admission, k, root_work, budget) if budget.allows_more() else UNDECIDED
        if isinstance(found, Reason):
            refusals[pool.question.needs[k].service] = found
            continue
        for row, mix in found.items():
            pool.add(row, mix)
        kept = tuple(
            pool.with_instances(row, found[row].instances) if row in found else None for row in range(len(pool.columns))
        )
        admission = _better(_Admission(pool, kept), _Admission(pool, columns.choose(pool, budget, gap)))
    if not admission.served:
        return [], refusals
    # Final mixes of the admitted needs, by the joint model, from those that are chosen.
    question = ask([pool.question.needs[k] for k in admission.served])
    mixes = tuple(column.mix for column in admission.chosen if column is not None)
    enough = budget if root_work <= budget.work else Budget(0.0, budget.clock, budget.over_at_s)
    answer = answer_mix(question, enough, gap=gap, known=mixes, bound=pool.bound(admission.served))
    if isinstance(answer, MixAnswer):
        return [(question, answer)], refusals
    if refusals:  # their running instances stay after all, and had counted as free
        return _one_by_one(ask, [pool.question.needs[k] for k in pool.order], budget, gap)
    return [], {need.service: answer for need in pool.question.needs}


def _one_by_one(
    ask: Ask, needs: Sequence[Need], budget: Budget, gap: float
) -> tuple[list[Answered], dict[str, Reason]]:
    """Mixes of as many needs as fit, each asked beside those admitted before it, on the stock of these alone.

    needs: in the order of admission.
    """
    admitted: list[Need] = []
    answered: list[Answered] = []
    refusals: dict[str, Reason] = {}
    for need in needs:
        if not budget.allows_more():
            refusals[need.service] = UNDECIDED
            continue
        question = ask([*admitted, need])
        budget.spend(len(question.needs))
        answer = certain_shortage(question, budget) or answer_mix(question, budget.part(ONE_MORE_SHARE), gap=gap)
        if isinstance(answer, Reason):
            refusals[need.service] = answer
        else:
            admitted, answered = [*admitted, need], [(question, answer)]
    return answered, refusals


def _keep_running(pool: columns.ColumnPool, budget: Budget) -> None:
    """Adds the running instances of every need, so that a plan without time for more stops none of them."""
    chosen: list[columns.Column | None] = []
    for k, need in enumerate(pool.question.needs):
        counts = need.running_counts
        known = pool.with_instances(k, counts)
        mix = None if known is None else known.mix
        if mix is None and need.running:
            free = np.zeros(len(need.offers))
            mix, _ = cheapest(pool.alone(k), free, budget, 0.0, bound=0.0, fewest=counts, limit=counts)
        chosen.append(None if mix is None else pool.column(k, mix))
    mixes = tuple(column.mix for column in chosen if column is not None)
    if len(mixes) == len(chosen) and is_feasible(pool.question, mixes):
        pool.chosen = _better(_Admission(pool, tuple(chosen)), _Admission(pool, pool.chosen or tuple(chosen))).chosen


def _with_columns(pool: columns.ColumnPool, memory: SearchMemory, budget: Budget, gap: float) -> _Admission:
    """Choice from columns that are generated round by round, until the gap is closed or no round finds another."""
    best = _Admission(pool, pool.chosen or columns.first_fit(pool, budget.part(0.0), gap))
    left_for_mixes = (1 - PRICE_SHARE) * budget.work
    for _ in range(MOST_ROUNDS):
        if pool.is_dry or _is_good(best, gap) or not budget.allows_more():
            break
        proof = pool.best_proof
        if proof is not None and not pool.least:
            if not pool.is_priced and budget.work < left_for_mixes:
                pool.prices, pool.is_priced = proof.prices, True
            elif target := relaxed_prices(pool.question, pool.priced, budget):
                pool.prices = proof.prices.towards(target, SMOOTHING)
        is_searched = pool.is_priced
        added = columns.generate(pool, budget, gap)
        if is_searched:
            best = _chosen(best, budget, gap)
        if not added:
            break
    if pool.root_work > budget.work and not _is_good(best, gap):  # else the joint model is worth more
        for question in memory.questions_of(pool, gap):
            if budget.allows_more():
                memory.deepen(pool, {question.need.service: searched(question, budget.part(OWN_SHARE))})
        best = _chosen(best, budget, gap)
    pool.chosen = best.chosen
    return best


def _chosen(best: _Admission, budget: Budget, gap: float) -> _Admission:
    """The best choice from the columns."""
    pool = best.pool
    best = _better(best, _Admission(pool, columns.first_fit(pool, budget, gap)))
    serve_all = len(best.served) == len(best.chosen)
    return _better(best, _Admission(pool, columns.choose(pool, budget, gap, serve_all=serve_all)))


def _is_good(admission: _Admission, gap: float) -> bool:
    everything = range(len(admission.chosen))
    is_whole = len(admission.served) == len(admission.chosen)
    return is_whole and admission.objective * (1 - gap) <= admission.pool.bound(everything) + 1e-6


def _better(before: _Admission, after: _Admission) -> _Admission:
    """The one that serves more by rank, and else the cheaper one: a search that was cut short may find less."""

    def rank(admission: _Admission) -> tuple[list[bool], float]:
        return [admission.chosen[k] is None for k in admission.pool.order], admission.objective

    return min(before, after, key=rank)


def _one_more(ask: Ask, admission: _Admission, k: int, root_work: float, budget: Budget) -> Mapping[int, Mix] | Reason:
    """Mixes that serve need k with all that are admitted before it, or the reason why there are none.

    Later needs may have to give way for it, so their mixes do not count.
    """
    pool = admission.pool
    rank = {each: n for n, each in enumerate(pool.order)}
    some = [each for each in pool.order if rank[each] < rank[k] and admission.chosen[each] is not None] + [k]
    question = ask([pool.question.needs[each] for each in some])
    budget.spend(len(some))
    short = certain_shortage(question, budget)
    if short is None and root_work > budget.work:
        return UNDECIDED
    answer = short or answer_mix(question, budget.part(ONE_MORE_SHARE), gap=ONE_MORE_GAP)
    return dict(zip(some, answer.mixes, strict=True)) if isinstance(answer, MixAnswer) else answer
