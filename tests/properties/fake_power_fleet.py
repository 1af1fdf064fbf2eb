"""Fake fleet under power leases: agents, hardware that may misreport, a network that loses, delays and duplicates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import numpy as np

from cluster.arrays import FloatArray
from cluster.power import PowerTable
from power.control.state import Allocator, AllocatorState, Grants, allocator_of, first_state
from power.control.step import step
from power.leases.holder import DeviceLimits, Holder, accepted, limits
from power.leases.issuer import LeaseLedger, adopted, answers, found_w, readings_of, with_report
from power.leases.messages import DeviceReport, Lease, Refusal, Report, decoded, encoded
from power.rules import PowerRules

STRICT = PowerRules(control_delay_s=2.0, stale_s=10.0, lease_s=8.0, burst_share=0.0, stuck_s=0.0)


@dataclass(frozen=True)
class Weather:
    """How bad the network and the hardware are. Shares of messages, seconds."""

    loss: float = 0.0
    doubled: float = 0.0
    longest_delay_s: int = 0
    actuation_s: int = 0
    """Until a limit that was set is in force."""


@dataclass
class Hardware:
    """One device: what it enforces, and how honestly."""

    cap_w: float
    manner: str = "honest"
    """`honest`, `lying` (reports to enforce and does not), `clamped` (nothing below 1.5 times its lowest), `stuck`."""
    lowest_w: float = 0.0
    due: list[tuple[int, float]] = field(default_factory=list)
    claimed_w: float = 0.0

    def order(self, watts: float, at_s: int) -> None:
        if not self.due or self.due[-1][1] != watts:
            self.due.append((at_s, watts))

    def settle(self, now_s: int) -> None:
        while self.due and self.due[0][0] <= now_s:
            _, watts = self.due.pop(0)
            self.claimed_w = watts
            if self.manner == "clamped":
                self.cap_w = max(watts, 1.5 * self.lowest_w)
            elif self.manner == "honest":
                self.cap_w = watts

    def read_w(self) -> float:
        return self.claimed_w if self.manner == "lying" else self.cap_w


class Agent:
    """A node agent: holds leases, orders limits, reports. Its clock starts anywhere and drifts."""

    def __init__(
        self, node: str, devices: Mapping[str, DeviceLimits], hardware: dict[str, Hardware], seed: int
    ) -> None:
        chance = Random(seed)  # noqa: S311 - a simulated clock
        self.hardware, self.lives = hardware, 0
        self.start_s, self.rate = chance.uniform(0, 1e6), chance.uniform(0.9999, 1.0001)
        self.holder = Holder(node, f"{node}-0", devices)
        self.in_force = (-1, -1)
        self.answered: tuple[int, float, float] | None = None
        self.down_until_s = 0

    def clock(self, now_s: float) -> float:
        return self.start_s + self.rate * now_s

    def restart(self, now_s: int, for_s: int, *, keeps_record: bool) -> None:
        self.down_until_s = now_s + for_s
        if not keeps_record:
            self.lives += 1
            self.holder = Holder(self.holder.node, f"{self.holder.node}-{self.lives}", self.holder.devices)
            self.in_force, self.answered = (-1, -1), None

    def hear(self, travelled: bytes, now_s: int) -> Refusal | None:
        lease = decoded(Lease, travelled, self.holder.node)
        if isinstance(lease, Refusal):
            return lease
        self.holder, refusal = accepted(self.holder, lease, self.clock(now_s))
        if refusal is None:
            self.answered = (lease.epoch, self.holder.issued_s, self.clock(now_s))
        return refusal

    def act(self, now_s: int, actuation_s: int) -> None:
        """Order what the holder allows. A lease is in force when every limit was read back and no order is under way.

        The second matters: an older order that takes effect later would undo what was read back.
        """
        wanted = limits(self.holder, self.clock(now_s))
        for name, watts in wanted.items():
            self.hardware[name].order(watts, now_s + actuation_s)
            self.hardware[name].settle(now_s)
        devices = [(self.hardware[name], watts) for name, watts in wanted.items()]
        if all(device.claimed_w == watts and not device.due for device, watts in devices):
            self.in_force = (self.holder.epoch, self.holder.sequence)

    def report(self, draws_w: Mapping[str, float], now_s: int) -> bytes:
        epoch, answered_s, at_s = self.answered or (-1, 0.0, 0.0)
        devices = {n: DeviceReport(draws_w[n], 0.0, h.read_w()) for n, h in self.hardware.items()}
        said = Report(
            self.holder.node,
            self.holder.life,
            self.clock(now_s),
            *self.in_force,
            devices,
            epoch,
            answered_s,
            self.clock(now_s) - at_s if self.answered else 0.0,
        )
        return encoded(said)


class Controller:
    """The lease ledger and the allocator together, as a controller process runs them."""

    def __init__(self, table: PowerTable, rules: PowerRules, epoch: int, start_s: float) -> None:
        self.table, self.rules = table, rules
        self.ledger = LeaseLedger(epoch, rules.lease_s)
        self.start_s = start_s
        self.allocator: Allocator | None = None
        self.state: AllocatorState | None = None
        self.grants: Grants | None = None
        self.first_s: float | None = None

    def clock(self, now_s: float) -> float:
        return self.start_s + now_s

    def hear(self, travelled: bytes, node: str) -> None:
        report = decoded(Report, travelled, node)
        assert not isinstance(report, Refusal)
        self.ledger, _ = with_report(self.ledger, report)

    def decide(self, now_s: int, budget_w: FloatArray) -> tuple[Lease, ...]:
        """Waits two seconds for nodes to be heard, takes over what it finds, then decides each second."""
        self.first_s = now_s if self.first_s is None else self.first_s
        if self.allocator is None or self.state is None:
            if now_s < self.first_s + 2:
                return ()
            found = adopted(self.table, found_w(self.ledger, self.table), self.ledger.epoch)
            self.allocator = allocator_of(found, self.rules)
            self.state = first_state(self.allocator)
        readings = readings_of(self.ledger, self.table)
        self.state, self.grants = step(self.allocator, self.state, readings, self.clock(now_s), budget_w)
        return answers(self.ledger, self.table, self.grants, self.clock(now_s))


class Fleet:
    """All of it, second by second."""

    def __init__(
        self, table: PowerTable, weather: Weather, seed: int, rules: PowerRules = STRICT, manners: str = ""
    ) -> None:
        self.table, self.weather, self.rules = table, weather, rules
        self.chance = Random(seed)  # noqa: S311 - a simulated network
        self.now_s = 0
        devices = table.devices
        self.hardware: dict[str, Hardware] = {}
        self.agents: dict[str, Agent] = {}
        for row, name in enumerate(devices.names):
            safe_w = float(devices.floor_w[row] if devices.managed[row] else devices.previous_w[row])
            self.hardware[name] = Hardware(safe_w, lowest_w=float(devices.min_w[row]), claimed_w=safe_w)
        for number, node in enumerate(dict.fromkeys(devices.domain.tolist())):
            rows = np.flatnonzero(devices.domain == node)
            known = {devices.names[int(row)]: self._limits_of(int(row)) for row in rows}
            mine = {name: self.hardware[name] for name in known}
            self.agents[table.domains.names[node]] = Agent(table.domains.names[node], known, mine, seed + number)
        self.mail: list[tuple[int, str, str, bytes]] = []
        self.controllers = [Controller(table, rules, 1, 1000.0)]
        self.draws_w = dict.fromkeys(devices.names, 0.0)
        self.leases: list[Lease] = []
        self.refusals: list[Refusal] = []

    def _limits_of(self, row: int) -> DeviceLimits:
        d = self.table.devices
        managed = bool(d.managed[row])
        return DeviceLimits(
            min_w=float(d.min_w[row]),
            max_w=float(d.max_w[row]),
            safe_w=float(d.floor_w[row] if managed else d.previous_w[row]),
            previous_w=float(d.previous_w[row]),
        )

    def second(self, budget_w: FloatArray, demand_w: Mapping[str, float]) -> None:
        """One second: work draws, agents act and report, letters arrive, controllers decide."""
        self.now_s += 1
        for agent in self.agents.values():
            for name, device in agent.hardware.items():
                device.settle(self.now_s)
                bound_w = np.inf if device.manner == "lying" else device.cap_w
                self.draws_w[name] = min(demand_w[name], bound_w)
        self._deliver()
        for node, agent in self.agents.items():
            if agent.down_until_s <= self.now_s:
                agent.act(self.now_s, self.weather.actuation_s)
                self._send("report", node, agent.report(self.draws_w, self.now_s))
        for controller in self.controllers:
            for lease in controller.decide(self.now_s, budget_w):
                self.leases.append(lease)
                self._send("lease", lease.node, encoded(lease))

    def _send(self, kind: str, node: str, travelled: bytes) -> None:
        for _ in range(2 if self.chance.random() < self.weather.doubled else 1):
            if self.chance.random() >= self.weather.loss:
                delay_s = self.chance.randint(0, self.weather.longest_delay_s)
                self.mail.append((self.now_s + delay_s, kind, node, travelled))

    def _deliver(self) -> None:
        due = [letter for letter in self.mail if letter[0] <= self.now_s]
        self.mail = [letter for letter in self.mail if letter[0] > self.now_s]
        self.chance.shuffle(due)
        for _, kind, node, travelled in due:
            if kind == "report":
                for controller in self.controllers:
                    controller.hear(travelled, node)
            elif self.agents[node].down_until_s <= self.now_s and (
                refusal := self.agents[node].hear(travelled, self.now_s)
            ):
                self.refusals.append(refusal)

    def leased_w(self) -> FloatArray:
        """What each agent allows by its lease now, dead or alive, shape (devices,)."""
        made = {}
        for agent in self.agents.values():
            made.update(limits(agent.holder, agent.clock(self.now_s)))
        return np.array([made[name] for name in self.table.devices.names])

    def enforced_w(self) -> FloatArray:
        """What each device's hardware enforces, shape (devices,)."""
        return np.array([self.hardware[name].cap_w for name in self.table.devices.names])
