"""The fast loop of power, without its wires: from what agents say to the leases that they get. Pure but for its memory.

The allocator decides (power/allocator.py); here stands what it decides about: which devices there are by the agents'
own word, where they draw from by the power domains, and what was granted before whenever either of them changes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from cluster.errors import ConfigError
from cluster.power import NEVER_S, PowerLeases, PowerReadings, PowerTable
from power.allocator import Allocator, AllocatorState, Grants, allocator_of, first_state, step
from power.lease_book import LeaseBook, answers, found_w, heard, readings_of, taken_over
from power.lease_message import Inventory, Lease, Refusal, Report
from power.rules import PowerRules

TableOf = Callable[[Mapping[str, Inventory]], PowerTable]
"""The power table for these nodes, with readings and leases left empty. Raises ConfigError."""
LISTEN_S = 2.0
"""How long a controller that starts anew listens before it grants anything: two reports of every agent."""


@dataclass(slots=True)
class Watts:
    """One term of one controller. A new term begins with a new one, and takes over what it hears."""

    table_of: TableOf
    epoch: int
    rules: PowerRules = field(default_factory=PowerRules)
    inventories: dict[str, Inventory] = field(default_factory=dict)
    table: PowerTable | None = None
    """As of the last turn; None before the first one that granted."""
    state: AllocatorState | None = None
    grants: Grants | None = None
    mistake: str = ""
    """Why the domains cannot be used as they are; the table before stays in force."""
    _book: LeaseBook = field(init=False)
    _allocator: Allocator | None = None
    _is_new: bool = True
    _first_s: float | None = None
    _unanswered: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._book = LeaseBook(self.epoch, self.rules.lease_s)

    def found(self, inventory: Inventory) -> None:
        """A node tells which devices it has."""
        if self.inventories.get(inventory.node) != inventory:
            self.inventories[inventory.node] = inventory
            self._is_new = True

    def changed(self, table_of: TableOf) -> None:
        """Domains, budgets or classes are others from now on."""
        self.table_of, self._is_new = table_of, True

    def hear(self, report: Report) -> Refusal | None:
        """A report; why it does not count, if it does not."""
        self._book, refusal = heard(self._book, report)
        if refusal is None:
            self._unanswered.add(report.node)
        return refusal

    def turn(self, now_s: float) -> tuple[Lease, ...]:
        """Decide, and answer every report that came since the turn before."""
        self._first_s = now_s if self._first_s is None else self._first_s
        if now_s < self._first_s + LISTEN_S:
            return ()
        if self._is_new:
            self._adopt()
        if self._allocator is None or self.state is None or self.table is None:
            return ()
        readings = readings_of(self._book, self.table)
        self.table = replace(self.table, readings=readings)
        self.state, self.grants = step(self._allocator, self.state, readings, now_s)
        told, self._unanswered = self._unanswered | self._changed(self.grants), set()
        return answers(self._book, self.table, self.grants, now_s, told)

    def _changed(self, grants: Grants) -> set[str]:
        assert self.table is not None  # noqa: S101 - `turn` has one
        domains = {int(self.table.devices.domain[row]) for row in np.flatnonzero(grants.changed)}
        return {self.table.domains.names[domain] for domain in domains}

    def _adopt(self) -> None:
        """The table anew. Devices that were here keep what they were granted, new ones what they are found at."""
        self._is_new = False
        try:
            table = self.table_of(self.inventories)
            table = replace(table, readings=_unread(table))
            found = taken_over(table, found_w(self._book, table), self.epoch)
            if self.table is not None and self.state is not None:
                found = replace(found, leases=self._carried(found))
            self._allocator = allocator_of(found, self.rules)
        except ConfigError as error:
            self.mistake = str(error)
            return
        self.mistake, self.table, self.state = "", found, first_state(self._allocator)

    def _carried(self, found: PowerTable) -> PowerLeases:
        """Leases by name. Sequence numbers go on: agents refuse lower ones."""
        assert self.table is not None  # noqa: S101 - asked before
        assert self.state is not None  # noqa: S101 - asked before
        book, leases = self.state.book, found.leases
        cap_w, ceiling_w = leases.cap_w.copy(), leases.ceiling_w.copy()
        sequence = np.full(len(cap_w), int(book.sequence.max(initial=0)))
        for row, name in enumerate(found.devices.names):
            before = self.table.devices.names.row(name)
            if before is not None:
                cap_w[row], ceiling_w[row] = book.cap_w[before], book.ceiling_w[before]
        low, high = found.devices.min_w, found.devices.max_w
        return replace(leases, cap_w=np.clip(cap_w, low, high), ceiling_w=ceiling_w, sequence=sequence)


def _unread(table: PowerTable) -> PowerReadings:
    devices, domains = len(table.devices), len(table.domains)
    return PowerReadings(
        at_s=np.full(devices, NEVER_S),
        draw_w=np.zeros(devices),
        cap_w=np.zeros(devices),
        sequence=np.full(devices, -1),
        phase=np.full(devices, -1),
        meter_at_s=np.full(domains, NEVER_S),
        meter_w=np.zeros(domains),
    )
