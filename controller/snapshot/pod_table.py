"""Table of all pods, kept as columns and patched, so that an unchanged pod is not converted again.

Columns hold interned names of nodes, gangs and services as numbers, not row indices: a deleted node shifts every row
after it, but no pod has to be visited for that. Numbers become row indices when a table is made, one column at a time.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Generic, TypeVar

import numpy as np

from cluster.arrays import BoolArray, IntArray, Names, column
from cluster.errors import Mistake
from cluster.nodes import NodeTable
from cluster.snapshot import PENDING, PodTable, device_mask
from cluster.workloads import WHOLE_GPU_MILLI, Crowd, LeftOut, PodShape
from controller.api.labels import DEVICES_ANNOTATION, is_device_number
from controller.api.structs import Pod
from controller.objects.read import Findings, Read
from controller.snapshot.pod_rules import Marks, Membership, crowds_of
from controller.snapshot.pods import REMARKS, PodRow


@dataclass(frozen=True, slots=True)
class DevicesOfNode:
    """Devices of the pods of one node."""

    devices: dict[str, tuple[int, ...]]
    """Device indices by pod name."""
    assumed: tuple[str, ...]
    """Pods without a valid annotation, whose devices are assumed."""
    mistakes: tuple[Mistake, ...]


def devices_held(running: Iterable[tuple[Read[Pod], PodShape]], gpus_of_node: int) -> DevicesOfNode:
    """Devices of the pods with GPUs that are bound to one node: their objects and shapes.

    An annotation gives them, except whole devices that another pod names, too. The other pods choose in order of size,
    whole devices before fractions, then by name; each takes the devices on which it leaves least, or where it fits on
    too few, the freest. The choice depends only on the pods of that node.
    """
    held: dict[str, tuple[int, ...]] = {}
    unnamed, mistakes = [], []
    left = [WHOLE_GPU_MILLI] * gpus_of_node
    for read, shape in sorted(running, key=lambda each: each[0].name):
        named = _named_devices(read, shape, gpus_of_node)
        if isinstance(named, tuple) and shape.is_whole_gpu and any(left[each] < WHOLE_GPU_MILLI for each in named):
            named = None  # bound long after it was released, when they were no longer kept for it
        if isinstance(named, tuple):
            held[read.name] = named
            for device in named:
                left[device] -= shape.gpu_milli
            continue
        unnamed.append((-shape.gpu_milli, -shape.gpus, read.name))
        if named is not None:
            mistakes.append(named)
    for milli, count, name in sorted(unnamed):
        fit = sorted((free, device) for device, free in enumerate(left) if free >= -milli)
        rest = sorted((-free, device) for device, free in enumerate(left) if free < -milli)
        held[name] = tuple(sorted(device for _, device in (fit + rest)[:-count]))
        for device in held[name]:
            left[device] += milli
    # Those of one node are named in the order of their names.
    return DevicesOfNode(held, tuple(sorted(name for _, _, name in unnamed)), tuple(mistakes))


def _named_devices(read: Read[Pod], shape: PodShape, gpus_of_node: int) -> tuple[int, ...] | Mistake | None:
    """Devices in a pod's annotation; None without one, an error when the annotation is invalid."""
    written = read.object.metadata.annotations.devices
    if written is None:
        return None
    parts = [part.strip() for part in written.split(",")]
    numbers = sorted({int(part) for part in parts if is_device_number(part)})
    if len(numbers) < len(parts):
        problem = f"is {written[-80:]!r}"
        remedy = 'write different device numbers, like "0,3"'
    elif numbers[-1] >= gpus_of_node:
        problem = f"names device {numbers[-1]}"
        remedy = f"its node has the devices 0 to {gpus_of_node - 1}" if gpus_of_node else "its node has no GPU"
    elif len(numbers) != shape.gpus:
        problem = f"names {len(numbers)} devices, the pod asks for {shape.gpus}"
        remedy = "name as many as it asks for"
    else:
        return tuple(numbers)
    return read.mistake(("metadata", "annotations", DEVICES_ANNOTATION), problem, remedy)


Key = TypeVar("Key", bound=Hashable)

