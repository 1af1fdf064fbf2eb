"""How is decided: the settings of all deciders, as one value that crosses to other processes."""

from dataclasses import dataclass, field
from typing import Literal

from placement.batch.ladder import BatchSettings
from placement.mix.planner import MixSettings
from placement.moves.defragmentation import MovePrice


@dataclass(frozen=True, slots=True)
class Decisions:
    """How is decided, as the operator set it."""

    within_s: float = 2.0
    """How long deciding takes at most on a slow core. It measures out the work: solver iterations, places looked at.
    Not what a clock leaves of a cycle: the same snapshot then had other plans on a busy machine."""
    policy: str = "tonnage"
    """The packing policy, one of `placement.policies.POLICIES`."""
    planner: Literal["packing", "columns"] = "packing"
    """How what waits is placed. packing: pod by pod, where it costs least under the policy; the default, because pods
    mostly come one by one onto nodes that run anyway, and the policy thinks of those that will come. columns: all at
    once onto nodes that together cost least an hour, with a proven bound; better for large batches on fleets whose
    idle nodes are given back."""
    batch: BatchSettings = field(default_factory=BatchSettings)
    """How the planner `columns` plans."""
    mix: MixSettings = field(default_factory=MixSettings)
    preempt: bool = True
    """Whether pods of lower priority are stopped for those of higher priority."""
    hold_s: float = 0.0
    """A service that can still serve its demand is not changed again so soon after a change; 0: it may be at once."""
    move_share: float = 0.0
    """Running pods are moved where that pays, at most this share of them in one plan. Off unless asked for: a restart
    that nobody expected costs more trust than a fragment costs dollars. The planner `packing` moves pods to mend
    fragments, the planner `columns` to empty nodes."""
    polish_share: float = 0.0
    """Like `move_share`, but looked for beside plans, in a slot of the brain (consolidation.py): nodes are emptied
    where that pays, without making a plan late. Off unless asked for."""
    move_price: MovePrice = field(default_factory=MovePrice)
    """What a move must save."""
    gang_deadline_s: float = 300.0
    """A gang that runs with fewer members than it needs, and cannot be completed for this long, is stopped whole."""
    release_deadline_s: float = 60.0
    """A pod that was released towards a node, and is not bound there for this long, is evicted if it is movable."""
    awaits_pods: bool = False
    """Whether pods of a service come into being only after it was scaled, as a Deployment's do: then they are placed by
    the next plan, under the names that they have by then."""
    seed: int = 0
    """Of all chance in deciding: the same snapshot and seed make the same plan."""
    shares: int = 1
    """Into how many parts the fleet is divided at most, which are packed apart (`placement.partition`). Parts that
    share no pod lose nothing by it; what is learned of the mix of pods is learned in each part for itself."""
