"""Question: what a verdict leaves to pair probes, in nodes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from health.records.layout import Layout
from health.verdicts.verdict import Part, Syndrome, Verdict

MOST_IN_RING, MOST_SUSPECTS = 32, 8
"""Nodes of one question, neighbours of a ring and others. With more it is left open: their pairs would not be measured
within half a minute."""
_NETWORK = (Syndrome.COMMUNICATION_SLOW, Syndrome.COMMUNICATION_HANG)


@dataclass(frozen=True, slots=True)
class Question:
    """Which of these nodes' NICs, or which link between them, is at fault, if any."""

    suspects: tuple[str, ...]
    """Nodes, neighbours of the ring in its order where `ring`."""
    ring: bool = False
    """Whether only neighbours send to each other."""
    inside: bool = False
    """Whether suspected ranks also send to each other inside a node, where no probe passes: sound pairs then acquit the
    network between nodes alone."""


def question_of(verdict: Verdict, layout: Layout, nodes: Sequence[str]) -> Question | None:
    """What pair probes can decide or confirm about a verdict; None where they can do neither.

    A slow computing node is no question of theirs: TCP between two hosts says nothing about a GPU.

    nodes: name of each node of the layout.
    """
    if verdict.syndrome not in _NETWORK or not verdict.ranks:
        return None
    is_group = verdict.part is Part.GROUP
    on = layout.node[list(ring_of(verdict, layout) if is_group else verdict.ranks)]
    suspects = tuple(dict.fromkeys(nodes[int(node)] for node in on))
    if len(suspects) > (MOST_IN_RING if is_group else MOST_SUSPECTS) or (
        len(suspects) < 2 and verdict.part is not Part.NIC
    ):
        return None  # what happens inside one node does not pass the interfaces that are measured
    inside = bool((on == np.roll(on, 1)).any()) if is_group else len(suspects) < len(on)
    return Question(suspects, ring=is_group and len(suspects) > 3, inside=inside)


def ring_of(verdict: Verdict, layout: Layout) -> tuple[int, ...]:
    """Members of the group that a verdict names, in the order in which they send to each other."""
    for members in layout.groups:
        if len(members) == len(verdict.ranks) and tuple(np.sort(members).tolist()) == verdict.ranks:
            return tuple(members.tolist())
    return verdict.ranks
