"""Pods that some plan could start: what can never start is left out of the question that a batch plan answers."""

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.snapshot import PENDING, Snapshot
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

    A pod that no plan places adds the same price to every plan. Counted, it would make every relative gap look small,
    and the search for cheaper nodes would stop before it began. Each rule here is a proof, never a failed attempt: a
    pod that is ruled out fits on no node beside what runs now, and a gang that is ruled out cannot start whole.

    batch: the problem of these pods.
    """
    pods = snapshot.pods
    possible = np.append(batch.largest_copies > 0, False)  # the last is the answer for shapes without a class, -1
    fits: BoolArray = among & possible[batch.class_of(pods.shapes)[pods.shape]]
    gangs = [gang for gang in np.unique(pods.gang[among]).tolist() if gang >= 0]
    if not gangs:
        return fits
    whole, places = fits.copy(), _Places(snapshot, batch)
    order = np.argsort(pods.gang, kind="stable")
    sorted_gangs = pods.gang[order]
    for gang in gangs:
        members = order[slice(*np.searchsorted(sorted_gangs, (gang, gang + 1)))]
        if not places.hold(gang, members, members[fits[members]]):
            whole[members] = False
    return whole


class _Places:
    """Free resources by domain of each topology label."""

    def __init__(self, snapshot: Snapshot, batch: Batch) -> None:
        self.snapshot, self.batch = snapshot, batch
        self._class_of = batch.class_of(snapshot.pods.shapes)
        self._free = snapshot.free()
        self._room = free_room(self._free)[:, : batch.ask.shape[1]]
        self._copies: dict[int, IntArray] = {}
        self._number: dict[str | None, IntArray] = {None: np.zeros(len(snapshot.nodes), dtype=np.int64)}
        """Domain of each node under a label, -1 for none; without a label all nodes are one domain."""
        self._answers: dict[object, bool] = {}

    def hold(self, gang: int, members: IntArray, fitting: IntArray) -> bool:
        """Whether the gang's fitting members are enough, and some domain might hold as many as must start.

        members, fitting: rows of pods.
        """
        wanted, pods = self.snapshot.gangs[gang], self.snapshot.pods
        running = pods.node[members]
        running = running[running != PENDING]
        need = max(1, wanted.min_members - len(running))
        counts = np.bincount(self._class_of[pods.shape[fitting]], minlength=len(self.batch.shapes))
        label = wanted.within or None
        if label is not None and label not in self._number:
            self._number[label] = self.snapshot.nodes.domain(label)
        number = self._number[label]
        at = tuple(np.unique(number[running]).tolist())
        question = (label, at, need, counts.tobytes())
        if question not in self._answers:
            able = np.isin(number, at) & (number >= 0) if at and label else number >= 0
            self._answers[question] = self._any_holds(np.where(able, number, -1), counts, need)
        return self._answers[question]

    def _any_holds(self, number: IntArray, counts: IntArray, need: int) -> bool:
        """Whether a domain might hold `need` of these pods: by class, and by each resource of the smallest of them.

        number: domain of each node; -1 for nodes that do not count. counts: pods by class.
        """
        batch, classes, able = self.batch, np.flatnonzero(counts), number >= 0
        eligible = batch.eligible[classes].any(axis=0) & able
        domains = int(number.max(initial=-1)) + 1
        room = np.stack([np.bincount(number[eligible], r[eligible], domains) for r in self._room.T], axis=1)
        copies = np.zeros((domains, len(batch.shapes)), dtype=np.int64)
        for c in classes.tolist():
            if c not in self._copies:
                self._copies[c] = copies_in(batch.shapes[c], self._free) * batch.eligible[c]
            copies[:, c] = np.bincount(number[able], self._copies[c][able], domains)
        for n in range(domains):
            fit = np.minimum(counts, copies[n])
            if fit.sum() < need:
                continue
            for ask, free in zip(batch.ask.T, room[n], strict=False):
                order = np.argsort(ask, kind="stable")
                before = np.cumsum(fit[order]) - fit[order]
                if np.clip(need - before, 0, fit[order]) @ ask[order] > free + 1e-6:
                    break
            else:
                return True
        return False
