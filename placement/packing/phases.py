"""What a draft tells as a plan: the phases that start its units, and the reasons why the others wait."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain

import numpy as np

from cluster import actions, arrays, plans, workloads
from cluster.capacity import GPU, NodeRoom
from cluster.held_seats import DEADLINE_S, seat_of
from cluster.snapshot import PENDING, HeldSeats, device_numbers
from placement.engine.explanation import Scope, copies_now, obstacles, shortage
from placement.packing.draft import PackingDraft, lacking, members_running
from placement.packing.preemption import stopped_together
from placement.packing.units import Unit, order_of_service


def phases_of(draft: PackingDraft) -> tuple[tuple[plans.Phase, ...], tuple[plans.Unplaced, ...]]:
    """Phases of the plan: units that others make room for, in the order of service; then gangs; then single pods.

    An eviction belongs to the first unit that cannot start without it, and the phase of such a unit is whole. Where it
    may not be done, because it would stop too many pods or for another reason, no pod is stopped for nothing, and the
    units that do not need its evictions start.

    Units that need the room of pods that end by themselves wait for them, with that as their reason.
    """
    leave, start = draft.changed()
    pods, gone = draft.snapshot.pods, set(leave)
    start = [row for row in start if row not in draft.moved]
    units = [Unit(int(draft.priority[row]), (row,), 1) for row in start if pods.gang[row] < 0]
    members: dict[int, list[int]] = {}
    for row in start:
        if pods.gang[row] >= 0:
            members.setdefault(int(pods.gang[row]), []).append(row)
    for gang, rows in members.items():
        stay = [row for row in draft.members(gang) if pods.node[row] != PENDING and row not in gone]
        units.append(Unit(int(draft.priority[rows[0]]), tuple(rows), lacking(draft, gang, stay), gang))
    room = _Room(draft, leave) if leave else None
    if room:
        units.sort(key=lambda unit: order_of_service(draft, unit))
    making_room, gangs, singles = list[plans.Phase](), list[tuple[int, plans.Phase]](), list[int]()
    waiting, holds = list[plans.Unplaced](), list[plans.Step]()
    for unit in units:
        if room and (awaited := room.awaited_by(unit)):
            stops = tuple(_evict(draft, row, unit.label(draft.snapshot)) for row in sorted(awaited.stops))
            holds += _hold(draft, unit, unit.rows, awaited.stops)
            making_room.append(plans.Phase(f"make room for {unit.label(draft.snapshot)}", stops, whole=True))
            waiting.append(plans.Unplaced(unit.label(draft.snapshot), awaited.reason(draft, unit)))
            continue
        free, *bought = room.parts_of(unit) if room else [_Part(unit.rows)]
        if bought and free.rows:
            making_room.append(_start(draft, unit, free))
        elif free.rows and unit.gang >= 0:
            gangs.append((unit.gang, _start(draft, unit, free)))
        else:
            singles += free.rows
        making_room += [_start(draft, unit, part) for part in bought]
        for part in bought:
            holds += _hold(draft, unit, part.rows, part.stops)
    goers = [row for row in leave if room and not (row in room.stopped or draft.ends(row) or row in draft.moved)]
    left = tuple(_evict(draft, row, "its gang") for row in goers)
    binds = tuple(_bind(draft, row) for row in sorted(singles))
    starts = [phase for _, phase in sorted(gangs, key=lambda each: each[0])]
    # First, and not with what they are for: a later plan goes on where this one stops as many pods as it may.
    making_room.insert(0, plans.Phase("hold seats", tuple(holds)))
    phases = (*making_room, plans.Phase("make room", left), *starts, plans.Phase("start pods", binds))
    return tuple(phase for phase in phases if phase.steps), tuple(waiting)


class _Awaited:
    """What a unit waits for that starts where pods end by themselves."""

    def __init__(self) -> None:
        self.stops: list[int] = []
        """Pods that are stopped for it beside those."""
        self.ending = set[int]()
        self.nodes = set[int]()

    def reason(self, draft: PackingDraft, unit: Unit) -> plans.Reason:
        pods = {draft.snapshot.pods.names[row] for row in unit.rows}
        held = (each for each in draft.snapshot.held if any(seat.taker in pods for seat in each.seats))
        until_s = next((each.until_s for each in held if draft.held_for.issuperset(unit.rows)), 0.0)
        names = [draft.snapshot.nodes.names[node] for node in sorted(self.nodes)]
        where = names[0] if len(names) == 1 else f"{len(names)} nodes"
        words = f"starts on {where} once {max(1, len(self.ending))} pods that are ending there are gone"
        words += f"; its seats are held until {datetime.fromtimestamp(until_s, UTC):%H:%M:%S} UTC" if until_s else ""
        return plans.Reason("AwaitsEnding", words, {"ending": float(len(self.ending)), "nodes": float(len(names))})


class _Part:
    """Pods that start together, and those that are stopped for them."""

    def __init__(self, rows: Iterable[int] = ()) -> None:
        self.stops: list[int] = []
        self.rows = list(rows)


class _Room:
    """Free resources while phases are made: those of the snapshot, with the stops and starts of the phases so far."""

    def __init__(self, draft: PackingDraft, leave: Sequence[int]) -> None:
        self._draft = draft
        self._free = draft.snapshot.free()
        self._group = {row: rows for rows in stopped_together(draft, leave) for row in rows}
        self._leaving: dict[int, list[int]] = {}
        for row in sorted(leave, key=lambda row: (draft.priority[row], draft.shape(row).total_gpu_milli, row)):
            self._leaving.setdefault(int(draft.snapshot.pods.node[row]), []).append(row)
        self.stopped = set[int]()
        self._awaited = set[int]()
        """Nodes where a unit waits for pods that end."""

    def awaited_by(self, unit: Unit) -> _Awaited | None:
        """What a unit waits for, where it needs the room of pods that end; None where it needs none of theirs.

        Their room and that of the pods stopped beside them then counts as taken.
        """
        found = _Awaited()
        for row in unit.rows:
            victims = self.victims_of(row)
            if any(map(self._draft.ends, victims)) or (int(self._draft.node[row]) in self._awaited and victims):
                found.nodes.add(int(self._draft.node[row]))
                found.ending |= set(filter(self._draft.ends, victims))
                found.stops += [each for each in victims if not self._draft.ends(each) and each not in found.stops]
        if not found.nodes:
            return None
        self.stopped |= set(found.stops)
        self._awaited |= found.nodes
        return found

    def victims_of(self, row: int) -> list[int]:
        """Pods that must be stopped, beside those that already are, for a pod to start where the draft places it."""
        draft, pods = self._draft, self._draft.snapshot.pods
        shape, node, victims = draft.shape(row), int(draft.node[row]), dict[int, None]()
        room = NodeRoom(self._free, node)

        def stop(rows: Iterable[int]) -> None:
            for each in rows:
                victims[each] = None
                if pods.node[each] == node:
                    room.charge(draft.shape(each), device_numbers(int(pods.devices[each])), -1)

        if row in self._group and row not in self.stopped:
            stop(self._group[row])
        for device in device_numbers(int(draft.devices[row])):
            for each in self._leaving.get(node, ()):
                if room.gpu_milli[device] >= shape.gpu_milli:
                    break
                if pods.devices[each] >> device & 1 and each not in self.stopped and each not in victims:
                    stop(self._group[each])
        # Which of the pods that leave a rule between pods concerns is not told here: all of them go first.
        is_ruled = shape.beside != workloads.ALONE
        for each in self._leaving.get(node, ()) if not shape.beside.rules else chain(*self._leaving.values()):
            if not is_ruled and not room.missing(shape).keys() - {GPU}:
                break
            if each not in self.stopped and each not in victims:
                stop(self._group[each])
        return list(victims)

    def begin(self, row: int, victims: Iterable[int], part: _Part) -> None:
        """Counts the pod as started and its victims as stopped, in this part."""
        draft, pods = self._draft, self._draft.snapshot.pods
        for each in victims:
            self._free.charge(draft.shape(each), int(pods.node[each]), device_numbers(int(pods.devices[each])), -1)
            self.stopped.add(each)
            part.stops.append(each)
        self._free.charge(draft.shape(row), int(draft.node[row]), device_numbers(int(draft.devices[row])))
        part.rows.append(row)

    def _lacks(self, unit: Unit, part: _Part) -> bool:
        """Whether the pods of this part are too few for the unit to start."""
        draft = self._draft
        if unit.gang < 0 or not draft.snapshot.gangs[unit.gang].groups:
            return len(part.rows) < unit.need
        runs = (row for row in draft.members(unit.gang) if draft.snapshot.pods.node[row] != PENDING)
        stay = [row for row in runs if row not in self._group]
        return lacking(draft, unit.gang, [*stay, *part.rows]) > 0

    def parts_of(self, unit: Unit) -> Iterator[_Part]:
        """First a unit's pods that start without a stop, then parts with one: what its gang needs, and single pods.

        Members of a gang above its minimum are parts of their own, so that they may be cut without the gang.
        """
        free, waiting = _Part(), list[int]()
        for row in unit.rows:
            if self.victims_of(row):
                waiting.append(row)
            else:
                self.begin(row, (), free)
        if self._lacks(unit, free):
            yield _Part()
            while waiting and self._lacks(unit, free):
                row = waiting.pop(0)
                self.begin(row, self.victims_of(row), free)
        yield free
        for row in waiting:
            part = _Part()
            self.begin(row, self.victims_of(row), part)
            yield part


def _start(draft: PackingDraft, unit: Unit, part: _Part) -> plans.Phase:
    label = unit.label(draft.snapshot)
    evictions = tuple(_evict(draft, row, label) for row in sorted(part.stops))
    name = f"make room for {label}" if evictions else f"start {label.partition('/')[2]}"
    return plans.Phase(name, evictions + tuple(_bind(draft, row) for row in sorted(part.rows)), whole=True)


def _hold(draft: PackingDraft, unit: Unit, rows: Sequence[int], stops: Sequence[int]) -> tuple[plans.Step, ...]:
    """Step that keeps the seats of a unit and of the pods that move for it; none where they are kept already.

    A single pod that preempts needs none: it starts once its victims are gone, before all of lower priority. It does
    where teams have shares: what it stops may be of no lower one.
    """
    snapshot, moved = draft.snapshot, [row for row in stops if row in draft.moved]
    waits = [row for row in rows if snapshot.pods.node[row] == PENDING]
    needs = unit.gang >= 0 or moved or draft.shares is not None
    if not (waits and stops and needs) or draft.held_for.issuperset((*waits, *moved)):
        return ()
    names, nodes = snapshot.pods.names, snapshot.nodes.names
    seats = [
        seat_of(
            names[row],
            draft.shape(row),
            nodes[int(draft.node[row])],
            device_numbers(int(draft.devices[row])),
            is_moved=row in draft.moved,
        )
        for row in (*waits, *moved)
    ]
    # Those of an earlier decision for the same unit, whose replacements have not come.
    for held in (each for each in snapshot.held if each.holder == names[waits[0]]):
        gone = (each for each in held.seats if each.is_moved and names.row(each.pod) is None)
        seats += [replace(each, since_s=each.since_s or held.since_s) for each in gone]
    action = actions.HoldSeats(HeldSeats(names[waits[0]], snapshot.at_s, snapshot.at_s + DEADLINE_S, tuple(seats)))
    words = f"its {len(seats)} seats are free at different times; nobody else gets one for {DEADLINE_S:g} s"
    return (plans.Step(action, plans.Reason("SeatsHeld", words)),)


def _evict(draft: PackingDraft, row: int, beneficiary: str) -> plans.Step:
    snapshot = draft.snapshot
    names, here = snapshot.pods.names, snapshot.nodes.names[int(snapshot.pods.node[row])]
    of_unit = beneficiary if "/" in beneficiary else ""
    if row in draft.moved:
        there, devices = snapshot.nodes.names[int(draft.node[row])], device_numbers(int(draft.devices[row]))
        usd = draft.move_price.of(draft.shape(row), draft.unsaved_s(row))
        move = actions.Move(names[row], here, there, devices, of_unit)
        words = f"makes room for {beneficiary}, which fits nowhere else; the move costs ${usd:.2f}"
        return plans.Step(move, plans.Reason("MakesRoom", words, {"price_usd": usd}))
    action = actions.Evict(names[row], here, of_unit)
    why = "which has higher priority" if draft.shares is None else draft.shares.why(row, beneficiary)
    words = f"makes room for {beneficiary}, {why}"
    return plans.Step(action, plans.Reason(actions.PREEMPTED, words, {"priority": int(draft.priority[row])}))


def _bind(draft: PackingDraft, row: int) -> plans.Step:
    snapshot = draft.snapshot
    node = snapshot.nodes.names[int(draft.node[row])]
    action = actions.Bind(snapshot.pods.names[row], node, device_numbers(int(draft.devices[row])))
    policy = draft.packer.policy.name
    if row in draft.held_for:
        return plans.Step(action, plans.Reason("HeldSeat", "the seat was held for it while others left it"))
    if row not in draft.choices:
        return plans.Step(
            action, plans.Reason("SameSeat", "restarts in the same place, because its gang restarts as a whole")
        )
    shape, words, figures = draft.shape(row), f"least cost under {policy}", {"cost": draft.choices[row].cost}
    devices = shape.gpus * shape.gpu_milli / workloads.WHOLE_GPU_MILLI
    if dollars := devices * float(draft.prices[draft.node[row]]):
        gpu_type = snapshot.gpu_type_names[int(snapshot.nodes.gpu_type[draft.node[row]])]
        words = f"{words}, {devices:g} × {gpu_type} at {dollars:.2f} $/h"
        figures["dollars_per_hour"] = dollars
    return plans.Step(action, plans.Reason("LeastCost", words, figures))


MOST_EXPLAINED = 256
"""Largest number of different asks that a plan explains. Each takes a pass over the nodes; a tenant can make thousands
that differ."""
UNEXPLAINED = plans.Reason(
    "NoNodeFits", f"no node can take it now; a plan says why for {MOST_EXPLAINED} kinds of pods only"
)


@dataclass(frozen=True, slots=True)
class _Ask:
    """All that decides the reason of a unit: units with the same are explained once."""

    count: tuple[tuple[int, int], ...]
    """Pending pods by number of their shape, in order of service. The number stands for the shape, whose hash takes as
    long as its constraints are."""
    need: int
    within: str | None = None
    domain: int = -1
    """Domain in which the gang already runs, and in which it must stay; -1: none."""


class Reasons:
    """Reasons of the units that a draft leaves waiting, as resources are at its end."""

    # 2,000 pods of one shape, 4,000 nodes: 10 ms.

    def __init__(self, draft: PackingDraft) -> None:
        self._draft = draft
        self._known: dict[_Ask, plans.Reason] = {}
        self._copies: dict[int, arrays.IntArray] = {}

    def of(self, unit: Unit) -> plans.Reason:
        """What keeps a unit from starting that had its turn."""
        draft, label, need, domain = self._draft, None, unit.need, -1
        if unit.gang < 0:
            need = 1
        elif (label := draft.snapshot.gangs[unit.gang].within) is not None:
            of_node = draft.domain(label)
            runs = {int(of_node[draft.node[row]]) for row in members_running(draft, unit.gang)} - {-1}
            domain = min(runs, default=-1)
        if unit.gang >= 0 and (absent := self._absent(unit)):
            return absent
        ask = _Ask(tuple(Counter(map(draft.shape_number, unit.rows)).items()), need, label, domain)
        if ask not in self._known:
            if len(self._known) >= MOST_EXPLAINED:
                return UNEXPLAINED
            if ask.need > 1:
                self._known[ask] = self._held_back(ask)
            else:  # a pod that starts by itself
                scope = (
                    self._labelled(label) if label and domain < 0 else self._inside(label, domain) if label else None
                )
                self._known[ask] = shortage(draft.packer, self._shape(ask.count[0][0]), scope)
        return self._known[ask]

    def _absent(self, unit: Unit) -> plans.Reason | None:
        """Reason of a gang some of whose members do not exist, or are of other roles than it needs."""
        draft, gang = self._draft, self._draft.snapshot.gangs[unit.gang]
        names = [draft.snapshot.pods.names[row] for row in draft.members(unit.gang) if not draft.ends(row)]
        if not (missing := gang.missing(names)):
            return None
        words = f"{len(names)} members exist, {gang.min_members} must start together; it waits for {missing} more"
        return plans.Reason("MembersMissing", words, {"members": len(names), "min_members": gang.min_members})

    def _held_back(self, ask: _Ask) -> plans.Reason:
        """Reason of a gang of which too few members fit: what is short where most of them fit."""
        near = f" within one {ask.within}" if ask.within else ""
        words = f"{ask.need} members must start together{near} and do not all fit, so none was started; "
        room, where, scope = self._best(ask)
        # The first shape of which not all pods fit there; the first of all, if they only do not fit together.
        short = ask.count[0][0]
        for shape, wanted in ask.count:
            copies = self._copies_of(shape)
            if (copies if scope is None else copies[scope.nodes]).sum() < wanted:
                short = shape
                break
        found = obstacles(self._draft.packer, self._shape(short), scope)
        figures = {"need": float(ask.need), "room": float(room), **found.figures}
        has_room = ~np.any(list(found.nodes.values()), axis=0)
        of_nodes = [found.words] if found.words else []
        if has_room.any():
            figures["with_room"] = float(has_room.sum())
            of_nodes.insert(0, f"{has_room.sum()} with room")
        most = f"at most {room} of them fit{where}" if room < ask.need else "they do not fit together"
        words += f"{most}; of {len(has_room)} nodes: {', '.join(of_nodes) or 'no nodes'}"
        return plans.Reason("GangHeldBack", words, figures)

    def _best(self, ask: _Ask) -> tuple[int, str, Scope | None]:
        """The nodes where most members of a gang fit: how many (at most, for unequal pods), ` in rack=r1`, and which.

        One domain of the required label, or all nodes for a gang without one.
        """
        copies = {shape: self._copies_of(shape) for shape, _ in ask.count}
        if ask.within is None:
            return sum(min(wanted, int(copies[shape].sum())) for shape, wanted in ask.count), "", None
        of_node = self._draft.domain(ask.within)
        labelled = np.flatnonzero(of_node >= 0)
        if not len(labelled):
            return 0, "", self._labelled(ask.within)
        room = np.zeros(int(of_node.max()) + 1, dtype=np.int64)
        for shape, wanted in ask.count:
            here = np.bincount(of_node[labelled], copies[shape][labelled]).astype(np.int64)
            room += np.minimum(wanted, here)
        best = ask.domain if ask.domain >= 0 else int(room.argmax())
        return int(room[best]), f" in {self._name(ask.within, best)}", self._inside(ask.within, best)

    def _shape(self, number: int) -> workloads.PodShape:
        return self._draft.snapshot.pods.shapes[number]

    def _copies_of(self, shape: int) -> arrays.IntArray:
        if shape not in self._copies:
            self._copies[shape] = copies_now(self._draft.packer, self._shape(shape))
        return self._copies[shape]

    def _labelled(self, label: str) -> Scope:
        return Scope(self._draft.domain(label) >= 0, f"without the label {label}")

    def _inside(self, label: str, domain: int) -> Scope:
        return Scope(self._draft.domain(label) == domain, f"outside {self._name(label, domain)}")

    def _name(self, label: str, domain: int) -> str:
        """Name of a topology domain: `rack=r1`."""
        member = int(np.flatnonzero(self._draft.domain(label) == domain)[0])
        return f"{label}={self._draft.snapshot.nodes.labels[member][label]}"
