"""Ladder of planners for a whole batch: the most expensive stage that the deadline allows, and every cheaper one.

1. best fit by class: always feasible, milliseconds;
2. the relaxation: a proven bound on every plan, and targets that a second best fit follows;
3. column generation, warm from the planner's memory, rounded to whole nodes;

The best plan of all stages counts, compared as pods are placed in the end: gangs whole, what they cannot use dealt to
others. A longer deadline compares all plans of a shorter one, so it never makes a worse plan. The highest stage
(`rung`) is chosen beforehand, from the size of the problem and the deadline, never by a clock during planning. The same
snapshot, memory and stage give the same plan on every machine.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.snapshot import Snapshot
from placement.batch import column_generation
from placement.batch.assignment_table import Table, deal_by_best_fit
from placement.batch.columns import Memory, distinct, remembered
from placement.batch.pod_assignment import Seats, all_seats, gangs_with_a_place, no_seats, seat_near, seat_pods
from placement.batch.problem import Batch, batch_of, complete_gangs, startable_pods
from placement.batch.relaxation import Relaxed, relaxed, whole_bound
from placement.batch.rounding import deal_by_targets, improved, rounded


@dataclass(frozen=True, slots=True)
class PlanCost:
    """Dollars per hour of a plan. Gaps are fractions of the nodes' part, which alone is paid."""

    left_out_usd: float
    """Price of the pods without a placement (`Batch.left_out_usd`)."""
    node_usd: float
    """Price of the idle nodes that start to run."""

    @property
    def usd(self) -> float:
        """Objective of the programs, which bounds are about."""
        return self.left_out_usd + self.node_usd

    @property
    def rank(self) -> tuple[float, float]:
        """Order of plans, the best first: no pod is left out to save money. Rounded, since sums in another order
        differ in the last digits."""
        return round(self.left_out_usd, 6), round(self.node_usd, 6)

    def gap(self, bound_usd: float) -> float:
        """Fraction of the nodes' price above what any plan that leaves out no more must pay; 0 where none start."""
        if self.node_usd <= 0:
            return 0.0
        return min(1.0, max(0.0, self.usd - bound_usd) / self.node_usd)

    def node_bound_usd(self, bound_usd: float) -> float:
        """Lower bound on the nodes' price in every plan that leaves out no more than this one, in dollars.

        For each such plan: nodes ≥ bound - left out ≥ bound - left out by this plan.
        """
        return min(self.node_usd, max(0.0, bound_usd - self.left_out_usd))


def cost_of(snapshot: Snapshot, batch: Batch, nodes: IntArray, waiting: IntArray) -> PlanCost:
    """Cost of a plan that places pods on these nodes. waiting: rows of the pods of the batch without a placement."""
    runs = np.zeros(len(snapshot.nodes), dtype=np.bool_)
    runs[nodes] = True
    left_out = batch.left_out_usd[batch.class_of(snapshot.pods.shapes)[snapshot.pods.shape[waiting]]]
    return PlanCost(float(left_out.sum()), float(batch.node_usd[runs & ~batch.in_use].sum()))


Rung = Literal["best-fit", "relaxation", "columns"]

MOST_CELLS = 8_000
"""Classes times kinds up to which columns are generated: 25 x 9 takes a second from a cold start, and grows with
both."""

SECONDS_PER_KIND = 0.010
USUAL_CLASSES = 24
"""CPU time to price one kind of node once on a core of 2026 with this number of classes; it grows with the root of the
number. Measured: 7 ms with 24 classes, 6 to 20 ms with 113 to 131. Only to translate a deadline into rounds of work."""

SMALL_POOL_NODES = 200
"""Number of idle nodes up to which a pool is small: one node is a percent of the cost, so patterns are sought to the
end."""

SMALL_FLEET_NODES = 2_000
"""Number of nodes, idle or in use, up to which a pool counts as small: every trial deals pods to all of them."""

TRIED_NODES = 200_000
"""Trials of the local search times the nodes of the fleet, at most. Measured: 0.2 s on 500 nodes."""

