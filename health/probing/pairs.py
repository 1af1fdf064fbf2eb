"""Pairs of nodes to measure, in rounds in which no node takes part twice."""

from collections.abc import Sequence
from itertools import combinations

from health.probing.question import Question

CONTROLS = 2
"""Healthy nodes beside the suspects: with fewer nobody could tell a slow suspect from a slow control."""

FEW = 4
"""Suspects up to which each is measured with each: of more, a NIC can be named, and no link."""

Pair = tuple[str, str]
"""The node that measures, and its peer. A control measures a suspect, whose own word is then not needed."""


def pairs_of(question: Question, controls: Sequence[str]) -> tuple[Pair, ...]:
    """All pairs of a question. A ring is measured along itself, fewer suspects against each other and each control.

    The pair of controls shows what the network gives where nothing is suspected.
    """
    suspects, chosen = question.suspects, tuple(controls[:CONTROLS])
    if question.ring:
        found = list(zip(suspects, (*suspects[1:], suspects[0]), strict=True))
    else:
        among = combinations(suspects, 2) if len(suspects) <= FEW else ()
        found = [*among, *((control, each) for each in suspects for control in chosen)]
    return (*combinations(chosen, 2), *found)


def rounds_of(pairs: Sequence[Pair]) -> tuple[tuple[Pair, ...], ...]:
    """The pairs in rounds: a node in two pairs at once would halve the bandwidth of both."""
    rounds: list[list[Pair]] = []
    for pair in pairs:
        free = next((each for each in rounds if not set(pair) & {node for one in each for node in one}), None)
        if free is None:
            rounds.append([pair])
        else:
            free.append(pair)
    return tuple(tuple(each) for each in rounds)
