"""Pairs of nodes that were measured: in which rounds, what a sound pair shows, and which are bad."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Pair = tuple[str, str]
"""The node that measures, and its peer. A control measures a suspect, whose own word is then not needed."""


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


SLOW_SHARE = 0.8
"""Bandwidth, as a share of the reference, below which a pair is slow. Chosen: best bursts of sound pairs lie within a
tenth of each other in `tests/agents/test_pair_probes.py`, and a fault of 10 % of a step takes a fifth of a path's."""
LATE_FACTOR, LATE_S = 3.0, 0.001
"""Round trip over the reference's, and beyond it in seconds, from which a pair is late."""
REFERENCE = 0.75
"""Quantile of all pairs' bandwidths that is the reference where no pair of controls was measured."""


@dataclass(frozen=True, slots=True)
class PairSpeed:
    """One pair, as the agent of its first node measured it."""

    rtt_s: float = 0.0
    bytes_per_s: float = 0.0
    """Of the slower direction, in its best burst."""
    lost: bool = False
    """Whether the peer could not be reached within the time limit, or did not answer."""


def bad_pairs(measured: Mapping[Pair, PairSpeed], controls: Sequence[str]) -> frozenset[Pair]:
    """Pairs that are slow, late or lost, against the reference; none where nothing could be measured."""
    reference = reference_of(measured, controls)
    if reference is None:
        return frozenset()
    bad = set()
    for pair, each in measured.items():
        late = each.rtt_s > LATE_FACTOR * reference.rtt_s and each.rtt_s - reference.rtt_s > LATE_S
        if each.lost or late or each.bytes_per_s < SLOW_SHARE * reference.bytes_per_s:
            bad.add(pair)
    return frozenset(bad)


def reference_of(measured: Mapping[Pair, PairSpeed], controls: Sequence[str]) -> PairSpeed | None:
    """What a sound pair shows: that of the controls, else the better quarter; None where no pair was reached."""
    reached = {pair: each for pair, each in measured.items() if not each.lost}
    among = [each for pair, each in reached.items() if set(pair) <= set(controls)]
    if not reached:
        return None
    best = _quantile([each.bytes_per_s for each in reached.values()], REFERENCE)
    if not among:
        return PairSpeed(_quantile([each.rtt_s for each in reached.values()], 1 - REFERENCE), best)
    # A control that is slow itself must not make slow suspects look sound.
    return PairSpeed(among[0].rtt_s, max(among[0].bytes_per_s, best))


def _quantile(values: Sequence[float], share: float) -> float:
    """Between the two nearest values, as numpy has it."""
    ordered, at = sorted(values), share * (len(values) - 1)
    low = int(at)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])
