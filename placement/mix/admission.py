"""Services that a stock may not hold together: which are served, and with which mixes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray
from cluster.plans import Reason
from placement.budget import Budget
from placement.mix import columns
from placement.mix.columns import ColumnPool, MixProof
from placement.mix.feasibility import is_feasible
from placement.mix.heuristics import best_single_type, greedy_mix, stock_after
from placement.mix.memory import SearchMemory
from placement.mix.milp import MixChoice, RelaxedMaster, StockPrices, no_prices, relaxed
from placement.mix.optimizer import answer_mix, certain_shortage, mixes_on
from placement.mix.own_search import solve_at
from placement.mix.pool_split import LEAST_PRICE, WORK_PER_ROUNDING, Split, Splitter, rounded
from placement.mix.problem import Mix, MixAnswer, MixQuestion, Need

Ask = Callable[[Sequence[Need]], MixQuestion]
"""Question of some of the needs, with the stock that they may use."""
Answered = tuple[MixQuestion, MixAnswer]

MOST_ROUNDS = 12
"""Rounds of columns. Chosen: later ones add little, and the joint model needs the work as well."""
SMOOTHING = 0.5
"""Step from the last prices towards those of the columns. Chosen; at 0.3 and 0.7 results are alike."""
COLUMN_SHARE = 0.9
"""Fraction of the work for columns. Chosen: with 12 services the joint model rarely finds more."""
ROOT_WORK = 40.0
"""Work of the joint model before its tree search, per bucket and offer that can serve it. Measured: its relaxation
takes 2 to 3, and 12 services with five types take 20 to 60 times as much for 50 nodes; it is not begun where the work
does not suffice."""
JOINT_SHARE = 0.7
"""Fraction of the work for the joint model where it is small: it is exact, and fast for a few services."""
RUNNING_NODES = 20
"""Nodes of the tree search for requests on the running instances, where a greedy deal of them does not do. Chosen."""
WELL_CHOSEN = 0.6
"""Fraction of the gap that is one of single services, from which their models are worth more than columns. Chosen."""
REFINING_SHARE = 0.85
"""Fraction of the remaining work for models of single services; the rest chooses among their mixes. Chosen."""
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
        pool = columns.ColumnPool(question)
        left = dict(question.stock)
        for n in pool.order:  # columns that need no solver: known mixes, and what earlier needs leave to simple ones
            need = question.needs[n]
            options = [greedy_mix(need, left), best_single_type(need, left)]
            fitting = [mix for mix in options if mix is not None]
            for mix in (*known.get(need.service, ()), *fitting):
                pool.add(n, mix)
            if fitting:
                left = stock_after(left, need, fitting[0])
        memory.seed(pool)
        memory.keep_pool(pool)
    if pool.settled is not None and pool.settled.certificate.gap <= gap:
        return [(pool.question, pool.settled)], {}
    if not pool.is_begun and budget.allows_more():
        pool.is_begun = True
        if pool.prices is None:
            pool.prices = split_prices(pool, budget)
        else:
            columns.generate(pool, pool.prices, budget)
        served = (np.isfinite(offer.load).sum() for need in pool.question.needs for offer in need.offers)
        pool.root_work = ROOT_WORK * int(sum(served))
    memory.deepen(pool)
    if not pool.has_running:
        pool.has_running = True
        _keep_running(pool, budget)
    prices, root_work = pool.prices, pool.root_work
    if prices is not None and root_work <= budget.work:
        answer = answer_mix(pool.question, budget.part(JOINT_SHARE), gap=gap)
        if isinstance(answer, MixAnswer):
            if not answer.certificate.cut_short:
                pool.settled = answer
                return [(pool.question, answer)], {}
            for row, mix in enumerate(answer.mixes):
                pool.add(row, mix)
    admission = _with_columns(pool, prices, budget.part(COLUMN_SHARE), gap)
    memory.open = [] if _is_good(admission, gap) else memory.questions_of(pool, REFINED_SHARE * gap)
    refusals: dict[str, Reason] = {}
    while (k := admission.missing(refusals)) is not None:
        # Already to ask takes a look at all needs, so that hundreds of them would take minutes.
        found = _one_more(ask, admission, k, root_work, budget) if budget.allows_more() else UNDECIDED
        if isinstance(found, Reason):
            refusals[pool.question.needs[k].service] = found
            continue
        for row, mix in found.items():
            pool.add(row, mix)
        kept = tuple(pool.known(row, found[row]) if row in found else None for row in range(len(pool.columns)))
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
            solved = mixes_on(pool.alone(k), (counts,), RUNNING_NODES, budget)
            mix = None if solved is None else solved[0]
        chosen.append(None if mix is None else pool.column(k, mix))
    mixes = tuple(column.mix for column in chosen if column is not None)
    if len(mixes) == len(chosen) and is_feasible(pool.question, mixes):
        pool.chosen = _better(_Admission(pool, tuple(chosen)), _Admission(pool, pool.chosen or tuple(chosen))).chosen


def _with_columns(pool: columns.ColumnPool, prices: StockPrices | None, budget: Budget, gap: float) -> _Admission:
    """Choice from columns that are generated round by round, until the gap is closed or no round finds another."""
    best = _Admission(pool, columns.first_fit(pool))
    if pool.chosen:
        best = _better(best, _Admission(pool, pool.chosen))
    if pool.count != pool.judged:
        best = _chosen(best, budget, gap)
    if columns.fill(pool, best.chosen):
        best = _chosen(best, budget, gap)
    everything = range(len(pool.columns))
    for _ in range(MOST_ROUNDS):
        if best.missing({}) is None:
            # Most of the gap may be one of single services, which no other choice closes.
            of_singles = math.fsum(pool.least_gap(k) for k in everything)
            if of_singles >= WELL_CHOSEN * (best.objective - pool.bound(everything)):
                break
        if pool.is_dry or _is_good(best, gap) or not budget.allows_more():
            break
        if (pool.proofs and not pool.least) or prices is None:
            target = columns.column_prices(pool, budget)
            if target is None:
                break
            prices = target if prices is None else prices.towards(target, SMOOTHING)
        pool.prices = prices
        added = columns.generate(pool, prices, budget)
        best = _chosen(best, budget, gap)
        if not added:
            break
    if pool.root_work > budget.work:  # else the joint model is worth more
        refining = budget.part(REFINING_SHARE)
        refined: bool | None = False
        is_any = False
        while refined is not None and not _is_good(best, gap) and refining.allows_more():
            refined = refine(pool, refining, gap)
            is_any = is_any or bool(refined)
        if is_any:
            best = _chosen(best, budget, gap)
    pool.chosen = best.chosen
    return best


def _chosen(best: _Admission, budget: Budget, gap: float) -> _Admission:
    """The best choice from the columns."""
    pool = best.pool
    pool.judged = pool.count
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


SPLIT_ROUNDS = 10
"""Rounds of prices. Chosen: 20 services with five GPU types need four to six."""
CLOSE = 1e-4
"""Relative distance from the relaxation's optimum at which prices are good enough. Chosen: instances cost more."""
SPLIT_STEP = 0.5
"""Step from the best prices towards those of the last round. Chosen."""
TAKEN = 0.02
"""Fraction from which a split that the relaxation takes is worth a column. Chosen."""


