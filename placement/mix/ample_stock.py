"""Ample stock: one that holds more than any sensible mix of a need uses, so that its content decides nothing."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from placement.mix.heuristics import instances_for
from placement.mix.problem import MixQuestion, Need
from placement.mix.seats import seats_at_once
from placement.seating.model import Group
from placement.seating.stock import Stock

MARGIN = 2
"""Factor on the instances that a mix may use. Chosen: solvers and heuristics round up by an instance here and there."""


def stock_that_counts(question: MixQuestion, need: Need) -> dict[str, Stock]:
    """Stocks of a need whose content its mixes depend on: all, or only those without any device where others are ample.

    A stock that holds everything at once that the need could use of every offer binds no mix. Its mixes, and bounds on
    them, then hold for each other stock that does so, too: a device that another pod takes or gives back changes
    nothing.
    """
    own = {name: question.stock[name] for o in need.offers for name in o.stocks if name in question.stock}
    if question.per_instance:  # slices are packed into instances, and may need more of them than their load
        return own
    bare = {name: stock for name, stock in own.items() if not stock.gpus}
    wanted = {group: count for group, count in most_of(need).items() if not bare.keys() >= set(group.stocks)}
    return own if seats_at_once(own, wanted) is None else bare


def most_of(need: Need) -> Mapping[Group, int]:
    """Instances by group of which no mix has more, with a margin: an offer serves all that it can, or what runs stays.

    The room of a pool grows with its load, so no part of the demand needs more than all of it.
    """
    found = Counter[Group]()
    for g, offer in enumerate(need.offers):
        share = np.zeros((len(need.cells), len(need.offers)))
        share[np.isfinite(offer.load), g] = 1.0
        found[offer.group] += MARGIN * max(int(instances_for(need, share)[g]), need.running_count(offer))
    return found
