"""The order of the deciders: each sees the cluster as the ones before it want it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from cluster.clock import Clock
from cluster.plans import Phase, Plan, Reason
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from controller.deciders.batch import Warmth, pack_batch
from controller.deciders.decisions import Decisions
from controller.deciders.packing import packer_for
from placement.batch.consolidation import consolidated
from placement.budget import Budget
from placement.mix.optimizer import work_of
from placement.mix.planner import plan_mix
from placement.mix.stabilization import held
from placement.moves.defragmentation import defragmented
from placement.packing.planner import pack, packing_work_of
from placement.partition import shares_of

MIX_SHARE = 0.7
"""Share of the deadline after which time ends the mix, so that pods have their turn on a busy machine, too. The work
that the mix is given takes far less of it on a quiet one."""
HOLD_SHARE = 0.25
"""Work for whether what runs can be left alone, of the work for the mix. Chosen: the question is asked of services that
changed a moment ago, and the stock of what runs answers it at once."""


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
