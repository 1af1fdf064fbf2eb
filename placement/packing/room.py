"""Room for what waits: pods that may be moved leave nodes for others, where that costs least, as one choice for all.

Pods that this plan starts have their choice again with them: one after the other they take each other's nodes.

Sets: nodes v; kinds j of pods that wait; gangs g with the domains d where they may start; kinds k of pods that may
move, on their nodes; shapes s of those. Data: what is free on v, the price of a move, the worth of a start.
Variables: starts w_jv, leaves l_k, arrivals a_sv, all whole; z_gd, whether a gang starts in a domain.
Objective: least price of the moves less the worth of the starts.
Constraints: no node is over-committed; arrivals fit before anybody leaves, and are as many of each shape as leave; no
group of pods (a namespace, a service, those of a disruption budget) loses more than it may; a gang starts whole.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cluster import arrays, workloads
from cluster.snapshot import PENDING
from placement.engine.packer import Choice
from placement.highs_program import Entries, Program, TreeSearch
from placement.move_price import MovePrice
from placement.packing.draft import ENDING, NEVER, PackingDraft, members_running
from placement.packing.units import Unit

MOST_UNITS = 64
"""Units that get room in one plan, in the order of service. Chosen: a plan stops a few hundred pods at most."""
MOST_AGAIN = 256
"""Pods that this plan starts and that have their choice again. Chosen: to seat them anew takes a tenth of a second."""
MOST_NODES = 250
"""Nodes that one kind may start on, those with least to leave, and nodes that others may go to, the fullest."""
MOST_TRIES = 4
"""Solutions that are tried, each without what the packing engine refused of the one before."""
SEARCH = TreeSearch(most_nodes=50, gap=1e-5)
MIB = 1 << 20

Stay = tuple[int, int]
"""Shape of pods that may move, and the kind of node where they and their replacements run: placement mode and spot."""
Mover = tuple[Stay, tuple[str, ...], float, int]
"""Pods that are alike: the same, the groups that count their moves, the price of a move in dollars, and the node."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Equal pods that wait: single ones, or those that a gang needs, in one domain."""

    rows: tuple[int, ...]
    shape: workloads.PodShape
    allowed: arrays.BoolArray
    gang: tuple[int, int] | None = None
    """The gang, and which of its domains."""


class _Model:
    """A program that grows by columns; rows have names and limits."""

    def __init__(self) -> None:
        self._cost, self._upper = list[float](), list[float]()
        self._rows: dict[Hashable, int] = {}
        self._limits: list[tuple[float, float]] = []
        self._entries: list[tuple[int, int, float]] = []

    def limit(self, row: Hashable, low: float = -np.inf, high: float = np.inf) -> None:
        self._rows[row] = len(self._limits)
        self._limits.append((low, high))

    def add(self, cost: float, upper: float, entries: Iterable[tuple[Hashable, float]]) -> None:
        """A variable, with its coefficients in rows; rows without a limit are left out."""
        column = len(self._cost)
        self._cost.append(cost)
        self._upper.append(upper)
        self._entries += [(self._rows[row], column, value) for row, value in entries if row in self._rows and value]

    def solved(self) -> list[int]:
        """Values of the variables, in their order; none where nothing is to be had."""
        if not self._entries:
            return []
        row, column, value = zip(*self._entries, strict=True)
        low, high = np.array(self._limits, dtype=np.float64).T
        entries = Entries(np.array(row), np.array(column), np.array(value, dtype=np.float64))
        program = Program(np.array(self._cost), np.array(self._upper, dtype=np.float64), low, high, entries, SEARCH)
        return [round(each) for each in program.values.tolist()] if program.solve() else []


