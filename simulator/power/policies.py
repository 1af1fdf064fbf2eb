"""Power policies of the simulated row: their interface, readings in and orders out, and published ones to compare with.

Thresholds on the row's draw and clocks locked by class are used for comparison in simulation only. Multi-threshold
capping is covered by patents (US 2025/0377708, US 11,599,184), and nothing that Tonnage applies to a machine is built
on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cluster.arrays import FloatArray, IntArray
from simulator.power.machine import DGX_A100
from simulator.power.requests import CLASSES, ServerPool

PERIOD_S = 2.0
"""Period of telemetry and decisions; each reading is the mean of one period."""
OUT_OF_BAND_S = 40.0
"""Control delay through a server's management controller."""


def periods_late(telemetry_s: float) -> int:
    """Number of periods by which a reading arrives after the end of its own: decisions are made when one ends.

    telemetry_s: a multiple of the period (`study.check_study`).
    """
    return round(telemetry_s / PERIOD_S)


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """Readings of telemetry. Arrays have shape (servers,), numbered as in the row."""

    at_s: FloatArray
    """Instant of each server's reading: the end of its period. Old where telemetry is cut or late."""
    server_w: FloatArray
    """Mean draw of each server over that period."""
    meter_at_s: float
    row_w: float
    """Mean draw of the row at its breaker over that period."""
    cap_w: FloatArray
    """Limit that each server reports as enforced, in watts of the server; infinite where it has none."""
    phase: IntArray
    """Phase of each server when read: IDLE, PROMPT or TOKENS of simulator.power.row."""
    sequence: IntArray
    """Sequence number of the order that each server holds."""


@dataclass(frozen=True, slots=True, eq=False)
class RowOrders:
    """Limits for every server; shape (servers,). An order replaces the previous one."""

    number: int
    """Number of the order; one that arrives after a later one is not obeyed."""
    sequence: IntArray
    """Sequence number that each server then holds and reports in its readings."""
    clock: FloatArray
    """Fraction of every phase's power above idle that the locked clock leaves; 1 for none."""
    cap_w: FloatArray
    """Limit of the server in watts; infinite for none."""
    burst_j: FloatArray | None = None
    """Joules that each server may draw above cap_w while it has credit; None for none."""
    burst_w: FloatArray | None = None
    """Highest draw of a burst in watts; None for no such bound."""
    credit_back_s: float = 300.0
    """Time in which used credit is restored."""
    for_s: float = float("inf")
    """Time from its arrival for which a server obeys; then it goes to its safe floor on its own."""


class RowPolicy(Protocol):
    """A policy that decides once a period. It has its own state: one policy controls one row."""

    name: str

    def step(self, now_s: float, seen: Readings) -> RowOrders | None:
        """New orders, or None to keep the last ones (which renews nothing)."""
        ...

    def set_budget(self, budget_w: float) -> None:
        """Sets the row's budget from now on; called every period."""
        ...

    def named(self) -> Mapping[int, str]:
        """Servers that do not obey or cannot be believed, with the reason in a few words."""
        ...


class MeterPolicy:
    """Common parts of policies that watch only the row's draw."""

    def __init__(self, budget_w: float) -> None:
        self._budget_w = budget_w

    def set_budget(self, budget_w: float) -> None:
        self._budget_w = budget_w

    def named(self) -> Mapping[int, str]:
        return {}


class NoCap(MeterPolicy):
    """Policy that orders nothing: only the hardware brake is left."""

    name = "no-cap"

    def step(self, now_s: float, seen: Readings) -> RowOrders | None:  # noqa: ARG002
        return None


FREE_MHZ = float("inf")
UNCAP_BELOW = 0.05
"""Hysteresis of POLCA as a fraction of the budget: caps are released this far below the threshold that caused them."""


class _Clocks:
    """Locked clocks by class, converted to orders for every server. Clocks are an A100's; other machines are locked at
    the same fraction of their highest."""

    def __init__(self, pools: Sequence[ServerPool]) -> None:
        self.of_class: IntArray = np.repeat([pool.of_class for pool in pools], [pool.servers for pool in pools])
        """Class of each server, shape (servers,)."""
        self._number = 0

    def orders(self, low_mhz: float, high_mhz: float) -> RowOrders:
        return self.orders_of_shares([DGX_A100.share_at(low_mhz), DGX_A100.share_at(high_mhz)])

    def orders_of_shares(self, share: Sequence[float]) -> RowOrders:
        """share: fraction of its power above idle that the clock of each class leaves."""
        self._number += 1
        clock: FloatArray = np.array(share)[self.of_class]
        count = len(clock)
        return RowOrders(self._number, np.full(count, self._number), clock, np.full(count, np.inf))


