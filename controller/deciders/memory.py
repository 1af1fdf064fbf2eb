"""What a planner keeps from one plan to the next, for speed alone.

Facts that decisions rest on are in the snapshot. Plain data, to be pickled, copied or lost: two planners that were
given the same snapshots from the same beginning make the same plans.
"""

from dataclasses import dataclass, field

from placement.batch.lp.columns import Memory as Columns


@dataclass(slots=True)
class Memory:
    """What is kept of one share of the cluster."""

    columns: Columns = field(default_factory=Columns)
    """What planning in batches priced: the next batch starts from it."""


@dataclass(slots=True)
class Warmth:
    """The memories of a planner, one for each share of the cluster."""

    of_share: dict[int, Memory] = field(default_factory=dict)

    def memory(self, share: int) -> Memory:
        return self.of_share.setdefault(share, Memory())
