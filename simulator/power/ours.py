"""Tonnage's own policy on the pretend row: the allocator of `power/` over one budget, a lease for each server."""

from collections.abc import Mapping
from dataclasses import replace
from math import exp

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, Names, column
from cluster.power import (
    NEVER_S,
    PHASE_COMPUTE_BOUND,
    PHASE_IDLE,
    PHASE_MEMORY_BOUND,
    DomainTable,
    FeedTable,
    PowerClass,
    PowerDeviceTable,
    PowerLeases,
    PowerReadings,
    PowerTable,
)
from power.allocator import AllocatorState, allocator_of, first_state, step
from power.burst import credit_after, overdrawn
from power.estimator import FAULT_WORDS
from power.rules import PowerRules
from simulator.power.machine import Machine
from simulator.power.policy import PERIOD_S, Orders, Policy, Readings
from simulator.power.protection import ROW_BREAKER
from simulator.power.requests import HIGH, LOW

OURS = ("tonnage", "tonnage-oob")
"""The same allocator; `oob` is meant for limits that take 40 s."""

CALM_SHARE = 0.88
"""Of the budget: below it a fresh meter says that the breaker is cold, and credit for bursts comes back quickly."""
CALM_CREDIT_BACK_S = 20.0
"""About one request: each may begin with a burst. Chosen on seeds that are not published."""
FORGIVEN_S = 60.0
"""Time constant: who draws 150 W above its limit for good is found, who errs by 50 W now and then is not."""
CREDIT_BACK_S = ROW_BREAKER.cooling_s
OVERDREW = "drew more above its limit than any burst explains: it counts at its highest limit"

CLASSES = (PowerClass("low", 1, 1.0), PowerClass("high", 0, 4.0))
FLOOR_MHZ = {LOW: 810.0, HIGH: 1110.0}
"""Useful floors: what tokens draw at these clocks. Below, more latency is lost than watts are won."""
LOWEST_LIMIT_SHARE = 0.25
"""Of TDP: an A100 accepts limits from 100 of its 400 W."""
_PHASES: IntArray = np.array([PHASE_IDLE, PHASE_COMPUTE_BOUND, PHASE_MEMORY_BOUND])
"""By IDLE, PROMPT, TOKENS of simulator.power.row."""


class Tonnage:
    """Turns readings of servers into those of devices, steps the allocator, and sends its grants as orders.

    A server is one device here: its GPUs work in step, so one limit holds for all of them.
    """

    def __init__(
        self,
        name: str,
        machine: Machine,
        servers: tuple[int, ...],
        budget_w: float,
        delay_s: float,
        leases: PowerLeases | None = None,
    ) -> None:
        """leases: what the controller before this one had granted, as a status would tell; None for none."""
        self.name = name
        self._machine, self._delay_s = machine, delay_s
        table = _table(machine, servers, budget_w)
        self._table = table if leases is None else replace(table, leases=leases)
        self._rules = PowerRules(control_delay_s=delay_s + 2 * PERIOD_S, lease_s=delay_s + 10.0)
        self._allocator = allocator_of(self._table, self._rules)
        self._state = first_state(self._allocator)
        self._budget_w: FloatArray = np.array([budget_w])
        self._devices = self._table.devices
        self._number = 0
        self._orders: Orders | None = None
        self._burst_j = self._allocator.burst_j
        self._credit_j = self._burst_j.copy()
        """What each server may still draw above its lease, by the controller's own account."""
        self._overdrew: BoolArray = np.zeros(len(self._burst_j), dtype=np.bool_)
        self._account_at_s = NEVER_S

    def set_budget(self, budget_w: float) -> None:
        self._budget_w[0] = budget_w

    def step(self, now_s: float, seen: Readings) -> Orders | None:
        machine, devices = self._machine, self._devices
        gpu_w = (seen.server_w - machine.other_w) / machine.watts_per_gpu_watt
        said_w = np.minimum(_limit_of(machine, seen.cap_w), devices.default_w)
        self._keep_account(seen.meter_at_s, gpu_w, said_w)
        readings = PowerReadings(
            at_s=seen.at_s,
            draw_w=gpu_w,
            cap_w=np.where(self._overdrew, devices.max_w, said_w),  # it holds what it draws, not what it says
            sequence=seen.sequence,
            phase=_PHASES[seen.phase],
            meter_at_s=np.array([seen.meter_at_s]),
            meter_w=np.array([seen.row_w]),
        )
        self._state, grants = step(self._allocator, self._state, readings, now_s, self._budget_w)
        self._number += 1
        if self._orders is None or grants.changed.any():
            cap_w = np.where(grants.cap_w >= devices.max_w, np.inf, _plug_w(machine, grants.cap_w))
            burst_j = grants.burst_j * _plug_per_limit(machine)
            self._orders = Orders(
                self._number, grants.sequence, np.ones(len(cap_w)), cap_w, burst_j, for_s=self._rules.lease_s
            )
        calm = now_s - seen.meter_at_s <= self._rules.stale_s and seen.row_w < CALM_SHARE * self._budget_w[0]
        back_s = CALM_CREDIT_BACK_S if calm else CREDIT_BACK_S
        self._orders = replace(self._orders, number=self._number, credit_back_s=back_s)
        return self._orders

    def _keep_account(self, at_s: float, gpu_w: FloatArray, said_w: FloatArray) -> None:
        """What each server has drawn above the limit that it says it keeps, against what a burst allows."""
        for_s = at_s - self._account_at_s
        self._account_at_s = at_s
        if 0 < for_s <= self._rules.stale_s:
            back_s = CREDIT_BACK_S if self._orders is None else self._orders.credit_back_s
            self._credit_j = credit_after(self._credit_j, gpu_w, said_w, self._burst_j, for_s, back_s)
            # Readings are late and agents look seldom: small errors of the account are forgiven, a liar's are not.
            debt_j = np.minimum(self._credit_j, 0.0) * exp(-for_s / FORGIVEN_S)
            self._credit_j = np.maximum(self._credit_j, 0.0) + debt_j
            self._overdrew = self._overdrew | overdrawn(self._credit_j, self._burst_j)

    def named(self) -> Mapping[int, str]:
        fault = self._state.estimate.fault
        found = {int(server): FAULT_WORDS[fault[server]] for server in np.flatnonzero(fault)}
        return found | {int(server): OVERDREW for server in np.flatnonzero(self._overdrew)}

    @property
    def state(self) -> AllocatorState:
        return self._state


