"""Status facts of each PowerDomain, computed from the columns of the loop's state. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from cluster.arrays import Array, BoolArray, FloatArray, IntArray
from cluster.plans import Reason
from cluster.power import UNLIMITED_W, PowerTable
from controller.loops.power.loop import PowerLoopState
from power.control.admission import held_back, objections_to_floors, speed_at, tightest
from power.control.state import Allocator, AllocatorState
from power.safety.estimator import FAULTS, FINE, STALE
from power.watching import AGREES, FAULTS as METER_FAULTS, STALE as METER_STALE, Meters

SHOWN_CULPRITS = 16
SHOWN_HELD = 128
"""Numbers of entries for which the status has room."""
LONGEST_UUID = 128
METER = "meter"
"""Placeholder for the device, where the node's own meter is reported."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """Device that is silent or not as requested, or meter that contradicts its devices."""

    device: str
    """UUID, or METER."""
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class HeldBackDevice:
    """Device that is held back; instants by the loop's clock."""

    device: str
    node: str
    service_class: str
    cap_w: float
    need_w: float
    limited_by: str
    since_s: float
    slower_share: float


@dataclass(frozen=True, slots=True)
class DomainFacts:
    """Facts of one PowerDomain now, watts at its feed."""

    draw_w: float
    worst_w: float
    budget_w: float | None
    headroom_w: float | None
    devices: int
    """Number of devices, GPUs of nodes that were never heard from included."""
    managed: int
    stale: int
    """Number of silent devices, those GPUs included."""
    suspects: int
    """Number of devices that report and have a fault."""
    held: int
    unheard_nodes: tuple[str, ...]
    culprits: tuple[Suspect, ...]
    """Devices with faults, the gravest first; as many as are shown."""
    meters: tuple[Suspect, ...] = ()
    """Meters that contradict their devices or cannot be believed; as many as are shown."""
    unaccounted_w: float = 0.0
    """Metered power that no device and no known load accounts for; the budget is reduced by it."""
    floors: str = ""
    """Reason why not even the floors of its devices fit; empty where they do."""
    is_braked: bool = False
    """Whether a hardware brake seems to hold down what draws through it (power/watching.py). Known for domains
    with a budget."""
    short_w: Mapping[str, float] = field(default_factory=dict)
    """Class → watts that its devices need and do not get; every class in use."""

    @property
    def over_w(self) -> float:
        """Excess over the budget of all grants that may still be held, in watts."""
        return 0.0 if self.budget_w is None else max(0.0, self.worst_w - self.budget_w)

    @property
    def held_share(self) -> float | None:
        return self.held / self.managed if self.managed else None


def facts_of(loop_state: PowerLoopState) -> Mapping[str, DomainFacts]:
    """Facts of every PowerDomain of the table in force; empty before there is one."""
    table, reach = loop_state.table, loop_state.reach
    if table is None or reach is None:
        return {}
    names = [name for name in loop_state.view.domains if name in table.domains.names]
    rows = np.array([table.domains.names.row(name) for name in names], dtype=np.int64)
    sums = _Sums(table, reach[:, rows])
    allocator, state, meters = loop_state.allocator, loop_state.state, loop_state.meters
    columns, short_w = _columns(sums, allocator, state)
    headroom_w = loop_state.headroom_w()
    # Nodes with GPUs that count entirely at their worst case, because nothing is known of their devices.
    unheard = [
        node
        for node in loop_state.tree.feeds_of_node
        if node in table.domains.names and loop_state.nodes[node].gpus and node not in loop_state.heard
    ]
    culprits = sums.shown(_culprits(table, state) if state is not None else ())
    disagreeing = sums.shown(_meters(table, meters, state) if meters is not None and state is not None else ())
    floors: Mapping[str, Reason] = {}
    braked = frozenset[str]()
    unaccounted_w: dict[str, float] = {}
    if allocator is not None:
        tree, known = allocator.tree, allocator.tree.table.domains.names
        floors = objections_to_floors(tree)
        if meters is not None:
            exceeded = np.flatnonzero(meters.excess_w > 0).tolist()
            unaccounted_w = {known[int(tree.limit[limit])]: float(meters.excess_w[limit]) for limit in exceeded}
        if state is not None:
            braked = frozenset(known[row] for row in tree.limit[state.braking.holding].tolist())
    facts = {}
    for number, name in enumerate(names):
        silent = [node for node in unheard if sums.is_above(node, number)]
        silent_gpus = sum(loop_state.nodes[node].gpus for node in silent)
        budget_w = float(table.domains.budget_w[rows[number]])
        mine = {figure: column[number].item() for figure, column in columns.items()}
        mine["devices"] += silent_gpus
        mine["stale"] += silent_gpus
        facts[name] = DomainFacts(
            **mine,
            budget_w=budget_w if budget_w < UNLIMITED_W else None,
            headroom_w=headroom_w.get(name),
            unheard_nodes=tuple(silent),
            culprits=culprits[number],
            meters=disagreeing[number],
            unaccounted_w=unaccounted_w.get(name, 0.0),
            floors=floors[name].words if name in floors else "",
            is_braked=name in braked,
            short_w={each: float(watts[number]) for each, watts in short_w.items()},
        )
    return facts


