"""Faults of a row, as data: of telemetry, the controller, the network, actuators, servers, and the budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cluster.arrays import BoolArray, FloatArray
from cluster.errors import ConfigError, Mistake
from power.leases.holder import may_burst
from power.safety.bursts import credit_after
from simulator.power.row import AGENT_LOOKS_S

FaultKind = Literal[
    "frozen", "frozen-fresh", "killed", "cut", "stuck", "clamped", "lying", "reboot", "budget-cut", "silent"
]
WORDS: dict[FaultKind, str] = {
    "frozen": "every reading repeats the one at the start, as its age shows",
    "frozen-fresh": "every reading repeats the one at the start, but claims to be new",
    "silent": "some servers' readings stop",
    "killed": "the controller is dead, and a new one starts at the end",
    "cut": "nothing passes between the controller and the row, in either direction",
    "stuck": "some servers keep the limit that they have at the start, and report it",
    "clamped": "some servers keep no limit below a bound, and report it",
    "lying": "some servers have no limit at all, and report that they obey",
    "reboot": "some servers come back at their default limit, and their agents a minute later",
    "budget-cut": "the row's budget is reduced by a fraction",
}
DISOBEYING: tuple[FaultKind, ...] = ("stuck", "clamped", "lying", "reboot")
"""Faults with which a server may draw more than its grant."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault with its duration."""

    kind: FaultKind
    from_s: float
    to_s: float
    share: float = 0.25
    """Fraction of the servers that it affects, or of the budget that is lost."""

    def holds(self, now_s: float) -> bool:
        return self.from_s <= now_s < self.to_s

    def strikes(self, servers: int, seed: int) -> BoolArray:
        """Servers that it affects: a random fraction, spread over both classes."""
        struck: BoolArray = np.zeros(servers, dtype=np.bool_)
        count = round(self.share * servers)
        struck[np.random.default_rng([seed, servers]).permutation(servers)[:count]] = True
        return struck


def faults_from(text: str, for_s: float) -> tuple[Fault, ...]:
    """Faults from text such as `lying:0.25@3600-7200,killed@100-200`.

    Without `@` a fault lasts from a quarter of the run to its end. Raises ConfigError with every error.
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
            mistakes.append(Mistake("--faults", f"{part!r} is not a fault", remedy))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return tuple(faults)


def _kind(text: str) -> FaultKind:
    return {str(kind): kind for kind in WORDS}[text]


def edges_s(faults: Sequence[Fault]) -> tuple[float, ...]:
    """Instants at which a fault begins or ends."""
    return tuple(sorted({edge for fault in faults for edge in (fault.from_s, fault.to_s)}))


_ERR_SHARE = 0.05
"""Error of limiters and meters: a draw that exceeds a limit by less is no violation."""


class LeaseViolations:
    """Comparison of faulty servers' draws with their leases. Nothing of it reaches the policy."""

    def __init__(self, struck: Sequence[tuple[Fault, BoolArray]], servers: int, highest_w: float) -> None:
        """struck: faults, and the servers that each affects. highest_w: highest draw of a server."""
        self.at_s: dict[int, float] = {}
        """Instant when a server first drew what no honest one could have drawn, by server."""
        self._struck, self._highest_w = struck, highest_w
        self._credit_j: FloatArray = np.zeros(servers)
        self._bursting: BoolArray = np.zeros(servers, dtype=np.bool_)
        self._before: tuple[FloatArray, FloatArray] | None = None

    def read(
        self,
        now_s: float,
        for_s: float,
        draw_w: FloatArray,
        granted: tuple[FloatArray, FloatArray, FloatArray],
        credit_back_s: float,
    ) -> None:
        """Records a period of `for_s` seconds with this mean draw, shape (servers,).

        granted: the limits, the joules of bursts above them and the highest draw of bursts, as last sent, shape
        (servers,) each. Earlier values also count where they allowed more, since a period may begin with them.
        """
        cap_w, burst_j, burst_w = granted
        before_w, before_burst_w = self._before or (cap_w, burst_w)
        self._before = (cap_w, burst_w)
        lease_w = np.minimum(np.maximum(cap_w, before_w), self._highest_w) * (1 + _ERR_SHARE)
        bursts_w = np.minimum(np.maximum(burst_w, before_burst_w), self._highest_w) * (1 + _ERR_SHARE)
        most_w = np.maximum(lease_w, bursts_w)
        bursting = may_burst(self._credit_j, self._bursting, burst_j)
        looks_j = np.where(bursting | self._bursting, AGENT_LOOKS_S * (most_w - lease_w), 0.0)
        may_j = np.where(bursting, np.maximum(self._credit_j, 0.0), 0.0) + looks_j
        above_j = (draw_w - lease_w) * for_s
        offends = (above_j > may_j) | (draw_w > most_w)
        for fault, struck in self._struck:
            for server in np.flatnonzero(offends & struck).tolist() if fault.holds(now_s) else ():
                self.at_s.setdefault(server, now_s)
        self._credit_j = np.maximum(credit_after(self._credit_j, draw_w, lease_w, burst_j, for_s, credit_back_s), 0.0)
        self._bursting = may_burst(self._credit_j, bursting, burst_j)
