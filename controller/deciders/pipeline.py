"""The order of the deciders: each sees the cluster as the ones before it want it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from cluster.clock import Clock
from cluster.plans import Phase, Plan, Reason
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from controller.deciders.batch import Warmth, pack_batch
from placement.batch.consolidation import consolidated
from placement.batch.ladder import BatchSettings
from placement.budget import Budget
from placement.engine.node_order import content_rank
from placement.engine.packer import Packer
from placement.engine.policy import Knowledge
from placement.mix.optimizer import work_of
from placement.mix.planner import MixSettings, plan_mix
from placement.mix.stabilization import held
from placement.moves.defragmentation import MovePrice, defragmented
from placement.packing.planner import pack, packing_work_of
from placement.partition import shares_of
from placement.policies import policy_named

MIX_SHARE = 0.7
"""Share of the deadline after which time ends the mix, so that pods have their turn on a busy machine, too. The work
that the mix is given takes far less of it on a quiet one."""
HOLD_SHARE = 0.25
"""Work for whether what runs can be left alone, of the work for the mix. Chosen: the question is asked of services that
changed a moment ago, and the stock of what runs answers it at once."""


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
    seed: int = 0
    """Of all chance in deciding: the same snapshot and seed make the same plan."""
    shares: int = 1
    """Into how many parts the fleet is divided at most, which are packed apart (`placement.partition`). Parts that
    share no pod lose nothing by it; what is learned of the mix of pods is learned in each part for itself."""


def decide(
    snapshot: Snapshot, decisions: Decisions, *, deadline_s: float, clock: Clock, warmth: Warmth | None = None
) -> Plan:
    """What should happen now: how many instances of each service, a node for everything that is pending, then moves.

    How much work that may take the decisions say. deadline_s: when time ends it, which the plan then says: the last
    resort. warmth: what planning in batches keeps from one call to the next; None: nothing, every call starts cold.
    Raises ConfigError for an unknown policy.
    """
    over_at_s = clock() + deadline_s
    plan = scale(snapshot, decisions, deadline_s=deadline_s, clock=clock)
    if not len(snapshot.nodes):
        return plan  # The question is what to rent: there is no fleet to pack, and nobody misses a place in it.
    warmth = Warmth() if warmth is None else warmth
    shares = shares_of(snapshot.after(plan.actions), decisions.shares)
    budgets = packing_budgets(shares, decisions, over_at_s=over_at_s, clock=clock)
    for number, (share, budget) in enumerate(zip(shares, budgets, strict=True)):
        plan = plan.joined(pack_share(share, decisions, warmth, number, budget))
    return plan


def scale(snapshot: Snapshot, decisions: Decisions, *, deadline_s: float, clock: Clock) -> Plan:
    """How many instances of each service: the first part of deciding, of which there is one for the whole cluster."""
    over_at_s = clock() + (MIX_SHARE if len(snapshot.nodes) else 1.0) * deadline_s
    work = work_of(decisions.within_s)
    mix = plan_mix(snapshot, Budget(work, clock, over_at_s), decisions.mix)
    return held(snapshot, mix, Budget(HOLD_SHARE * work, clock, over_at_s), hold_s=decisions.hold_s)


def packing_budgets(
    shares: Sequence[Snapshot], decisions: Decisions, *, over_at_s: float, clock: Clock
) -> list[Budget]:
    """The budget of each share of the cluster, by how many pods wait there. over_at_s: on the clock.

    They do not depend on who packs which share, nor on what another one leaves: shares are packed side by side.
    """
    waiting = [len(share.pods.pending) for share in shares]
    work = packing_work_of(decisions.within_s) / max(1, sum(waiting))
    return [Budget(work * max(1, count), clock, over_at_s) for count in waiting]


def pack_share(share: Snapshot, decisions: Decisions, warmth: Warmth, number: int, budget: Budget) -> Plan:
    """A node for everything that is pending in one share of the cluster after scaling, then moves.

    warmth: what planning in batches keeps of the share with this number.
    """
    if decisions.planner == "columns":
        planned = pack_batch(
            share,
            decisions.batch,
            lambda seen: packer_for(seen, decisions),
            warmth,
            budget,
            share=number,
            preempt=decisions.preempt,
        )
        return _with_moves(planned, decisions, budget, lambda: _consolidation(share, planned, decisions))
    packer = packer_for(share, decisions)
    planned = pack(share, packer, budget, preempt=decisions.preempt)
    # The packer has charged all that was placed: it stands where the snapshot after this plan stands.
    return _with_moves(
        planned,
        decisions,
        budget,
        lambda: defragmented(share.after(planned.actions), packer, decisions.move_price, decisions.move_share),
    )


def _with_moves(planned: Plan, decisions: Decisions, budget: Budget, moves: Callable[[], tuple[Phase, ...]]) -> Plan:
    """The plan, followed by moves, if they are wanted. They are counted by pods and nodes: only time forbids them."""
    if not decisions.move_share:
        return planned
    if budget.left_s <= 0:
        return planned.joined(Plan(cut_short=(MOVES_OUT_OF_TIME,)))
    return planned.joined(Plan(phases=moves()))


MOVES_OUT_OF_TIME = Reason("MovesOutOfTime", "time ran out before moves were looked for")


def _consolidation(before: Snapshot, planned: Plan, decisions: Decisions) -> tuple[Phase, ...]:
    """Moves that empty nodes after the plan. What the plan starts is left where it is."""
    after = before.after(planned.actions)
    stays = after.pods.node == before.pods.node
    seen = replace(after, pods=replace(after.pods, movable=after.pods.movable & stays))
    most = int(decisions.move_share * int((after.pods.node != PENDING).sum()))
    return consolidated(seen, decisions.move_price, decisions.batch.price, most_moves=most)


def packer_for(snapshot: Snapshot, decisions: Decisions) -> Packer:
    """The packing engine for a snapshot; what is there and waits is what the policy expects to see more of."""
    pods = snapshot.pods
    expected = tuple(pods.shapes[index] for index in pods.shape)
    policy = policy_named(decisions.policy, Knowledge(fleet=snapshot, expected=expected, seed=decisions.seed))
    return Packer.of(snapshot, policy, rank=content_rank(snapshot))
