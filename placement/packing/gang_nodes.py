"""Nodes for a whole gang: as many members as fit, on the fewest nodes, of which the fewest were empty."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations
from math import comb

import numpy as np

from cluster import arrays
from cluster.capacity import CPU, GPU, MEMORY, everything_asked
from cluster.workloads import WHOLE_GPU_MILLI, PodShape
from placement.packing.draft import PackingDraft, members_running

MOST_COMPARED = 8
"""Topology domains, or sets of them, whose prices are compared. Chosen: those that come first by room."""
SLACK = 1e-9
"""Rounding error of shares that add up to 1."""

Price = tuple[int, int, int]
"""What a seating costs, the least is best: members without a seat, nodes it adds to those of the gang, and how many of
them had all devices free. Empty nodes are what wide pods need, and a gang talks less across fewer nodes."""


@dataclass(slots=True)
class Seating:
    """Members on nodes, as one choice."""

    unseated: int
    on: dict[int, dict[int, int]] = field(default_factory=dict)
    """Number of members of each kind, by node."""
    price: Price = (0, 0, 0)


class GangNodes:
    """Free resources as a gang's pending members see them, and the choice of nodes among them."""

    # 2,000 nodes, 16 equal members: 0.2 ms.

    def __init__(
        self, draft: PackingDraft, gang: int, rows: Sequence[int], room: Mapping[PodShape, arrays.IntArray]
    ) -> None:
        """rows: pending members, those first that must start. room: members of each shape that each node may take,
        without any of another. Shape (nodes,).
        """
        self._draft, ledger = draft, draft.packer.ledger
        self.rows: dict[int, list[int]] = {}
        """Members by the number of their shape."""
        for row in rows:
            self.rows.setdefault(draft.shape_number(row), []).append(row)
        shapes = [draft.shape(of[0]) for of in self.rows.values()]
        self.copies = np.array([room[each] for each in shapes])
        """Members of each kind that each node has room for, without any of another kind. Shape (kinds, nodes)."""
        self._own = np.zeros(self.copies.shape[1], dtype=np.bool_)
        self._own[[int(draft.node[row]) for row in members_running(draft, gang)]] = True
        idle = ledger.gpu_milli == WHOLE_GPU_MILLI
        self._empty = (ledger.gpus > 0) & (idle.sum(axis=1) == ledger.gpus) & ~self._own
        self._used = ~(self._own | self._empty)
        asks = [everything_asked(each) for each in shapes]
        whole = all(each.is_whole_gpu or not each.gpus for each in shapes)
        milli = (idle * WHOLE_GPU_MILLI if whole else ledger.gpu_milli).sum(axis=1)
        left = {GPU: milli, CPU: ledger.cpu_milli, MEMORY: ledger.memory_bytes, **ledger.free.others}
        names = [name for name in left if any(each.get(name) for each in asks)]
        self._left = np.array([left[name] for name in names]).reshape(len(names), -1)
        self._asks = np.array([[each.get(name, 0) for name in names] for each in asks]).reshape(len(asks), -1)
        self._count = np.array([len(of) for of in self.rows.values()])
        total = np.maximum(self._count @ self._asks, 1)
        self._weight = ((self._asks / total).sum(axis=1) + 1 / len(rows)) / (len(names) + 1)
        """Share of all members, and of all that they ask for, of one member of each kind; they add up to 1."""
        self._worth = self._weight @ np.minimum(self.copies, self._count[:, None])
        """Share of the gang that each node holds, if its kinds do not take each other's room."""
        self._cost: arrays.FloatArray | None = None

    def domains(self, domain: arrays.IntArray, able: arrays.BoolArray) -> list[int]:
        """These topology domains, the cheapest first, the tightest first among equals.

        domain: shape (nodes,), the domain of each node; -1 for none. able: shape (domains,), which to compare.
        """
        count = len(able)
        worth = np.minimum(self._worth, 1.0)
        room = np.bincount(domain[domain >= 0], worth[domain >= 0], count)
        order = np.argsort(domain - worth / 2, kind="stable")  # by domain, the roomiest of each first
        order = order[domain[order] >= 0]
        # Nodes that a domain needs at least: the roomiest first, until all members have a place.
        before = np.cumsum(worth[order]) - np.append(0.0, np.cumsum(room))[domain[order]] - worth[order]
        need = np.bincount(domain[order], (before < 1 - SLACK) & (worth[order] > 0), count)
        values = np.flatnonzero(able)
        short = room[values] < 1 - SLACK
        ranked = values[np.lexsort((values, room[values], need[values], np.where(short, -room[values], 0)))].tolist()
        found: dict[int, Price] = {}
        ends = np.cumsum(np.bincount(domain[order], minlength=count))
        for value in ranked[:MOST_COMPARED]:
            if found and room[value] >= 1 - SLACK and min(found.values()) < (0, need[value], 0):
                break
            found[value] = self._price_in(order[ends[value - 1] if value else 0 : ends[value]])
        return [*sorted(found, key=lambda value: found[value]), *(each for each in ranked if each not in found)]

    def in_fewest(self, domain: arrays.IntArray) -> arrays.IntArray:
        """Nodes of as few domains as hold as many members as all of them do, at the least price among those compared.

        domain: as in `domains`.
        """
        inside = domain >= 0
        everywhere = np.flatnonzero(inside)
        has_room = len(self.rows) == 1 and self.copies[0][everywhere].sum() >= self._count[0]
        most = 0 if has_room else self._price_in(everywhere)[0]
        room = np.bincount(domain[inside], self._worth[inside], int(domain.max(initial=-1)) + 1)
        values, rooms = np.flatnonzero(room)[np.argsort(-room[room > 0], kind="stable")].tolist(), room.tolist()
        for size in range(1, len(values)):
            if size == 1:
                sets = [(value,) for value in self.domains(domain, room > 0)[:1]]
            elif comb(len(values), size) <= MOST_COMPARED:
                sets = list(combinations(values, size))
            else:  # the roomiest, and each that may complete them
                sets = [(*values[: size - 1], last) for last in values[size - 1 :]]
            total = {each: sum(rooms[value] for value in each) for each in sets}
            whole = sorted((each for each in sets if most > 0 or total[each] >= 1 - SLACK), key=total.__getitem__)
            few = (np.logical_or.reduce([domain == value for value in each]) for each in whole[:MOST_COMPARED])
            found = [np.flatnonzero(each) for each in few]
            prices = [self._price_in(nodes) for nodes in found]
            cheapest = min(range(len(found)), key=prices.__getitem__, default=-1)
            if found and prices[cheapest][0] == most:
                return found[cheapest]
        return everywhere

    def _price_in(self, nodes: arrays.IntArray) -> Price:
        """Price of the cheapest seating that is found among these nodes."""
        if len(self.rows) > 1:
            return self.best(np.sort(nodes)).price
        total, copies = int(self._count[0]), self.copies[0]
        nodes = nodes[np.argsort(-copies[nodes])]
        room, used, empty = copies[nodes], self._used[nodes], self._empty[nodes]
        wanted = min(total, int(room.sum()))
        more = _empty_beside_used(room[used], room[empty], wanted - int(room[~(used | empty)].sum()))
        new, broken = min((number + many, many) for number, many in enumerate(more))
        return total - wanted, new, broken

    def best(self, nodes: arrays.IntArray) -> Seating:
        """The cheapest seating that is found among these nodes."""
        nodes = nodes[self.copies[:, nodes].any(axis=0)]
        found = [self._tightened(each, nodes) for each in self._seatings(nodes)]
        return min(found, key=lambda each: each.price)

    def _seatings(self, nodes: arrays.IntArray) -> Iterator[Seating]:
        if len(self.rows) == 1:
            yield self._of_one_kind(nodes)
            return
        order = np.argsort(-self._weight, kind="stable").tolist()
        first = self._filled(order, nodes)
        yield first
        if first.unseated:
            yield self._filled(order[::-1], nodes)

    def _of_one_kind(self, nodes: arrays.IntArray) -> Seating:
        """Of equal members: the fewest nodes, and of these the fewest empty ones."""
        room = self.copies[0]
        ranked = nodes[np.lexsort((nodes, self._costs()[nodes], -room[nodes]))]
        own, empty = ranked[self._own[ranked]], ranked[self._empty[ranked]]
        used = ranked[self._used[ranked]]
        wanted = min(int(self._count[0]), int(room[nodes].sum()))
        more = _empty_beside_used(room[used], room[empty], wanted - int(room[own].sum()))
        _, many, number = min((number + many, many, number) for number, many in enumerate(more))
        seating = Seating(int(self._count[0]) - wanted)
        for node in (*own.tolist(), *used[:number].tolist(), *empty[:many].tolist()):
            if take := min(wanted, int(room[node])):
                seating.on[node] = {0: take}
                wanted -= take
        return seating

    def _filled(self, order: Sequence[int], nodes: arrays.IntArray) -> Seating:
        """Node by node, each time the one that holds most of what is left. order: of the kinds on each node."""
        count, seating = self._count.copy(), Seating(0)
        room, gone = self._left[:, nodes], np.zeros(len(nodes), dtype=np.bool_)
        keys = (self._costs()[nodes], self._empty[nodes], ~self._own[nodes])
        while count.any():
            fill, left = np.zeros((len(count), len(nodes)), dtype=np.int64), room.copy()
            for kind in order:
                ask = self._asks[kind]
                asked = ask > 0
                fits = (left[asked] // ask[asked, None]).min(axis=0, initial=count[kind]) * ~gone
                fill[kind] = np.minimum(np.maximum(fits, 0), self.copies[kind, nodes])
                left -= ask[:, None] * fill[kind]
            worth = self._weight @ fill
            if not worth.any():
                break
            most = np.flatnonzero(worth >= worth.max() - SLACK)
            at = int(most[np.lexsort([key[most] for key in keys])[0]])
            seating.on[int(nodes[at])] = {kind: int(fill[kind, at]) for kind in order if fill[kind, at]}
            count -= fill[:, at]
            gone[at] = True
        seating.unseated = int(count.sum())
        return seating

    def _tightened(self, seating: Seating, nodes: arrays.IntArray) -> Seating:
        """The same members on other nodes, each the tightest that holds as many, and one in use before an empty one."""
        taken = np.isin(nodes, list(seating.on))
        own, empty, costs = self._own[nodes], self._empty[nodes], self._costs()[nodes]
        left, copies = self._left[:, nodes], self.copies[:, nodes]
        order = np.lexsort((costs, left[0], empty, ~own))
        for node, members in sorted(seating.on.items(), key=lambda each: self._load(each[1])):
            kinds, counts = list(members), np.array(list(members.values()))
            fits = ~taken & (copies[kinds] >= counts[:, None]).all(axis=0)
            if len(kinds) > 1:  # of one kind, `copies` say it
                fits &= (left >= (counts @ self._asks[kinds])[:, None]).all(axis=0)
            at = int(np.searchsorted(nodes, node))
            fits[at] = True
            best = int(order[fits[order].argmax()])
            taken[at], taken[best] = False, True
            seating.on[int(nodes[best])] = seating.on.pop(node)
        chosen = list(seating.on)
        new, broken = int((~self._own[chosen]).sum()), int(self._empty[chosen].sum())
        seating.price = seating.unseated, new, broken
        return seating

    def _load(self, members: dict[int, int]) -> float:
        return float(sum(self._weight[kind] * many for kind, many in members.items()))

    def _costs(self) -> arrays.FloatArray:
        """What the policy charges for a first member on each node."""
        if self._cost is None:
            self._cost = self._draft.packer.costs(self._draft.shape(next(iter(self.rows.values()))[0]))[0]
        return self._cost


def _empty_beside_used(used: arrays.IntArray, empty: arrays.IntArray, need: int) -> list[int]:
    """Number of the roomiest empty nodes that are needed beside none, one, two ... of the roomiest in use.

    used, empty: room of the nodes, the roomiest first. More than there are nodes where too few are empty.
    """
    # In lists: most gangs need few nodes, for which a call of NumPy takes longer than the sum.
    of_used, of_empty = ([0, *accumulate(room[: max(0, need)].tolist())] for room in (used, empty))
    too_many = len(used) + len(empty) + 1
    more = (bisect_left(of_empty, need - taken) for taken in of_used)
    return [many if many < len(of_empty) else too_many for many in more]
