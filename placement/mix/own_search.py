"""Search for the mix of one service at prices of its stock, as a value that may be answered anywhere and at any time.

At prices of the stock each service stands alone: its own model finds a mix, and bounds all others at these prices. A
plan answers as many of these questions as its work suffices for, and takes answers to the others from elsewhere: they
are starts and bounds of its own search, by the digest of what they depend on, and every mix is checked before it is
used.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pulp

from cluster.arrays import FloatArray
from placement.budget import Budget
from placement.mix import heuristics, milp
from placement.mix.problem import Mix, MixQuestion, Need
from placement.mix.pulp_solver import Solved, spent
from placement.stock import Stock

MOST_NODES = 2_000
"""Nodes of the tree search for one service, beside the plans. Chosen: 1 to 5 s with 20 GPU types."""
ENOUGH_WORK = 1e9
"""Simplex iterations: no limit."""


@dataclass(frozen=True, slots=True, eq=False)
class OwnQuestion:
    """Question for the cheapest mix of one service at these prices."""

    digest: str
    """Of all that the answer depends on."""
    need: Need
    """Without running instances."""
    prices: FloatArray
    """Dollars per hour that every instance pays for its stock, shape (offers,)."""
    stock: Mapping[str, Stock]
    gap: float
    """Relative distance from the proven bound that is good enough."""


@dataclass(frozen=True, slots=True, eq=False)
class OwnAnswer:
    """What a search found."""

    service: str
    digest: str
    """Of the question."""
    mixes: tuple[Mix, ...]
    bound: float
    """Lower bound on the cost of any mix that pays these prices as well."""


def searched(question: OwnQuestion) -> OwnAnswer:
    """The answer to a question, however long it takes."""
    alone = MixQuestion((question.need,), question.stock)
    solved, mix = solve_at(alone, question.prices, Budget(ENOUGH_WORK), question.gap, MOST_NODES)
    return OwnAnswer(question.need.service, question.digest, () if mix is None else (mix,), solved.bound)


def solve_at(
    alone: MixQuestion, prices: FloatArray, budget: Budget, gap: float, nodes: int
) -> tuple[Solved, Mix | None]:
    """Outcome of the model of a question's only need at these prices, and its mix."""
    (need,) = alone.needs
    model = milp.build_model(alone, whole_slices=True)
    # A bucket needs an instance where it is served: redundant, but it raises the relaxation.
    problem = model.problem
    for (k, _, g), sent in model.n.items():
        problem += sent <= milp.slices(need) * model.y[k, g]
    paid = pulp.lpSum(float(prices[g]) * count for (_, g), count in model.y.items())
    problem.setObjective(problem.objective + paid)
    solved = spent(problem, budget, most_nodes=nodes, gap=gap)
    if not solved.has_answer:
        return solved, None
    (mix,) = milp.mixes_from(alone, model)
    return solved, mix


def shared_again(need: Need, mix: Mix) -> Mix | None:
    """A mix of another demand, with the instances that its shares need now; None for other buckets or offers."""
    if mix.share.shape != (len(need.cells), len(need.offers)) or not np.isfinite(mix.share).all():
        return None
    if not all(np.isfinite(offer.load[mix.share[:, g] > 0]).all() for g, offer in enumerate(need.offers)):
        return None
    return Mix(heuristics.instances_for(need, mix.share), mix.share)