def make_room(draft: PackingDraft, units: Iterable[Unit], moves: MovePrice | None) -> bool:
    """Places units that wait on nodes that others leave, which get places elsewhere: `draft.moved`. Returns whether any
    has a place. moves: None: no running pod is moved.
    """
    draft.move_price, by_priority, began = moves or MovePrice(), defaultdict[int, list[Unit]](list), draft.mark
    whole = int((draft.packer.ledger.gpu_milli >= workloads.WHOLE_GPU_MILLI).sum())
    for unit in units:
        # Moves make no room, they only gather it; but pods that start may have taken what others need more.
        may = whole >= max(draft.shape(row).gpus for row in unit.rows) or draft.mark
        if may and len(unit.rows) >= unit.need and all(draft.shape(row).is_whole_gpu for row in unit.rows):
            by_priority[unit.priority].append(unit)
    movable = _movable(draft) if by_priority and moves else []
    for priority in sorted(by_priority, reverse=True):
        rows = [row for row in movable if draft.priority[row] <= priority and row not in draft.moved]
        mark, again = draft.mark, _started(draft, priority)
        waits = by_priority[priority][:MOST_UNITS]
        kinds = {draft.shape_number(row) for row in (*again, *(row for unit in waits for row in unit.rows))}
        if not rows and (not again or len(kinds) < 2):
            continue  # equal pods cannot do better in each other's places
        for row in again:
            draft.unseat(row)
        waits[:0] = (Unit(priority, (row,), 1) for row in again)
        refused = set[tuple[int, int]]()
        for _ in range(MOST_TRIES):
            choice = _Choice(draft, waits, rows, draft.move_price, refused, frozenset(again))
            if not choice.starts_more_than(len(again)) or choice.is_carried_out():
                break
        if any(draft.node[row] == PENDING for row in again):
            draft.roll_back(mark)
            draft.moved.difference_update(rows)
    return draft.mark > began


def _started(draft: PackingDraft, priority: int) -> list[int]:
    """Single pods of this priority or a higher one that the plan starts where nobody leaves."""
    pods = draft.snapshot.pods
    left = np.unique(pods.node[(pods.node != PENDING) & (draft.node != pods.node)])
    starts = (pods.node == PENDING) & (draft.node != PENDING) & (pods.gang < 0) & (draft.priority >= priority)
    rows = np.flatnonzero(starts & ~np.isin(draft.node, left)).tolist()
    able = [row for row in rows if draft.shape(row).is_whole_gpu and row not in draft.held_for]
    return able if len(able) <= MOST_AGAIN else []


def _movable(draft: PackingDraft) -> list[int]:
    """Rows of running pods that may be moved one by one, and whose seats the model understands."""
    pods = draft.snapshot.pods
    runs = (draft.node == pods.node) & (draft.devices == pods.devices) & (pods.node != PENDING) & (pods.gang < 0)
    able = pods.movable & runs & (draft.resistance != NEVER) & (draft.resistance != ENDING)
    plain = np.array([s.is_whole_gpu and not (s.beside.is_bound or s.beside.crowds) for s in pods.shapes], dtype=bool)
    return np.flatnonzero(able & plain[pods.shape]).tolist()


