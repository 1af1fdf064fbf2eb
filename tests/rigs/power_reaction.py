"""Reaction of the power loop on loopback: a controller, agents as processes, simulated nodes, breaches of budgets."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import numpy as np

from cluster.errors import ControlPlaneError
from tests.agents import power_rack, power_speakers
from tests.agents.credentials import Credentials

BREACH_S = 2.5
"""Duration of a breach, in which a node's devices exceed their limits, seconds: five reports."""
REST_S = 25.0
"""Time between two breaches of one rack, seconds: distrust, its end, and some periods in which caps rise again."""


@dataclass(frozen=True, slots=True)
class Breach:
    """Time of the first report in which all devices of a node exceed their limits."""

    rack: int
    culprit: str
    at_s: float


def measured(folder: Path, racks: int, gpus: int, agents: int, rounds: int, seed: int) -> dict[str, Any]:
    shown = folder / "shown"
    Credentials(shown)
    # One per rack, its first node.
    real = [power_speakers.node_name(power_speakers.NODES_PER_RACK * rack) for rack in range(agents)]
    with (
        power_rack.controller(shown, racks, gpus) as (controlling, port),
        power_rack.agent_processes(folder, real, port, gpus) as running,
    ):
        story = Story(folder, shown, port, racks, gpus, real, seed)
        return asyncio.run(story.run(controlling, running, rounds))


