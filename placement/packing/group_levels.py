"""Gangs whose groups ask for topology levels of their own: each group in one domain of its level, and all of them in
one of the level of the whole.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from cluster import arrays
from cluster.snapshot import PENDING
from cluster.workloads import MemberGroup
from placement.packing.draft import PackingDraft, lacking, members_running
from placement.packing.gangs import Rooms, Seat, left_near, ranked_domains, seat_together
from placement.packing.units import Unit

MOST_TRIED = 200
"""Domains that are tried for the groups of one gang. Chosen: three groups on five racks each have 125 ways."""


def seat_gang(draft: PackingDraft, unit: Unit, seat: Seat) -> bool:
    """Places at least `unit.need` of a gang's pods, or none. Its other pods follow as far as they fit."""
    if any(levels_in(draft.snapshot.gangs[unit.gang].groups)):
        return TreeSeating(draft, unit, seat).seat()
    return seat_together(draft, unit, seat)


def levels_in(groups: Iterable[MemberGroup]) -> Iterator[str]:
    """Topology levels that these groups, and theirs, ask for, from the outermost."""
    for group in groups:
        yield from (label for label in (group.within, group.prefer_within) if label)
        yield from levels_in(group.groups)


@dataclass(frozen=True, slots=True)
class _Task:
    group: MemberGroup
    allowed: arrays.BoolArray
    may_wait: bool
    """Whether enough other groups beside it may do."""


class TreeSeating:
    """A search for domains, group by group, the largest first; a choice that leaves a later one none is undone."""

    def __init__(self, draft: PackingDraft, unit: Unit, seat: Seat) -> None:
        self._draft, self._unit, self._seat, self._tried = draft, unit, seat, 0
        names = draft.snapshot.pods.names
        self._row = {names[row]: row for row in draft.members(unit.gang)}

    def seat(self) -> bool:
        """Places what the gang needs, and further members as far as they fit; or changes nothing."""
        draft, gang = self._draft, self._draft.snapshot.gangs[self._unit.gang]
        grouped = {pod for group in gang.groups for pod in group.pods}
        alone = tuple(pod for pod in self._row if pod not in grouped)
        root = MemberGroup(gang.name, gang.min_members, alone, gang.groups, gang.least_groups)
        root = replace(root, within=gang.within, prefer_within=gang.prefer_within)
        # Groups that are placed one by one share few nodes: first they are tried on the fewest that hold them all.
        everywhere = np.arange(len(draft.snapshot.nodes))
        fewest = self._rooms(self._unit).nodes.best(everywhere)
        masks = [] if fewest.unseated else [np.isin(everywhere, list(fewest.on))]
        for allowed in (*masks, everywhere >= 0):
            mark, self._tried = draft.mark, 0
            is_last = bool(allowed.all())
            if self._all_of((_Task(root, allowed, may_wait=False),)) and (
                is_last or all(draft.node[row] != PENDING for row in self._unit.rows)
            ):
                return True
            draft.roll_back(mark)
        return False

    def _all_of(self, tasks: tuple[_Task, ...]) -> bool:
        draft = self._draft
        if not tasks:
            seated = any(draft.node[row] != PENDING for row in self._unit.rows)
            return seated and lacking(draft, self._unit.gang) <= 0
        task, *rest = tasks
        for allowed in self._places(task):
            self._tried += 1
            if self._tried > MOST_TRIED:
                return False
            mark = draft.mark
            if self._seat_here(task, allowed, tuple(rest)):
                return True
            draft.roll_back(mark)
        return task.may_wait and self._all_of(tuple(rest))

    def _seat_here(self, task: _Task, allowed: arrays.BoolArray, rest: tuple[_Task, ...]) -> bool:
        group = task.group
        if any(levels_in(group.groups)):
            inner = sorted(group.groups, key=lambda each: -len(each.pods))
            waits = group.least_groups is not None
            own = replace(group, groups=(), least=0, within=None, prefer_within=None)
            tasks = [_Task(each, allowed, waits) for each in inner]
            return self._all_of((*tasks, *([_Task(own, allowed, may_wait=False)] if own.members else []), *rest))
        unit = self._unit_of(group)
        if unit.rows:
            left_near(self._draft, unit, self._seat, self._rooms(unit), allowed, None)
        return group.lacks(self._running()) <= 0 and self._all_of(rest)

    def _rooms(self, unit: Unit) -> Rooms:
        return Rooms(self._draft, unit, self._seat.below)

    def _running(self) -> frozenset[str]:
        names = self._draft.snapshot.pods.names
        return frozenset(names[row] for row in members_running(self._draft, self._unit.gang))

    def _unit_of(self, group: MemberGroup) -> Unit:
        members = {self._row[pod] for pod in group.pods if pod in self._row}
        rows = tuple(row for row in self._unit.rows if row in members and self._draft.node[row] == PENDING)
        return replace(self._unit, rows=rows, need=max(0, min(len(rows), group.lacks(self._running()))))

    def _places(self, task: _Task) -> Iterable[arrays.BoolArray]:
        """Nodes among which a group may start, the best first: where its members run, else each domain of its level."""
        group, draft, unit = task.group, self._draft, self._unit_of(task.group)
        for label, must in ((group.within, True), (group.prefer_within, False)):
            if label is None:
                continue
            domain = np.where(task.allowed, draft.domain(label), -1)
            here = {self._row[pod] for pod in group.pods if pod in self._row} - set(unit.rows)
            runs = {int(draft.domain(label)[draft.node[row]]) for row in here if draft.node[row] != PENDING} - {-1}
            values = sorted(runs)[:1]
            if unit.rows and not runs:
                values = ranked_domains(draft, unit, self._seat, self._rooms(unit), domain)
            for value in values:
                yield domain == value
            if must and unit.rows:
                return
        yield task.allowed