PROVEN_ENOUGH = 1e-3
"""Gap (`PlanCost.gap`) that needs no better bound: small pools are proven in whole nodes where it is larger."""

RELAXATION_S = 0.1
"""Shortest deadline with time for the relaxation, which takes some milliseconds."""


EFFORT = column_generation.Effort()
"""Work limits of column generation."""
SMALL_EFFORT = column_generation.Effort(enough=1e-4, last_nodes=20, tries=400)
"""The same in small pools."""


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Settings of the batch planner."""

    within_s: float = 20.0
    """Planning time, by the usual duration of each kind of work: it decides the stage and the rounds. It is not the
    rest of a cycle's time: the same snapshot would then get other plans on a busy machine."""


@dataclass(frozen=True, slots=True, eq=False)
class BatchPlan:
    """Placements of a batch, with their price and the proven bound."""

    seats: Seats
    waiting: IntArray
    """Rows of the pending pods without a placement."""
    startable: BoolArray
    """Pending pods that some plan could start (`startable.py`); the cost is about these alone. Shape (pods,)."""
    cost: PlanCost
    bound_usd: float
    """Lower bound on the whole price (`PlanCost.usd`) of every plan; 0 where nothing was proven."""
    rung: Rung
    """Highest stage that ran."""
    rounds: int
    """Rounds of pricing."""
    memory: Memory
    """Memory for the next problem."""

    @property
    def usd_per_hour(self) -> float:
        """Price per hour of the nodes that start to run, and of the pods left out, in dollars."""
        return self.cost.usd

    @property
    def gap(self) -> float:
        """(cost - bound) / price of the nodes; 0 where none start."""
        return self.cost.gap(self.bound_usd)


def rung_for(batch: Batch, within_s: float) -> Rung:
    """Highest stage that usually fits into half of that time; the other half is for the steps after it."""
    if rounds_for(batch, within_s) and len(batch.kinds) * len(batch.shapes) <= MOST_CELLS:
        return "columns"
    return "relaxation" if within_s >= RELAXATION_S else "best-fit"


def rounds_for(batch: Batch, within_s: float) -> int:
    """Rounds of pricing that usually fit into half of that time; the next plan continues where this one stopped."""
    if not batch.kinds:
        return 0
    round_s = SECONDS_PER_KIND * len(batch.kinds) * max(1.0, len(batch.shapes) / USUAL_CLASSES) ** 0.5
    return int(within_s / 2 / round_s)


def is_small(batch: Batch) -> bool:
    """Whether a pool is small enough to be planned to the end."""
    return int(batch.kind_nodes.sum()) <= SMALL_POOL_NODES and len(batch.kind) <= SMALL_FLEET_NODES


