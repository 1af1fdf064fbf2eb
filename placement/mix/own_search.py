"""Search for the mix of one service at prices of its stock, as a value that may be answered anywhere and at any time.

At prices of the stock each service stands alone: its own model finds a mix, and bounds all others at these prices. A
plan answers as many of these questions as its work suffices for, and takes answers to the others from elsewhere: they
are starts and bounds of its own search, by the digest of what they depend on, and every mix is checked before it is
used.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import FloatArray
from cluster.plans import Reason
from placement.budget import Budget
from placement.mix import heuristics
from placement.mix.optimizer import answer_mix
from placement.mix.problem import Mix, MixQuestion, Need
from placement.stock import Stock

ENOUGH_WORK = 50_000.0
"""Work for one service, beside the plans, in simplex iterations. Chosen: 1 to 5 s with 20 GPU types."""


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
    bound: float = -math.inf
    """Bound that is proven already."""


@dataclass(frozen=True, slots=True, eq=False)
class OwnAnswer:
    """What a search found."""

    service: str
    digest: str
    """Of the question."""
    mixes: tuple[Mix, ...]
    bound: float
    """Lower bound on the cost of any mix that pays these prices as well."""


def searched(question: OwnQuestion, budget: Budget | None = None) -> OwnAnswer:
    """The answer to a question. budget: None: that of a search beside the plans."""
    offers = zip(question.need.offers, question.prices.tolist(), strict=True)
    paid = tuple(replace(offer, price_per_hour=offer.price_per_hour + more) for offer, more in offers)
    alone = MixQuestion((replace(question.need, offers=paid),), question.stock)
    answer = answer_mix(alone, budget or Budget(ENOUGH_WORK), gap=question.gap, bound=question.bound)
    if isinstance(answer, Reason):
        return OwnAnswer(question.need.service, question.digest, (), -math.inf)
    return OwnAnswer(question.need.service, question.digest, answer.mixes, answer.certificate.bound)


def shared_again(need: Need, mix: Mix) -> Mix | None:
    """A mix of another demand, with the instances that its shares need now; None for other buckets or offers."""
    if mix.share.shape != (len(need.cells), len(need.offers)) or not np.isfinite(mix.share).all():
        return None
    if not all(np.isfinite(offer.load[mix.share[:, g] > 0]).all() for g, offer in enumerate(need.offers)):
        return None
    return Mix(heuristics.instances_for(need, mix.share), mix.share)