class _Choice:
    """The model for units of one priority, and its solution."""

    def __init__(
        self,
        draft: PackingDraft,
        units: Sequence[Unit],
        movable: Sequence[int],
        price: MovePrice,
        refused: set[tuple[int, int]],
        again: Collection[int],
    ) -> None:
        """refused: numbers of shapes, with nodes where they cannot start although the model has them there. again:
        rows that start in any case.
        """
        self._draft, self._refused, self._again = draft, refused, again
        pods, ledger, labels = draft.snapshot.pods, draft.packer.ledger, draft.snapshot.nodes.labels
        usd = [kind.price_per_hour or price.unknown_usd for kind in draft.snapshot.gpu_types]
        self._worth_usd = np.array([*usd, price.unknown_usd])[ledger.gpu_type] * price.stay_h
        self._whole = (ledger.gpu_milli >= workloads.WHOLE_GPU_MILLI).sum(axis=1)
        kinds: dict[Hashable, int] = {}
        where = ((own.get(workloads.PLACEMENT_MODE_LABEL), workloads.is_spot(own)) for own in labels)
        self._kind = np.array([kinds.setdefault(each, len(kinds)) for each in where], dtype=np.int64)
        self._limits, of_groups = dict[str, int](), Counter[str]()
        self._movers: dict[Mover, list[int]] = defaultdict(list)
        self._most = self._whole.copy()
        """Devices that would be free on each node if all left that may."""
        for row in movable:
            node, shape = int(pods.node[row]), draft.shape(row)
            budgets = dict(draft.budgets.left_of(row))
            own = [each for each in (pods.names[row].partition("/")[0], pods.owner[row]) if each]
            of_groups.update(own)
            self._limits |= budgets
            stay = draft.shape_number(row), int(self._kind[node])
            self._movers[stay, (*own, *budgets), price.of(shape, draft.unsaved_s(row)), node].append(row)
            self._most[node] += shape.gpus
        for group, count in of_groups.items():
            self._limits[group] = max(1, int(price.most_share * count)) - draft.snapshot.moved.get(group, 0)
        for mover in [mover for mover in self._movers if any(self._limits[each] <= 0 for each in mover[1])]:
            self._most[mover[3]] -= len(self._movers.pop(mover)) * draft.snapshot.pods.shapes[mover[0][0]].gpus
        self._starts: list[tuple[_Wanted, int, int]] = []
        self._leaves: list[tuple[Mover, int]] = []
        self._arrives: list[tuple[Stay, int, int]] = []
        wanted = [each for number, unit in enumerate(units) for each in self._wants(number, unit)]
        if any(self._places(each).any() for each in wanted):
            self._solve(self._together(wanted))

    def starts_more_than(self, count: int) -> bool:
        return sum(each for *_, each in self._starts) > count

    def _wants(self, number: int, unit: Unit) -> list[_Wanted]:
        """Pods of a unit that must start, by shape; of a gang once for each domain."""
        draft, everywhere = self._draft, np.ones(len(self._whole), dtype=np.bool_)
        needed: dict[int, list[int]] = defaultdict(list)
        for row in unit.rows[: max(1, unit.need)]:
            needed[draft.shape_number(row)].append(row)
        masks = [everywhere]
        if unit.gang >= 0 and (label := draft.snapshot.gangs[unit.gang].within) is not None:
            domain = draft.domain(label)
            runs = {int(domain[draft.node[row]]) for row in members_running(draft, unit.gang)} - {-1}
            room = np.bincount(domain[domain >= 0], self._most[domain >= 0])
            needs = sum(draft.shape(row).gpus for rows in needed.values() for row in rows)
            able = sorted(runs)[:1] or np.flatnonzero(room >= needs).tolist()
            masks = [domain == each for each in able]
        is_single = unit.need <= 1 and len(masks) == 1
        return [
            _Wanted(tuple(rows), draft.shape(rows[0]), mask, None if is_single else (number, domain_number))
            for domain_number, mask in enumerate(masks)
            for rows in needed.values()
        ]

    @staticmethod
    def _together(wanted: Iterable[_Wanted]) -> list[_Wanted]:
        """The same, with equal single pods as one kind."""
        singles: dict[workloads.PodShape, list[_Wanted]] = defaultdict(list)
        gangs = list[_Wanted]()
        for each in wanted:
            (gangs if each.gang else singles[each.shape]).append(each)
        of_singles = (
            _Wanted(tuple(row for each in alike for row in each.rows), shape, alike[0].allowed)
            for shape, alike in singles.items()
        )
        return [*of_singles, *gangs]

    def _places(self, wanted: _Wanted) -> arrays.BoolArray:
        """Nodes where one of these pods could start if all left that may."""
        able = self._draft.packer.eligible(wanted.shape) & wanted.allowed
        able = able & (self._whole.sum() >= wanted.shape.gpus)  # moves make no room, they only gather it
        return np.asarray(able & (self._most >= wanted.shape.gpus), dtype=np.bool_)

    def _solve(self, wanted: Sequence[_Wanted]) -> None:
        draft, whole, model = self._draft, self._whole, _Model()
        free = draft.packer.ledger.free
        starts = list[tuple[_Wanted, int]]()
        for each in wanted:
            nodes = np.flatnonzero(self._places(each))
            order = np.argsort(np.maximum(0, each.shape.gpus - whole[nodes]), kind="stable")[:MOST_NODES]
            number = draft.shape_number(each.rows[0])
            starts += [(each, v) for v in nodes[order].tolist() if (number, v) not in self._refused]
        emptied = {v for _, v in starts}
        leaves = [mover for mover in self._movers if mover[3] in emptied]
        arrives = list[tuple[Stay, int]]()
        for stay in dict.fromkeys(stay for stay, *_ in leaves):
            shape = draft.snapshot.pods.shapes[stay[0]]
            nodes = np.flatnonzero(draft.packer.feasible(shape) & (self._kind == stay[1]))
            order = np.argsort(whole[nodes], kind="stable")[:MOST_NODES]
            arrives += [(stay, v) for v in nodes[order].tolist() if (stay[0], v) not in self._refused]
            model.limit(("balance", stay), 0, 0)
        for v in sorted(emptied | {v for _, v in arrives}):
            model.limit(("gpu", v), high=whole[v])
            model.limit(("cpu", v), high=max(0, free.cpu_milli[v]))
            model.limit(("memory", v), high=max(0, free.memory_bytes[v] // MIB))
            model.limit(("before", v), high=whole[v])
            # Implied for whole numbers; without it, the relaxation starts half a pod where nothing has to leave.
            model.limit(("left", v), low=0)
        for group, left in self._limits.items():
            model.limit(("group", group), high=max(0, left))
        for j, each in enumerate(wanted):
            sure = sum(row in self._again for row in each.rows)
            model.limit(("start", j), *((0, 0) if each.gang else (sure, len(each.rows))))

        def takes(v: int, shape: workloads.PodShape, sign: int = 1) -> list[tuple[Hashable, float]]:
            memory = -(-shape.memory_bytes // MIB) if sign > 0 else shape.memory_bytes // MIB
            return [
                (("gpu", v), sign * shape.gpus),
                (("cpu", v), sign * shape.cpu_milli),
                (("memory", v), sign * memory),
            ]

        of_wanted = {id(each): j for j, each in enumerate(wanted)}
        for each, v in starts:
            gpus, j = each.shape.gpus, of_wanted[id(each)]
            worth = 0.0 if each.gang else float(self._worth_usd[v]) * gpus
            short = (("left", v), -max(0.0, gpus - whole[v]))
            most = min(len(each.rows), int(self._most[v]) // gpus)
            model.add(-worth, most, [*takes(v, each.shape), (("start", j), 1), short])
        for stay, groups, usd, v in leaves:
            shape, count = draft.snapshot.pods.shapes[stay[0]], len(self._movers[stay, groups, usd, v])
            more = [(("balance", stay), 1.0), (("left", v), float(shape.gpus))]
            model.add(usd, count, [*takes(v, shape, -1), *more, *((("group", each), 1.0) for each in groups)])
        for stay, v in arrives:
            shape = draft.snapshot.pods.shapes[stay[0]]
            more = [(("balance", stay), -1.0), (("before", v), float(shape.gpus))]
            fullest_first = 1e-4 * float(whole[v])
            model.add(fullest_first, int(whole[v]) // shape.gpus, [*takes(v, shape), *more])
        gangs = dict.fromkeys(each.gang for each in wanted if each.gang)
        for unit, _ in gangs:
            model.limit(("gang", unit), high=1)
        for gang in gangs:
            mine = [(j, each) for j, each in enumerate(wanted) if each.gang == gang]
            worth = sum(len(each.rows) * each.shape.gpus for _, each in mine) * float(self._worth_usd.mean())
            counts = [(("start", j), -float(len(each.rows))) for j, each in mine]
            model.add(-worth, 1, [*counts, (("gang", gang[0]), 1.0)])
        values = iter(model.solved())
        self._starts = [(*start, count) for start, count in zip(starts, values, strict=False) if count]
        if self._starts:
            self._leaves = [(mover, count) for mover, count in zip(leaves, values, strict=False) if count]
            self._arrives = [(*arrival, count) for arrival, count in zip(arrives, values, strict=False) if count]

    def is_carried_out(self) -> bool:
        """Carries the solution out in the draft; False, and nothing is changed, where the packing engine objects."""
        draft, packer = self._draft, self._draft.packer
        leaving: dict[Stay, list[int]] = defaultdict(list)
        for mover, count in self._leaves:
            rows = sorted(self._movers[mover], key=lambda row: (-draft.loses_since_s(row), row))
            leaving[mover[0]] += rows[:count]
        seats = list[tuple[int, workloads.PodShape, Choice]]()
        found = True
        for stay, v, count in self._arrives:
            shape = draft.snapshot.pods.shapes[stay[0]]
            for _ in range(count if found else 0):
                choice = packer.choose(shape, v)
                if choice is None:
                    self._refused.add((stay[0], v))
                    found = False
                    break
                packer.place(shape, choice)
                seats.append((leaving[stay].pop(), shape, choice))
        for _, shape, choice in reversed(seats):
            packer.remove(shape, choice.node, choice.devices)
        if not found:
            return False
        mark = draft.mark
        for row, _, _ in seats:
            draft.unseat(row)
        for row, _, choice in seats:
            draft.move(row, choice)
        used = dict.fromkeys(map(id, (each for each, _, _ in self._starts)), 0)
        for each, v, count in self._starts:
            for _ in range(count):
                row = each.rows[used[id(each)]]
                used[id(each)] += 1
                if not draft.seat(row, v):
                    self._refused.add((draft.shape_number(row), v))
                    draft.roll_back(mark)
                    draft.moved -= {row for row, _, _ in seats}
                    return False
        return True
