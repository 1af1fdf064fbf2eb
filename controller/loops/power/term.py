"""One term of the fast loop, without its transport: from agents' messages to their leases. Pure apart from its memory.

The allocator decides (power/control/step.py). This module maintains what it decides about: the devices reported by
agents, their positions by the power domains, and the earlier grants whenever either of them changes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from cluster.errors import ConfigError
from cluster.power import PowerTable, never_read
from power.control import state as control_state
from power.control.step import step
from power.leases.issuer import LeaseLedger, adopted, answers, found_w, readings_of, with_report
from power.leases.messages import Inventory, Lease, Refusal, Report
from power.rules import PowerRules
from power.tree import tree_of
from power.watching import Metering, Meters, metered, metering_of, no_meters

TableOf = Callable[[Mapping[str, Inventory]], PowerTable]
"""Constructor of the power table for these nodes, without readings and leases. Raises ConfigError."""
LISTEN_S = 2.0
"""Time that a new controller listens before it grants anything: two reports of every agent."""
LISTEN_MOST_S = 6.0
"""Longest wait for agents that have not been heard from. Until then the leases of the previous controller hold; if it
started without these agents, their devices would count at their highest limit and take power from all others."""


@dataclass(slots=True)
class PowerTerm:
    """One term of one controller. A new term starts with a new instance, and adopts the limits that agents report."""

    table_of: TableOf
    epoch: int
    rules: PowerRules = field(default_factory=PowerRules)
    awaited: frozenset[str] = frozenset()
    """Nodes whose agents should be heard from."""
    outside: frozenset[str] = frozenset()
    """Nodes of the cluster that are in no domain: their limits must not be changed."""
    inventories: dict[str, Inventory] = field(default_factory=dict)
    table: PowerTable | None = None
    """Table of the last turn; None before the first one that granted."""
    state: control_state.AllocatorState | None = None
    grants: control_state.Grants | None = None
    mistake: str = ""
    """Reason why the present domains cannot be used; the previous table stays in force."""
    _ledger: LeaseLedger = field(init=False)
    allocator: control_state.Allocator | None = None
    """Allocator; None while no device was reported."""
    meters: Meters | None = None
    """Comparison of nodes' meters with their devices; None before the first grant, and reset with each table."""
    _metering: Metering | None = None
    _newest: int = 0
    """Sequence number of the newest grant in this term."""
    _is_new: bool = True
    _first_s: float | None = None
    _unanswered: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._ledger = LeaseLedger(self.epoch, self.rules.lease_s)

    @property
    def is_pending(self) -> bool:
        """Whether something arrived that the next turn includes."""
        return self._is_new

    def found(self, inventory: Inventory) -> None:
        """Records the inventory of a node's devices. One that names more devices than before comes after all others,
        so that no agent takes a device that another has named."""
        known = self.inventories.get(inventory.node)
        if known != inventory:
            if known is None or inventory.devices.keys() - known.devices.keys():
                self.inventories.pop(inventory.node, None)
            self.inventories[inventory.node] = inventory
            self._is_new = True

    def changed(
        self, table_of: TableOf, awaited: frozenset[str] = frozenset(), outside: frozenset[str] = frozenset()
    ) -> None:
        """Records that domains, budgets or classes have changed."""
        self.table_of, self.awaited, self.outside, self._is_new = table_of, awaited, outside, True

    def receive(self, report: Report) -> Refusal | None:
        """Records a report; returns the reason why it does not count, if it does not."""
        self._ledger, refusal = with_report(self._ledger, report)
        if refusal is None:
            self._unanswered.add(report.node)
        return refusal

    def turn(self, now_s: float) -> tuple[Lease, ...]:
        """Decides, and answers every report that arrived since the previous turn."""
        self._first_s = now_s if self._first_s is None else self._first_s
        misses = bool(self.awaited - self.inventories.keys())
        if now_s - self._first_s < (LISTEN_MOST_S if misses and self.table is None else LISTEN_S):
            return ()
        if self._is_new:
            self._adopt()
        if self.table is None:
            return ()
        return (*self._granted(self.table, now_s), *self._empty_leases(self.table, now_s))

    def _granted(self, table: PowerTable, now_s: float) -> tuple[Lease, ...]:
        if self.allocator is None or self.state is None or self._metering is None:
            return ()
        readings = readings_of(self._ledger, table)
        self.table = table = replace(table, readings=readings)
        before = self.meters or no_meters(self._metering)
        self.meters = metered(self._metering, self.rules, before, self.state.estimate, readings, now_s)
        budget_w = np.maximum(self.allocator.tree.budget_w - self.meters.excess_w, 0.0)
        self.state, self.grants = step(self.allocator, self.state, readings, now_s, budget_w)
        self._newest = max(self._newest, int(self.state.ledger.sequence.max(initial=0)))
        changed = {int(table.devices.domain[row]) for row in np.flatnonzero(self.grants.changed)}
        receivers = self._unanswered | {table.domains.names[domain] for domain in changed}
        made = answers(self._ledger, table, self.grants, now_s, receivers)
        self._unanswered -= {each.node for each in made}
        return made

    def _empty_leases(self, table: PowerTable, now_s: float) -> tuple[Lease, ...]:
        """Empty leases for agents without a managed device here: nodes in no domain, or only observed ones.

        An agent without any lease goes to its floor; an agent with an empty lease restores the original limits. Where
        the newest domains cannot be used no node is released: it may be in one of them.
        """
        unanswered, self._unanswered = self._unanswered, set()
        if self.mistake:
            return ()
        made = []
        for node in sorted(unanswered):
            row = table.domains.names.row(node)
            if row is None:
                is_released = node in self.outside
            else:
                managed = table.devices.managed[table.devices.domain == row]
                is_released = len(managed) > 0 and not managed.any()
            if is_released:
                each, for_s = self._ledger.nodes[node].report, self._ledger.for_s
                made.append(Lease(node, each.life, each.sent_s, for_s, self.epoch, self._newest, now_s, {}, {}))
        return tuple(made)

    def _adopt(self) -> None:
        """Rebuilds the table. Known devices keep their grants; new ones start at the limits that were found."""
        self._is_new = False
        try:
            table = self.table_of(self.inventories)
            unread = replace(table, readings=never_read(len(table.devices), len(table.domains)))
            found = adopted(unread, found_w(self._ledger, table), self.epoch)
            # Sequence numbers go on: agents refuse lower ones.
            sequence = np.full(len(found.devices), self._newest)
            found = replace(found, leases=replace(found.leases, sequence=sequence))
            tree_of(found)
            allocator = control_state.allocator_of(found, self.rules) if len(found.devices) else None
        except ConfigError as error:
            self.mistake = str(error)
            return
        state = control_state.first_state(allocator) if allocator is not None else None
        if state is not None and allocator is not None and self.state is not None and self.allocator is not None:
            state = control_state.carried(self.allocator, self.state, allocator, state)
        self.mistake, self.table, self.allocator, self.state = "", found, allocator, state
        self.meters, self._metering = None, metering_of(allocator.tree) if allocator is not None else None
