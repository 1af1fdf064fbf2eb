"""Phases of a packing plan: for each unit that others make room for, what is stopped for it and its start together."""

from collections.abc import Iterable, Iterator, Sequence

from cluster.actions import PREEMPTED, Bind, Evict
from cluster.plans import Phase, Reason, Step
from cluster.snapshot import PENDING, device_numbers
from placement.engine.ledger import Ledger
from placement.packing.draft import PackingDraft
from placement.packing.preemption import stopped_together
from placement.packing.units import Unit, order_of_service


def phases_of(draft: PackingDraft) -> tuple[Phase, ...]:
    """Phases of the plan: units that others make room for, in the order of service; then gangs; then single pods.

    An eviction belongs to the first unit that cannot start without it, and the phase of such a unit is whole. Where it
    may not be done, because it would stop too many pods or for another reason, no pod is stopped for nothing, and the
    units that do not need its evictions start.
    """
    leave, start = draft.changed()
    pods, gone = draft.snapshot.pods, set(leave)
    units = [Unit(int(draft.priority[row]), (row,), 1) for row in start if pods.gang[row] < 0]
    members: dict[int, list[int]] = {}
    for row in start:
        if pods.gang[row] >= 0:
            members.setdefault(int(pods.gang[row]), []).append(row)
    for gang, rows in members.items():
        stay = sum(pods.node[row] != PENDING and row not in gone for row in draft.members(gang))
        need = draft.snapshot.gangs[gang].min_members - stay
        units.append(Unit(int(draft.priority[rows[0]]), tuple(rows), need, gang))
    room = _Room(draft, leave) if leave else None
    if room:
        units.sort(key=lambda unit: order_of_service(draft, unit))
    making_room, gangs, singles = list[Phase](), list[tuple[int, Phase]](), list[int]()
    for unit in units:
        free, *bought = room.parts_of(unit) if room else [_Part(unit.rows)]
        if bought and free.rows:
            making_room.append(_start(draft, unit, free))
        elif free.rows and unit.gang >= 0:
            gangs.append((unit.gang, _start(draft, unit, free)))
        else:
            singles += free.rows
        making_room += [_start(draft, unit, part) for part in bought]
    left = tuple(_evict(draft, row, "its gang") for row in leave if room and row not in room.stopped)
    binds = tuple(_bind(draft, row) for row in sorted(singles))
    starts = [phase for _, phase in sorted(gangs, key=lambda each: each[0])]
    phases = (*making_room, Phase("make room", left), *starts, Phase("start pods", binds))
    return tuple(phase for phase in phases if phase.steps)


class _Part:
    """Pods that start together, and those that are stopped for them."""

    def __init__(self, rows: Iterable[int] = ()) -> None:
        self.stops: list[int] = []
        self.rows = list(rows)


class _Room:
    """Free resources while phases are made: those of the snapshot, with the stops and starts of the phases so far."""

    def __init__(self, draft: PackingDraft, leave: Sequence[int]) -> None:
        self._draft = draft
        self._ledger = Ledger.of(draft.snapshot)
        self._group = {row: rows for rows in stopped_together(draft, leave) for row in rows}
        self._leaving: dict[int, list[int]] = {}
        for row in sorted(leave, key=lambda row: (draft.priority[row], draft.shape(row).total_gpu_milli, row)):
            self._leaving.setdefault(int(draft.snapshot.pods.node[row]), []).append(row)
        self.stopped = set[int]()

    def victims_of(self, row: int) -> list[int]:
        """Pods that must be stopped, beside those that already are, for a pod to start where the draft places it."""
        draft, pods = self._draft, self._draft.snapshot.pods
        shape, node, free = draft.shape(row), int(draft.node[row]), self._ledger
        cpu_milli, memory_bytes = int(free.cpu_milli[node]), int(free.memory_bytes[node])
        gpu_milli, victims = free.gpu_milli[node].tolist(), dict[int, None]()

        def stop(rows: Iterable[int]) -> None:
            nonlocal cpu_milli, memory_bytes
            for each in rows:
                victims[each] = None
                if pods.node[each] == node:
                    cpu_milli += draft.shape(each).cpu_milli
                    memory_bytes += draft.shape(each).memory_bytes
                    for device in device_numbers(int(pods.devices[each])):
                        gpu_milli[device] += draft.shape(each).gpu_milli

        if row in self._group and row not in self.stopped:
            stop(self._group[row])
        for device in device_numbers(int(draft.devices[row])):
            for each in self._leaving.get(node, ()):
                if gpu_milli[device] >= shape.gpu_milli:
                    break
                if pods.devices[each] >> device & 1 and each not in self.stopped and each not in victims:
                    stop(self._group[each])
        for each in self._leaving.get(node, ()):
            if cpu_milli >= shape.cpu_milli and memory_bytes >= shape.memory_bytes:
                break
            if each not in self.stopped and each not in victims:
                stop(self._group[each])
        return list(victims)

    def begin(self, row: int, victims: Iterable[int], part: _Part) -> None:
        """Counts the pod as started and its victims as stopped, in this part."""
        draft, pods = self._draft, self._draft.snapshot.pods
        for each in victims:
            self._ledger.give(draft.shape(each), int(pods.node[each]), device_numbers(int(pods.devices[each])))
            self.stopped.add(each)
            part.stops.append(each)
        self._ledger.take(draft.shape(row), int(draft.node[row]), device_numbers(int(draft.devices[row])))
        part.rows.append(row)

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
        if len(free.rows) < unit.need:
            yield _Part()
            while len(free.rows) < unit.need and waiting:
                row = waiting.pop(0)
                self.begin(row, self.victims_of(row), free)
        yield free
        for row in waiting:
            part = _Part()
            self.begin(row, self.victims_of(row), part)
            yield part


def _start(draft: PackingDraft, unit: Unit, part: _Part) -> Phase:
    label = unit.label(draft.snapshot)
    evictions = tuple(_evict(draft, row, label) for row in sorted(part.stops))
    name = f"make room for {label}" if evictions else f"start {label.partition('/')[2]}"
    return Phase(name, evictions + tuple(_bind(draft, row) for row in sorted(part.rows)), whole=True)


def _evict(draft: PackingDraft, row: int, beneficiary: str) -> Step:
    snapshot = draft.snapshot
    action = Evict(snapshot.pods.names[row], snapshot.nodes.names[int(snapshot.pods.node[row])])
    words = f"makes room for {beneficiary}, which has higher priority"
    return Step(action, Reason(PREEMPTED, words, {"priority": int(draft.priority[row])}))


def _bind(draft: PackingDraft, row: int) -> Step:
    snapshot = draft.snapshot
    node = snapshot.nodes.names[int(draft.node[row])]
    action = Bind(snapshot.pods.names[row], node, device_numbers(int(draft.devices[row])))
    policy = draft.packer.policy.name
    if row not in draft.choices:
        return Step(action, Reason("SameSeat", "restarts in the same place, because its gang restarts as a whole"))
    return Step(action, Reason("LeastCost", f"least cost under {policy}", {"cost": draft.choices[row].cost}))
