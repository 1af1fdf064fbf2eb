"""Tonnage's own policy on the simulated row: the allocator of `power/` over one budget, a lease for each server."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cluster.arrays import FloatArray, IntArray, all_of, any_of
from cluster.power import PHASE_COMPUTE_BOUND, PHASE_IDLE, PHASE_MEMORY_BOUND, PowerLeases, PowerReadings
from power.control.state import AllocatorState, Grants, allocator_of, first_state
from power.control.step import step
from power.policy.by_class import ByClass
from power.policy.interface import MakePolicy
from power.rules import PowerRules
from power.safety.estimator import FAULT_WORDS
from simulator.power.machine import Machine
from simulator.power.policy import PERIOD_S, Orders, Policy, Readings, periods_late
from simulator.power.row_table import row_table

TONNAGE_POLICIES = ("tonnage", "tonnage-oob")
"""Names of Tonnage's policies, both with the same allocator; `oob` is for limits that take 40 s, through management
controllers, and has no bursts."""

_PHASES: IntArray = np.array([PHASE_IDLE, PHASE_COMPUTE_BOUND, PHASE_MEMORY_BOUND])
"""Phases by IDLE, PROMPT, TOKENS of simulator.power.row."""


class Tonnage:
    """Policy that converts readings of servers to those of devices, steps the allocator, and sends its grants as
    orders.

    A server is one device here: its GPUs work in step, so one limit applies to all of them.
    """

    def __init__(
        self,
        name: str,
        machine: Machine,
        servers: tuple[int, ...],
        budget_w: float,
        delay_s: float,
        telemetry_s: float,
        leases: PowerLeases | None = None,
        rules: Sequence[tuple[str, float]] = (),
        policy: MakePolicy = ByClass,
    ) -> None:
        """leases: grants of the previous controller, as a status would report them; None for none. rules: settings
        other than their defaults. policy: what wants limits; the shipped one by default.
        """
        self.name = name
        self._machine, self._delay_s = machine, delay_s
        table = row_table(machine, servers, budget_w)
        self._table = table if leases is None else replace(table, leases=leases)
        reaction_s = delay_s + (1 + periods_late(telemetry_s)) * PERIOD_S
        self._rules = PowerRules(
            control_delay_s=reaction_s,
            lease_s=delay_s + 10.0,
            burst_share=0.0 if name == "tonnage-oob" else 1.0,
        )
        self._rules = replace(self._rules, **dict(rules))
        self._allocator = allocator_of(self._table, self._rules, policy)
        self._state = first_state(self._allocator)
        self._budget_w: FloatArray = np.array([budget_w])
        self._devices = self._table.devices
        self._number = 0
        self._orders: Orders | None = None
        self._last_grants: Grants | None = None
        self._burst_j: tuple[FloatArray, FloatArray] | None = None
        self._reported: tuple[FloatArray, FloatArray] | None = None
        """Limits that servers last reported, in watts of the server and of its devices."""
        self._per_limit = _plug_per_limit(machine)
        self._unbounded_w: FloatArray = np.full(len(self._devices), np.inf)
        self._burst_w = self._unbounded_w
        self._clocks: FloatArray = np.ones(len(self._devices))

    def set_budget(self, budget_w: float) -> None:
        if budget_w != self._budget_w[0]:
            self._budget_w = np.array([budget_w])

    def step(self, now_s: float, seen: Readings) -> Orders | None:
        machine = self._machine
        readings = PowerReadings(
            at_s=seen.at_s,
            draw_w=(seen.server_w - machine.other_w) / machine.watts_per_gpu_watt,
            cap_w=self._reported_limit_w(seen.cap_w),
            sequence=seen.sequence,
            phase=_PHASES.take(seen.phase),
            meter_at_s=np.array([seen.meter_at_s]),
            meter_w=np.array([seen.row_w]),
        )
        self._state, grants = step(self._allocator, self._state, readings, now_s, self._budget_w)
        if self._orders is None or grants is not self._last_grants:
            self._orders, self._last_grants = self._orders_of(grants), grants
        return self._orders

    def _set_clocks(self, clock: FloatArray) -> None:
        """Locks clocks from the next orders on. clock: fraction of power above idle that is left, shape (servers,)."""
        self._clocks, self._last_grants = clock, None

    def _reported_limit_w(self, cap_w: FloatArray) -> FloatArray:
        if self._reported is None or self._reported[0] is not cap_w:
            limit_w = np.minimum((cap_w - self._machine.other_w) / self._per_limit, self._devices.default_w)
            self._reported = (cap_w, limit_w)
        return self._reported[1]

    def _orders_of(self, grants: Grants) -> Orders:
        """Orders from grants. Unchanged limits are the same arrays as before, which agents detect without comparing."""
        self._number += 1
        before = self._orders
        cap_w = self._plug_w(grants.cap_w) if before is None or any_of(grants.changed) else before.cap_w
        return Orders(
            self._number,
            grants.sequence,
            self._clocks,
            cap_w,
            self._plug_j(grants.burst_j),
            burst_w=self._bursts_to_w(grants.burst_to_w),
            credit_back_s=grants.credit_back_s.item(grants.credit_back_s.argmax()),
            for_s=self._rules.lease_s,
        )

    def _plug_j(self, burst_j: FloatArray) -> FloatArray:
        """Bursts in joules at the plug; the same array as long as the grants carry the same one."""
        if self._burst_j is None or self._burst_j[0] is not burst_j:
            self._burst_j = (burst_j, burst_j * self._per_limit)
        return self._burst_j[1]

    def _plug_w(self, limit_w: FloatArray) -> FloatArray:
        """Highest draw of a server under a limit on its GPUs together; infinite at their highest limit."""
        plug_w = self._machine.other_w + self._per_limit * limit_w
        return np.where(limit_w >= self._devices.max_w, np.inf, plug_w)

    def _bursts_to_w(self, limit_w: FloatArray) -> FloatArray:
        burst_w = self._unbounded_w if all_of(limit_w >= self._devices.max_w) else self._plug_w(limit_w)
        if burst_w is not self._burst_w and not all_of(burst_w == self._burst_w):
            self._burst_w = burst_w
        return self._burst_w

    def named(self) -> Mapping[int, str]:
        fault = self._state.estimate.fault
        if self._state.estimate.clean:
            return {}
        return {int(server): FAULT_WORDS[fault[server]] for server in np.flatnonzero(fault)}

    @property
    def state(self) -> AllocatorState:
        return self._state


def tonnage_policy_of(
    name: str,
    machine: Machine,
    servers: tuple[int, ...],
    budget_w: float,
    delay_s: float,
    telemetry_s: float,
    rules: Sequence[tuple[str, float]] = (),
) -> Policy:
    """Tonnage for a row with these servers of each class.

    telemetry_s: delay from the end of a period until the allocator has its reading.
    """
    return Tonnage(name, machine, servers, budget_w, delay_s, telemetry_s, rules=rules)


def _overshoot_share(machine: Machine) -> float:
    """Overshoot of a limiter: the prompt with the highest draw exceeds TDP, which is the highest limit, by this
    fraction.
    """
    return float(machine.prompt_share.max()) - 1.0


def _plug_per_limit(machine: Machine) -> float:
    """Plug watts that one watt of limit may cause, overshoot and fans included."""
    return machine.watts_per_gpu_watt * (1 + _overshoot_share(machine))
