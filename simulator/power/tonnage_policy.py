"""Tonnage on the simulated row, whose table is built as the operator builds it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cluster import power
from cluster.arrays import FloatArray, IntArray
from controller.api.power_domain import PowerDomainSpec
from controller.loops.power.domain_tree import PoweredNode
from controller.loops.power.power_table import power_table
from power.control.state import AllocatorState, allocator_of, first_state
from power.control.step import step
from power.leases.messages import DeviceInventory, Inventory
from power.rules import PowerRules
from power.safety.estimator import FAULT_WORDS
from simulator.power.agents import ROW_BREAKER
from simulator.power.machine import DGX_A100
from simulator.power.policies import OUT_OF_BAND_S, PERIOD_S, Readings, RowOrders, periods_late
from simulator.power.requests import CLASSES, ServerPool

ROW, POOL_LABEL = "row", "example.com/pool"
FLOOR_MHZ: Mapping[str, float] = {"low": 810.0, "high": 1110.0}
"""Useful floors: the draw of token generation, or of a step, at these clocks of an A100. Below, more latency is lost
than power is saved."""
LOWEST_LIMIT_SHARE = 0.25
"""Lowest limit as a fraction of TDP: an A100 accepts limits from 100 of its 400 W."""


def row_table(pools: Sequence[ServerPool], budget_w: float) -> power.PowerTable:
    """A row with one budget and one device for each server: its GPUs work in step, so one limit applies to all of them.

    The devices are in the order of the servers. Every device counts as adopted by a controller that found it unlimited.
    """
    nodes: dict[str, PoweredNode] = {}
    inventories: dict[str, Inventory] = {}
    for number, pool in enumerate(pools):
        tdp_w = pool.machine.gpus * pool.machine.gpu_tdp_w
        device = DeviceInventory(pool.machine.name, LOWEST_LIMIT_SHARE * tdp_w, tdp_w, tdp_w, tdp_w, managed=True)
        for _ in range(pool.servers):
            name = f"server-{len(nodes):05}"
            nodes[name] = PoweredNode({POOL_LABEL: str(number)}, 1)
            inventories[name] = Inventory(name, "life", {f"{name}-gpus": device})
    table = power_table(_domains(pools, budget_w), nodes, inventories)
    count, most_w = len(nodes), table.devices.max_w
    leases = power.PowerLeases(
        cap_w=most_w,
        ceiling_w=most_w,
        sequence=np.full(count, -1),
        expires_at_s=np.full(count, power.NEVER_S),
    )
    return replace(table, leases=leases)


def _domains(pools: Sequence[ServerPool], budget_w: float) -> dict[str, PowerDomainSpec]:
    """The objects that an operator would write for this row: its breaker, and what the servers of each pool are."""
    points = zip(ROW_BREAKER.over, ROW_BREAKER.for_s, strict=True)
    curve = [{"over": over, "seconds": for_s} for over, for_s in points]
    breaker = {"curve": curve, "coolingSeconds": ROW_BREAKER.cooling_s}
    written: dict[str, dict[str, object]] = {ROW: {"type": "row", "budgetWatts": budget_w, "breaker": breaker}}
    for number, pool in enumerate(pools):
        machine, name = pool.machine, CLASSES[pool.of_class]
        work_share = machine.prompt_share[0] if pool.step_s else machine.token_share[0]
        clock_share = DGX_A100.share_at(FLOOR_MHZ[name])
        floor = machine.idle_share + float(work_share - machine.idle_share) * clock_share
        rank = len(CLASSES) - 1 - pool.of_class
        written[f"{ROW}-{number}"] = {
            "type": "rack",
            "feeds": [{"name": ROW}],
            "nodes": {
                "key": POOL_LABEL,
                "values": [str(number)],
                "otherWatts": machine.other_w,
                "overheadShare": machine.watts_per_gpu_watt - 1,
            },
            "classes": [{"name": name, "rank": rank, "floor": floor, "bursts": pool.bursts}],
        }
    return {name: PowerDomainSpec.model_validate(spec) for name, spec in written.items()}


_PHASES: IntArray = np.array([power.PHASE_IDLE, power.PHASE_COMPUTE_BOUND, power.PHASE_MEMORY_BOUND])
"""Phases by IDLE, PROMPT, TOKENS of simulator.power.row."""


class TonnagePower:
    """Policy that converts readings of servers to those of devices, steps the allocator, and sends its grants as
    orders.

    A server is one device here: its GPUs work in step, so one limit applies to all of them.
    """

    name = "tonnage"

    def __init__(
        self,
        pools: Sequence[ServerPool],
        budget_w: float,
        delay_s: float,
        telemetry_s: float,
        rules: Sequence[tuple[str, float]] = (),
    ) -> None:
        """rules: settings other than their defaults.

        delay_s: at the delay of a management controller, nobody could end bursts in time, so there are none.
        telemetry_s: delay from the end of a period until the allocator has its reading.
        """
        self._table = row_table(pools, budget_w)
        servers = [pool.servers for pool in pools]
        self._other_w: FloatArray = np.repeat([pool.machine.other_w for pool in pools], servers)
        self._per_gpu_watt: FloatArray = np.repeat([pool.machine.watts_per_gpu_watt for pool in pools], servers)
        self._per_limit: FloatArray = self._per_gpu_watt * np.repeat([p.machine.overshoot for p in pools], servers)
        reaction_s = delay_s + (1 + periods_late(telemetry_s)) * PERIOD_S
        self._rules = PowerRules(
            control_delay_s=reaction_s,
            lease_s=delay_s + 10.0,
            burst_share=float(delay_s < OUT_OF_BAND_S),
        )
        self._rules = replace(self._rules, **dict(rules))
        self._allocator = allocator_of(self._table, self._rules)
        self._state = first_state(self._allocator)
        self._budget_w: FloatArray = np.array([budget_w])
        self._devices = self._table.devices
        self._number = 0
        self._clocks: FloatArray = np.ones(len(self._devices))

    def set_budget(self, budget_w: float) -> None:
        if budget_w != self._budget_w[0]:
            self._budget_w = np.array([budget_w])

    def step(self, now_s: float, seen: Readings) -> RowOrders | None:
        readings = power.PowerReadings(
            at_s=seen.at_s,
            draw_w=(seen.server_w - self._other_w) / self._per_gpu_watt,
            cap_w=np.minimum((seen.cap_w - self._other_w) / self._per_limit, self._devices.default_w),
            sequence=seen.sequence,
            phase=_PHASES.take(seen.phase),
            meter_at_s=np.array([seen.meter_at_s]),
            meter_w=np.array([seen.row_w]),
        )
        self._state, grants = step(self._allocator, self._state, readings, now_s, self._budget_w)
        self._number += 1
        return RowOrders(
            self._number,
            grants.sequence,
            self._clocks,
            self._plug_w(grants.cap_w),
            grants.burst_j * self._per_limit,
            burst_w=self._plug_w(grants.burst_to_w),
            credit_back_s=float(grants.credit_back_s.max()),
            for_s=self._rules.lease_s,
        )

    def _plug_w(self, limit_w: FloatArray) -> FloatArray:
        """Highest draw of a server under a limit on its GPUs together; infinite at their highest limit."""
        plug_w = self._other_w + self._per_limit * limit_w
        return np.where(limit_w >= self._devices.max_w, np.inf, plug_w)

    def named(self) -> Mapping[int, str]:
        fault = self._state.estimate.fault
        if self._state.estimate.clean:
            return {}
        return {int(server): FAULT_WORDS[fault[server]] for server in np.flatnonzero(fault)}

    @property
    def state(self) -> AllocatorState:
        return self._state
