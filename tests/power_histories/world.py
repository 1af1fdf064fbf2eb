"""World of one history: domains, nodes, controllers that come and go, and a network that loses, delays and reorders."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random

from controller.api.power_domain import PowerDomainSpec
from controller.loops.power.domain_tree import PoweredNode
from controller.loops.power.power_table import OVERSHOOT_SHARE, power_table
from controller.loops.power.term import PowerTerm
from power.leases.messages import Inventory, Refusal, Report, decoded, encoded
from power.rules import PowerRules
from tests.power_histories.hardware import MAX_W
from tests.power_histories.node import Node

STEP_S = 0.5
RULES = PowerRules(burst_share=0.0, stuck_s=0.0)
OTHER_W, OVERHEAD = 200.0, 0.1
"""Of each node: its draw besides its GPUs, and what fans add to each watt of these."""
BURDEN = (1 + OVERSHOOT_SHARE) * (1 + OVERHEAD)
"""Watts at a domain that one watt of a limit may cause."""
RACKS: Mapping[str, tuple[str, ...]] = {"r1": ("n1", "n2"), "r2": ("n3", "n4")}
GPUS = 2
FLOOR_SHARE: Mapping[str, float] = {"n1": 0.5, "n2": 0.3, "n3": 0.5, "n4": 0.3}
"""Useful floor of each node's class, which is its agent's own floor, as a fraction of the highest limit."""


@dataclass(frozen=True)
class Weather:
    """Of the network and of devices. Fractions of messages, and seconds."""

    loss: float
    doubled: float
    longest_delay_s: float
    actuation_s: float


@dataclass
class Controller:
    """A controller process and its clock, on which pauses count and nothing ever goes back."""

    term: PowerTerm
    start_s: float
    paused_until_s: float = 0.0


@dataclass
class World:
    """Everything of one history at one instant."""

    chance: Random
    weather: Weather
    domains: Mapping[str, PowerDomainSpec]
    nodes: Mapping[str, Node]
    now_s: float = 0.0
    epoch: int = 0
    controllers: list[Controller] = field(default_factory=list)
    mail: list[tuple[float, str, str, tuple[bytes, ...]]] = field(default_factory=list)
    """(instant of arrival, `report` or `lease`, node, messages)."""
    rises: int = 0
    """Number of leases that raised a limit, so that a world in which nothing happens shows."""

    def new_controller(self, *, beside: bool) -> None:
        """The next epoch begins. beside: the controller before does not know it yet."""
        self.epoch += 1
        table_of = partial(power_table, self.domains, {name: _seen(name) for name in self.nodes})
        term = PowerTerm(table_of, self.epoch, RULES, awaited=frozenset(self.nodes))
        kept = self.controllers[-1:] if beside else []
        self.controllers = [*kept, Controller(term, self.chance.uniform(0, 1e6))]

    def step(self) -> None:
        """Half a second: devices settle, letters arrive, agents act and report, controllers decide."""
        self.now_s += STEP_S
        for node in self.nodes.values():
            for gpu in node.gpus.values():
                gpu.settle(self.now_s)
        self._deliver()
        for name, node in self.nodes.items():
            if (report := node.turn(self.now_s)) is not None:
                self._send("report", name, (node.inventory(), report))
        for controller in self.controllers:
            if self.now_s < controller.paused_until_s:
                continue
            for lease in controller.term.turn(controller.start_s + self.now_s):
                self._send("lease", lease.node, (encoded(lease),))

    def limits_w(self, *, excused: bool) -> Mapping[str, float]:
        """Limit that each device enforces. excused: before its reboot, for one that no agent has limited since."""
        return {
            uuid: gpu.since_boot_w if excused and gpu.since_boot_w is not None else gpu.limit_w
            for node in self.nodes.values()
            for uuid, gpu in node.gpus.items()
        }

    def over(self, limits_w: Mapping[str, float]) -> float:
        """Highest of what each domain may draw at worst under these limits, over its budget."""
        rack_w = {
            rack: sum(OTHER_W + BURDEN * sum(limits_w[uuid] for uuid in self.nodes[n].gpus) for n in names)
            for rack, names in RACKS.items()
        }
        drawn_w = {**rack_w, "row": sum(rack_w.values())}
        return max(watts / (self.domains[name].budget_watts or float("inf")) for name, watts in drawn_w.items())

    def _send(self, kind: str, node: str, messages: tuple[bytes, ...]) -> None:
        for _ in range(2 if self.chance.random() < self.weather.doubled else 1):
            if self.chance.random() >= self.weather.loss:
                at_s = self.now_s + self.chance.uniform(0, self.weather.longest_delay_s)
                self.mail.append((at_s, kind, node, messages))

    def _deliver(self) -> None:
        due = [letter for letter in self.mail if letter[0] <= self.now_s]
        self.mail = [letter for letter in self.mail if letter[0] > self.now_s]
        self.chance.shuffle(due)
        for _, kind, name, messages in due:
            if kind == "report":
                for controller in self.controllers:
                    _hear(controller, name, *messages)
                continue
            node = self.nodes[name]
            before_w = _caps_w(node)
            if node.hear(messages[0], self.now_s) is None:
                self.rises += any(watts > before_w.get(uuid, MAX_W) for uuid, watts in _caps_w(node).items())


def _caps_w(node: Node) -> Mapping[str, float]:
    return node.record.holder.caps_w if node.record.holder is not None else {}


def _hear(controller: Controller, node: str, inventory: bytes, report: bytes) -> None:
    """What the operator's server does with a connection: an inventory counts with the first report that does."""
    said, found = decoded(Report, report, node), decoded(Inventory, inventory, node)
    assert not isinstance(said, Refusal)
    assert not isinstance(found, Refusal)
    if controller.term.receive(said) is None and controller.term.inventories.get(node) != found:
        controller.term.found(found)


