"""The draft of a packing: who sits where while it is being made, with a way back for all that is tried."""

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from placement.engine.packer import Choice, Packer


class Draft:
    """Seats of all pods of a snapshot, and the packer's ledger in step with them.

    What was changed after a `mark` can be undone by `roll_back(mark)`: a gang or a preemption is tried whole.
    """

    def __init__(self, snapshot: Snapshot, packer: Packer) -> None:
        self.snapshot = snapshot
        self.packer = packer
        self.node = snapshot.pods.node.copy()
        self.devices = snapshot.pods.devices.copy()
        self.priority = effective_priority(snapshot)
        self.choices: dict[int, Choice] = {}
        """Why each pod that was seated here got its seat."""
        self._journal: list[tuple[int, int, int]] = []

    @property
    def mark(self) -> int:
        return len(self._journal)

    def shape(self, row: int) -> PodShape:
        return self.snapshot.pods.shapes[int(self.snapshot.pods.shape[row])]

    def seat(self, row: int, within: BoolArray | None = None) -> bool:
        """Give a pending pod the best seat there is (among the nodes of `within`), if there is one."""
        choice = self.packer.choose(self.shape(row), within, self.snapshot.pods.owner[row])
        if choice is None:
            return False
        self.choices[row] = choice
        self._set(row, choice.node, choice.devices)
        return True

    def unseat(self, row: int) -> None:
        self._set(row, PENDING, 0)

    def roll_back(self, mark: int) -> None:
        """Everything as it was at that mark."""
        while len(self._journal) > mark:
            row, node, devices = self._journal.pop()
            self._charge(row, node, devices)

    def unseated_since(self, mark: int) -> list[int]:
        """Rows that lost a seat after that mark and have none now, each once."""
        lost = {row: None for row, node, _ in self._journal[mark:] if node != PENDING}
        return [row for row in lost if self.node[row] == PENDING]

    def changed(self) -> tuple[list[int], list[int]]:
        """Rows that must leave where the snapshot shows them, and rows that start where the draft seats them.

        A pod that was unseated and got the same seat back is in neither, unless so many of its gang leave that the rest
        would be too few: a gang that breaks starts anew as a whole.
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
    """The priority that each pod is served and spared by: a gang's members all have its most important one's.

    Else a gang could stop its own kind, and be stopped by it, without end. Shape (pods,).
    """
    pods = snapshot.pods
    priority = pods.priority.copy()
    for index, gang in enumerate(snapshot.gangs):
        members = pods.gang == index
        priority[members] = max(gang.priority, int(pods.priority[members].max(initial=gang.priority)))
    return priority


def members_running(draft: Draft, gang: int) -> list[int]:
    """Rows of a gang's members that have a seat in the draft."""
    rows: list[int] = np.flatnonzero((draft.snapshot.pods.gang == gang) & (draft.node != PENDING)).tolist()
    return rows
