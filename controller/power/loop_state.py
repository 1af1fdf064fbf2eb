"""How power stands: one immutable picture, handed from the thread of the fast loop to whoever reports or plans."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import FloatArray
from cluster.power import PowerTable
from controller.power.domain_tree import PoweredNode, PowerTree
from controller.power.watcher import Sight
from power.allocator.admission import headroom_w
from power.allocator.state import Allocator, AllocatorState
from power.estimation.meters import Meters


@dataclass(frozen=True, slots=True, eq=False)
class PowerStanding:
    """What the leader's fast loop knows. Instants are of its own clock."""

    epoch: int
    since_s: float
    """When this term first granted something; until it did, when it was last looked."""
    at_s: float
    sight: Sight
    tree: PowerTree
    heard: frozenset[str]
    """Nodes whose agents told of their devices in this term, and of devices that can be."""
    is_pending: bool = False
    """The newest domains, nodes or devices are in no table yet: the next turn takes them up."""
    mistake: str = ""
    """Why the newest domains cannot be used; then `table` is of those before, if there were any."""
    table: PowerTable | None = None
    """With what was read last; None before the first turn that granted."""
    reach: FloatArray | None = None
    """`power.domains.tree.reach_of` the table: it takes longer to make than all the rest, and only domains and feeds
    count."""
    allocator: Allocator | None = None
    """None while no device was told of."""
    state: AllocatorState | None = None
    meters: Meters | None = None

    @property
    def nodes(self) -> Mapping[str, PoweredNode]:
        return self.sight.nodes

    def headroom_w(self) -> Mapping[str, float]:
        """Domain and node → watts that may still be planned with in it; those without any limit are missing."""
        if self.allocator is None or self.state is None:
            return {}
        return headroom_w(self.allocator, self.state, self.meters.excess_w if self.meters is not None else 0.0)

    def wanted_w(self) -> FloatArray | None:
        """What each device of the table draws, or would draw where its cap holds it back; NaN where it is not believed.

        None while there is no table with devices.
        """
        if self.table is None or self.state is None or self.allocator is None:
            return None
        seen, rules = self.state.estimate, self.allocator.rules
        held_back = seen.draw_w >= rules.pinned_share * self.state.book.cap_w
        wanted_w = np.where(held_back, np.maximum(seen.draw_w, self.state.need_w), seen.draw_w)
        return np.where(seen.believed, wanted_w, np.nan)

    def power_table(self) -> PowerTable | None:
        """What deciders get to see: the table with its leases as they are now, and the headroom."""
        if self.table is None or self.state is None:
            return None
        book = self.state.book
        leases = replace(
            self.table.leases,
            cap_w=book.cap_w,
            ceiling_w=self.state.estimate.held_w,
            sequence=book.sequence,
            epoch=self.epoch,
        )
        return replace(self.table, leases=leases, headroom_w=self.headroom_w())
