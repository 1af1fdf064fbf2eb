"""What may go wrong with a row, as data: telemetry, the controller, the network, actuators, servers, the budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.errors import ConfigError, Mistake

FaultKind = Literal[
    "frozen", "frozen-fresh", "killed", "cut", "stuck", "clamped", "lying", "reboot", "budget-cut", "silent"
]
WORDS: dict[FaultKind, str] = {
    "frozen": "every reading repeats the one at the start, and says so by its age",
    "frozen-fresh": "every reading repeats the one at the start, but claims to be new",
    "silent": "some servers' readings stop",
    "killed": "the controller is dead, and another one starts at the end",
    "cut": "nothing passes between the controller and the row, in either direction",
    "stuck": "some servers keep the limit that they have at the start, and say so",
    "clamped": "some servers keep no limit below a bound, and say so",
    "lying": "some servers have no limit at all, and say that they obey",
    "reboot": "some servers come back at their default limit, and their agents a minute later",
    "budget-cut": "the row's budget is less by a share",
}
DISOBEYING: tuple[FaultKind, ...] = ("stuck", "clamped", "lying", "reboot")
"""With these a server may draw more than it was told to."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong for a while."""

    kind: FaultKind
    from_s: float
    to_s: float
    share: float = 0.25
    """Of the servers that it strikes, or of the budget that is lost."""

    def holds(self, now_s: float) -> bool:
        return self.from_s <= now_s < self.to_s

    def strikes(self, servers: int, seed: int) -> BoolArray:
        """Which servers: a share of them, spread over both classes by chance."""
        struck: BoolArray = np.zeros(servers, dtype=np.bool_)
        count = round(self.share * servers)
        struck[np.random.default_rng([seed, servers]).permutation(servers)[:count]] = True
        return struck


def faults_from(text: str, for_s: float) -> tuple[Fault, ...]:
    """`lying:0.25@3600-7200,killed@100-200` → faults; without `@` one lasts from a quarter of the run to its end.

    Raises ConfigError with every mistake.
    """
    faults: list[Fault] = []
    mistakes = []
    for part in filter(None, (word.strip() for word in text.split(","))):
        name, _, when = part.partition("@")
        kind, _, share = name.partition(":")
        try:
            start, end = (float(number) for number in when.split("-")) if when else (for_s / 4, for_s)
            fault = Fault(_kind(kind), start, end, float(share) if share else (0.2 if kind == "budget-cut" else 0.25))
            if not (0 <= start < end and 0 <= fault.share <= 1):
                raise ValueError
            faults.append(fault)
        except (ValueError, KeyError):
            remedy = f"write KIND[:SHARE][@FROM-TO] with seconds; kinds: {', '.join(WORDS)}"
            mistakes.append(Mistake("--faults", f"{part!r} is no fault", remedy))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return tuple(faults)


def _kind(text: str) -> FaultKind:
    return {str(kind): kind for kind in WORDS}[text]


def edges_s(faults: Sequence[Fault]) -> tuple[float, ...]:
    """The instants at which some fault begins or ends."""
    return tuple(sorted({edge for fault in faults for edge in (fault.from_s, fault.to_s)}))


def struck_servers(faults: Sequence[Fault], kinds: Sequence[FaultKind], servers: int, seed: int) -> IntArray:
    """The servers that faults of these kinds strike at any time."""
    struck = np.zeros(servers, dtype=np.bool_)
    for fault in faults:
        if fault.kind in kinds:
            struck |= fault.strikes(servers, seed)
    return np.flatnonzero(struck)
