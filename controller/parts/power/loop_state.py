"""State of the fast loop: one immutable snapshot, passed from its thread to reporting and planning."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import FloatArray
from cluster.power import PowerTable
from controller.parts.power.domain_tree import PoweredNode, PowerTree
from controller.parts.power.watcher import PowerView
from power.control.admission import headroom_w
from power.control.state import Allocator, AllocatorState, Fleet, LearnedSpikes, fleets_of, learned_spikes
from power.watching import Meters


@dataclass(frozen=True, slots=True, eq=False)
class PowerLoopState:
    """State of the leader's fast loop. Instants are of its own clock."""

    epoch: int
    since_s: float
    """Instant when this term first granted something; before that, of the last update."""
    at_s: float
    view: PowerView
    tree: PowerTree
    heard: frozenset[str]
    """Nodes whose agents reported a valid inventory of devices in this term."""
    is_pending: bool = False
    """Whether the newest domains, nodes or devices are in no table yet; the next turn includes them."""
    mistake: str = ""
    """Reason why the newest domains cannot be used; `table` is then of the previous ones, if there were any."""
    table: PowerTable | None = None
    """Table with the last readings; None before the first turn that granted."""
    reach: FloatArray | None = None
    """`power.tree.reach_of` the table. It takes longer to compute than everything else, and depends only on
    domains and feeds."""
    allocator: Allocator | None = None
    """Allocator; None while no device was reported."""
    state: AllocatorState | None = None
    meters: Meters | None = None

    @property
    def nodes(self) -> Mapping[str, PoweredNode]:
        return self.view.nodes

    def headroom_w(self) -> Mapping[str, float]:
        """Domain and node → watts that planning may still use in it; those without any limit are omitted."""
        if self.allocator is None or self.state is None:
            return {}
        return headroom_w(self.allocator, self.state, self.meters.excess_w if self.meters is not None else 0.0)

    def fleets(self) -> Mapping[str, Fleet]:
        """Domain with a budget → its fleet."""
        return fleets_of(self.allocator) if self.allocator is not None else {}

    def spikes(self) -> Mapping[str, LearnedSpikes]:
        """Domain with a budget → what this controller learnt of its rises."""
        if self.allocator is None or self.state is None:
            return {}
        return learned_spikes(self.allocator, self.state)

    def wanted_w(self) -> FloatArray | None:
        """Draw of each device of the table, or what it would draw where its cap holds it back; NaN where it is not
        believed.

        None while there is no table with devices.
        """
        if self.table is None or self.state is None or self.allocator is None:
            return None
        seen, rules = self.state.estimate, self.allocator.rules
        held_back = seen.draw_w >= rules.pinned_share * self.state.book.cap_w
        wanted_w = np.where(held_back, np.maximum(seen.draw_w, self.state.need_w), seen.draw_w)
        return np.where(seen.believed, wanted_w, np.nan)

    def power_table(self) -> PowerTable | None:
        """Table for the deciders: with the present leases, and the headroom."""
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
