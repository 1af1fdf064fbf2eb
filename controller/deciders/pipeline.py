"""The order of the deciders: each sees the cluster as the ones before it want it."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from cluster.clock import Clock
from cluster.plans import Plan
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from controller.deciders.batch import Warmth, pack_batch
from placement.batch.consolidation import consolidated
from placement.batch.ladder import BatchSettings
from placement.engine.node_order import content_rank
from placement.engine.packer import Packer
from placement.engine.policy import Knowledge
from placement.mix.planner import MixSettings, plan_mix
from placement.mix.stabilization import held
from placement.moves.defragmentation import MovePrice, defragmented
from placement.packing.planner import Stopwatch, pack
from placement.partition import shares_of
from placement.policies import policy_named

MIX_SHARE = 0.5
"""Share of the deadline that the mix may take. Chosen: it needs a tenth of it in practice, packing what is pending."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """How is decided, as the operator set it."""

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
    seed: int = 0
    """Of all chance in deciding: the same snapshot and seed make the same plan."""
    shares: int = 1
    """Into how many parts the fleet is divided at most, which are packed apart (`placement.partition`). Parts that
    share no pod lose nothing by it; what is learned of the mix of pods is learned in each part for itself."""


def decide(
    snapshot: Snapshot, decisions: Decisions, *, deadline_s: float, clock: Clock, warmth: Warmth | None = None
) -> Plan:
    """What should happen now: how many instances of each service, a node for everything that is pending, then moves.

    warmth: what planning in batches keeps from one call to the next; None: nothing, every call starts cold.
    Raises ConfigError for an unknown policy.
    """
    over_at_s = clock() + deadline_s
    plan = scale(snapshot, decisions, deadline_s=deadline_s, clock=clock)
    if not len(snapshot.nodes):
        return plan  # The question is what to rent: there is no fleet to pack, and nobody misses a place in it.
    warmth = Warmth() if warmth is None else warmth
    for number, share in enumerate(shares_of(snapshot.after(plan.actions), decisions.shares)):
        is_over = partial(_is_over, clock, over_at_s)
        plan = plan.joined(pack_share(share, decisions, warmth, number, is_over=is_over, clock=clock))
    return plan


def _is_over(clock: Clock, at_s: float) -> bool:
    return clock() >= at_s


def scale(snapshot: Snapshot, decisions: Decisions, *, deadline_s: float, clock: Clock) -> Plan:
    """How many instances of each service: the first part of deciding, of which there is one for the whole cluster."""
    mix = plan_mix(snapshot, deadline_s=MIX_SHARE * deadline_s, clock=clock, settings=decisions.mix)
    return held(snapshot, mix, hold_s=decisions.hold_s, deadline_s=MIX_SHARE * deadline_s / 2, clock=clock)


def pack_share(
    share: Snapshot, decisions: Decisions, warmth: Warmth, number: int, *, is_over: Stopwatch, clock: Clock
) -> Plan:
    """A node for everything that is pending in one share of the cluster after scaling, then moves.

    warmth: what planning in batches keeps of the share with this number.
    """
    if decisions.planner == "columns":
        batch = pack_batch(
            share,
            decisions.batch,
            lambda seen: packer_for(seen, decisions),
            warmth,
            share=number,
            preempt=decisions.preempt,
            clock=clock,
            is_over=is_over,
        )
        return _with_consolidation(share, batch, decisions, is_over=is_over())
    packer = packer_for(share, decisions)
    planned = pack(share, packer, preempt=decisions.preempt, is_over=is_over)
    if not decisions.move_share or is_over():
        return planned
    # The packer has charged all that was placed: it stands where the snapshot after this plan stands.
    moves = defragmented(share.after(planned.actions), packer, decisions.move_price, decisions.move_share)
    return planned.joined(Plan(phases=moves))


def _with_consolidation(before: Snapshot, planned: Plan, decisions: Decisions, *, is_over: bool) -> Plan:
    """The plan, followed by moves that empty nodes, if moves are wanted. What this plan starts is left where it is."""
    if not decisions.move_share or is_over:
        return planned
    after = before.after(planned.actions)
    stays = after.pods.node == before.pods.node
    seen = replace(after, pods=replace(after.pods, movable=after.pods.movable & stays))
    most = int(decisions.move_share * int((after.pods.node != PENDING).sum()))
    moves = consolidated(seen, decisions.move_price, decisions.batch.price, most_moves=most)
    return planned.joined(Plan(phases=moves))


def packer_for(snapshot: Snapshot, decisions: Decisions) -> Packer:
    """The packing engine for a snapshot; what is there and waits is what the policy expects to see more of."""
    pods = snapshot.pods
    expected = tuple(pods.shapes[index] for index in pods.shape)
    policy = policy_named(decisions.policy, Knowledge(fleet=snapshot, expected=expected, seed=decisions.seed))
    return Packer.of(snapshot, policy, rank=content_rank(snapshot))
