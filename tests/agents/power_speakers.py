"""Racks of nodes under power budgets, most of them simulated ones that speak the agents' protocol, and a controller.

`python -m tests.agents.power_speakers CREDENTIALS RACKS GPUS DISTRUST_S` is its power loop as a process of its own.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from time import monotonic

import click
import numpy as np

from cluster.arrays import Names
from cluster.power import (
    NEVER_S,
    DomainTable,
    FeedTable,
    PowerClass,
    PowerDeviceTable,
    PowerLeases,
    PowerReadings,
    PowerTable,
)
from controller.loops.power.agent_server import AgentServer
from controller.loops.power.term import PowerTerm
from nodeagent.controller_link import ControllerLink
from power.leases.holder import DeviceLimits, Holder, accepted, limits
from power.leases.messages import DeviceInventory, DeviceReport, Inventory, Lease, Refusal, Report, decoded, encoded
from power.rules import PowerRules
from tests.agents.credentials import Credentials, names_itself

NODES_PER_RACK = 8
LEAST_W, MOST_W, FLOOR_W, WANTED_W = 200.0, 700.0, 350.0, 690.0
OVERSHOOT = 0.03
SHARE = 0.6
"""Budget of a rack as a fraction of the maximum draw of its devices: all devices need more than they are granted."""


def node_name(number: int) -> str:
    return f"n{number:03d}"


def rack_of(node: str) -> int:
    return int(node[1:]) // NODES_PER_RACK


def rack_budget_w(gpus: int) -> float:
    return SHARE * NODES_PER_RACK * gpus * MOST_W * (1 + OVERSHOOT)


def table_of(inventories: Mapping[str, Inventory], racks: int, gpus: int) -> PowerTable:
    """Power table of one row of racks, each with a budget of 60 % of its devices' highest limits; one class."""
    nodes = sorted(inventories)
    found = [
        (1 + racks + n, uuid, each) for n, node in enumerate(nodes) for uuid, each in inventories[node].devices.items()
    ]
    count, width = len(found), 1 + racks + len(nodes)
    low, high = (np.array([getattr(each, name) for *_, each in found]) for name in ("min_w", "max_w"))
    budgets = [racks * rack_budget_w(gpus), *[rack_budget_w(gpus)] * racks, *[1e15] * len(nodes)]
    parents = [*[0] * racks, *(1 + rack_of(node) for node in nodes)]
    return PowerTable(
        domains=DomainTable(
            names=Names(["row", *(f"rack-{n:02d}" for n in range(racks)), *nodes]),
            kind=("row", *["rack"] * racks, *["node"] * len(nodes)),
            budget_w=np.array(budgets),
            other_w=np.zeros(width),
            curve=np.full(width, -1),
        ),
        feeds=FeedTable(np.arange(1, width), np.array(parents, dtype=np.int64), np.ones(width - 1)),
        classes=(PowerClass("all", 0),),
        gpu_types=("H100",),
        devices=PowerDeviceTable(
            names=Names([uuid for _, uuid, _ in found]),
            domain=np.array([domain for domain, *_ in found], dtype=np.int64),
            gpu_type=np.zeros(count, dtype=np.int64),
            power_class=np.zeros(count, dtype=np.int64),
            min_w=low,
            max_w=high,
            default_w=np.array([each.default_w for *_, each in found]),
            previous_w=np.array([each.previous_w for *_, each in found]),
            floor_w=np.maximum(low, FLOOR_W),
            idle_w=np.full(count, 70.0),
            overshoot_share=np.full(count, OVERSHOOT),
            overhead_share=np.zeros(count),
            managed=np.array([each.managed for *_, each in found]),
        ),
        readings=PowerReadings(
            *(np.full(count, NEVER_S), np.zeros(count), np.zeros(count), np.full(count, -1), np.full(count, -1)),
            *(np.full(width, NEVER_S), np.zeros(width)),
        ),
        leases=PowerLeases(np.zeros(count), np.zeros(count), np.full(count, -1), np.full(count, NEVER_S)),
    )