def split_prices(pool: ColumnPool, budget: Budget) -> StockPrices | None:
    """The best prices of the stock; adds the proof of their bound, and mixes near the splits, to the pool.

    Splits cost hardly any work (`placement.mix.pool_split`), so a few rounds find the best prices of the stock, the
    bound that they prove, and mixes of whole instances at little more. None where the stock does not hold all needs, as
    far as is known.
    """
    needs = pool.question.needs
    splitters = [Splitter(need) for need in needs]
    own_price = [np.array([offer.price_per_hour for offer in need.offers]) for need in needs]
    found: list[list[Split]] = [[] for _ in needs]
    prices, best, bound = no_prices(pool.question), None, -math.inf
    known: RelaxedMaster | None = None
    """The last relaxation over the splits so far."""
    is_close = False

    def paid(k: int, prices: StockPrices) -> FloatArray:
        return np.maximum(LEAST_PRICE, own_price[k] + prices.instance[k])

    for _ in range(SPLIT_ROUNDS):
        if not budget.allows_more():
            break
        # The cheapest split of every need at these prices, and the bound that they prove.
        for k, splitter in enumerate(splitters):
            split = splitter.cheapest(paid(k, prices), found[k][-1].lines if found[k] else None)
            budget.spend(split.work)
            found[k].append(split)
        pool.proofs.append(MixProof(prices, [own[-1].bound for own in found]))
        proven = math.fsum((prices.stock, *pool.proofs[-1].least))
        if proven > bound:
            best, bound = prices, proven
        choices = [
            [*own, *(MixChoice(float(split.instances @ own_price[k]), split.instances) for split in found[k])]
            for k, own in enumerate(pool.choices)
        ]
        known = relaxed(pool.question, choices, budget)
        is_close = known is not None and known.serves_all and known.objective - bound <= CLOSE * known.objective
        if known is None or is_close:
            break
        prices = (best or prices).towards(known.prices, SPLIT_STEP)
    if best is None:
        return None
    # Mixes of whole instances near the splits that the relaxation takes.
    for k, (need, own) in enumerate(zip(needs, found, strict=True)):
        share = known.share[k][-len(own) :] if known is not None else []
        for split in [s for s, taken in zip(own, share, strict=False) if taken > TAKEN] or own[-1:]:
            if budget.allows_more():
                budget.spend(WORK_PER_ROUNDING)
                pool.add(k, rounded(need, splitters[k], split, paid(k, best)))
    return best if known is not None and known.serves_all else None


FIRST_NODES = 50
"""Nodes of the tree search of a need's first model. Chosen: 16 of 20 services with five GPU types need fewer."""
MOST_NODES = 400
"""Nodes after which a need is left as it is. Chosen."""
REFINED_SHARE = 0.5
"""Fraction of the gap that is good enough for all, at which a need's model is solved."""


def refine(pool: ColumnPool, budget: Budget, gap: float) -> bool | None:
    """Solves the model of the need with the widest gap. Returns whether it added a mix; None: there is no such need.

    gap: relative one that is good enough for all.

    At the prices of the best proof each need stands alone. A split of any fraction of instances bounds its cost at
    hardly any work; its own model with whole instances and whole slices bounds it better, and finds the mix to that
    bound. With slices of any size it would bound it little better than the split: what whole slices cost is most of the
    gap.
    """
    proof = pool.best_proof
    if proof is None:
        return None
    if pool.refined is not proof:
        pool.refined, pool.nodes = proof, {}
    gaps = {k: own for k in range(len(pool.columns)) if pool.nodes.get(k, 1) and (own := pool.least_gap(k)) > 0}
    if not gaps:
        return None
    k = max(gaps, key=lambda k: (gaps[k], -k))
    nodes = pool.nodes.get(k, FIRST_NODES)
    solved, mix = solve_at(pool.alone(k), proof.prices.instance[k], budget, REFINED_SHARE * gap, nodes)
    pool.raise_proof(proof, {k: solved.bound})
    pool.nodes[k] = 0 if solved.status == "optimal" or nodes >= MOST_NODES else 2 * nodes
    return mix is not None and pool.add(k, mix)
