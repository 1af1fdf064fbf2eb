"""Draft of a packing: the node and devices of every pod while the plan is made, with rollback of every attempt."""

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from placement.engine.packer import Choice, Packer


class Draft:
    """Placement of all pods of a snapshot, kept in step with the packer's ledger.

    `roll_back(mark)` undoes what changed after a `mark`, so that a gang or a preemption is tried as a whole.
    """

    def __init__(self, snapshot: Snapshot, packer: Packer) -> None:
        self.snapshot = snapshot
        self.packer = packer
        self.node = snapshot.pods.node.copy()
        self.devices = snapshot.pods.devices.copy()
        self.priority = effective_priority(snapshot)
        self.choices: dict[int, Choice] = {}
        """Choice for each pod that this draft placed, as the reason of its placement."""
        self._journal: list[tuple[int, int, int]] = []

    @property
    def mark(self) -> int:
        return len(self._journal)

    def shape(self, row: int) -> PodShape:
        return self.snapshot.pods.shapes[int(self.snapshot.pods.shape[row])]

    def seat(self, row: int, within: BoolArray | None = None) -> bool:
        """Places a pending pod on the best node and devices (among the nodes of `within`). False when none fits."""
        choice = self.packer.choose(self.shape(row), within, self.snapshot.pods.owner[row])
        if choice is None:
            return False
        self.choices[row] = choice
        self._set(row, choice.node, choice.devices)
        return True

    def unseat(self, row: int) -> None:
        self._set(row, PENDING, 0)

    def roll_back(self, mark: int) -> None:
        """Restores the state at that mark."""
        while len(self._journal) > mark:
            row, node, devices = self._journal.pop()
            self._charge(row, node, devices)

    def unseated_since(self, mark: int) -> list[int]:
        """Rows that lost their placement after that mark and have none now, each once."""
        lost = {row: None for row, node, _ in self._journal[mark:] if node != PENDING}
        return [row for row in lost if self.node[row] == PENDING]

    def changed(self) -> tuple[list[int], list[int]]:
        """Rows that must leave their place in the snapshot, and rows that start where the draft places them.

        A pod that was removed and got the same place back is in neither, unless too few of its gang would stay: a gang
        that falls below its minimum restarts as a whole.
        """
        before = self.snapshot.pods
        differs = (self.node != before.node) | (self.devices != before.devices)
        for index, gang in enumerate(self.snapshot.gangs):
            ran = (before.gang == index) & (before.node != PENDING)
            if (ran & differs).any() and (ran & ~differs).sum() < gang.min_members:
                differs |= ran
        leave = np.flatnonzero(differs & (before.node != PENDING))
        start = np.flatnonzero(differs & (self.node != PENDING))
        return leave.tolist(), start.tolist()

    def _set(self, row: int, node: int, devices: int) -> None:
        self._journal.append((row, int(self.node[row]), int(self.devices[row])))
        self._charge(row, node, devices)

    def _charge(self, row: int, node: int, devices: int) -> None:
        shape, owner = self.shape(row), self.snapshot.pods.owner[row]
        if self.node[row] != PENDING:
            self.packer.remove(shape, int(self.node[row]), int(self.devices[row]), owner)
        if node != PENDING:
            self.packer.place(shape, Choice(node, devices, cost=0.0), owner)
        self.node[row], self.devices[row] = node, devices


def effective_priority(snapshot: Snapshot) -> IntArray:
    """Priority for service and for preemption: all members of a gang have that of its most important member.

    Otherwise a gang could preempt its own members, and be preempted by them, without end. Shape (pods,).
    """
    pods = snapshot.pods
    of_gang = np.array([*(gang.priority for gang in snapshot.gangs), 0], dtype=np.int64)
    members = pods.gang >= 0
    np.maximum.at(of_gang, pods.gang[members], pods.priority[members])
    return np.where(members, of_gang[pods.gang], pods.priority)


def members_running(draft: Draft, gang: int) -> list[int]:
    """Rows of a gang's members that are placed in the draft."""
    rows: list[int] = np.flatnonzero((draft.snapshot.pods.gang == gang) & (draft.node != PENDING)).tolist()
    return rows
