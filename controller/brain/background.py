"""Who sits in the slots of the brain, as the operator's decisions ask for it.

A forecaster or an analyser of faults takes its seat here: a class with `Occupant`'s methods, and a line below.
Everything else about it (an actor, its deadline, its successor, its metrics) is there.
"""

from controller.deciders.background import Occupant
from controller.deciders.consolidation import Polish
from controller.deciders.decisions import Decisions


def occupants_of(decisions: Decisions) -> tuple[Occupant, ...]:
    """One for each slot that is in use; each slot costs an actor, 60 MB, where the brain is on Ray."""
    if not decisions.polish_share:
        return ()
    return (Polish(decisions.polish_share, decisions.move_price, decisions.batch.price),)