def effort_for(batch: Batch, settings: BatchSettings) -> column_generation.Effort:
    """Work limits for a problem: of its size, and of the time."""
    effort = SMALL_EFFORT if is_small(batch) else EFFORT
    return replace(
        effort,
        rounds=min(effort.rounds, column_generation.rounds_at_most(rounds_for(batch, settings.within_s))),
        tries=min(effort.tries, max(1, TRIED_NODES // max(1, len(batch.kind)))),
    )


def plan_batch(
    snapshot: Snapshot,
    memory: Memory,
    settings: BatchSettings,
    *,
    rung: Rung | None = None,
    among: BoolArray | None = None,
) -> BatchPlan:
    """Cheapest placements for all pending pods that can start, in dollars per hour.

    rung: the highest stage to run; None: the one that fits `settings.within_s`. among: the pods to plan for, shape
    (pods,); None: all that are pending.
    """
    complete = complete_gangs(snapshot)
    if among is not None:
        complete &= among
    batch = batch_of(snapshot, complete)
    startable = startable_pods(snapshot, batch, complete)
    if (startable != complete).any():
        batch = batch_of(snapshot, startable)
    if not len(batch.shapes):
        return BatchPlan(no_seats(), snapshot.pods.pending, startable, PlanCost(0.0, 0.0), 0.0, "best-fit", 0, memory)
    highest = rung or rung_for(batch, settings.within_s)
    # Gangs with a topology label come first, placed or not; the stages plan for the others beside them.
    gangs, near, rest, asked, others = gangs_with_a_place(snapshot, startable), no_seats(), snapshot, batch, startable
    if gangs:
        near = seat_near(snapshot, batch, Table(batch, snapshot.free()), gangs, startable)
        rest, others = seated(snapshot, near), startable & ~np.isin(snapshot.pods.gang, gangs)
        asked = batch_of(rest, others)
    best, relaxation, found = _staged(rest, asked, others, highest, memory, effort_for(asked, settings))
    seats = all_seats([near, best])
    waiting = np.setdiff1d(snapshot.pods.pending, seats.row)
    cost = cost_of(snapshot, batch, seats.node, waiting[startable[waiting]])
    bound, kept = 0.0, memory
    if relaxation:
        whole = relaxed(batch) if gangs else relaxation
        proofs = found.proofs if found else memory.proofs
        bound = column_generation.known_bound(batch, whole, proofs)[0] if gangs or not found else found.bound_usd
        if found and is_small(batch) and cost.gap(bound) > PROVEN_ENOUGH:
            bound = max(bound, min(whole_bound(batch, whole, found.proofs, cost.node_usd), cost.usd))
    if found:
        kept = remembered(asked, found.columns, found.proofs, found.prices.pod_usd)
    return BatchPlan(
        seats=seats,
        waiting=waiting,
        startable=startable,
        cost=cost,
        bound_usd=bound,
        rung=highest,
        rounds=found.rounds if found else 0,
        memory=kept,
    )


def _staged(
    snapshot: Snapshot, batch: Batch, among: BoolArray, highest: Rung, memory: Memory, effort: column_generation.Effort
) -> tuple[Seats, Relaxed | None, column_generation.SearchResult | None]:
    """Best placements of the stages up to the highest, as pods are placed in the end, with the results of the others.

    Whatever a shorter deadline would have compared is compared here too. among: pods of the batch, shape (pods,).
    """
    free = snapshot.free()
    found: list[tuple[tuple[float, float], Seats]] = []

    def compare(*tables: Table) -> None:
        # Two tables that leave out equally much may differ in the gangs that start whole.
        for table in tables:
            seats, filled = seat_pods(snapshot, table, among)
            rank = PlanCost(filled.left_out_usd, filled.node_usd).rank
            if not found or rank <= found[-1][0]:
                found.append((rank, seats))

    def compare_improved(table: Table, pod_usd: FloatArray) -> None:
        better = improved(table, pod_usd, effort.tries)
        compare(*((table,) if better is table else (table, better)))

    dealt_first = deal_by_best_fit(batch, free)
    compare(dealt_first)
    if highest == "best-fit" or not len(batch.shapes):
        return found[-1][1], None, None
    relaxation = relaxed(batch)
    tables = [dealt_first, deal_by_targets(batch, free, relaxation)]
    for table in tables:
        compare_improved(table, relaxation.prices.pod_usd)
    if highest == "relaxation":
        return found[-1][1], relaxation, None
    opened = [np.flatnonzero((batch.kind >= 0) & table.content.any(axis=1)) for table in tables]
    patterns = np.concatenate([table.content[rows] for table, rows in zip(tables, opened, strict=True)])
    start = distinct(patterns, np.concatenate([batch.kind[rows] for rows in opened]))
    for state in column_generation.search(batch, start, relaxation, memory, effort):
        compare_improved(rounded(batch, free, state, effort), state.prices.pod_usd)
    return found[-1][1], relaxation, state


def seated(snapshot: Snapshot, seats: Seats) -> Snapshot:
    """Snapshot with pods on these placements."""
    node, devices = snapshot.pods.node.copy(), snapshot.pods.devices.copy()
    node[seats.row], devices[seats.row] = seats.node, seats.devices
    return replace(snapshot, pods=replace(snapshot.pods, node=node, devices=devices))
