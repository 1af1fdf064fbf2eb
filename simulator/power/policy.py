"""Interface of power policies: readings in, orders out; the border between the simulated row and its policy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from cluster.arrays import FloatArray, IntArray

PERIOD_S = 2.0
"""Period of telemetry and decisions; each reading is the mean of one period."""


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
class Orders:
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


class Policy(Protocol):
    """A policy that decides once a period. It has its own state: one policy controls one row."""

    name: str

    def step(self, now_s: float, seen: Readings) -> Orders | None:
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

    def step(self, now_s: float, seen: Readings) -> Orders | None:  # noqa: ARG002
        return None
