"""The ladder: a plan for the whole batch, by the dearest planner that there is time for; each rung holds what is below.

1. best fit by the class: always feasible, milliseconds;
2. the relaxation: a proven bound on every plan, and targets that a second best fit follows;
3. column generation, warm from what the planner remembers, rounded to whole nodes;
4. polish: a tree search over the patterns that were found, from the best plan; for small pools, and for the background.

The best plan of the rungs that were climbed counts. Which one is the highest is chosen before any is climbed, from the
size of the question and the time that is given, never by a clock on the way: the same snapshot, memory and rung make
the same plan on every machine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from cluster.arrays import IntArray
from cluster.snapshot import Snapshot
from placement.batch.assignment_table import Table, deal_by_best_fit
from placement.batch.gang_topology import Seats, all_seats, could_be_asked_for, gangs_with_a_place, no_seats, seat_near
from placement.batch.local_search import improved
from placement.batch.lp.column_generation import Effort, Found, known_bound, search
from placement.batch.lp.columns import Columns, Memory, distinct, remembered
from placement.batch.lp.integer_bound import whole_bound
from placement.batch.lp.pricing import Pricers, price_in_turn
from placement.batch.lp.relaxation import Relaxed, relaxed
from placement.batch.pod_assignment import seat_pods
from placement.batch.problem import Batch, HostPrice
from placement.batch.problem_builder import batch_of
from placement.batch.restricted_master import polished
from placement.batch.rounding import rounded
from placement.batch.targets import deal_by_targets

Rung = Literal["best-fit", "relaxation", "columns", "polish"]

MOST_CELLS = 8_000
"""Classes times kinds up to which columns are generated: 25 x 9 takes a second from nothing, and it grows with both."""

SECONDS_PER_KIND = 0.015
"""What pricing one kind of node once takes on a core of 2026, two dozen classes (docs/planning.md). It only translates
a deadline into rounds of work."""

SMALL_POOL_NODES = 200
"""Up to so many idle nodes a pool is small: one node is a percent of the cost, so patterns are sought to the end."""

PROVEN_ENOUGH = 1e-3
"""A gap that needs no better bound: small pools are proven in whole nodes where it is larger."""

RELAXATION_S = 0.1
"""A deadline from which on there is time for the relaxation: it takes some milliseconds."""

POLISH_S = 5.0
"""A deadline from which on small pools are polished: the tree search takes seconds. Only to choose the rung by."""


Pools = Callable[[Batch], Sequence[IntArray]]
"""Deals the kinds of a question to pools: numbers of kinds, each in one of them."""


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """How batches are planned."""

    within_s: float = 20.0
    """How long a plan may take, by the usual time of each kind of work: it picks the rung and the rounds. Not what a
    clock leaves of a cycle: the same snapshot then had other plans on a busy machine."""
    price: HostPrice = field(default_factory=HostPrice)
    """What nodes cost besides their GPUs."""
    effort: Effort = field(default_factory=Effort)
    """How long columns are sought."""
    small_effort: Effort = field(
        default_factory=lambda: Effort(rounds=60, enough=1e-4, dives=8, last_nodes=20, tries=400)
    )
    """The same in small pools."""
    polish_nodes: int = 100
    """Nodes of the tree search of the top rung."""


@dataclass(frozen=True, slots=True, eq=False)
class BatchPlan:
    """Who sits where, what it costs, and what is proven."""

    seats: Seats
    waiting: IntArray
    """Rows of the pods that wait and got no seat."""
    usd_per_hour: float
    """Dollars an hour of the nodes that start to run, and of what is left out at its price (`Batch.left_out_usd`)."""
    bound_usd: float
    """No plan costs less; 0 where nothing was proven."""
    rung: Rung
    """The highest that was climbed."""
    rounds: int
    """Of pricing."""
    memory: Memory
    """For the next question."""

    @property
    def gap(self) -> float:
        """(cost - bound) / cost; 0 when nothing costs anything."""
        return (self.usd_per_hour - self.bound_usd) / self.usd_per_hour if self.usd_per_hour else 0.0


def rung_for(batch: Batch, within_s: float) -> Rung:
    """The highest rung that usually fits into half of that time: the other half is for what comes after."""
    if rounds_for(batch, within_s) and len(batch.kinds) * len(batch.shapes) <= MOST_CELLS:
        return "polish" if is_small(batch) and within_s >= POLISH_S else "columns"
    return "relaxation" if within_s >= RELAXATION_S else "best-fit"


def rounds_for(batch: Batch, within_s: float) -> int:
    """Rounds of pricing that usually fit into half of that time; the next plan goes on where this one stopped."""
    if not batch.kinds:
        return 0
    return int(within_s / 2 / (SECONDS_PER_KIND * len(batch.kinds)))


def one_pool(batch: Batch) -> Sequence[IntArray]:
    """All kinds together: for a planner that works alone."""
    return [np.arange(len(batch.kinds))]


def is_small(batch: Batch) -> bool:
    """Whether a pool is small enough to be planned to the end."""
    return int(batch.kind_nodes.sum()) <= SMALL_POOL_NODES


def plan_batch(
    snapshot: Snapshot,
    memory: Memory,
    settings: BatchSettings,
    *,
    rung: Rung | None = None,
    dealt: Pools = one_pool,
    pricers: Pricers = price_in_turn,
) -> BatchPlan:
    """Seats for all that waits, at least dollars an hour.

    rung: the highest to climb; None: what fits `settings.within_s`. dealt: which kinds are priced together; how they
    are divided changes who does the work, not what comes out.
    """
    asked_for = could_be_asked_for(snapshot)
    batch = batch_of(snapshot, settings.price, asked_for)
    if not len(batch.shapes):
        return BatchPlan(no_seats(), snapshot.pods.pending, 0.0, 0.0, "best-fit", 0, memory)
    highest = rung or rung_for(batch, settings.within_s)
    near, gangs = _near(snapshot, batch)
    among = asked_for & ~np.isin(snapshot.pods.gang, gangs)
    rest = seated(snapshot, near) if gangs else snapshot
    asked = batch_of(rest, settings.price, among) if gangs else batch
    effort = settings.small_effort if is_small(asked) else settings.effort
    effort = replace(effort, rounds=min(effort.rounds, max(1, rounds_for(asked, settings.within_s))))
    table, relaxation, found = _climbed(asked, rest, memory, settings, effort, highest, dealt, pricers)
    seats = all_seats([near, seat_pods(rest, table, among)])
    waiting = np.setdiff1d(snapshot.pods.pending, seats.row)
    bound, kept = 0.0, memory
    if relaxation:
        whole = relaxed(batch) if gangs else relaxation
        proofs = found.proofs if found else memory.proofs
        bound = known_bound(batch, whole, proofs)[0] if gangs or not found else found.bound_usd
    usd = cost_of(snapshot, batch, seats, waiting[asked_for[waiting]])
    if found and relaxation and is_small(batch) and usd - bound > PROVEN_ENOUGH * usd:
        bound = max(bound, min(whole_bound(batch, whole, found.proofs), usd))
    if found:
        kept = remembered(asked, found.columns, found.proofs, found.prices.pod_usd)
    return BatchPlan(
        seats=seats,
        waiting=waiting,
        usd_per_hour=usd,
        bound_usd=bound,
        rung=highest,
        rounds=found.rounds if found else 0,
        memory=kept,
    )


def _climbed(
    batch: Batch,
    snapshot: Snapshot,
    memory: Memory,
    settings: BatchSettings,
    effort: Effort,
    highest: Rung,
    dealt: Pools,
    pricers: Pricers,
) -> tuple[Table, Relaxed | None, Found | None]:
    """The best table of the rungs up to the highest, and what they found."""
    free = snapshot.free()
    tables = [deal_by_best_fit(batch, free)]
    if highest == "best-fit" or not len(batch.shapes):
        return tables[0], None, None
    relaxation = relaxed(batch)
    if highest == "relaxation" or not memory.columns:  # what is remembered is better than targets to begin with
        tables.append(deal_by_targets(batch, free, relaxation))
    found = None
    if highest in ("columns", "polish"):
        start = _columns_of(batch, tables)
        found = search(batch, start, relaxation, memory, dealt(batch), pricers, effort)
        tables.append(rounded(batch, free, found, effort))
    best = min(reversed(tables), key=lambda table: table.usd_per_hour)
    prices = found.prices.pod_usd if found else relaxation.prices.pod_usd
    best = improved(best, prices, effort.tries)
    if found and highest == "polish":
        best = polished(batch, free, found, best, most_nodes=settings.polish_nodes, tries=effort.tries)
    return best, relaxation, found


def _columns_of(batch: Batch, tables: Sequence[Table]) -> Columns:
    """What the nodes run that plans of lower rungs open: patterns to begin with."""
    patterns, kinds = [], []
    for table in tables:
        rows = np.flatnonzero((batch.kind >= 0) & table.content.any(axis=1))
        patterns.append(table.content[rows])
        kinds.append(batch.kind[rows])
    return distinct(np.concatenate(patterns), np.concatenate(kinds))


def _near(snapshot: Snapshot, batch: Batch) -> tuple[Seats, list[int]]:
    """Seats of the gangs that are bound to a place, and which gangs these are, with a seat or without."""
    gangs = gangs_with_a_place(snapshot)
    if not gangs:
        return no_seats(), gangs
    return seat_near(snapshot, batch, Table(batch, snapshot.free()), gangs), gangs


def seated(snapshot: Snapshot, seats: Seats) -> Snapshot:
    """The snapshot with pods on these seats."""
    node, devices = snapshot.pods.node.copy(), snapshot.pods.devices.copy()
    node[seats.row], devices[seats.row] = seats.node, seats.devices
    return replace(snapshot, pods=replace(snapshot.pods, node=node, devices=devices))


def cost_of(snapshot: Snapshot, batch: Batch, seats: Seats, waiting: IntArray) -> float:
    """Dollars an hour of a plan: idle nodes that now run, and pods that wait on at their price."""
    runs = np.zeros(len(snapshot.nodes), dtype=np.bool_)
    runs[seats.node] = True
    number = {shape: c for c, shape in enumerate(batch.shapes)}
    classes = np.array([number.get(shape, -1) for shape in snapshot.pods.shapes], dtype=np.int64)
    left_out = batch.left_out_usd[classes[snapshot.pods.shape[waiting]]]
    return float(batch.node_usd[runs & ~batch.in_use].sum() + left_out.sum())
