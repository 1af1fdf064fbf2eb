"""Planner memory, kept from one plan to the next for speed alone.

The facts that decisions depend on are in the snapshot. The memory is plain data, to be pickled, copied or lost: two
planners that received the same snapshots from the same start make the same plans.
"""

from dataclasses import dataclass, field

from placement.batch.lp.columns import Memory as Columns


@dataclass(slots=True)
class Memory:
    """Memory of one share of the cluster."""

    columns: Columns = field(default_factory=Columns)
    """Columns that batch planning priced: the next batch starts from them."""


@dataclass(slots=True)
class Warmth:
    """Memories of a planner, one for each share of the cluster."""

    of_share: dict[int, Memory] = field(default_factory=dict)

    def memory(self, share: int) -> Memory:
        return self.of_share.setdefault(share, Memory())