def world_of(chance: Random) -> World:
    """A row of two racks with two nodes of two GPUs each, with budgets that bind, and bad weather."""
    weather = Weather(
        loss=chance.choice((0.0, 0.1, 0.3, 0.8)),
        doubled=chance.choice((0.0, 0.5)),
        longest_delay_s=chance.choice((0.0, 1.0, 4.0, 15.0)),
        actuation_s=chance.choice((0.0, 0.5, 1.5)),
    )
    # Two GPUs of a rack may be lost at their highest limit, beside the floors of the others.
    least_w = 2 * OTHER_W + BURDEN * (2 * MAX_W + 2 * 0.5 * MAX_W)
    rack_w = chance.choice((least_w + 50.0, 1.15 * least_w, 5000.0))
    row_w = chance.choice((2 * least_w + 50.0, 2.1 * least_w))
    classes = [{"name": "high", "rank": 0, "floor": 0.5}, {"name": "low", "rank": 1, "floor": 0.3}]
    specs = {"row": {"type": "row", "budgetWatts": row_w, "classes": classes}} | {
        rack: {
            "type": "rack",
            "budgetWatts": rack_w,
            "feeds": [{"name": "row"}],
            "nodes": {"key": "rack", "values": [rack], "otherWatts": OTHER_W, "overheadShare": OVERHEAD},
        }
        for rack in RACKS
    }
    nodes = {
        name: Node(
            name, GPUS, chance.uniform(0, 1e6), chance.uniform(0.9995, 1.0005), weather.actuation_s, FLOOR_SHARE[name]
        )
        for names in RACKS.values()
        for name in names
    }
    domains = {name: PowerDomainSpec.model_validate(spec) for name, spec in specs.items()}
    made = World(chance, weather, domains, nodes)
    for name, node in nodes.items():
        for gpu in node.gpus.values():
            gpu.limit_w = FLOOR_SHARE[name] * MAX_W
    made.new_controller(beside=False)
    return made


def _seen(node: str) -> PoweredNode:
    rack = next(rack for rack, names in RACKS.items() if node in names)
    own = {"rack": rack, "tonnage.dev/power-class": "high" if node in ("n1", "n3") else "low"}
    return PoweredNode({**own, "nvidia.com/gpu.product": "Pretend"}, gpus=GPUS)