class Story:
    """One run: simulated nodes, breaches, and the reaction times."""

    def __init__(
        self, folder: Path, shown: Path, port: int, racks: int, gpus: int, real: Sequence[str], seed: int
    ) -> None:
        self.folder, self.racks, self.gpus, self.real = folder, racks, gpus, real
        chance = Random(seed)  # noqa: S311 - draws and phases
        names = [power_speakers.node_name(number) for number in range(racks * power_speakers.NODES_PER_RACK)]
        self.speakers = {
            node: power_speakers.Speaker(node, gpus, shown, port, Random(chance.random()), power_rack.PERIOD_S)  # noqa: S311 - the same
            for node in names
            if node not in real
        }
        self.broken: list[Breach] = []

    async def run(
        self, controlling: "subprocess.Popen[str]", running: Mapping[str, "subprocess.Popen[bytes]"], rounds: int
    ) -> dict[str, Any]:
        living = [asyncio.create_task(speaker.live()) for speaker in self.speakers.values()]
        await self._settled()
        before, before_agents = power_rack.used([controlling]), power_rack.used(running.values())
        began_s = monotonic()
        for _ in range(rounds):
            await self._round()
        for_s = monotonic() - began_s
        after, after_agents = power_rack.used([controlling]), power_rack.used(running.values())
        blind_s = await self._blinded()
        controlling.send_signal(signal.SIGTERM)
        counted = json.loads(controlling.stdout.readline()) if controlling.stdout else {}
        killed_at_s = monotonic()
        controlling.kill()
        await asyncio.sleep(power_rack.LEASE_S + 3.0)
        for each in living:
            each.cancel()
        await asyncio.gather(*living, return_exceptions=True)
        first_s, enough_s = zip(*(self._answered(breach) for breach in self.broken), strict=True)
        with_agent = [
            (breach, power_speakers.node_name(breach.rack * power_speakers.NODES_PER_RACK)) for breach in self.broken
        ]
        lowered_s = [
            power_rack.lowered_after(self._orders(node), each.at_s) for each, node in with_agent if node in self.real
        ]
        # This breach does not reduce a node that is at its floor or below its target.
        set_s = [each for each in lowered_s if each <= BREACH_S] or [power_rack.NEVER]
        dead_s = [
            power_rack.at_floor_after(self._orders(node), power_speakers.FLOOR_W, killed_at_s) for node in self.real
        ]
        return {
            "nodes": self.racks * power_speakers.NODES_PER_RACK,
            "gpus": self.racks * power_speakers.NODES_PER_RACK * self.gpus,
            "agents": len(self.real),
            "breaches": len(self.broken),
            **{f"command_{name}_s": value for name, value in spread(first_s).items()},
            **{f"back_in_budget_{name}_s": value for name, value in spread(enough_s).items()},
            "breaches_with_agent": len(lowered_s),
            "limits_set": sum(each < power_rack.NEVER for each in set_s),
            **{f"limit_set_{name}_s": value for name, value in spread(set_s).items()},
            "blind_to_floor_max_s": round(max(blind_s), 2),
            "killed_to_floor_max_s": round(max(dead_s), 2),
            "controller_cpu_share": round((after[0] - before[0]) / for_s, 3),
            "controller_rss_mb": round(after[1], 1),
            "agent_cpu_share": round((after_agents[0] - before_agents[0]) / for_s / len(self.real), 4),
            "agent_rss_mb": round(after_agents[1] / len(self.real), 1),
            **counted,
        }

    async def _settled(self) -> None:
        """Wait until every node has a lease, and caps have risen to the racks' budgets."""
        until_s = monotonic() + 90.0
        while not all(speaker.has_lease for speaker in self.speakers.values()) or not all(
            (self.folder / node / "orders.jsonl").exists() for node in self.real
        ):
            if monotonic() > until_s:
                raise ControlPlaneError("not every node had a lease within 90 s")
            await asyncio.sleep(0.2)
        await asyncio.sleep(25.0)

    async def _round(self) -> None:
        """One breach in every rack, one after the other; with few racks followed by a pause."""
        apart_s = max(1.0, REST_S / self.racks)
        under_way = []
        for rack in range(self.racks):
            under_way.append(asyncio.create_task(self._breach(rack)))
            await asyncio.sleep(apart_s)
        await asyncio.gather(*under_way)

    async def _breach(self, rack: int) -> None:
        # The second node is a simulated one, whether or not the first is an agent.
        culprit = self.speakers[power_speakers.node_name(rack * power_speakers.NODES_PER_RACK + 1)]
        culprit.broke_at_s, culprit.breaks_limits = None, True
        await asyncio.sleep(power_rack.PERIOD_S + BREACH_S)
        culprit.breaks_limits = False
        if culprit.broke_at_s is None:
            raise ControlPlaneError(f"{culprit.node} sent no report for {power_rack.PERIOD_S + BREACH_S} s")
        self.broken.append(Breach(rack, culprit.node, culprit.broke_at_s))

    async def _blinded(self) -> list[float]:
        """Make the devices of every fourth agent unreadable; seconds until they are at their floor."""
        nodes = self.real[::4]
        at_s = monotonic()
        for node in nodes:
            power_rack.wants(self.folder / node, power_speakers.WANTED_W, blind=True)
        await asyncio.sleep(power_rack.LEASE_S + 5.0)
        found = [power_rack.at_floor_after(self._orders(node), power_speakers.FLOOR_W, at_s) for node in nodes]
        for node in nodes:
            power_rack.wants(self.folder / node, power_speakers.WANTED_W)
        # They must rise again before the controller ends, so that its end has an effect.
        await asyncio.sleep(15.0)
        return found

    def _answered(self, breach: Breach) -> tuple[float, float]:
        """Seconds until the first lower lease was received in the rack, and until the rack fits its budget again."""
        here = [
            power_speakers.node_name(breach.rack * power_speakers.NODES_PER_RACK + n)
            for n in range(power_speakers.NODES_PER_RACK)
        ]
        highest_w = self.gpus * power_speakers.MOST_W
        fits_w = power_speakers.rack_budget_w(self.gpus) / (1 + power_speakers.OVERSHOOT) - highest_w
        changes = {node: self._allowed(node) for node in here if node != breach.culprit}
        return power_rack.answered(changes, highest_w, fits_w, breach.at_s)

    def _allowed(self, node: str) -> Sequence[power_rack.Change]:
        """Changes of a node's allowed power: from leases of a simulated node, or from limits of an agent."""
        if node in self.speakers:
            return self.speakers[node].allowed
        highest_w = {f"pretend-{node}-{number}": power_speakers.MOST_W for number in range(self.gpus)}
        return power_rack.allowed_by(self._orders(node), highest_w)

    def _orders(self, node: str) -> Sequence[power_rack.Order]:
        return power_rack.orders_of(self.folder / node / "orders.jsonl")


def spread(values: Sequence[float]) -> Mapping[str, float]:
    """Percentiles without interpolation, so that an infinite value (an event that never came) is not averaged."""
    found = np.percentile(values, (50, 99, 100), method="higher")
    return {name: round(float(value), 3) for name, value in zip(("p50", "p99", "max"), found, strict=True)}
