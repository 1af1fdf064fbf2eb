"""Refinement of the bound of services that share a stock, and of their mixes, where the gap in dollars is widest.

At the prices of the best proof each need stands alone. A split of any fraction of instances bounds its cost at hardly
any work; its own model with whole instances and whole slices bounds it better, and finds the mix to that bound. With
slices of any size it would bound it little better than the split: what whole slices cost is most of the gap.
"""

from dataclasses import replace

from placement.budget import Budget
from placement.mix.columns import ColumnPool, solve_at
from placement.mix.pulp_solver import Terms

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
