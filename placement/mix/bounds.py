"""First prices of a stock that services share, by column generation over splits of any fraction.

Splits cost hardly any work (`placement.mix.pool_split`), so a few rounds find the best prices of the stock, the bound
that they prove, and mixes of whole instances at little more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cluster.arrays import FloatArray
from placement.budget import Budget
from placement.mix.columns import NEAR, ColumnPool, MixProof, solve_at
from placement.mix.milp import MixChoice, RelaxedMaster, StockPrices, no_prices, relaxed
from placement.mix.pool_split import LEAST_PRICE, WORK_PER_ROUNDING, Split, Splitter, rounded
from placement.mix.pulp_solver import Terms

MOST_ROUNDS = 10
"""Rounds of prices. Chosen: 20 services with five GPU types need four to six."""
CLOSE = 1e-4
"""Relative distance from the relaxation's optimum at which prices are good enough. Chosen: instances cost more."""
STEP = 0.5
"""Step from the best prices towards those of the last round. Chosen."""
TAKEN = 0.02
"""Fraction from which a split that the relaxation takes is worth a column. Chosen."""


@dataclass(slots=True, eq=False)
class _Splits:
    """Splits of every need so far, and what they prove."""

    pool: ColumnPool
    splitters: Sequence[Splitter]
    found: list[list[Split]] = field(default_factory=list)
    prices: StockPrices | None = None
    """Those with the highest bound."""
    bound: float = -math.inf
    relaxed: RelaxedMaster | None = None
    """The last relaxation over these splits."""

    @property
    def is_close(self) -> bool:
        """Whether the prices are as good as any, nearly."""
        known = self.relaxed
        return known is not None and known.serves_all and known.objective - self.bound <= CLOSE * known.objective

    def paid(self, k: int, prices: StockPrices) -> FloatArray:
        """Dollars per instance of need k at these prices, shape (offers,)."""
        price = np.array([offer.price_per_hour for offer in self.pool.question.needs[k].offers])
        return np.maximum(LEAST_PRICE, price + prices.instance[k])

    def choice(self, k: int, split: Split) -> MixChoice:
        price = [offer.price_per_hour for offer in self.pool.question.needs[k].offers]
        return MixChoice(float(split.instances @ np.array(price)), split.instances)


def start(pool: ColumnPool, budget: Budget, terms: Terms) -> StockPrices | None:
    """The best prices of the stock; adds the proof of their bound, and mixes near the splits, to the pool.

    None where the stock does not hold all needs, as far as is known.
    """
    splits = _Splits(pool, [Splitter(need) for need in pool.question.needs], [[] for _ in pool.question.needs])
    prices = no_prices(pool.question)
    for _ in range(MOST_ROUNDS):
        if not budget.allows_more():
            break
        _split_all(splits, prices, budget)
        choices = [
            [*own, *(splits.choice(k, split) for split in splits.found[k])] for k, own in enumerate(pool.choices)
        ]
        splits.relaxed = relaxed(pool.question, choices, budget, terms)
        if splits.relaxed is None or splits.is_close:
            break
        prices = (splits.prices or prices).towards(splits.relaxed.prices, STEP)
    _add_mixes(splits, budget)
    pool.is_near = splits.is_close and all(_is_near(splits, k) for k in range(len(splits.splitters)))
    return splits.prices if splits.relaxed is not None and splits.relaxed.serves_all else None


def _is_near(splits: _Splits, k: int) -> bool:
    """Whether a need has a column near its bound at the best prices."""
    if splits.prices is None:
        return False
    paid, bound = splits.paid(k, splits.prices), splits.pool.proofs[-1].least[k]
    return any(float(column.mix.instances @ paid) * (1 - NEAR) <= bound for column in splits.pool.columns[k])


def _split_all(splits: _Splits, prices: StockPrices, budget: Budget) -> None:
    """One round: the cheapest split of every need at these prices, and the bound that they prove."""
    pool = splits.pool
    for k, splitter in enumerate(splits.splitters):
        before = splits.found[k]
        split = splitter.cheapest(splits.paid(k, prices), before[-1].lines if before else None)
        budget.spend(split.work)
        before.append(split)
    proof = MixProof(prices, [own[-1].bound for own in splits.found])
    pool.proofs.append(proof)
    bound = math.fsum((prices.stock, *proof.least))
    if bound > splits.bound:
        splits.prices, splits.bound = prices, bound


def _add_mixes(splits: _Splits, budget: Budget) -> None:
    """Adds mixes of whole instances near the splits that the relaxation takes."""
    pool = splits.pool
    if splits.prices is None:
        return
    for k, (need, found) in enumerate(zip(pool.question.needs, splits.found, strict=True)):
        paid = splits.paid(k, splits.prices)
        share = splits.relaxed.share[k][-len(found) :] if splits.relaxed is not None else []
        for split in [s for s, taken in zip(found, share, strict=False) if taken > TAKEN] or found[-1:]:
            if not budget.allows_more():
                return
            budget.spend(WORK_PER_ROUNDING)
            pool.add(k, rounded(need, splits.splitters[k], split, paid))


FIRST_NODES = 50
"""Nodes of the tree search of a need's first model. Chosen: 16 of 20 services with five GPU types need fewer."""
MOST_NODES = 400
"""Nodes after which a need is left as it is. Chosen."""
SHARE = 0.5
"""Fraction of the gap that is good enough for all, at which a need's model is solved."""


def refine(pool: ColumnPool, budget: Budget, terms: Terms) -> bool | None:
    """Solves the model of the need with the widest gap. Returns whether it added a mix; None: there is no such need.

    The price of changes is left out, so that the proof holds whatever runs.
    """
    proof = pool.best_proof
    if proof is None or proof.counts_changes:
        return None
    if pool.refined is not proof:
        pool.refined, pool.nodes = proof, {}
    gaps = {k: gap for k in range(len(pool.columns)) if pool.nodes.get(k, 1) and (gap := pool.least_gap(k)) > 0}
    if not gaps:
        return None
    k = max(gaps, key=lambda k: (gaps[k], -k))
    nodes = pool.nodes.get(k, FIRST_NODES)
    exact = replace(terms, gap=SHARE * terms.gap)
    price = proof.prices.instance[k]
    solved, is_new = solve_at(pool, k, price, budget, exact, nodes, counts_changes=False, cuts_slices=False)
    least = tuple(max(solved.bound, value) if n == k else value for n, value in enumerate(proof.least))
    refined = replace(proof, least=least)
    pool.proofs[pool.proofs.index(proof)] = pool.refined = refined
    pool.nodes[k] = 0 if solved.status == "optimal" or nodes >= MOST_NODES else 2 * nodes
    return is_new
