"""Pods that some plan could start: what can never start is left out of the question that a batch plan answers.

A pod that no plan places adds the same price to every plan. Counted, it would make every relative gap look small, and
the search for cheaper nodes would stop before it began. Each rule here is a proof, never a failed attempt: a pod that
is ruled out fits on no node beside what runs now, and a gang that is ruled out cannot start whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.snapshot import PENDING, Free, Snapshot
from placement.batch.problem import Batch, copies_in, free_room


def complete_gangs(snapshot: Snapshot) -> BoolArray:
    """Pending pods, without gangs that have too few members to start anywhere. Shape (pods,)."""
    pods, gangs = snapshot.pods, snapshot.gangs
    members = np.bincount(pods.gang[pods.gang >= 0], minlength=len(gangs) + 1)
    few = np.array([members[g] < gang.min_members for g, gang in enumerate(gangs)] + [False], dtype=np.bool_)
    asked: BoolArray = (pods.node == PENDING) & ~few[pods.gang]  # gang -1, none, is the last entry
    return asked


def startable_pods(snapshot: Snapshot, batch: Batch, among: BoolArray) -> BoolArray:
    """The pods among these that some plan could start in the free resources. Shape (pods,).

    batch: the problem of these pods.
    """
    possible = np.append(batch.largest_copies > 0, False)  # the last is the answer for shapes without a class, -1
    fits: BoolArray = among & possible[_classes(snapshot, batch)[snapshot.pods.shape]]
    whole = fits.copy()
    places = _Places(snapshot, batch)
    for gang, members in members_of_gangs(snapshot, np.unique(snapshot.pods.gang[among])):
        if not places.hold(gang, members, members[fits[members]]):
            whole[members] = False
    return whole


def members_of_gangs(snapshot: Snapshot, gangs: IntArray) -> Iterator[tuple[int, IntArray]]:
    """(gang, rows of its members in table order) for each of these gangs; -1 is none."""
    order = np.argsort(snapshot.pods.gang, kind="stable")
    sorted_gangs = snapshot.pods.gang[order]
    for gang in gangs[gangs >= 0].tolist():
        yield gang, order[slice(*np.searchsorted(sorted_gangs, (gang, gang + 1)))]


def _classes(snapshot: Snapshot, batch: Batch) -> IntArray:
    """Class of each shape of the pod table, -1 for none."""
    number = {shape: c for c, shape in enumerate(batch.shapes)}
    return np.array([number.get(shape, -1) for shape in snapshot.pods.shapes], dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Domain:
    """Sum of the nodes on which a gang would have to start together."""

    copies: IntArray
    """Pods of each class that fit there, with nothing else added. Shape (classes,)."""
    room: FloatArray
    """Shape (resources,)."""


class _Places:
    """Free resources per domain of each topology label, computed when the first gang needs them."""

    def __init__(self, snapshot: Snapshot, batch: Batch) -> None:
        self.snapshot, self.batch = snapshot, batch
        self.class_of = _classes(snapshot, batch)
        self._room: FloatArray | None = None
        self._free: Free | None = None
        self._number: dict[str | None, IntArray] = {}
        self._copies: dict[int, IntArray] = {}
        self._answers: dict[object, bool] = {}

    def hold(self, gang: int, members: IntArray, fitting: IntArray) -> bool:
        """Whether the gang's fitting members are enough, and some domain might hold as many as must start.

        members, fitting: rows of pods.
        """
        wanted, pods = self.snapshot.gangs[gang], self.snapshot.pods
        running = pods.node[members]
        running = running[running != PENDING]
        need = max(1, wanted.min_members - len(running))
        counts = np.bincount(self.class_of[pods.shape[fitting]], minlength=len(self.batch.shapes))
        number = self._numbers(wanted.within)
        at = tuple(np.unique(number[running]).tolist())
        question = (wanted.within, at, need, counts.tobytes())
        if question not in self._answers:
            able = np.isin(number, at) & (number >= 0) if at and wanted.within else number >= 0
            domains = self._domains(np.where(able, number, -1), np.flatnonzero(counts))
            self._answers[question] = any(self._holds(domain, counts, need) for domain in domains)
        return self._answers[question]

    def _numbers(self, label: str | None) -> IntArray:
        """Domain of each node under a label, -1 for none; without a label all nodes are one domain."""
        if label not in self._number:
            nodes = self.snapshot.nodes
            self._number[label] = nodes.domain(label) if label else np.zeros(len(nodes), dtype=np.int64)
        return self._number[label]

    def _domains(self, number: IntArray, classes: IntArray) -> Iterator[_Domain]:
        """Domains of these numbers, for pods of these classes.

        number: shape (nodes,), -1 for nodes that do not count.
        """
        able = number >= 0
        eligible = self.batch.eligible[classes].any(axis=0) & able
        count = int(number.max(initial=-1)) + 1
        room = np.stack([np.bincount(number[eligible], r[eligible], count) for r in self._free_room().T], axis=1)
        copies = np.zeros((count, len(self.batch.shapes)), dtype=np.int64)
        for c in classes.tolist():
            copies[:, c] = np.bincount(number[able], self._copies_of(c)[able], count)
        return (_Domain(copies[n], room[n]) for n in range(count))

    def _holds(self, domain: _Domain, counts: IntArray, need: int) -> bool:
        """Whether a domain might hold `need` of these pods: by class, and by each resource of the smallest of them."""
        able = np.minimum(counts, domain.copies)
        if able.sum() < need:
            return False
        for ask, room in zip(self.batch.ask.T, domain.room, strict=False):
            order = np.argsort(ask, kind="stable")
            before = np.cumsum(able[order]) - able[order]
            if np.clip(need - before, 0, able[order]) @ ask[order] > room + 1e-6:
                return False
        return True

    def _free_room(self) -> FloatArray:
        if self._room is None:
            self._room = free_room(self._free_now())[:, : self.batch.ask.shape[1]]
        return self._room

    def _copies_of(self, c: int) -> IntArray:
        if c not in self._copies:
            self._copies[c] = copies_in(self.batch.shapes[c], self._free_now()) * self.batch.eligible[c]
        return self._copies[c]

    def _free_now(self) -> Free:
        if self._free is None:
            self._free = self.snapshot.free()
        return self._free
