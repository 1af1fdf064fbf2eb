"""The fast loop of power, without its wires: from what agents say to the leases that they get. Pure but for its memory.

The allocator decides (power/allocator/step.py); here stands what it decides about: which devices there are by the
agents' own word, where they draw from by the power domains, and what was granted before whenever either of them
changes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from cluster.errors import ConfigError
from cluster.power import PowerTable, never_read
from power.allocator.state import Allocator, AllocatorState, Grants, allocator_of, first_state
from power.allocator.state_transfer import carried
from power.allocator.step import step
from power.domains.tree import tree_of
from power.estimation.meters import Metering, Meters, metered, metering_of, no_meters
from power.leases.issuer import LeaseBook, answers, found_w, heard, readings_of, taken_over
from power.leases.messages import Inventory, Lease, Refusal, Report
from power.rules import PowerRules

TableOf = Callable[[Mapping[str, Inventory]], PowerTable]
"""The power table for these nodes, with readings and leases left empty. Raises ConfigError."""
LISTEN_S = 2.0
"""How long a controller that starts anew listens before it grants anything: two reports of every agent."""
LISTEN_MOST_S = 6.0
"""So long it waits for agents that it has not heard yet. Until then the leases of the controller before it hold; begun
without them, their devices would count at their highest limit and take the watts of all others."""


@dataclass(slots=True)
class Watts:
    """One term of one controller. A new term begins with a new one, and takes over what it hears."""

    table_of: TableOf
    epoch: int
    rules: PowerRules = field(default_factory=PowerRules)
    awaited: frozenset[str] = frozenset()
    """Nodes of which an agent should be heard."""
    outside: frozenset[str] = frozenset()
    """Nodes of the cluster that are in no domain: their limits are not ours to touch."""
    inventories: dict[str, Inventory] = field(default_factory=dict)
    table: PowerTable | None = None
    """As of the last turn; None before the first one that granted."""
    state: AllocatorState | None = None
    grants: Grants | None = None
    mistake: str = ""
    """Why the domains cannot be used as they are; the table before stays in force."""
    _book: LeaseBook = field(init=False)
    allocator: Allocator | None = None
    """None while no device was told of."""
    meters: Meters | None = None
    """What nodes' meters say beside their devices; None before the first grant, and anew with each table."""
    _metering: Metering | None = None
    _newest: int = 0
    """Number of the newest grant in this term."""
    _is_new: bool = True
    _first_s: float | None = None
    _unanswered: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._book = LeaseBook(self.epoch, self.rules.lease_s)

    @property
    def is_pending(self) -> bool:
        """Whether something came that the next turn takes up."""
        return self._is_new

    def found(self, inventory: Inventory) -> None:
        """A node tells which devices it has."""
        if self.inventories.get(inventory.node) != inventory:
            self.inventories[inventory.node] = inventory
            self._is_new = True

    def changed(
        self, table_of: TableOf, awaited: frozenset[str] = frozenset(), outside: frozenset[str] = frozenset()
    ) -> None:
        """Domains, budgets or classes are others from now on."""
        self.table_of, self.awaited, self.outside, self._is_new = table_of, awaited, outside, True

    def hear(self, report: Report) -> Refusal | None:
        """A report; why it does not count, if it does not."""
        self._book, refusal = heard(self._book, report)
        if refusal is None:
            self._unanswered.add(report.node)
        return refusal

    def turn(self, now_s: float) -> tuple[Lease, ...]:
        """Decide, and answer every report that came since the turn before."""
        self._first_s = now_s if self._first_s is None else self._first_s
        if self._listens(now_s - self._first_s):
            return ()
        if self._is_new:
            self._adopt()
        if self.table is None:
            return ()
        return (*self._granted(now_s), *self._let_alone(now_s))

    def _listens(self, for_s: float) -> bool:
        misses = bool(self.awaited - self.inventories.keys())
        return for_s < (LISTEN_MOST_S if misses and self.table is None else LISTEN_S)

    def _granted(self, now_s: float) -> tuple[Lease, ...]:
        if self.allocator is None or self.state is None or self.table is None or self._metering is None:
            return ()
        readings = readings_of(self._book, self.table)
        self.table = replace(self.table, readings=readings)
        before = self.meters or no_meters(self._metering)
        self.meters = metered(self._metering, self.rules, before, self.state.estimate, readings, now_s)
        budget_w = np.maximum(self.allocator.tree.budget_w - self.meters.excess_w, 0.0)
        self.state, self.grants = step(self.allocator, self.state, readings, now_s, budget_w)
        self._newest = max(self._newest, int(self.state.book.sequence.max(initial=0)))
        told = self._unanswered | self._changed(self.grants)
        made = answers(self._book, self.table, self.grants, now_s, told)
        self._unanswered -= {each.node for each in made}
        return made

    def _let_alone(self, now_s: float) -> tuple[Lease, ...]:
        """Empty leases for agents that have no device under management here: nodes in no domain, or only observed.

        An agent without any lease goes to its floor; one that has an empty lease gives the limits back that it found.
        Where the newest domains cannot be used nobody is let go: the node may be in one of them.
        """
        asking, self._unanswered = self._unanswered, set()
        if self.mistake:
            return ()
        reports = [self._book.nodes[node].report for node in sorted(asking) if self._is_left_alone(node)]
        return tuple(
            Lease(each.node, each.life, each.sent_s, self._book.for_s, self.epoch, self._newest, now_s, {}, {})
            for each in reports
        )

    def _is_left_alone(self, node: str) -> bool:
        assert self.table is not None  # noqa: S101 - `turn` has one
        row = self.table.domains.names.row(node)
        if row is None:
            return node in self.outside
        managed = self.table.devices.managed[self.table.devices.domain == row]
        return len(managed) > 0 and not managed.any()

    def _changed(self, grants: Grants) -> set[str]:
        assert self.table is not None  # noqa: S101 - `turn` has one
        domains = {int(self.table.devices.domain[row]) for row in np.flatnonzero(grants.changed)}
        return {self.table.domains.names[domain] for domain in domains}

    def _adopt(self) -> None:
        """The table anew. Devices that were here keep what they were granted, new ones what they are found at."""
        self._is_new = False
        try:
            table = self.table_of(self.inventories)
            unread = replace(table, readings=never_read(len(table.devices), len(table.domains)))
            found = self._numbered_on(taken_over(unread, found_w(self._book, table), self.epoch))
            tree_of(found)
            allocator = allocator_of(found, self.rules) if len(found.devices) else None
        except ConfigError as error:
            self.mistake = str(error)
            return
        state = first_state(allocator) if allocator is not None else None
        if state is not None and allocator is not None and self.state is not None and self.allocator is not None:
            state = carried(self.allocator, self.state, allocator, state)
        self.mistake, self.table, self.allocator, self.state = "", found, allocator, state
        self.meters, self._metering = None, metering_of(allocator.tree) if allocator is not None else None

    def _numbered_on(self, found: PowerTable) -> PowerTable:
        """Sequence numbers go on: agents refuse lower ones."""
        sequence = np.full(len(found.devices), self._newest)
        return replace(found, leases=replace(found.leases, sequence=sequence))