def held_of(loop_state: PowerLoopState) -> Mapping[str, tuple[HeldBackDevice, ...]]:
    """PowerDomain → the devices on its immediate nodes that are held back, the largest shortfall first; as many as are
    shown.

    Evaluates curves one device at a time, so it is meant for occasional calls.
    """
    allocator, state, now = loop_state.allocator, loop_state.state, loop_state.table
    if allocator is None or state is None or now is None:
        return {}
    table = allocator.tree.table
    short_w = np.where(held_back(allocator, state), state.need_w - state.ledger.cap_w, 0.0)
    limit = tightest(allocator, state)
    found: dict[str, list[HeldBackDevice]] = {}
    for row in np.argsort(-short_w, kind="stable").tolist():
        if short_w[row] <= 0:
            break
        node = table.domains.names[int(table.devices.domain[row])]
        domains = [found.setdefault(each, []) for each in loop_state.tree.feeds_of_node.get(node, ())]
        lacking = [each for each in domains if len(each) < SHOWN_HELD]
        if not lacking:
            continue
        cap_w, need_w = float(state.ledger.cap_w[row]), float(state.need_w[row])
        product, phase = table.gpu_types[int(table.devices.gpu_type[row])], int(now.readings.phase[row])
        most_w = float(table.devices.max_w[row])
        speed = speed_at(product, phase, cap_w / most_w) / speed_at(product, phase, need_w / most_w)
        one = HeldBackDevice(
            device=table.devices.names[row][:LONGEST_UUID],
            node=node,
            service_class=table.classes[int(table.devices.power_class[row])].name,
            cap_w=cap_w,
            need_w=need_w,
            limited_by=table.domains.names[int(allocator.tree.limit[limit[row]])] if limit[row] >= 0 else "",
            since_s=float(state.ledger.granted_at_s[row]),
            slower_share=min(1.0, max(0.0, 1 - speed)),
        )
        for each in lacking:
            each.append(one)
    return {name: tuple(several) for name, several in found.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Sums of devices over the reported domains."""

    table: PowerTable
    share: FloatArray
    """Fraction of each one's draw that passes through each reported domain, shape (all domains and nodes, reported
    domains)."""

    def watts(self, of_device: Array) -> FloatArray:
        """Watts through each domain, for watts at the feed per device."""
        return np.asarray(self.share.T @ self._by_node(of_device), dtype=np.float64)

    def count(self, which: BoolArray) -> IntArray:
        """Number of these devices that draw through each domain, each counted whole."""
        return np.asarray((self.share > 0).T @ self._by_node(which), dtype=np.int64)

    def other_w(self) -> FloatArray:
        return np.asarray(self.share.T @ self.table.domains.other_w, dtype=np.float64)

    def is_above(self, node: str, domain: int) -> bool:
        row = self.table.domains.names.row(node)
        return row is not None and bool(self.share[row, domain] > 0)

    def shown(self, suspects: Iterable[tuple[int, Suspect]]) -> tuple[tuple[Suspect, ...], ...]:
        """First suspects of each domain. suspects: each with the row of its node or domain, the gravest first."""
        found: tuple[list[Suspect], ...] = tuple([] for _ in range(self.share.shape[1]))
        for row, one in suspects:
            for domain in np.flatnonzero(self.share[row] > 0).tolist():
                if len(found[domain]) < SHOWN_CULPRITS:
                    found[domain].append(one)
        return tuple(tuple(each) for each in found)

    def _by_node(self, of_device: Array) -> FloatArray:
        made = np.bincount(self.table.devices.domain, of_device.astype(np.float64), len(self.table.domains))
        return np.asarray(made, dtype=np.float64)


def _columns(
    sums: _Sums, allocator: Allocator | None, state: AllocatorState | None
) -> tuple[dict[str, Array], Mapping[str, FloatArray]]:
    """Figures of `DomainFacts`, and `short_w` by class, shape (reported domains,) each."""
    other_w, devices = sums.other_w(), sums.table.devices
    if allocator is None or state is None:  # no agent reported a device
        counts = dict.fromkeys(("devices", "managed", "stale", "suspects", "held"), np.zeros(len(other_w), np.int64))
        return {"draw_w": other_w, "worst_w": other_w, **counts}, {}
    tree, seen = allocator.tree, state.estimate
    opted_out_w = np.maximum(devices.max_w, devices.default_w)
    held = held_back(allocator, state)
    short_w = np.where(held, state.need_w - state.ledger.cap_w, 0.0) * tree.overhead
    columns = {
        "draw_w": other_w + sums.watts(tree.overhead * seen.draw_w),
        "worst_w": other_w + sums.watts(tree.burden * np.where(devices.managed, seen.held_w, opted_out_w)),
        "devices": sums.count(np.ones(len(devices), dtype=np.bool_)),
        "managed": sums.count(devices.managed),
        "stale": sums.count(seen.fault == STALE),
        "suspects": sums.count((seen.fault != FINE) & (seen.fault != STALE)),
        "held": sums.count(held),
    }
    by_class = {
        each.name: sums.watts(np.where(devices.power_class == number, short_w, 0.0))
        for number, each in enumerate(sums.table.classes)
    }
    return columns, by_class


def _culprits(table: PowerTable, state: AllocatorState) -> Iterator[tuple[int, Suspect]]:
    """Devices with faults: those that report and do not obey come before silent ones."""
    fault, devices = state.estimate.fault, table.devices
    wrong = np.flatnonzero(fault != FINE)
    for row in wrong[np.argsort(fault[wrong] == STALE, kind="stable")].tolist():
        node = int(devices.domain[row])
        yield node, Suspect(devices.names[row][:LONGEST_UUID], table.domains.names[node], FAULTS[int(fault[row])])


def _meters(table: PowerTable, meters: Meters, state: AllocatorState) -> Iterator[tuple[int, Suspect]]:
    """Meters with faults. A meter as silent as its node is omitted, since the devices are reported."""
    silent = set(table.devices.domain[state.estimate.fault == STALE].tolist())
    for row in np.flatnonzero(meters.fault != AGREES).tolist():
        fault = int(meters.fault[row])
        if fault != METER_STALE or row not in silent:
            yield row, Suspect(METER, table.domains.names[row], METER_FAULTS[fault])