CELLS = 17
"""Number of rows of the matrix of cells."""
SHAPE, NODE, GANG, OWNER, PRIORITY, DEVICES, MOVABLE, FAULTY, FOREIGN, BY_NAME, NEVER_PREEMPTS = range(11)
MARKS, WITHHELD = range(11, 13)
STRANGER, SETTLED, STARTED, SAVED = range(13, CELLS)
"""Rows of the matrix of cells, which has one column per pod."""

SPARE = 1_000
"""Number of keys that are remembered beside twice those in use. Chosen: shapes of 50 kB each then take 50 MB."""
NO_GROUPS: Mapping[str, str] = MappingProxyType({})
NamespaceLabels = Mapping[str, Mapping[str, str]]
NO_NAMESPACES: NamespaceLabels = MappingProxyType({})
NOWHERE = -2
"""Row index of a name that no object has."""


class Numbers(Generic[Key]):
    """Interning of keys as numbers from 0 up; equal keys get the same number. Number 0 stands for "none"."""

    def __init__(self, nothing: Key) -> None:
        self.known: list[Key] = [nothing]
        self._number: dict[Key, int] = {nothing: 0}
        self._most = SPARE

    def of(self, key: Key) -> int:
        number = self._number.setdefault(key, len(self.known))
        if number == len(self.known):
            self.known.append(key)
        return number

    @property
    def is_crowded(self) -> bool:
        """Whether most of the keys may be of pods that are gone."""
        return len(self.known) > self._most

    def keep(self, numbers: IntArray) -> IntArray:
        """These numbers anew, after all keys with other numbers were forgotten."""
        used, again = np.unique(np.append(0, numbers), return_inverse=True)
        self.known = [self.known[number] for number in used.tolist()]
        self._number = {key: number for number, key in enumerate(self.known)}
        self._most = 2 * len(self.known) + SPARE
        return np.asarray(again[1:].reshape(numbers.shape), dtype=np.int64)

    def rows(self, keys: Iterable[Key], nothing: int, also: Mapping[Key, Key] | None = None) -> IntArray:
        """Index in `keys` of each known key; NOWHERE for keys that are not in it, `nothing` for number 0.

        also: keys that stand for one of `keys`, or for nothing where that is empty.
        """
        at = {key: row for row, key in enumerate(keys)}
        at |= {alias: at[key] if key else nothing for alias, key in (also or {}).items()}
        rows = np.full(len(self.known), NOWHERE, dtype=np.int64)
        rows[0] = nothing
        for key, row in at.items():
            number = self._number.get(key)
            if number is not None:
                rows[number] = row
        return rows


@dataclass(frozen=True, slots=True)
class Dangling:
    """Reference from a pod to an object that does not exist."""

    read: Read[Pod]
    kind: str
    """Kind of the missing object: `Node`, `Gang` or `ModelService`."""
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class PodView:
    """Table of pods, with the errors and dangling references that keep pods out of it."""

    table: PodTable
    mistakes: tuple[Mistake, ...]
    dangling: tuple[Dangling, ...]
    withheld: tuple[LeftOut, ...]
    """Waiting pods that are not in the table, because something about them is not understood or another's to do."""


