"""Seats of services' pending instances together, where one after the other would leave some without a node.

The mix sells instances that have seats together: an instance that may run anywhere must then leave the few nodes of
another service to it. Pods are placed one at a time, so equal nodes look equal. Where that fails, all instances of one
priority are seated by a small model: x_gv instances of shape g on node v, as many as possible. It leaves seats to
those of lower priority as well, as far as that costs none of higher priority its own.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pulp

from cluster.snapshot import PENDING
from cluster.workloads import WHOLE_GPU_MILLI, PodShape
from placement.budget import Budget
from placement.mix.pulp_solver import solve
from placement.packing.draft import Draft
from placement.stock import Footprint, footprint_of

Kind = tuple[PodShape, int]
"""Shape and priority of instances that are interchangeable here."""

MOST_VARIABLES = 4_000
"""Pairs of shape and node, beyond which instances are placed one at a time. Chosen: 1 s of a core of 2026 at most."""
MOST_NODES = 50
"""Nodes of the tree search. Chosen: the model mostly takes one."""
PLACES_PER_VARIABLE = 500
"""Price of the model for each pair of shape and node, in examined places. Measured: 0.2 ms."""


def seat_instances_together(draft: Draft, priority: int, budget: Budget) -> int:
    """Seats the pending instances of this priority together, where one by one they, or those of lower priority, would
    not all find a place. Returns how many."""
    rows = _instances(draft, priority)
    shapes = list(dict.fromkeys(draft.shape(row) for row in rows))
    if len(shapes) < 2 or _have_seats_one_by_one(draft, rows, budget):
        return 0
    nodes, rooms = _usable_nodes(draft, shapes, len(rows))
    if len(nodes) * len(shapes) > MOST_VARIABLES:
        return 0
    wanted = Counter((draft.shape(row), int(draft.priority[row])) for row in rows)
    budget.spend(PLACES_PER_VARIABLE * len(nodes) * len(shapes))
    seats = _most_seats(draft, wanted, nodes, rooms)
    return sum(_seat_at(draft, row, seats) for row in rows if draft.priority[row] == priority)


def _instances(draft: Draft, priority: int) -> list[int]:
    """Pending instances of whole devices, of this priority and below, in the order of service."""
    pods = draft.snapshot.pods
    waiting = np.flatnonzero((draft.node == PENDING) & (draft.priority <= priority) & (pods.gang < 0)).tolist()
    rows = [row for row in waiting if pods.owner[row] and draft.shape(row).is_whole_gpu]
    return sorted(rows, key=lambda row: (-draft.priority[row], -draft.shape(row).gpus, row))


def _have_seats_one_by_one(draft: Draft, rows: list[int], budget: Budget) -> bool:
    """Whether each finds a place in its turn; all are taken back."""
    mark = draft.mark
    budget.spend(len(rows) * len(draft.snapshot.nodes))
    fit = all(draft.seat(row) for row in rows)
    draft.roll_back(mark)
    return fit


def _usable_nodes(draft: Draft, shapes: list[PodShape], most: int) -> tuple[list[int], list[Footprint]]:
    """Nodes that some of these shapes fit, with what is free there; of equal ones no more than there are instances."""
    ledger = draft.packer.ledger
    fits = np.array([draft.packer.feasible(shape) for shape in shapes])
    whole = (ledger.gpu_milli >= WHOLE_GPU_MILLI).sum(axis=1)
    seen = Counter[tuple[bytes, Footprint]]()
    nodes, rooms = [], []
    for node in np.flatnonzero(fits.any(axis=0)).tolist():
        room = Footprint(int(whole[node]), int(ledger.cpu_milli[node]), int(ledger.memory_bytes[node]))
        kind = fits[:, node].tobytes(), room
        seen[kind] += 1
        if seen[kind] <= most:
            nodes.append(node)
            rooms.append(room)
    return nodes, rooms


def _most_seats(
    draft: Draft, wanted: Mapping[Kind, int], nodes: list[int], rooms: list[Footprint]
) -> dict[Kind, list[int]]:
    """Nodes by shape and priority, one entry per instance."""
    problem = pulp.LpProblem("instances", pulp.LpMinimize)
    x = {
        (kind, v): problem.add_variable(f"x_{g}_{v}", 0, min(wanted[kind], footprint.times_in(room)), pulp.LpInteger)
        for g, kind in enumerate(wanted)
        for footprint in (footprint_of(kind[0]),)
        for allowed in (draft.packer.feasible(kind[0]),)
        for v, (node, room) in enumerate(zip(nodes, rooms, strict=True))
        if allowed[node]
    }
    worth = _worth(wanted)
    problem += -pulp.lpSum(worth[kind[1]] * variable for (kind, _), variable in x.items())
    for kind, count in wanted.items():
        problem += pulp.lpSum(variable for (each, _), variable in x.items() if each == kind) <= count
    on_node: dict[int, list[tuple[PodShape, pulp.LpVariable]]] = {}
    for (kind, v), variable in x.items():
        on_node.setdefault(v, []).append((kind[0], variable))
    for v, there in on_node.items():
        problem += pulp.lpSum(shape.gpus * variable for shape, variable in there) <= rooms[v].gpus
        problem += pulp.lpSum(shape.cpu_milli * variable for shape, variable in there) <= rooms[v].cpu_milli
        # In MiB: solvers lose whole numbers among sums of 1e12 bytes.
        memory = (-(-shape.memory_bytes // 2**20) * variable for shape, variable in there)
        problem += pulp.lpSum(memory) <= rooms[v].memory_bytes // 2**20
    if not solve(problem, most_nodes=MOST_NODES).has_answer:
        return {}
    return {
        kind: [nodes[v] for (each, v), count in x.items() if each == kind for _ in range(round(count.value() or 0))]
        for kind in wanted
    }


def _worth(wanted: Mapping[Kind, int]) -> dict[int, float]:
    """Worth of a seat by priority: one of a higher priority is worth more than all of the next lower one.

    Beyond 1e6 the lower ones are worth nothing: solvers work to six digits.
    """
    worth, all_below = dict[int, float](), 0.0
    for priority in sorted({priority for _, priority in wanted}):
        worth[priority] = 1.0 + all_below
        all_below += worth[priority] * sum(count for (_, each), count in wanted.items() if each == priority)
    highest = max(worth.values())
    return {priority: value / highest if value * 1e6 >= highest else 0.0 for priority, value in worth.items()}


def _seat_at(draft: Draft, row: int, seats: dict[Kind, list[int]]) -> bool:
    """Places an instance on the next node of its shape, as long as there is one."""
    nodes = seats.get((draft.shape(row), int(draft.priority[row])))
    if not nodes:
        return False
    there = np.zeros(len(draft.snapshot.nodes), dtype=bool)
    there[nodes.pop(0)] = True
    return draft.seat(row, there)