class Speaker:
    """Simulated node that speaks the agents' protocol; its simulated devices obey at once."""

    def __init__(self, node: str, gpus: int, shown: Path, port: int, chance: Random, period_s: float) -> None:
        self.node, self._chance, self._period_s = node, chance, period_s
        self._facts = {
            f"{node}-{n}": DeviceInventory("H100", LEAST_W, MOST_W, MOST_W, MOST_W, managed=True) for n in range(gpus)
        }
        mine = {uuid: DeviceLimits(LEAST_W, MOST_W, FLOOR_W, MOST_W) for uuid in self._facts}
        self._holder = Holder(node, f"life of {node}", mine)
        self._answered: tuple[int, float, float] | None = None
        self._link = ControllerLink(
            *(node.encode, "127.0.0.1", port, self._hear, chance), Credentials(shown).trusts, self._inventory
        )
        self.breaks_limits = False
        """Whether its devices exceed their limits from the next report on."""
        self.broke_at_s: float | None = None
        """Time of the first report of that, seconds, monotonic."""
        self.allowed: list[tuple[float, float]] = []
        """(time of receipt of a lease that changed it, total allowed power in watts), in order."""

    @property
    def has_lease(self) -> bool:
        return monotonic() < self._holder.ends_s

    async def live(self) -> None:
        """Report once per period, until cancelled."""
        talking = asyncio.create_task(self._link.keep_up())
        try:
            await asyncio.sleep(self._chance.uniform(0.0, self._period_s))
            next_s = monotonic()
            while True:
                self._link.send(encoded(self._report()))
                if self.breaks_limits and self.broke_at_s is None:
                    self.broke_at_s = monotonic()
                next_s += self._period_s
                await asyncio.sleep(max(0.0, next_s - monotonic()))
        finally:
            talking.cancel()

    def _inventory(self) -> bytes:
        return encoded(Inventory(self.node, self._holder.life, self._facts))

    def _hear(self, travelled: bytes) -> None:
        now_s = monotonic()
        lease = decoded(Lease, travelled, self.node)
        if isinstance(lease, Refusal):
            return
        self._holder, refusal = accepted(self._holder, lease, now_s)
        if refusal is None:
            self._answered = (lease.epoch, self._holder.issued_s, now_s)
            allowed_w = sum(limits(self._holder, now_s).values())
            if not self.allowed or self.allowed[-1][1] != allowed_w:
                self.allowed.append((now_s, allowed_w))

    def _report(self) -> Report:
        now_s = monotonic()
        limits_w = limits(self._holder, now_s)
        epoch, answered_s, at_s = self._answered or (-1, NEVER_S, now_s)
        devices = {}
        for uuid, limit_w in limits_w.items():
            most_w = WANTED_W if self.breaks_limits else min(WANTED_W, limit_w)
            draw_w = most_w * self._chance.uniform(0.985, 1.0)
            devices[uuid] = DeviceReport(draw_w, 0.0, limit_w)
        in_force = (self._holder.epoch, self._holder.sequence)
        return Report(
            *(self.node, self._holder.life, now_s, *in_force, devices, epoch, answered_s, max(0.0, now_s - at_s))
        )


async def _serve(shown: Path, racks: int, gpus: int, rules: PowerRules) -> None:
    watts = PowerTerm(lambda inventories: table_of(inventories, racks, gpus), epoch=1, rules=rules)
    server = AgentServer(lambda: watts, names_itself, monotonic)
    listening = await server.serve("127.0.0.1", 0, Credentials(shown).serves())
    say(str(listening.sockets[0].getsockname()[1]))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: say(json.dumps(counted(server))))
    await server.decide()


def counted(server: AgentServer) -> dict[str, object]:
    reaction_s = server.counts.reaction_s or [float("nan")]
    return {
        "lines": len(server.nodes),
        "reports": server.counts.reports,
        "leases": server.counts.leases,
        "refused": sum(server.counts.refused.values()),
        "answered_p50_s": round(float(np.percentile(reaction_s, 50)), 4),
        "answered_p99_s": round(float(np.percentile(reaction_s, 99)), 4),
    }


def say(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()


if __name__ == "__main__":
    # Prints its port, prints its counts as JSON at SIGTERM, and runs until it is killed.
    given = sys.argv[1:]
    asyncio.run(_serve(Path(given[0]), int(given[1]), int(given[2]), PowerRules(distrust_s=float(given[3]))))
