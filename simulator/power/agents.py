"""What is in force on each server of a row: its agent's grants, faults, the hardware brake, the breaker's heat."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.errors import ConfigError, Mistake
from cluster.power import BreakerCurve
from power.safety.bursts import opens_after_s
from simulator.power.policies import RowOrders

FaultKind = Literal[
    "frozen", "frozen-fresh", "killed", "cut", "stuck", "clamped", "lying", "reboot", "budget-cut", "silent"
]
FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)


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
    kinds: dict[str, FaultKind] = {str(kind): kind for kind in FAULT_KINDS}
    mistakes = []
    for part in filter(None, (word.strip() for word in text.split(","))):
        name, _, when = part.partition("@")
        kind, _, share = name.partition(":")
        try:
            start, end = (float(number) for number in when.split("-")) if when else (for_s / 4, for_s)
            fault = Fault(kinds[kind], start, end, float(share) if share else (0.2 if kind == "budget-cut" else 0.25))
            if not (0 <= start < end and 0 <= fault.share <= 1):
                raise ValueError
            faults.append(fault)
        except (ValueError, KeyError):
            remedy = f"write KIND[:SHARE][@FROM-TO] with seconds; kinds: {', '.join(FAULT_KINDS)}"
            mistakes.append(Mistake("--faults", f"{part!r} is not a fault", remedy))
    if mistakes:
        raise ConfigError(tuple(mistakes))
    return tuple(faults)


AGENT_AFTER_BOOT_S = 60.0
"""Time after a reboot during which a server is unlimited; then its agent is back and its lease is in force again."""


class Agents:
    """All agents of a row. They obey orders as these arrive; on expiry each goes to its safe floor on its own."""

    def __init__(
        self,
        servers: int,
        *,
        safe_floor_w: FloatArray | float,
        clamp_w: FloatArray,
        faults: Sequence[Fault],
        seed: int,
        set_limit: Callable[[int, float, float, float, float], None],
    ) -> None:
        """safe_floor_w: limit of each server whose lease ran out.

        clamp_w: lowest limit that each clamped server keeps.
        set_limit: called with (server, clock fraction, watts, joules of burst, highest draw of a burst) whenever the
        limits in force change.
        """
        self.clock: FloatArray = np.ones(servers)
        """Clock fraction in force without the brake, shape (servers,)."""
        self.cap_w: FloatArray = np.full(servers, np.inf)
        self.burst_j: FloatArray = np.zeros(servers)
        self._no_burst_j = self.burst_j
        self.burst_w: FloatArray = self.cap_w
        self._unbounded_w = self.cap_w
        self.reported_w: FloatArray = self.cap_w
        """Limit that each server reports as enforced, shape (servers,)."""
        self.sequence: IntArray = np.full(servers, -1)
        """Sequence number of the grant that each server holds."""
        self._number, self.epoch = -1, 0
        self.granted = (self.cap_w, self.burst_j, self.burst_w)
        """Limits, joules of bursts and highest draws of bursts that would be in force if all obeyed."""
        self.changes = 0
        """Number of changed limits, counted for each server."""
        self._safe_floor_w, self._clamp_w, self._set_limit = safe_floor_w, clamp_w, set_limit
        self._faults = [(fault, fault.strikes(servers, seed)) for fault in faults]
        self._wanted_clock, self._wanted_w, self._wanted_burst_j = self.clock, self.cap_w, self.burst_j
        self._wanted_burst_w = self.burst_w
        self._held: dict[int, tuple[FloatArray, FloatArray]] = {}
        """Limits of stuck servers when their fault began, by fault."""
        self._brake_share = 1.0
        self.expires_s = np.inf
        """Instant when the newest order ends; an order that is cut off reaches no server, so one instant applies to
        all."""
        self.expired = False

    def take(self, orders: RowOrders, now_s: float, epoch: int = 0) -> None:
        """Records an order. An order older than the last is refused, as is one of a controller before the last."""
        if (epoch, orders.number) < (self.epoch, self._number):
            return
        self._wanted_clock, self._wanted_w = orders.clock, orders.cap_w
        self._wanted_burst_j = self._no_burst_j if orders.burst_j is None else orders.burst_j
        self._wanted_burst_w = self._unbounded_w if orders.burst_w is None else orders.burst_w
        self.epoch, self._number, self.sequence = epoch, orders.number, orders.sequence
        self.expires_s, self.expired = now_s + orders.for_s, False
        self.refresh(now_s)

    def expire(self, now_s: float) -> None:
        """Records that the lease of every server has run out."""
        self.expired = True
        self.refresh(now_s)

    def brake(self, share: float) -> None:
        """Applies the brake to all clocks at once. `share` is the clock fraction that it leaves, 1 when it releases."""
        self._brake_share = share
        self._put(self.clock, self.cap_w, self.burst_j, self.burst_w, force=True)

    def refresh(self, now_s: float) -> None:
        """Computes the limits in force: after an order, at the start and end of faults, on expiry."""
        clock, cap_w = self._wanted_clock, self._wanted_w
        if self.expired:
            clock, cap_w = np.ones(len(clock)), np.minimum(cap_w, self._safe_floor_w)
        reported_w = cap_w
        burst_j = self._no_burst_j if self.expired else self._wanted_burst_j
        self.granted = (cap_w, burst_j, self._wanted_burst_w)
        for number, (fault, struck) in enumerate(self._faults):
            if not fault.holds(now_s):
                self._held.pop(number, None)
                continue
            clock, cap_w, reported_w = self._distorted(number, fault, struck, (clock, cap_w, reported_w), now_s)
        self.reported_w = reported_w
        self._put(clock, cap_w, burst_j, self._wanted_burst_w)

    def _distorted(
        self,
        number: int,
        fault: Fault,
        struck: BoolArray,
        limits: tuple[FloatArray, FloatArray, FloatArray],
        now_s: float,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        clock, cap_w, reported_w = limits
        match fault.kind:
            case "stuck":
                held_clock, held_w = self._held.setdefault(number, (self.clock, self.cap_w))
                cap_w = np.where(struck, held_w, cap_w)
                return np.where(struck, held_clock, clock), cap_w, np.where(struck, held_w, reported_w)
            case "clamped":
                cap_w = np.where(struck, np.maximum(cap_w, self._clamp_w), cap_w)
                return clock, cap_w, np.where(struck, cap_w, reported_w)
            case "lying":
                return np.where(struck, 1.0, clock), np.where(struck, np.inf, cap_w), reported_w
            case "reboot" if now_s < fault.from_s + AGENT_AFTER_BOOT_S:
                free_w = np.where(struck, np.inf, cap_w)
                return np.where(struck, 1.0, clock), free_w, np.where(struck, np.inf, reported_w)
            case _:
                return limits

    def _put(
        self, clock: FloatArray, cap_w: FloatArray, burst_j: FloatArray, burst_w: FloatArray, *, force: bool = False
    ) -> None:
        limits_moved = (clock != self.clock) | (cap_w != self.cap_w)
        moved = limits_moved | (burst_j != self.burst_j) | (burst_w != self.burst_w)
        self.clock, self.cap_w, self.burst_j, self.burst_w = clock, cap_w, burst_j, burst_w
        self.changes += 0 if force else int(np.count_nonzero(limits_moved))
        where = range(len(clock)) if force else moved.nonzero()[0].tolist()
        if not where:
            return
        clocks, caps_w, bursts_j, bursts_w = clock.tolist(), cap_w.tolist(), burst_j.tolist(), burst_w.tolist()
        for server in where:
            limit = min(clocks[server], self._brake_share)
            self._set_limit(server, limit, caps_w[server], bursts_j[server], bursts_w[server])


ROW_BREAKER = BreakerCurve(over=(1.1, 1.2, 1.4, 2.0), for_s=(600.0, 60.0, 20.0, 5.0))
"""Trip curve of a row on UPS: 10 % over for ten minutes, 20 % for a minute. Chosen between the published curves of rows
and UPS."""


BRAKE_AFTER_S, BRAKE_FOR_S, BRAKE_MHZ = 5.0, 60.0, 288.0
"""Power brake of GPU servers: all GPUs at one clock, by wire, overriding software; how soon after a period at the
budget, and for how long."""


class Brake:
    """Brake triggered by the meter and released after a fixed time."""

    def __init__(self, budget_w: float, *, fitted: bool = True) -> None:
        """fitted: whether the row has one; without it, seconds above the budget can be counted."""
        self._is_fitted, self.budget_w = fitted, budget_w
        self.pulled = 0
        """Number of times triggered so far."""
        self._on_s, self._off_s = math.inf, math.inf

    def read(self, now_s: float, row_w: float) -> None:
        """Checks the mean of the period that ends now."""
        if self._off_s == math.inf and self._is_fitted and row_w >= self.budget_w:
            self.pulled += 1
            self._on_s = now_s + BRAKE_AFTER_S
            self._off_s = self._on_s + BRAKE_FOR_S

    def changes_until(self, until_s: float) -> list[tuple[float, bool]]:
        """(instant, on) in order, each returned once."""
        changes = []
        if self._on_s <= until_s:
            changes.append((self._on_s, True))
            self._on_s = math.inf
        if self._off_s <= until_s:
            changes.append((self._off_s, False))
            self._off_s = math.inf
        return changes


class BreakerHeat:
    """Heat of the breaker: 1 opens it. It accumulates above the budget and dissipates below it."""

    def __init__(self, curve: BreakerCurve, budget_w: float) -> None:
        self._curve, self.budget_w = curve, budget_w
        self.share, self.highest_share = 0.0, 0.0

    def read(self, for_s: float, row_w: float) -> None:
        """Counts a period with this mean draw."""
        over = row_w / self.budget_w
        if over > 1.0:
            self.share += for_s / opens_after_s(self._curve, over)
            self.highest_share = max(self.highest_share, self.share)
        elif self.share:
            self.share *= math.exp(-for_s / self._curve.cooling_s)
