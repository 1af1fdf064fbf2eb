"""Power table of a simulated row, built as the operator builds it: from a PowerDomain, nodes and inventories."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from cluster.power import NEVER_S, PowerLeases, PowerTable
from controller.api.power_domain import PowerDomainSpec
from controller.loops.power.domain_tree import CLASS_LABEL, PoweredNode
from controller.loops.power.power_table import power_table
from power.leases.messages import DeviceInventory, Inventory
from simulator.power.agents import ROW_BREAKER
from simulator.power.machine import Machine
from simulator.power.requests import CLASSES

ROW, ROW_LABEL = "row", "example.com/row"
FLOOR_MHZ: Mapping[str, float] = {"low": 810.0, "high": 1110.0}
"""Useful floors: the draw of token generation at these clocks. Below, more latency is lost than power is saved."""
WEIGHT: Mapping[str, float] = {"low": 1.0, "high": 4.0}
LOWEST_LIMIT_SHARE = 0.25
"""Lowest limit as a fraction of TDP: an A100 accepts limits from 100 of its 400 W."""


def row_table(machine: Machine, servers: tuple[int, ...], budget_w: float) -> PowerTable:
    """A row with one budget and one device for each server: its GPUs work in step, so one limit applies to all of them.

    servers: number of servers of each class, in the order of CLASSES; the devices are in the same order. Every device
    counts as adopted by a controller that found it unlimited.
    """
    names = [f"server-{number:05}" for number in range(sum(servers))]
    classes = np.repeat(np.array(CLASSES), servers).tolist()
    device = _inventory_of(machine)
    table = power_table(
        {ROW: _domain(machine, budget_w)},
        {name: PoweredNode({ROW_LABEL: ROW, CLASS_LABEL: own}, 1) for name, own in zip(names, classes, strict=True)},
        {name: Inventory(name, "life", {f"{name}-gpus": device}) for name in names},
    )
    count, most_w = len(names), table.devices.max_w
    leases = PowerLeases(
        cap_w=most_w,
        ceiling_w=most_w,
        sequence=np.full(count, -1),
        expires_at_s=np.full(count, NEVER_S),
    )
    return replace(table, leases=leases)


def _domain(machine: Machine, budget_w: float) -> PowerDomainSpec:
    """The object that an operator would write for this row."""
    points = zip(ROW_BREAKER.over, ROW_BREAKER.for_s, strict=True)
    classes = [
        {"name": name, "rank": len(CLASSES) - 1 - row, "weight": WEIGHT[name], "floor": _floor_share(machine, name)}
        for row, name in enumerate(CLASSES)
    ]
    return PowerDomainSpec.model_validate(
        {
            "type": "row",
            "budgetWatts": budget_w,
            "breaker": {
                "curve": [{"over": over, "seconds": for_s} for over, for_s in points],
                "coolingSeconds": ROW_BREAKER.cooling_s,
            },
            "nodes": {
                "key": ROW_LABEL,
                "values": [ROW],
                "otherWatts": machine.other_w,
                "overheadShare": machine.watts_per_gpu_watt - 1,
            },
            "classes": classes,
        }
    )


def _floor_share(machine: Machine, name: str) -> float:
    """Draw of token generation at the clock of a class's floor, as a fraction of TDP."""
    tdp_w = machine.gpus * machine.gpu_tdp_w
    tokens_w = machine.token_swing_w(1) / machine.watts_per_gpu_watt
    return machine.idle_share + tokens_w * machine.share_at(FLOOR_MHZ[name]) / tdp_w


def _inventory_of(machine: Machine) -> DeviceInventory:
    tdp_w = machine.gpus * machine.gpu_tdp_w
    return DeviceInventory("A100", LOWEST_LIMIT_SHARE * tdp_w, tdp_w, tdp_w, tdp_w, managed=True)
