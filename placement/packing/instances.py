"""Instances of services that wait, placed together where one after the other would leave some without a node."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pulp

from cluster.snapshot import PENDING
from cluster.workloads import WHOLE_GPU_MILLI, PodShape
from placement.budget import Budget
from placement.mix.pulp_solver import solve
from placement.packing.draft import PackingDraft
from placement.stock import Footprint, footprint_of

Kind = tuple[PodShape, int]
"""Shape and priority of instances that are interchangeable here."""

MOST_VARIABLES = 4_000
"""Pairs of shape and node, beyond which instances are placed one at a time. Chosen: 1 s of a core of 2026 at most."""
MOST_NODES = 50
"""Nodes of the tree search. Chosen: the model mostly takes one."""
PLACES_PER_VARIABLE = 500
"""Price of the model for each pair of shape and node, in examined places. Measured: 0.2 ms."""


def seat_instances_together(draft: PackingDraft, priority: int, budget: Budget) -> int:
    """Places the pending instances of this priority together, where one by one they, or those of lower priority, would
    not all find a place. Returns how many.

    The mix sells instances that fit together: one that may run anywhere must then leave the few nodes of another
    service to it. Pods are placed one at a time, so equal nodes look equal. A small model places as many as possible:
    x_gv instances of shape g on node v. It leaves room to those of lower priority as well, as far as that costs none of
    higher priority its own.
    """
    pods, ledger = draft.snapshot.pods, draft.packer.ledger
    waiting = np.flatnonzero((draft.node == PENDING) & (draft.priority <= priority) & (pods.gang < 0)).tolist()
    rows = [row for row in waiting if pods.owner[row] and draft.shape(row).is_whole_gpu]
    rows.sort(key=lambda row: (-draft.priority[row], -draft.shape(row).gpus, row))
    shapes = list(dict.fromkeys(draft.shape(row) for row in rows))
    if len(shapes) < 2:
        return 0
    mark = draft.mark
    budget.spend(len(rows) * len(draft.snapshot.nodes))
    fit_one_by_one = all(draft.seat(row) for row in rows)
    draft.roll_back(mark)
    if fit_one_by_one:
        return 0
    # Nodes that some of these shapes fit, with what is free there; of equal ones no more than there are instances.
    fits = np.array([draft.packer.feasible(shape) for shape in shapes])
    whole = (ledger.gpu_milli >= WHOLE_GPU_MILLI).sum(axis=1)
    seen = Counter[tuple[bytes, Footprint]]()
    rooms: dict[int, Footprint] = {}
    for node in np.flatnonzero(fits.any(axis=0)).tolist():
        room = Footprint(int(whole[node]), int(ledger.cpu_milli[node]), int(ledger.memory_bytes[node]))
        kind = fits[:, node].tobytes(), room
        seen[kind] += 1
        if seen[kind] <= len(rows):
            rooms[node] = room
    if len(rooms) * len(shapes) > MOST_VARIABLES:
        return 0
    budget.spend(PLACES_PER_VARIABLE * len(rooms) * len(shapes))
    places = _most_places(draft, Counter((draft.shape(row), int(draft.priority[row])) for row in rows), rooms)
    seated = 0
    for row in rows:
        nodes = places.get((draft.shape(row), int(draft.priority[row])))
        if draft.priority[row] == priority and nodes:
            there = np.zeros(len(draft.snapshot.nodes), dtype=bool)
            there[nodes.pop(0)] = True
            seated += draft.seat(row, there)
    return seated


def _most_places(
    draft: PackingDraft, wanted: Mapping[Kind, int], rooms: Mapping[int, Footprint]
) -> dict[Kind, list[int]]:
    """Nodes by shape and priority, one entry per instance. rooms: what is free on each node that may be used."""
    problem = pulp.LpProblem("instances", pulp.LpMinimize)
    x = {
        (kind, node): problem.add_variable(f"x_{g}_{v}", 0, min(wanted[kind], footprint.times_in(room)), pulp.LpInteger)
        for g, kind in enumerate(wanted)
        for footprint in (footprint_of(kind[0]),)
        for allowed in (draft.packer.feasible(kind[0]),)
        for v, (node, room) in enumerate(rooms.items())
        if allowed[node]
    }
    # A place of a higher priority is worth more than all of the next lower one. Beyond 1e6 the lower ones are worth
    # nothing: solvers work to six digits.
    worth, all_below = dict[int, float](), 0.0
    for priority in sorted({priority for _, priority in wanted}):
        worth[priority] = 1.0 + all_below
        all_below += worth[priority] * sum(count for (_, each), count in wanted.items() if each == priority)
    highest = max(worth.values())
    worth = {priority: value / highest if value * 1e6 >= highest else 0.0 for priority, value in worth.items()}
    problem += -pulp.lpSum(worth[kind[1]] * variable for (kind, _), variable in x.items())
    for kind, count in wanted.items():
        problem += pulp.lpSum(variable for (each, _), variable in x.items() if each == kind) <= count
    on_node: dict[int, list[tuple[PodShape, pulp.LpVariable]]] = {}
    for (kind, node), variable in x.items():
        on_node.setdefault(node, []).append((kind[0], variable))
    for node, there in on_node.items():
        problem += pulp.lpSum(shape.gpus * variable for shape, variable in there) <= rooms[node].gpus
        problem += pulp.lpSum(shape.cpu_milli * variable for shape, variable in there) <= rooms[node].cpu_milli
        # In MiB: solvers lose whole numbers among sums of 1e12 bytes.
        memory = (-(-shape.memory_bytes // 2**20) * variable for shape, variable in there)
        problem += pulp.lpSum(memory) <= rooms[node].memory_bytes // 2**20
    if not solve(problem, most_nodes=MOST_NODES).has_answer:
        return {}
    return {
        kind: [node for (each, node), count in x.items() if each == kind for _ in range(round(count.value() or 0))]
        for kind in wanted
    }