class PodColumns:
    """All pods that are pending or hold resources, sorted by name.

    The table leaves out pods that cannot be planned: a pod on a missing node, which holds nothing, and a pending pod
    that is invalid or names a missing gang or service, until that is corrected. A running pod is never left out,
    whatever its errors, because it holds its resources.
    """

    def __init__(self) -> None:
        self._rows: dict[str, PodRow] = {}
        self._foreign: set[str] = set()
        """Pending pods that are left to their own scheduler."""
        self.reads: dict[str, Read[Pod]] = {}
        self._names: list[str] = []
        self._cells: IntArray = np.zeros((CELLS, 0), dtype=np.int64)
        self._changed: set[str] = set()
        self._shapes: Numbers[PodShape | None] = Numbers(None)
        self._texts: Numbers[str] = Numbers("")
        self._holders: defaultdict[str, set[str]] = defaultdict(set)
        """Pods with GPUs, by node."""
        self._held: dict[str, tuple[int, DevicesOfNode]] = {}
        """(number of GPUs, devices of its pods) by node, while up to date."""
        self._marks: Numbers[Marks] = Numbers(("", (), ""))
        self._membership: Membership | None = None
        """Of the crowds that rules between pods name."""
        self._covered: Membership | None = None
        """Of those that were asked about last."""
        self._completed: dict[tuple[int, tuple[Crowd, ...]], PodShape] = {}
        """Shapes of the last table by number and crowds: an unchanged pod keeps the same object."""
        self._last: tuple[NodeTable, tuple[object, ...], Mapping[str, str], NamespaceLabels, PodView] | None = None
        """What the last view was made of, and that view."""

    @property
    def name_is_matched(self) -> bool:
        """Whether the affinity of any pod in the table matches nodes by name."""
        self._patch()
        return bool((self._cells[BY_NAME] & ~self._cells[FOREIGN]).any())

    def put(self, read: Read[Pod], row: PodRow, *, is_ours: bool) -> None:
        """is_ours: whether the pod waits for Tonnage; a pending one of another scheduler is left to that."""
        name, is_foreign = read.name, not is_ours and not row.node
        known = self.reads.get(name)
        self.reads[name] = read
        is_same = self._rows.get(name) == row and (name in self._foreign) == is_foreign
        # Of the object itself, only its annotations are read here.
        if known is not None and is_same and known.object.metadata.annotations == read.object.metadata.annotations:
            return
        self._leave_node(name)
        self._rows[name] = row
        (self._foreign.add if is_foreign else self._foreign.discard)(name)
        if row.node and row.shape.gpus:
            self._holders[row.node].add(name)
            self._held.pop(row.node, None)
        self._changed.add(name)

    def remove(self, name: str) -> None:
        if name in self._rows:
            self._leave_node(name)
            del self._rows[name], self.reads[name]
            self._foreign.discard(name)
            self._changed.add(name)

    def _leave_node(self, name: str) -> None:
        before = self._rows.get(name)
        if before is not None and before.node in self._holders:
            self._holders[before.node].discard(name)
            self._held.pop(before.node, None)

    def view(
        self,
        nodes: NodeTable,
        gangs: tuple[str, ...],
        services: frozenset[str],
        gang_of: Mapping[str, str] = NO_GROUPS,
        namespaces: NamespaceLabels = NO_NAMESPACES,
    ) -> PodView:
        """Table with respect to these nodes, gangs and services; the same object while nothing changed.

        gang_of: gang by the name under which pods of other projects refer to it; empty: no gang. namespaces: the labels
        of each; another object where any changed.
        """
        self._patch()
        if self._last is not None:
            known_nodes, names, groups, known_namespaces, view = self._last
            is_same = names == (gangs, services) and groups is gang_of and known_namespaces is namespaces
            if is_same and known_nodes is nodes:
                return view
        device_mistakes = self._assign_devices(nodes)
        cells = self._cells
        node = self._texts.rows(nodes.names, PENDING)[cells[NODE]]
        gang = self._texts.rows(gangs, -1, gang_of)[cells[GANG]]
        served = self._texts.rows(sorted(services), -1)[cells[OWNER]]
        is_faulty, is_foreign = cells[FAULTY] != 0, cells[FOREIGN] != 0
        is_astray = (gang == NOWHERE) | (served == NOWHERE) | is_faulty
        is_withheld = (cells[WITHHELD] != 0) & (node == PENDING) & ~is_foreign
        kept = (node != NOWHERE) & ~((node == PENDING) & (is_astray | is_foreign)) & ~is_withheld
        dangling: list[Dangling] = []
        for row in np.flatnonzero((is_astray | (node == NOWHERE)) & ~is_foreign).tolist():
            read, own = self.reads[self._names[row]], self._rows[self._names[row]]
            named = (("Node", own.node, node), ("Gang", own.gang, gang), ("ModelService", own.owner, served))
            dangling += [Dangling(read, kind, name) for kind, name, place in named if place[row] == NOWHERE]
        faulty = [self._rows[self._names[row]] for row in np.flatnonzero(is_faulty & ~is_foreign).tolist()]
        own_mistakes = tuple(mistake for row in faulty for mistake in row.mistakes)
        withheld = tuple(
            LeftOut(name, why.code, why.words)
            for name in (self._names[row] for row in np.flatnonzero(is_withheld).tolist())
            if (why := self._rows[name].withheld)
        )
        table = self._table(np.flatnonzero(kept), node, np.maximum(gang, -1), namespaces)
        view = PodView(table, own_mistakes + device_mistakes, tuple(dangling), withheld)
        self._last = (nodes, (gangs, services), gang_of, namespaces, view)
        return view

    def _patch(self) -> None:
        """Update the matrix with the pods that were put or removed since the last call."""
        if not self._changed:
            return
        self._last = None
        gone = [row for name in self._changed if name not in self._rows and (row := self._row(name)) is not None]
        if gone:
            self._cells = np.delete(self._cells, gone, axis=1)
            left = set(gone)
            self._names = [name for row, name in enumerate(self._names) if row not in left]
        alive = sorted(name for name in self._changed if name in self._rows)
        new = [name for name in alive if self._row(name) is None]
        if new:
            places = [bisect_left(self._names, name) for name in new]
            self._cells = np.insert(self._cells, places, np.zeros((CELLS, len(new)), dtype=np.int64), axis=1)
            self._names = sorted([*self._names, *new])
        if alive:
            cells = [
                (
                    self._shapes.of(row.shape),
                    self._texts.of(row.node),
                    self._texts.of(row.gang),
                    self._texts.of(row.owner),
                    row.priority,
                    0,
                    row.movable,
                    bool(row.mistakes),
                    name in self._foreign,
                    row.matches_node_names,
                    row.never_preempts,
                    self._marks.of(row.marks),
                    row.withheld is not None,
                    row.is_stranger,
                    row.is_settled,
                    row.started_s,
                    row.saved_s,
                )
                for name, row in ((name, self._rows[name]) for name in alive)
            ]
            self._cells[:, [bisect_left(self._names, name) for name in alive]] = np.array(cells, dtype=np.int64).T
        # Shapes and names of pods that are gone are forgotten: jobs come and go for months, and a shape may have 50 kB.
        if self._shapes.is_crowded:
            self._cells[SHAPE] = self._shapes.keep(self._cells[SHAPE])
            self._completed = {}
        if self._marks.is_crowded:
            self._cells[MARKS] = self._marks.keep(self._cells[MARKS])
            self._membership = self._covered = None
        if self._texts.is_crowded:
            self._cells[[NODE, GANG, OWNER]] = self._texts.keep(self._cells[[NODE, GANG, OWNER]])
        self._changed = set()

    def _row(self, name: str) -> int | None:
        row = bisect_left(self._names, name)
        return row if row < len(self._names) and self._names[row] == name else None

    def _assign_devices(self, nodes: NodeTable) -> tuple[Mistake, ...]:
        """Assign devices to the pods of nodes where that may have changed; returns the errors of all nodes."""
        gpus = dict(zip(nodes.names, nodes.gpus.tolist(), strict=True))
        mistakes: list[Mistake] = []
        for node in sorted(self._holders):
            pods = self._holders[node]
            if not pods:
                del self._holders[node]
                continue
            known = self._held.get(node)
            if node in gpus and (known is None or known[0] != gpus[node]):
                running = [(self.reads[name], self._rows[name].shape) for name in pods]
                known = self._held[node] = (gpus[node], devices_held(running, gpus[node]))
                for name, devices in known[1].devices.items():
                    self._cells[DEVICES, bisect_left(self._names, name)] = device_mask(devices)
            if known is not None and node in gpus:
                mistakes += known[1].mistakes
        return tuple(mistakes)

    def _table(self, kept: IntArray, node: IntArray, gang: IntArray, namespaces: NamespaceLabels) -> PodTable:
        """The pods of these rows; node, gang: index of each pod's in its table."""
        cells, texts = self._cells[:, kept], self._texts.known
        numbers, members = self._with_crowds(cells, namespaces)
        # Shapes are numbered in order of their first appearance.
        known, first, back = np.unique(numbers, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        pairs = [divmod(number, len(members)) for number in known[order].tolist()]
        before, self._completed = self._completed, {}
        for number, group in pairs:
            shape, crowds = self._shapes.known[number] or PodShape(), members[group]
            key = (number, crowds)
            done = before.get(key) or (replace(shape, beside=replace(shape.beside, crowds=crowds)) if crowds else shape)
            self._completed[key] = done
        shapes = tuple(self._completed[number, members[group]] for number, group in pairs)
        is_ending = np.array([state == "ending" for _, _, state in self._marks.known], dtype=np.bool_)[cells[MARKS]]
        every_name = len(kept) == len(self._names)
        return PodTable(
            names=Names(self._names if every_name else [self._names[row] for row in kept.tolist()]),
            shape=column(rank[back], np.int64),
            shapes=shapes,
            node=column(node[kept], np.int64),
            devices=column(np.where(node[kept] == PENDING, 0, cells[DEVICES]), np.int64),
            priority=column(cells[PRIORITY], np.int64),
            gang=column(gang[kept], np.int64),
            owner=tuple([texts[n] for n in cells[OWNER].tolist()]),
            movable=column(cells[MOVABLE] != 0, np.bool_),
            never_preempts=_sparse(cells[NEVER_PREEMPTS]),
            strangers=_sparse(cells[STRANGER]),
            settled=_sparse(cells[SETTLED]),
            ending=_sparse(is_ending),
            started_s=column(cells[STARTED], np.int64) if cells[STARTED].any() else None,
            saved_s=column(cells[SAVED], np.int64) if cells[SAVED].any() else None,
        )

    def _with_crowds(self, cells: IntArray, namespaces: NamespaceLabels) -> tuple[IntArray, list[tuple[Crowd, ...]]]:
        """Number of each pod's shape together with that of the crowds that it belongs to: shape × crowds + which."""
        used = (self._shapes.known[number] for number in np.unique(cells[SHAPE]).tolist())
        crowds = crowds_of(shape for shape in used if shape is not None and shape.beside.rules)
        if not crowds:
            return cells[SHAPE], [()]
        members = self._membership
        if members is None or members.crowds != crowds or members.namespaces is not namespaces:
            members = self._membership = Membership(namespaces, crowds)
        of_marks = members.of(self._marks.known)
        return cells[SHAPE] * len(members.sets) + of_marks[cells[MARKS]], members.sets

    def members_of(self, crowds: tuple[Crowd, ...]) -> dict[Crowd, tuple[int, tuple[str, ...]]]:
        """Of each crowd that has members, their number and the names of those that are bound.

        crowds: of named namespaces alone. Pods of other schedulers and those that cannot be planned count, too.
        """
        self._patch()
        members = self._covered
        if members is None or members.crowds != crowds:
            members = self._covered = Membership(NO_NAMESPACES, crowds)
        cells = self._cells
        of_pods = members.of(self._marks.known)[cells[MARKS]]
        order = np.argsort(of_pods, kind="stable")
        ends = np.cumsum(np.bincount(of_pods, minlength=len(members.sets)))
        rows: defaultdict[Crowd, list[IntArray]] = defaultdict(list)
        for theirs, of_set in zip(np.split(order, ends[:-1]), members.sets, strict=True):
            for crowd in of_set if len(theirs) else ():
                rows[crowd].append(theirs)
        is_nominated = np.array([state == "nominated" for _, _, state in self._marks.known], dtype=np.bool_)
        is_bound = (cells[NODE] != 0) & ~is_nominated[cells[MARKS]]
        found: dict[Crowd, tuple[int, tuple[str, ...]]] = {}
        for crowd, parts in rows.items():
            theirs = np.sort(np.concatenate(parts))
            found[crowd] = len(theirs), tuple(self._names[row] for row in theirs[is_bound[theirs]].tolist())
        return found

    def note(self, table: PodTable, findings: Findings) -> None:
        """Add notes on these pods for the reader of a plan."""
        assumed = [name for _, held in self._held.values() for name in held.assumed]
        words = "name no devices in tonnage.dev/devices: assumed to hold the fullest devices that fit"
        findings.note_many("Pod", "DevicesAssumed", assumed, words)
        by_remark: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for name in table.names:
            for remark in self._rows[name].remarks:
                by_remark[remark].append(name)
        for code, words in REMARKS.items():
            for (remark_code, text), names in sorted(by_remark.items()):
                if remark_code == code:
                    findings.note_many("Pod", code, names, words.format(text))


def _sparse(cells: IntArray) -> BoolArray | None:
    """Column that is None where it is false for all pods."""
    return column(cells != 0, np.bool_) if cells.any() else None