def ours(name: str, machine: Machine, servers: tuple[int, ...], budget_w: float, delay_s: float) -> Policy:
    """Tonnage for a row of so many servers of each class."""
    return Tonnage(name, machine, servers, budget_w, delay_s)


def _overshoot_share(machine: Machine) -> float:
    """The hottest prompt passes TDP, which is the highest limit: so far a limiter lets a draw pass its limit."""
    return float(machine.prompt_share.max()) - 1.0


def _plug_w(machine: Machine, limit_w: FloatArray) -> FloatArray:
    """What a server draws at most under a limit on its GPUs together."""
    return machine.other_w + _plug_per_limit(machine) * limit_w


def _plug_per_limit(machine: Machine) -> float:
    """Plug watts that a watt of limit may cause, overshoot and fans included."""
    return machine.watts_per_gpu_watt * (1 + _overshoot_share(machine))


def _limit_of(machine: Machine, plug_w: FloatArray) -> FloatArray:
    return (plug_w - machine.other_w) / _plug_per_limit(machine)


def _table(machine: Machine, servers: tuple[int, ...], budget_w: float) -> PowerTable:
    """A row with one budget and one device for each server."""
    count = sum(servers)
    tdp_w = machine.gpus * machine.gpu_tdp_w
    of_class = np.repeat(np.arange(len(servers)), servers)
    tokens_w = machine.token_swing_w(1) / machine.watts_per_gpu_watt
    floor_w = np.array(
        [tdp_w * machine.idle_share + tokens_w * machine.share_at(FLOOR_MHZ[number]) for number in (LOW, HIGH)]
    )

    def same(value: float) -> FloatArray:
        return column([value] * count, np.float64)

    return PowerTable(
        domains=DomainTable(
            names=Names(["row", *(f"server-{n}" for n in range(count))]),
            kind=("row", *["node"] * count),
            budget_w=column([budget_w, *[1e15] * count], np.float64),
            other_w=column([0.0, *[machine.other_w] * count], np.float64),
            curve=column([0, *[-1] * count], np.int64),
        ),
        feeds=FeedTable(
            child=column(range(1, count + 1), np.int64),
            parent=column([0] * count, np.int64),
            share=column([1.0] * count, np.float64),
        ),
        classes=CLASSES,
        gpu_types=("A100",),
        devices=PowerDeviceTable(
            names=Names(f"server-{n}" for n in range(count)),
            domain=column(range(1, count + 1), np.int64),
            gpu_type=column([0] * count, np.int64),
            power_class=column(of_class, np.int64),
            min_w=same(LOWEST_LIMIT_SHARE * tdp_w),
            max_w=same(tdp_w),
            default_w=same(tdp_w),
            previous_w=same(tdp_w),
            floor_w=column(floor_w[of_class], np.float64),
            idle_w=same(tdp_w * machine.idle_share),
            overshoot_share=same(_overshoot_share(machine)),
            overhead_share=same(machine.watts_per_gpu_watt - 1),
            managed=column([True] * count, np.bool_),
        ),
        readings=PowerReadings(
            at_s=same(NEVER_S),
            draw_w=same(0.0),
            cap_w=same(tdp_w),
            sequence=column([-1] * count, np.int64),
            phase=column([-1] * count, np.int64),
            meter_at_s=column([NEVER_S] * (count + 1), np.float64),
            meter_w=column([0.0] * (count + 1), np.float64),
        ),
        leases=PowerLeases(
            cap_w=same(tdp_w),
            ceiling_w=same(tdp_w),
            sequence=column([-1] * count, np.int64),
            expires_at_s=same(NEVER_S),
        ),
        curves=(ROW_BREAKER,),
    )