class Polca(MeterPolicy):
    """POLCA: at T1 the low class is locked at 1275 MHz; at T2 at 1110, and if that was not enough, high at 1305.

    Source: arXiv 2308.12908, its policy and constants as far as they are public (80 % and 89 % of the row's budget,
    A100 clocks, released 5 % below each threshold).
    """

    name = "polca"
    low_mhz: Sequence[float] = (FREE_MHZ, 1275.0, 1110.0)
    high_mhz: Sequence[float] = (FREE_MHZ, 1305.0)

    def __init__(self, pools: Sequence[ServerPool], budget_w: float, delay_s: float) -> None:
        super().__init__(budget_w)
        self._clocks, self._delay_s = _Clocks(pools), delay_s
        self._first, self._second = 0.80, 0.89
        self._stages = [0, 0]
        self._since_s = 0.0

    def step(self, now_s: float, seen: Readings) -> RowOrders | None:
        share = seen.row_w / self._budget_w
        low, high = self._stages
        if share >= self._second:
            if low < 2:
                low, self._since_s = 2, now_s
            elif now_s - self._since_s > self._delay_s + 2 * 2.0:  # the first order is visible in the readings
                high = 1
        elif share >= self._first:
            low = max(low, 1)
        if share < self._second - UNCAP_BELOW:
            low, high = min(low, 1), 0
        if share < self._first - UNCAP_BELOW:
            low = 0
        if [low, high] == self._stages:
            return None
        self._stages = [low, high]
        return self._clocks.orders(self.low_mhz[low], self.high_mhz[high])


class TwoClocks(MeterPolicy):
    """Two clocks, one a class, that leave what the budget carries less 1.3 of the largest rise measured so far.

    What the classes would draw at full clock is their draw over the share that their clocks left. What exceeds the
    budget less the reserve is taken from the low class down to its floor, then from the high one; down at once, up by a
    tenth in each period. The simplest rule that keeps a row below its budget, as a rival: a clock bounds no draw, and
    the rule trusts readings and obedience.
    """

    name = "two-clocks"
    floor_mhz: Sequence[float] = (510.0, 810.0)
    reserve_rises = 1.3
    first_rise_share = 0.08
    memory_s = 604_800.0
    up = 0.1

    def __init__(self, pools: Sequence[ServerPool], budget_w: float) -> None:
        super().__init__(budget_w)
        self._clocks = _Clocks(pools)
        idle_w = [[pool.servers * pool.machine.idle_w * (pool.of_class == n) for pool in pools] for n in range(2)]
        self._idle_w = [sum(own) for own in idle_w]
        self._floor = [DGX_A100.share_at(mhz) for mhz in self.floor_mhz]
        self._rise_w = self.first_rise_share * budget_w
        self._rows_w: list[float] = []
        self._share = self._during = [1.0, 1.0]
        """Shares ordered last, and those in force during the period that is read next."""

    def step(self, now_s: float, seen: Readings) -> RowOrders | None:  # noqa: ARG002
        low_w, high_w = np.bincount(self._clocks.of_class, seen.server_w, len(CLASSES)).tolist()
        self._rows_w = [*self._rows_w[-2:], low_w + high_w]
        rise_w = self._rows_w[-1] - min(self._rows_w)
        self._rise_w = max(self._rise_w * np.exp(-PERIOD_S / self.memory_s), rise_w)
        idle_w = self._idle_w
        free_w = [max(w - idle, 0.0) / s for w, idle, s in zip((low_w, high_w), idle_w, self._during, strict=True)]
        excess_w = sum(free_w) + sum(idle_w) - (self._budget_w - self.reserve_rises * self._rise_w)
        wanted = []
        for free, floor in zip(free_w, self._floor, strict=True):
            share = max(min(1.0, 1.0 - excess_w / max(free, 1.0)), floor)
            excess_w -= (1.0 - share) * free
            wanted.append(share)
        self._during = self._share
        new = [min(to, had + self.up) for to, had in zip(wanted, self._share, strict=True)]
        if new == self._share:
            return None
        self._share = new
        return self._clocks.orders_of_shares(new)


BASELINES = ("no-cap", "polca", "two-clocks")


def baseline(name: str, pools: Sequence[ServerPool], budget_w: float, delay_s: float) -> RowPolicy:
    """A policy by its name in BASELINES."""
    match name:
        case "no-cap":
            return NoCap(budget_w)
        case "polca":
            return Polca(pools, budget_w, delay_s)
        case "two-clocks":
            return TwoClocks(pools, budget_w)
        case _:
            raise KeyError(name)
