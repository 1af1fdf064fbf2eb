"""Question: what a verdict leaves to pair probes, in nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

import numpy as np

from health.records.layout import Layout
from health.verdicts.verdict import JobVerdict, Part, Syndrome
from tonnage.pairs import Pair, PairSpeed, bad_pairs, reference_of

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


def question_of(verdict: JobVerdict, layout: Layout, nodes: Sequence[str]) -> Question | None:
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


def ring_of(verdict: JobVerdict, layout: Layout) -> tuple[int, ...]:
    """Members of the group that a verdict names, in the order in which they send to each other."""
    for members in layout.groups:
        if len(members) == len(verdict.ranks) and tuple(np.sort(members).tolist()) == verdict.ranks:
            return tuple(members.tolist())
    return verdict.ranks


CONTROLS = 2
"""Healthy nodes beside the suspects: with fewer nobody could tell a slow suspect from a slow control."""

FEW = 4
"""Suspects up to which each is measured with each: of more, a NIC can be named, and no link."""


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


class AnswerKind(StrEnum):
    """Kind of an answer."""

    NIC = "nic"
    LINK = "link"
    SOUND = "sound"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the pairs of one question say together."""

    found: AnswerKind
    nodes: tuple[str, ...]
    """The node of the NIC, or both ends of the link."""
    note: str


def answer(question: Question, controls: Sequence[str], measured: Mapping[Pair, PairSpeed]) -> Answer:
    """The one part that explains all bad pairs.

    A NIC needs two peers that find it slow, so that no single agent can accuse another node. A control that is slow
    itself is left out.
    """
    reference = reference_of(measured, controls)
    if reference is None:
        return Answer(AnswerKind.OPEN, (), "pair probes: no pair could be measured")
    bad = bad_pairs(measured, controls)
    # Nodes of which every pair is bad, two at least, and that are part of each bad pair.
    pairs = {node: [pair for pair in measured if node in pair] for node in sorted(set[str]().union(*bad))}
    named = tuple(node for node, own in pairs.items() if len(own) >= 2 and set(own) == bad)
    if len(named) == 1 and named[0] not in question.suspects:
        kept = {pair: each for pair, each in measured.items() if named[0] not in pair}
        return answer(question, [each for each in controls if each != named[0]], kept)
    shown = f"pair probes: {_shown(bad, measured, reference)}"
    if not bad:
        # Sound where all pairs of suspects were measured, and each suspect with two peers.
        missing = [f"{a} to {b}" for a, b in pairs_of(question, controls) if {a, b} <= set(question.suspects)
                   and (a, b) not in measured]  # fmt: skip
        peers = {node: {other for pair in measured for other in pair if node in pair} for node in question.suspects}
        missing += [node for node, others in peers.items() if len(others - {node}) < 2]
        if missing:
            return Answer(AnswerKind.OPEN, (), f"pair probes: not measured: {', '.join(missing)}")
        note = f"pair probes: {len(measured)} pairs alike, {_rate(reference)}"
        if question.inside:
            return Answer(AnswerKind.OPEN, (), f"{note}; what is inside a node is not measured")
        return Answer(AnswerKind.SOUND, (), note)
    if len(named) == 1:
        return Answer(AnswerKind.NIC, named, f"{shown}; other pairs reach {_rate(reference)}")
    pair = next(iter(bad))
    alone = len(bad) == 1 and set(pair) <= set(question.suspects)
    if alone and all(any(node in pair and pair not in set(bad) for pair in measured) for node in pair):
        return Answer(AnswerKind.LINK, tuple(sorted(pair)), f"{shown}; both ends reach {_rate(reference)} with others")
    return Answer(AnswerKind.OPEN, (), f"{shown}; no single NIC or link explains it")


def _shown(bad: Iterable[Pair], measured: Mapping[Pair, PairSpeed], reference: PairSpeed) -> str:
    parts = []
    for a, b in sorted(bad)[:4]:
        each = measured[(a, b)]
        how = "no answer" if each.lost else f"{_rate(each)}, {each.rtt_s * 1e3:.2f} ms"
        parts.append(f"{a} to {b} {how}")
    return f"{', '.join(parts)} (reference {_rate(reference)}, {reference.rtt_s * 1e3:.2f} ms)" if parts else ""


def _rate(each: PairSpeed) -> str:
    return f"{each.bytes_per_s / 1e6:.0f} MB/s"
