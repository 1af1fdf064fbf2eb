"""What a power policy is told and what it may order: the border between the pretend row and whoever holds it back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from cluster.arrays import FloatArray, IntArray

PERIOD_S = 2.0
"""Telemetry and decisions come at this period; each reading is the mean of one period."""


def periods_late(telemetry_s: float) -> int:
    """By so many periods a reading comes after the end of its own: decisions are made when one ends.

    telemetry_s: a multiple of the period (`study.check_study`).
    """
    return round(telemetry_s / PERIOD_S)


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """What telemetry says. Arrays have shape (servers,), numbered as in the row."""

    at_s: FloatArray
    """When each server's reading was taken: the end of its period. Old where telemetry is cut or late."""
    server_w: FloatArray
    """Mean draw of each server over that period."""
    meter_at_s: float
    row_w: float
    """Mean draw of the row at its breaker over that period."""
    cap_w: FloatArray
    """Limit that each server says it enforces, in watts of the server; infinite where it has none."""
    phase: IntArray
    """What each server is at when read: IDLE, PROMPT or TOKENS of simulator.power.row."""
    sequence: IntArray
    """What each server holds, in the numbers of the orders."""


@dataclass(frozen=True, slots=True, eq=False)
class Orders:
    """Limits for every server; shape (servers,). An order replaces the one before it."""

    number: int
    """Of the order; one that comes after a later one is not obeyed."""
    sequence: IntArray
    """What each server then holds, as it will tell in its readings."""
    clock: FloatArray
    """Share of every phase's power above idle that the locked clock leaves; 1 for none."""
    cap_w: FloatArray
    """Watts of the server; infinite for none."""
    burst_j: FloatArray | None = None
    """Joules that each server may draw above cap_w while it has credit; None for none."""
    burst_w: FloatArray | None = None
    """Watts that no burst passes; None for no such bound."""
    credit_back_s: float = 300.0
    """Credit that was used up is back after so long."""
    for_s: float = float("inf")
    """So long from its arrival a server obeys; then it goes to its safe floor by itself."""


class Policy(Protocol):
    """Decides once a period. It holds its own state: one policy runs one row."""

    name: str

    def step(self, now_s: float, seen: Readings) -> Orders | None:
        """New orders, or None to let the last ones stand (which renews nothing)."""
        ...

    def set_budget(self, budget_w: float) -> None:
        """The row's budget is this from now on; told every period."""
        ...

    def named(self) -> Mapping[int, str]:
        """Servers that do not obey or are not to be believed, with the reason in a few words."""
        ...


class Trusting:
    """What policies have in common that watch the row's draw alone."""

    def __init__(self, budget_w: float) -> None:
        self._budget_w = budget_w

    def set_budget(self, budget_w: float) -> None:
        self._budget_w = budget_w

    def named(self) -> Mapping[int, str]:
        return {}


class NoCap(Trusting):
    """Orders nothing: only the hardware brake is left."""

    name = "no-cap"

    def step(self, now_s: float, seen: Readings) -> Orders | None:  # noqa: ARG002
        return None
