"""Pair probes in a simulated job: what agents would measure, and what is concluded from it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.loops.health.probing import DEADLINE_S
from health.probing import (
    CONTROLS,
    Found,
    Measured,
    Pair,
    answer,
    bad_pairs,
    narrowed_ranks,
    pairs_of,
    question_of,
    rounds_of,
)
from health.verdicts.verdict import Cause, Part, Syndrome, Verdict
from simulator.health.cases import Case
from simulator.health.job import STOPS, Happening

SOUND_BYTES_PER_S, SOUND_RTT_S = 2.0e9, 60e-6
NOISE = 0.05
"""Standard deviation of the logarithm of a pair's best burst."""
BUSY_SHARE = 0.03
"""Share of measurements in which other traffic leaves 30 to 90 % of the bandwidth."""
ORDER_S, PAIR_S, LOST_S = 0.5, 2.0, 3.5
"""Time of an order and its report, of a pair, and of one that does not answer: upper ends of what
`tests/agents/test_pair_probes.py` sees."""


@dataclass(frozen=True, slots=True)
class Probed:
    """Conclusion of the probes that a verdict called for."""

    verdict: Verdict
    """The verdict as it is after them."""
    found: Found
    pairs: int
    took_s: float


class SimulatedNetwork:
    """Network between a job's nodes and two spare ones, while the case's disturbance lasts.

    hidden: whether the fault is on a network that probes do not pass, as where the interface is not that of the job.
    """

    def __init__(self, drawn: Case, random: np.random.Generator, *, hidden: bool = False) -> None:
        self._case, self._random, self._hidden = drawn, random, hidden
        nodes = int(drawn.job.node.max()) + 1
        self.nodes = tuple(f"n{number:04}" for number in range(nodes))
        self.spares = ("spare0", "spare1")

    def controls(self, suspects: Sequence[str]) -> tuple[str, ...]:
        """Nodes of the job that are not suspected, then spare ones."""
        return tuple(node for node in (*self.nodes, *self.spares) if node not in suspects)[:CONTROLS]

    def measure(self, pair: Pair) -> Measured:
        factor = self._factor(pair)
        if np.isinf(factor):
            return Measured(lost=True)
        noise = float(np.exp(self._random.normal(0.0, NOISE)))
        if self._random.random() < BUSY_SHARE:
            noise *= float(self._random.uniform(0.3, 0.9))
        return Measured(SOUND_RTT_S / noise, SOUND_BYTES_PER_S * noise / factor)

    def _factor(self, pair: Pair) -> float:
        """Multiple of the transfer time between two nodes."""
        which = self._case.disturbance
        factor = float("inf") if which.kind in STOPS else 1.0 + which.strength
        at = {self.nodes[int(self._case.job.node[rank])] for rank in which.ranks}
        if self._hidden or not at:
            return 1.0
        if which.kind in (Happening.SLOW_NIC, Happening.HANG_NIC):
            return factor if at & set(pair) else 1.0
        if which.kind in (Happening.SLOW_LINK, Happening.HANG_LINK):
            return factor if at == set(pair) else 1.0
        return 1.0


def probed(drawn: Case, verdict: Verdict, network: SimulatedNetwork) -> Probed | None:
    """What pair probes make of a verdict; None where they are not called for."""
    question = question_of(verdict, drawn.layout, network.nodes)
    if question is None:
        return None
    controls = network.controls(question.suspects)
    rounds = list(rounds_of(pairs_of(question, controls)))
    measured: dict[Pair, Measured] = {}
    took_s = 0.0
    for each in rounds:
        if took_s < DEADLINE_S - 2.0:
            took_s += _measure(each, network, measured)
    for each in rounds_of(sorted(bad_pairs(measured, controls))):
        if took_s < DEADLINE_S - 2.0:
            took_s += _measure(each, network, measured)
    found = answer(question, controls, measured)
    after = replace(verdict, at_s=verdict.at_s + took_s)
    if found.found in (Found.NIC, Found.LINK):
        ranks = narrowed_ranks(verdict, drawn.layout, network.nodes, found)
        part = Part.NIC if found.found is Found.NIC else Part.LINK
        after = replace(after, part=part, ranks=ranks, probe="", evidence=(*verdict.evidence, found.note))
    elif found.found is Found.SOUND and _is_open(verdict):
        after = replace(
            after,
            syndrome=Syndrome.NONE,
            part=Part.NOTHING,
            cause=Cause.NETWORK_SOUND,
            probe="",
            evidence=(found.note,),
        )
    return Probed(after, found.found, len(measured), took_s)


def _is_open(verdict: Verdict) -> bool:
    return verdict.part in (Part.NOTHING, Part.GROUP)


def _measure(pairs: Sequence[Pair], network: SimulatedNetwork, measured: dict[Pair, Measured]) -> float:
    """Measures one round, keeps the better of two values of a pair; its length in seconds."""
    lost = False
    for pair in pairs:
        made = network.measure(pair)
        before = measured.get(pair)
        lost |= made.lost
        if before is None or before.lost or (not made.lost and made.bytes_per_s > before.bytes_per_s):
            measured[pair] = made
    return ORDER_S + (LOST_S if lost else PAIR_S)
