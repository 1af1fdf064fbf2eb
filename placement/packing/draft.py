"""Draft of a packing: the node and devices of every pod while the plan is made, with rollback of every attempt."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from cluster import arrays, capacity, disruption, workloads
from cluster.snapshot import PENDING, Snapshot, device_numbers
from placement.engine.packer import Choice, Packer
from placement.move_price import MovePrice
from placement.packing.shares import Shares, gpu_types_of

BANDS = 8
"""Largest number of bands. Chosen: clusters have a handful of priority classes; more of them share bands, and only the
order in which nodes are examined is then coarser. 20,000 nodes with 8 GPUs each: 13 MB."""


class Reclaimable:
    """What would be free without the pods below a priority, current with the draft that it belongs to.

    Bands are cumulative: band b is without the pods of all bands up to b. The last one is without all pods below the
    priority, and so bounds what any preemption can reach.
    """

    # 8,000 pods on 1,000 nodes: 2 ms to build, 10 microseconds for a change, 50 for `fits`.

    def __init__(self, draft: "PackingDraft", below: int) -> None:
        """below: priority that is not reclaimable any more."""
        self.below, self._now = below, draft.packer.ledger.free
        rows = np.flatnonzero((draft.node != PENDING) & (draft.resistance < below))
        levels = np.unique(np.append(draft.resistance[rows], below - 1))
        edges = np.linspace(0, len(levels), min(BANDS, len(levels)) + 1)[1:]
        self.ceilings: arrays.IntArray = levels[np.ceil(edges).astype(np.int64) - 1]
        band, nodes = np.searchsorted(self.ceilings, draft.resistance[rows]), len(draft.snapshot.nodes)
        reclaimed = [rows[band <= number] for number in range(self.bands)]
        self._free = [draft.free_without(pods) for pods in reclaimed]
        self._count = np.array([np.bincount(draft.node[pods], minlength=nodes) for pods in reclaimed])

    @property
    def bands(self) -> int:
        return len(self.ceilings)

    def charge(self, shape: workloads.PodShape, priority: int, node: int, devices: int, sign: int) -> None:
        """Counts a pod at a node (sign 1), or no longer (-1)."""
        band = int(np.searchsorted(self.ceilings, priority))
        for lower in self._free[:band]:
            lower.charge(shape, node, device_numbers(devices), sign)
        self._count[band:, node] += sign

    def free(self, band: int = -1) -> capacity.Free:
        """Free resources of each node without the pods of that band; do not write to them."""
        return self._free[band]

    def fits(self, shape: workloads.PodShape, band: int) -> arrays.BoolArray:
        """Nodes where pods of that band run and a pod of this shape would fit without them. Shape (nodes,)."""
        return np.asarray((self._count[band] > 0) & self._free[band].fits(shape), dtype=np.bool_)

    def losses(self, shape: workloads.PodShape, band: int, nodes: arrays.IntArray) -> Sequence[arrays.IntArray]:
        """Least amount that a pod of this shape takes from the pods above each lower band, the lowest band first.

        In thousandths of GPUs, or of cores for a pod without GPUs; the last entry is what it takes from the pods of
        `band` that are in no lower one. Each of shape (len(nodes),).
        """
        asked = shape.total_gpu_milli if shape.gpus else shape.cpu_milli
        lower = (self._now, *self._free[:band])
        left = [free.gpu_milli[nodes].sum(axis=1) if shape.gpus else free.cpu_milli[nodes] for free in lower]
        return [np.maximum(0, asked - each) for each in left]


Within = arrays.BoolArray | int | None
"""Nodes that a pod may use, beside its own constraints: those of a mask of shape (nodes,), a single one, or all."""
Kind = tuple[int, str, bool, int]
"""Shape and owner of a pod, whether it may preempt, and its team. Where one of a kind does not fit, no other does."""
PLACES_PER_POD = 600
"""Fixed price of a pod, in examined places, beside the nodes that are rated for it. Measured as `WORK_PER_S`
(`placement/packing/planner.py`)."""


class PackingDraft:
    """Placement of all pods of a snapshot, kept in step with the packer's ledger.

    `roll_back(mark)` undoes what changed after a `mark`, so that a gang or a preemption is tried as a whole.
    """

    def __init__(self, snapshot: Snapshot, packer: Packer, tried: frozenset[str] = frozenset()) -> None:
        """tried: units, by label, that had a turn in vain in the last plan, where others had none."""
        self.tried = tried
        self.snapshot = snapshot
        self.packer = packer
        self.node = snapshot.pods.node.copy()
        self.devices = snapshot.pods.devices.copy()
        self.priority = effective_priority(snapshot)
        self.budgets = disruption.BudgetsLeft(snapshot.budgets, snapshot.pods.names)
        self.resistance = resistance(snapshot, self.priority, self.budgets)
        """Priority above which a pod may be stopped for another: its own, NEVER, or ENDING; between teams, as `Shares`
        has it for the pods that are being placed. Shape (pods,)."""
        self.shares = Shares(snapshot, self.resistance != ENDING) if snapshot.teams else None
        self.loss: arrays.IntArray = self.shares.work if self.shares else _gpu_milli(snapshot)
        """What a stop of each pod loses: work where teams have shares, else thousandths of GPUs. Shape (pods,)."""
        self._own_resistance = self.resistance
        self.view: Hashable = None
        """Key of how others resist the pods that are being placed; None: by priority."""
        self._debts: dict[int, float] = {}
        """How far beyond its share a team is once a unit starts, by the unit's first row."""
        self.choices: dict[int, Choice] = {}
        """Choice for each pod that this draft placed, as the reason of its placement."""
        self.held_for = set[int]()
        """Pods that were put on a seat that was held for them."""
        self.move_price = MovePrice()
        self.moved = set[int]()
        """Pods that leave their place for others, and have another."""
        self.work = 0
        """Work so far, in examined places: nodes that the packer had to rate for a pod because they had changed since
        the last pod of its shape, as if its cache had been empty before this plan. So the count is the same whatever
        the packer has seen. Other steps count as the places that could be examined in their time."""
        self.victims: dict[tuple[int, int, int, Hashable], tuple[int, tuple[int, ...]]] = {}
        """Victims of a preemption, by shape, priority, node and view, with the change of the node after which they were
        found (`placement/packing/preemption.py`)."""
        self._journal: list[tuple[int, int, int]] = []
        self._changes = 0
        self._examined_at: dict[int, int] = {}
        self._changed_at = [0] * len(snapshot.nodes)
        self._domains: dict[str, arrays.IntArray] = {}
        self._members: list[list[int]] | None = None
        self._on: list[set[int]] | None = None
        """Rows on each node, from the first time that they are needed."""
        self._reclaimable: Reclaimable | None = None

    @cached_property
    def prices(self) -> arrays.FloatArray:
        """Dollars per device and hour of each node."""
        return self.snapshot.device_prices()

    @property
    def mark(self) -> int:
        return len(self._journal)

    def shape(self, row: int) -> workloads.PodShape:
        return self.snapshot.pods.shapes[int(self.snapshot.pods.shape[row])]

    def shape_number(self, row: int) -> int:
        """Number of the row's shape in the table of shapes, where each is once."""
        return int(self.snapshot.pods.shape[row])

    def kind(self, row: int) -> Kind:
        team = int(self.shares.team[row]) if self.shares else -1
        return self.shape_number(row), self.snapshot.pods.owner[row], self.may_preempt(row), team

    def interchangeable(self, row: int) -> tuple[int, int, int]:
        """Key of pods of one node, any of which may be stopped for another: members of a gang without roles, too."""
        gang, shape = int(self.snapshot.pods.gang[row]), self.shape(row)
        has_roles = gang >= 0 and self.snapshot.gangs[gang].groups
        if has_roles or self.budgets.covers(row) or not (shape.is_whole_gpu or not shape.gpus):
            return row, 0, 0
        return self.shape_number(row), int(self.resistance[row]), gang

    def consider(self, rows: Sequence[int]) -> None:
        """From now on, `resistance` is what others show to these pods, which start together; without any, its usual."""
        if self.shares is not None:
            self.shares.consider(rows)
            self.renew_resistance()

    def keep(self, rows: Sequence[int]) -> arrays.IntArray:
        """Lets nobody stop these pods from now on; returns what `restore` takes."""
        own = self._own_resistance
        self._own_resistance = own.copy()
        self._own_resistance[list(rows)] = NEVER
        self.victims.clear()
        self.renew_resistance()
        return own

    def restore(self, own: arrays.IntArray) -> None:
        self._own_resistance = own
        self.victims.clear()
        self.renew_resistance()

    def renew_resistance(self) -> None:
        """Brings `resistance` up to date with what teams hold by now."""
        if self.shares is not None:
            before, own = self.resistance, self._own_resistance
            self.resistance = self.shares.resistance(own, self.priority, self.node, NEVER, ENDING)
            self.view = self.shares.view
            if not np.array_equal(before, self.resistance):
                self._reclaimable = None

    def debt(self, rows: Sequence[int]) -> float:
        """How far beyond its share the team of these pods is once they start (`Shares.debt`); 0.0: not at all."""
        if self.shares is None or not rows:
            return 0.0
        if (known := self._debts.get(rows[0])) is not None:
            return known
        return self.shares.debt(rows, gpu_types_of(map(self.shape, rows)))

    def note_debts(self, units: Iterable[Sequence[int]]) -> None:
        """Sets the debts of units that wait, in their order of service: of each team one after the other."""
        before = Counter[int]()
        for rows in units if self.shares is not None else ():
            assert self.shares is not None  # noqa: S101 - as the line above says
            team = int(self.shares.team[rows[0]])
            self._debts[rows[0]] = self.shares.debt(rows, gpu_types_of(map(self.shape, rows)), before[team])
            before[team] += self.shares.asked(rows)

    def may_preempt(self, row: int) -> bool:
        """Whether pods of lower priority may be stopped for a pod."""
        never = self.snapshot.pods.never_preempts
        return never is None or not never[row]

    def loses_since_s(self, row: int) -> int:
        """Instant from which a stop loses a pod's work: its last checkpoint, or its start; 0 where neither is known."""
        pods = self.snapshot.pods
        known = (pods.started_s, pods.saved_s) if pods.node[row] != PENDING else ()
        return max((int(each[row]) for each in known if each is not None), default=0)

    def unsaved_s(self, row: int) -> float | None:
        """Seconds of work that a stop loses; None where the pod does not say when it saves its work."""
        saved_s = self.snapshot.pods.saved_s
        is_known = saved_s is not None and saved_s[row] > 0
        return max(0.0, self.snapshot.at_s - self.loses_since_s(row)) if is_known else None

    def ends(self, row: int) -> bool:
        """Whether a pod is being deleted: what it holds is awaited, and it is not placed anew."""
        return bool(self.resistance[row] == ENDING)

    def domain(self, label: str) -> arrays.IntArray:
        """Topology domain of each node under a label, as `NodeTable.domain`; do not write to it."""
        if label not in self._domains:
            self._domains[label] = self.snapshot.nodes.domain(label)
        return self._domains[label]

    def members(self, gang: int) -> list[int]:
        """Rows of a gang's members, placed or not, ascending."""
        if self._members is None:
            of_pod = self.snapshot.pods.gang
            order = np.argsort(of_pod, kind="stable")
            edges = np.searchsorted(of_pod[order], np.arange(len(self.snapshot.gangs) + 1)).tolist()
            self._members = [order[start:end].tolist() for start, end in pairwise(edges)]
        return self._members[gang]

    def pods_on(self, node: int) -> list[int]:
        """Rows of the pods that are placed on a node, ascending."""
        if self._on is None:
            self._on = [set() for _ in self._changed_at]
            placed = np.flatnonzero(self.node != PENDING)
            for row, where in zip(placed.tolist(), self.node[placed].tolist(), strict=True):
                self._on[where].add(row)
        return sorted(self._on[node])

    def changed_at(self, node: int) -> int:
        """Number of the last change of a node; 0 for none."""
        return self._changed_at[node]

    def reclaimable(self, below: int) -> Reclaimable:
        """What the pods below this priority hold."""
        if self._reclaimable is None or self._reclaimable.below != below:
            self._reclaimable = Reclaimable(self, below)
        return self._reclaimable

    def free_without(self, rows: arrays.IntArray) -> capacity.Free:
        """What would be free on each node if these pods, which run, were stopped."""
        pods, free = self.snapshot.pods, self.packer.ledger.free.copy()
        free.charge_all(pods.shapes, pods.shape[rows], self.node[rows], self.devices[rows], -1)
        return free

    def seat(self, row: int, within: Within = None) -> bool:
        """Places a pending pod on the best node and devices. False when none fits."""
        shape, nodes = self.shape_number(row), len(self._changed_at)
        before = self._examined_at.get(shape)
        self.work += PLACES_PER_POD + (nodes if before is None else min(nodes, self._changes - before))
        if before is None:
            # Finding the nodes that the shape's constraints allow: each requirement is a pass over a column of labels,
            # each value of it a look-up. 5 µs and 0.1 ns per node, 50 ns per value; 2 places take a microsecond.
            requirements = [each for term in self.shape(row).node_terms for each in term]
            self.work += len(requirements) * (10 + nodes // 16) + sum(len(each.values) for each in requirements) // 8
        # A mask of a rule between pods is made again after a change: 3 µs per thousand nodes.
        self.work += len(self.shape(row).beside.rules) * nodes // 150
        self._examined_at[shape] = self._changes
        if self.shares is not None and (allowed := self.shares.allowed(row)) is not None:
            if isinstance(within, int):
                within = within if allowed[within] else allowed & False
            else:
                within = allowed if within is None else allowed & within
        choice = self.packer.choose(self.shape(row), within)
        if choice is None:
            return False
        self.choices[row] = choice
        self._set(row, choice.node, choice.devices)
        return True

    def fits_at(self, row: int, node: int, devices: Sequence[int]) -> bool:
        """Whether a pod fits on these devices of a node now, by resources, power and rules between pods."""
        shape, packer, room = self.shape(row), self.packer, capacity.NodeRoom(self.packer.ledger.free, node)
        if len(devices) != shape.gpus or room.missing(shape):
            return False
        if any(room.free_of(device) < shape.gpu_milli for device in devices):
            return False
        room.charge(shape, devices)
        if packer.floors is not None and not packer.floors.bears(node, room.held(int(packer.ledger.gpus[node]))):
            return False
        allowed = None if packer.neighbours is None else packer.neighbours.allowed(shape)
        return allowed is None or bool(allowed[node])

    def unseat(self, row: int) -> None:
        self._set(row, PENDING, 0)

    def put(self, row: int, choice: Choice) -> None:
        """Places a pod on the seat that is held for it. The caller has checked that it fits."""
        self.held_for.add(row)
        self._set(row, choice.node, choice.devices)

    def move(self, row: int, choice: Choice) -> None:
        """Places a pod that ran elsewhere, for others that get its place."""
        self.moved.add(row)
        self._set(row, choice.node, choice.devices)

    def reseat(self, row: int) -> None:
        """Places a pod where it runs in the snapshot. The caller has checked that it fits there now."""
        pods = self.snapshot.pods
        self._set(row, int(pods.node[row]), int(pods.devices[row]))

    def roll_back(self, mark: int) -> None:
        """Restores the state at that mark."""
        while len(self._journal) > mark:
            row, node, devices = self._journal.pop()
            self._charge(row, node, devices)

    def unseated_since(self, mark: int) -> list[int]:
        """Rows that lost their placement after that mark and have none now, each once; none that end."""
        lost = {row: None for row, node, _ in self._journal[mark:] if node != PENDING and not self.ends(row)}
        return [row for row in lost if self.node[row] == PENDING]

    def changed(self) -> tuple[list[int], list[int]]:
        """Rows that must leave their place in the snapshot, and rows that start where the draft places them.

        A pod that was removed and got the same place back is in neither, unless too few of its gang would stay: a gang
        that falls below its minimum restarts as a whole.
        """
        before = self.snapshot.pods
        differs = (self.node != before.node) | (self.devices != before.devices)
        ran = before.node != PENDING
        for gang in sorted({int(g) for g in before.gang[ran & differs & (self.resistance != ENDING)]} - {-1}):
            rows = [row for row in self.members(gang) if ran[row] and not self.ends(row)]
            if lacking(self, gang, [row for row in rows if not differs[row]]) > 0:
                differs[rows] = True
        leave = np.flatnonzero(differs & ran)
        start = np.flatnonzero(differs & (self.node != PENDING))
        return leave.tolist(), start.tolist()

    def _set(self, row: int, node: int, devices: int) -> None:
        self._journal.append((row, int(self.node[row]), int(self.devices[row])))
        self._charge(row, node, devices)

    def _charge(self, row: int, node: int, devices: int) -> None:
        shape = self.shape(row)
        was, held = int(self.node[row]), int(self.devices[row])
        if self.budgets.covers(row) and not self.ends(row):
            here = int(self.snapshot.pods.node[row]), int(self.snapshot.pods.devices[row])
            self.budgets.count(row, stopped=(node, devices) != here)
        if was != PENDING:
            self.packer.remove(shape, was, held)
        if node != PENDING:
            self.packer.place(shape, Choice(node, devices, cost=0.0))
        if self.shares is not None and not self.ends(row):
            for where, sign in ((was, -1), (node, 1)):
                if where != PENDING:
                    self.shares.charge(row, where, sign)
        for where, mask, sign in ((was, held, -1), (node, devices, 1)):
            if where == PENDING:
                continue
            self._changes += 1
            self._changed_at[where] = self._changes
            if self._on is not None:
                (self._on[where].add if sign > 0 else self._on[where].discard)(row)
            if self._reclaimable is not None:
                self._reclaimable.charge(shape, int(self.resistance[row]), where, mask, sign)
        self.node[row], self.devices[row] = node, devices


NEVER, ENDING = 2**62, -(2**62)
"""Resistance of a pod that no priority stops, and of one that ends by itself."""


def resistance(snapshot: Snapshot, priority: arrays.IntArray, budgets: disruption.BudgetsLeft) -> arrays.IntArray:
    """Priority above which each pod may be stopped for another. Shape (pods,).

    priority: effective ones, shape (pods,).
    """
    pods = snapshot.pods
    found = np.where(pods.may_be_stopped, priority, NEVER)
    found[budgets.blocked()] = NEVER
    if pods.ending is not None:
        found[pods.ending & (pods.node != PENDING)] = ENDING
    return found


def _gpu_milli(snapshot: Snapshot) -> arrays.IntArray:
    milli = np.array([shape.total_gpu_milli for shape in snapshot.pods.shapes], dtype=np.int64)
    return np.asarray(milli[snapshot.pods.shape] if len(milli) else np.zeros(0), dtype=np.int64)


def effective_priority(snapshot: Snapshot) -> arrays.IntArray:
    """Priority for service and for preemption: all members of a gang have that of its most important member.

    Otherwise a gang could preempt its own members, and be preempted by them, without end. Shape (pods,).
    """
    pods = snapshot.pods
    return np.where(pods.gang >= 0, np.append(gang_priorities(snapshot), 0)[pods.gang], pods.priority)


def gang_priorities(snapshot: Snapshot) -> arrays.IntArray:
    """Priority of each gang: that of its most important member, or its own. Shape (gangs,)."""
    pods = snapshot.pods
    priority = np.array([gang.priority for gang in snapshot.gangs], dtype=np.int64)
    members = pods.gang >= 0
    np.maximum.at(priority, pods.gang[members], pods.priority[members])
    return priority


def lacking(draft: PackingDraft, gang: int, running: Iterable[int] | None = None) -> int:
    """Members of a gang that must still start beside those that run, so that it is whole, and each group of it.

    running: their rows; default: as the draft places them.
    """
    rows = members_running(draft, gang) if running is None else list(running)
    wanted = draft.snapshot.gangs[gang]
    if not wanted.groups:
        return wanted.min_members - len(rows)
    return wanted.lacks([draft.snapshot.pods.names[row] for row in rows])


def members_running(draft: PackingDraft, gang: int) -> list[int]:
    """Rows of a gang's members that are placed in the draft."""
    return [row for row in draft.members(gang) if draft.node[row] != PENDING]
