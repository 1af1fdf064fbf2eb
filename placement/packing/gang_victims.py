"""Victims of a whole gang: the fewest pods that make room for its equal members, on any nodes together."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from cluster import arrays
from cluster.workloads import ALONE, PodShape
from placement.packing.draft import PackingDraft
from placement.packing.preemption import PLACES_PER_CLEARING, fewest_victims, may_all_leave, stopped_with

MOST_PER_NODE = 16
"""Members of a gang on one node for which victims are looked for. Chosen: the GPUs of the widest common server."""
MOST_KINDS = 64
"""Kinds of nodes that are looked at for one gang; where more differ, its victims are found member by member."""
NEVER_MET = 1 << 50
"""Cost of what cannot be."""
VICTIM, HIGHEST = 1 << 28, 1 << 14
"""Cost of a victim, and of one of the highest priority, who would stop others in turn, in nodes: any number of them."""


@dataclass(frozen=True, slots=True)
class GangClearing:
    """Pods that leave for a gang, and the members that start on each node then."""

    price: tuple[int, int, int]
    """Highest priority of a stopped pod, pods stopped, and nodes used; the least is best."""
    victims: tuple[int, ...]
    members: tuple[tuple[int, int], ...]
    """Number of members by node."""


def least_clearing(
    draft: PackingDraft, shape: PodShape, need: int, priority: int, nodes: arrays.IntArray
) -> GangClearing | None:
    """The clearing of these nodes that loses least for so many pods of a shape; None where this search finds none.

    Sets: nodes v, numbers j of members. Data: c_vj, pods stopped on v to make room for j of them, of the lowest
    priorities that suffice in all. Variables: one j for each v. Objective: the sum of c_vj, subject to a sum of j of
    `need`; exact by dynamic programming. What two nodes lose together, as of one gang, counts twice.
    """
    if shape.beside != ALONE or draft.packer.power is not None or not (shape.is_whole_gpu or not shape.gpus):
        return None
    lower, open_nodes = draft.reclaimable(priority), nodes[draft.packer.eligible(shape)[nodes]]
    for band in range(lower.bands):
        most = np.minimum(lower.free(band).copies(shape, open_nodes), min(need, MOST_PER_NODE))
        if int(most.sum()) >= need:
            ceiling = int(lower.ceilings[band])
            victims = _Victims(draft, shape, ceiling + 1)
            members = victims.members(open_nodes[most > 0], most[most > 0], need)
            gone = {each for node, many in members for each in victims.of(node, many)}
            rows = tuple(sorted(stopped_with(draft, tuple(gone))))
            if members and may_all_leave(draft, rows):
                return GangClearing((ceiling, len(rows), len(members)), rows, members)
            return None
    return None


class _Victims:
    """Pods below a priority that make room for several pods of one shape on a node."""

    def __init__(self, draft: PackingDraft, shape: PodShape, below: int) -> None:
        self._draft, self._shape, self._below = draft, shape, below
        self._free = draft.packer.ledger.free.copies(shape)
        self._costs: dict[object, list[int]] = {}

    def of(self, node: int, many: int) -> tuple[int, ...]:
        """The fewest that suffice for so many; none where they fit now."""
        shape = self._shape
        if many <= self._free[node]:
            return ()
        together = replace(
            shape,
            gpus=shape.gpus * many,
            cpu_milli=shape.cpu_milli * many,
            memory_bytes=shape.memory_bytes * many,
            others=tuple((name, amount * many) for name, amount in shape.others),
        )
        return fewest_victims(self._draft, together, node, self._below)

    def members(self, nodes: arrays.IntArray, most: arrays.IntArray, need: int) -> tuple[tuple[int, int], ...]:
        """Number of members by node, at the least number of victims and then of nodes; empty where too many differ."""
        seen, chosen = Counter[object](), list[tuple[int, list[int]]]()
        for node, room in zip(nodes.tolist(), most.tolist(), strict=True):
            kind = (room, self._kind(node))
            seen[kind] += 1
            if seen[kind] > need:
                continue
            if kind not in self._costs:
                if len(self._costs) >= MOST_KINDS:
                    return ()
                self._draft.work += PLACES_PER_CLEARING * room
                self._costs[kind] = [self._cost(node, many) for many in range(room + 1)]
            chosen.append((node, self._costs[kind]))
        best, takes = np.full(need + 1, NEVER_MET), list[arrays.IntArray]()
        best[0] = 0
        for _, costs in chosen:
            options = np.full((len(costs), need + 1), NEVER_MET)
            for many, cost in enumerate(costs):
                options[many, many:] = best[: need + 1 - many] + cost
            takes.append(options.argmin(axis=0))
            best = options.min(axis=0)
        if best[need] >= NEVER_MET:
            return ()
        left, found = need, list[tuple[int, int]]()
        for (node, _), take in zip(reversed(chosen), reversed(takes), strict=True):
            if many := int(take[left]):
                found.append((node, many))
                left -= many
        return tuple(reversed(found))

    def _cost(self, node: int, many: int) -> int:
        """Victims, then those of the highest priority, then the node, as one number."""
        if not many or many <= self._free[node]:
            return 1 if many else 0
        gone = self.of(node, many)
        lost = stopped_with(self._draft, gone)
        highest = sum(int(self._draft.priority[each]) >= self._below - 1 for each in lost)
        return (VICTIM * len(lost) + HIGHEST * highest + 1) if gone else NEVER_MET

    def _kind(self, node: int) -> object:
        """Key of nodes on which as many pods of the shape cost as many victims."""
        draft, there = self._draft, self._draft.pods_on(node)
        lower = [row for row in there if draft.resistance[row] < self._below]
        if any(draft.snapshot.pods.gang[row] >= 0 or draft.budgets.covers(row) for row in lower):
            return node
        free = draft.packer.ledger
        room = tuple(sorted(free.gpu_milli[node].tolist())), int(free.cpu_milli[node]), int(free.memory_bytes[node])
        return room, tuple(sorted((draft.shape_number(row), int(draft.resistance[row])) for row in lower))
