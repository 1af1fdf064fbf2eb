"""Prices and bounds of a stock that services share: first from splits of any fraction, then from exact models."""

import math
from dataclasses import replace

import numpy as np

from cluster.arrays import FloatArray
from placement.budget import Budget
from placement.mix.columns import ColumnPool, MixProof, solve_at
from placement.mix.milp import MixChoice, RelaxedMaster, StockPrices, no_prices, relaxed
from placement.mix.pool_split import LEAST_PRICE, WORK_PER_ROUNDING, Split, Splitter, rounded

MOST_ROUNDS = 10
"""Rounds of prices. Chosen: 20 services with five GPU types need four to six."""
CLOSE = 1e-4
"""Relative distance from the relaxation's optimum at which prices are good enough. Chosen: instances cost more."""
STEP = 0.5
"""Step from the best prices towards those of the last round. Chosen."""
TAKEN = 0.02
"""Fraction from which a split that the relaxation takes is worth a column. Chosen."""


def start(pool: ColumnPool, budget: Budget) -> StockPrices | None:
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

    for _ in range(MOST_ROUNDS):
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
        prices = (best or prices).towards(known.prices, STEP)
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
SHARE = 0.5
"""Fraction of the gap that is good enough for all, at which a need's model is solved."""


def refine(pool: ColumnPool, budget: Budget, gap: float) -> bool | None:
    """Solves the model of the need with the widest gap. Returns whether it added a mix; None: there is no such need.

    gap: relative one that is good enough for all.

    At the prices of the best proof each need stands alone. A split of any fraction of instances bounds its cost at
    hardly any work; its own model with whole instances and whole slices bounds it better, and finds the mix to that
    bound. With slices of any size it would bound it little better than the split: what whole slices cost is most of the
    gap. The price of changes is left out, so that the proof holds whatever runs.
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
    solved, is_new = solve_at(pool, k, proof.prices.instance[k], budget, SHARE * gap, nodes)
    least = tuple(max(solved.bound, value) if n == k else value for n, value in enumerate(proof.least))
    refined = replace(proof, least=least)
    pool.proofs[pool.proofs.index(proof)] = pool.refined = refined
    pool.nodes[k] = 0 if solved.status == "optimal" or nodes >= MOST_NODES else 2 * nodes
    return is_new
