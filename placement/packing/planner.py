"""Packing decider: pending pods and gangs onto nodes and devices, by priority, as a plan with reasons."""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from cluster.plans import CutShort, Phase, Plan, Reason, Unplaced
from cluster.snapshot import PENDING, HeldSeat, HeldSeats, Snapshot, device_mask
from placement.budget import Budget
from placement.engine.packer import Choice, Packer
from placement.move_price import MovePrice
from placement.packing.draft import NEVER, PLACES_PER_POD, PackingDraft, Within, members_running
from placement.packing.gangs import Seat
from placement.packing.group_levels import seat_gang
from placement.packing.phases import Reasons, phases_of
from placement.packing.preemption import PLACES_PER_SEARCH, seat_by_preemption, spare_victims, stopped_with
from placement.packing.room import make_room
from placement.packing.spared import SparedPods, left_to_kube_scheduler
from placement.packing.units import FairQueue, Unit, UnitQueue, as_of_now, pending_units, units_of

WORK_PER_S = 2_000_000.0
"""Places examined per second of the deadline, as `PackingDraft.work` counts them. Measured on a core of 2026 with the
policy `tonnage`, 200 to 20,000 nodes and up to 300 shapes: 2.1 to 3.4 million per second; 0.8 million where 500 shapes
of pods share devices. So 4,000 pods on 1,000 nodes use 1.3 seconds of a plan (`make bench-binding`)."""
LEAST_SHARE = 1 / 20
"""Fraction of the remaining work that every gang may use. Chosen: 20 gangs that use it in vain leave more than a third
to the units behind them."""
MOST_SHARE = 1 / 2
"""Fraction of the remaining work that a large gang may use, and of all work that large gangs may use in vain; after
that, a gang has `LEAST_SHARE` until all other units had their turn."""

OUT_OF_TIME = Reason("PackingOutOfTime", "the deadline passed before the work of placing pods was done")
NO_TURN: Mapping[CutShort, Reason] = {
    "work": Reason("WorkUsedUp", "the work that the deadline of this plan allows was used up before its turn"),
    "time": Reason("DeadlinePassed", "the deadline of this plan passed before its turn"),
}


def packing_work_of(within_s: float) -> float:
    """Packing work that belongs to a deadline, in examined places."""
    return WORK_PER_S * within_s


def pack(
    snapshot: Snapshot,
    packer: Packer,
    budget: Budget | None = None,
    *,
    preempt: bool = True,
    tried: frozenset[str] = frozenset(),
    moves: MovePrice | None = None,
) -> Plan:
    """Plan that places every pending unit that fits, by priority, and reports the rest with what was short where.

    A unit is a pod or a whole gang. A unit that does not fit is skipped and holds nothing, so it blocks no other.
    Preempted pods are served again in their own turn. Units beyond the budget wait, with that as their reason; without
    a budget every unit is served. tried: what the last plan tried in vain, as `tried_in_vain` returns it. moves: price
    at which others are moved for those that fit nowhere; None: none is, but pods that this plan starts change places.
    """
    budget = Budget(math.inf) if budget is None else budget
    draft = PackingDraft(snapshot, packer, tried)
    if snapshot.held:
        take_held_seats(draft)
    left = pending_units(draft)
    service, turn, had_turn = UnitService(draft, budget, preempt=preempt), ServedUnits(1), frozenset[int]()
    unserved = frozenset[int]()
    while left and turn.seated and not turn.ended:  # again: evictions may free more than they must
        turn = service.serve(left)
        if service.has_stopped_pods:
            spare_victims(draft)
        unserved = turn.unserved - had_turn
        had_turn |= rows_of(left)
        left = pending_units(draft)
    if left and not turn.ended and make_room(draft, left, moves) and (left := pending_units(draft)):
        UnitService(draft, budget, preempt=False).serve(left)  # what made room for one may have left some for another
        left = pending_units(draft)
    phases, waiting = phases_of(draft)
    unplaced = list(waiting)
    released = left_to_kube_scheduler(draft, left) if preempt and left else {}
    if released:
        phases = (*phases, Phase("leave to kube-scheduler", tuple(released.values())))
    if left:
        reasons, spared = Reasons(draft), SparedPods(draft)
        for unit in left:
            if unit.rows[0] in released:
                continue
            had_no_turn = turn.ended and not unserved.isdisjoint(unit.rows)
            why = NO_TURN[turn.ended] if had_no_turn else spared.added_to(reasons.of(unit), unit)
            unplaced.append(Unplaced(unit.label(snapshot), why))
    return Plan(phases=phases, unplaced=tuple(unplaced), cut_short=(OUT_OF_TIME,) if turn.ended == "time" else ())


def tried_in_vain(plan: Plan, before: frozenset[str]) -> frozenset[str]:
    """Units that had a turn, now or in the plans before, since one after which none waited for its turn.

    The next plan begins with the others, so that a flood of pods that fit nowhere is gone through in a few plans.
    """
    waits = {each.workload: each.reason.code for each in plan.unplaced}
    no_turn = {each.code for each in NO_TURN.values()}
    had_none = {workload for workload, code in waits.items() if code in no_turn} - before
    return frozenset(waits.keys() - had_none) if had_none else frozenset()


@dataclass(frozen=True, slots=True)
class ServedUnits:
    """Result of serving a queue once."""

    seated: int
    """Number of placed units."""
    ended: CutShort = ""
    """Limit that ended it before every unit had its turn."""
    unserved: frozenset[int] = frozenset()
    """Rows of the pods without a turn, or with one that the limit cut short."""


class UnitService:
    """Passes over the units that wait, until none of them can be placed."""

    def __init__(self, draft: PackingDraft, budget: Budget, *, preempt: bool) -> None:
        self._draft = draft
        self._budget = budget
        self._preempt = preempt
        self.has_stopped_pods = False
        """Whether a preemption stopped pods."""
        self._futile = set[Hashable]()
        """Keys of pods that cannot be placed (`_alike`), kept from one pass to the next."""
        self._futile_gangs = set[Hashable]()
        """The same for gangs, in one pass: their placement is a heuristic, which may succeed after others took room."""
        self._useless_most = MOST_SHARE * budget.work
        self._useless = 0.0
        """Work of gangs that were not placed."""

    def serve(self, units: Iterable[Unit]) -> ServedUnits:
        """Serves every unit once, in the order of service; those whose own work was used up again after all others.

        Where the work does not suffice for all, namespaces share that of each priority. Victims of preemption join the
        queue at their own place.
        """
        draft, budget = self._draft, self._budget
        queue, late = FairQueue(draft, units, budget), UnitQueue(draft)
        seated, cut = 0, list[Unit]()
        self._futile_gangs.clear()
        for unit, is_late in self._turns(queue, late):
            if not budget.allows_more():
                behind = (each for each in (unit, *queue.waiting(), *late.waiting()) if self._may_fit(each))
                return ServedUnits(seated, budget.cut_short, rows_of((*behind, *cut)))
            mark = draft.mark
            attempt = Attempt(draft, budget if unit.gang < 0 else self._gang_budget(unit, is_late=is_late))
            if attempt.seat(unit, preempt=self._preempt):
                seated += 1
            else:
                self._useless += attempt.work if unit.gang >= 0 else 0.0
                if not attempt.was_cut:
                    (self._futile if unit.gang < 0 else self._futile_gangs).add(_alike(draft, unit))
                elif is_late:
                    cut.append(unit)
                else:
                    late.add(unit)
            queue.charge(unit, attempt.work)
            victims = draft.unseated_since(mark)
            if victims:  # freed resources may now fit pods that did not fit before
                self.has_stopped_pods = True
                self._futile.clear()
                self._futile_gangs.clear()
                for each in units_of(draft, victims):
                    queue.add(each)
        return ServedUnits(seated, "work" if cut else "", rows_of(cut))

    def _turns(self, queue: FairQueue, late: UnitQueue) -> Iterator[tuple[Unit, bool]]:
        """Units as they are when their turn comes, and whether it is the second one; none that cannot be placed."""
        while True:
            first = queue.next()
            if first is None and late.first is None:
                return
            waited = first or late.next()
            for unit in as_of_now(self._draft, waited):
                if self._may_fit(unit):
                    yield unit, first is None

    def _may_fit(self, unit: Unit) -> bool:
        return _alike(self._draft, unit) not in (self._futile if unit.gang < 0 else self._futile_gangs)

    def _gang_budget(self, unit: Unit, *, is_late: bool) -> Budget:
        """Work that a gang may use: twice that of placing one that fits, within its shares of what remains."""
        budget = self._budget
        least, most = LEAST_SHARE * budget.work, MOST_SHARE * budget.work
        if is_late:
            least = most
        elif self._useless < self._useless_most:
            kinds = len({self._draft.kind(row) for row in unit.rows})
            each = PLACES_PER_POD + (PLACES_PER_SEARCH if self._preempt else 0)
            usual = 2.0 * (kinds * len(self._draft.snapshot.nodes) + len(unit.rows) * each)
            least = min(max(least, usual), most)
        return Budget(least, budget.clock, budget.over_at_s, budget)


class Attempt:
    """One turn of a unit, charged to its budget."""

    def __init__(self, draft: PackingDraft, budget: Budget) -> None:
        self._draft = draft
        self._budget = budget
        self._began = self._charged = draft.work
        self.was_cut = False
        """Whether a pod was not tried because the budget was used up."""

    @property
    def work(self) -> float:
        """Work of this turn, in examined places."""
        return self._charged - self._began

    def seat(self, unit: Unit, *, preempt: bool) -> bool:
        """Places the unit in free resources if they suffice, else by preemption for the pods that do not fit."""
        draft, row = self._draft, unit.rows[0]
        if unit.gang < 0:
            is_seated = self._in_free_resources(row, None)
        else:
            is_seated = seat_gang(draft, unit, Seat(self._in_free_resources))
        may_stop = preempt and not is_seated and not self.was_cut
        out_of_stops = draft.snapshot.out_of_stops
        may_stop = may_stop and not (out_of_stops and unit.label(draft.snapshot) in out_of_stops)
        if may_stop and ((draft.node != PENDING) & (draft.resistance < unit.priority)).any():
            if unit.gang < 0:
                is_seated = self._by_preemption(row, None)
            else:
                is_seated = seat_gang(draft, unit, Seat(self._in_either, below=unit.priority))
        self._charge()
        return is_seated

    def _in_free_resources(self, row: int, within: Within) -> bool:
        self._charge()
        if not self._budget.allows_more():
            self.was_cut = True
        return not self.was_cut and self._draft.seat(row, within)

    def _by_preemption(self, row: int, within: Within) -> bool:
        priority = int(self._draft.priority[row])
        if isinstance(within, int):
            return False
        return self._draft.may_preempt(row) and seat_by_preemption(self._draft, row, priority, within)

    def _in_either(self, row: int, within: Within) -> bool:
        return self._in_free_resources(row, within) or (not self.was_cut and self._by_preemption(row, within))

    def _charge(self) -> None:
        if self._draft.work > self._charged:
            self._budget.spend(self._draft.work - self._charged)
            self._charged = self._draft.work


def rows_of(units: Iterable[Unit]) -> frozenset[int]:
    """Rows of all pods of these units."""
    return frozenset(row for unit in units for row in unit.rows)


def _alike(draft: PackingDraft, unit: Unit) -> Hashable:
    """Key of units that fail alike: pods of one kind and priority, and gangs of equal content that wait whole.

    Free resources only shrink from one unit to the next unless pods are preempted, and a pod that must be near others,
    or spread with them, is let in only where one of them starts. Thousands of units that fit nowhere therefore cost no
    more than one, and leave the work to the units behind them.
    """
    near = draft.packer.neighbours
    helped = 0 if near is None else sum(near.changes(draft.shape(row)) for row in unit.rows)
    if unit.gang < 0:
        return (draft.kind(unit.rows[0]), unit.priority, helped)
    wanted = draft.snapshot.gangs[unit.gang]
    content = tuple(sorted(Counter(draft.kind(row) for row in unit.rows).items()))
    which = unit.gang if members_running(draft, unit.gang) else -1
    return (which, wanted.within, wanted.prefer_within, unit.priority, unit.need, content, helped)


def take_held_seats(draft: PackingDraft) -> None:
    """Places every pod that has a held seat on it, if what is still in its way ends by itself or has lower priority.

    What an earlier plan decided goes on with it. Where a seat cannot be had any more, none of those that were held for
    the same gang is taken: the gang is placed as any other.
    """
    for held in draft.snapshot.held:
        for seat in held.seats:
            mark = draft.mark
            if seat.is_moved and seat.taker and not _is_taken(draft, seat):
                draft.roll_back(mark)
        mark, moved = draft.mark, list[int]()
        own = [seat for seat in held.seats if not seat.is_moved]
        if own and not (_move_on(draft, held, moved) and all(_is_taken(draft, seat) for seat in own)):
            draft.roll_back(mark)
            draft.moved.difference_update(moved)


def _move_on(draft: PackingDraft, held: HeldSeats, moved: list[int]) -> bool:
    """Moves the pods that were to move and still run: the leader died before it evicted them, or the watch lags."""
    pods, nodes = draft.snapshot.pods, draft.snapshot.nodes.names
    for seat in held.seats:
        row, node = pods.names.row(seat.pod), nodes.row(seat.node)
        if not seat.is_moved or seat.taker or row is None or draft.ends(row) or pods.node[row] == PENDING:
            continue
        if draft.resistance[row] == NEVER or node is None:
            return False
        draft.unseat(row)
        if not _fits(draft, row, node, seat):
            return False
        moved.append(row)
        draft.move(row, Choice(node, device_mask(seat.devices), 0.0))
        draft.held_for.add(row)
    return True


def _fits(draft: PackingDraft, row: int, node: int, seat: HeldSeat) -> bool:
    return bool(draft.packer.eligible(draft.shape(row))[node]) and draft.fits_at(row, node, seat.devices)


def _is_taken(draft: PackingDraft, seat: HeldSeat) -> bool:
    row, node = draft.snapshot.pods.names.row(seat.taker), draft.snapshot.nodes.names.row(seat.node)
    if row is None or node is None:
        return False
    if draft.node[row] != PENDING:
        return True  # it has a place
    if (gang := draft.snapshot.pods.gang[row]) >= 0 and draft.snapshot.gangs[gang].must_restart:
        return False  # it is stopped whole first, and a member that had a seat would keep it from that
    wanted = device_mask(seat.devices)

    def leave(rows: Iterable[int]) -> None:
        for each in rows:
            if draft.node[each] == node and not _fits(draft, row, node, seat):
                draft.unseat(each)

    there = draft.pods_on(node)
    leave(each for each in there if draft.ends(each) and int(draft.devices[each]) & wanted)
    leave(each for each in there if draft.ends(each))
    if not _fits(draft, row, node, seat) and draft.may_preempt(row):
        lower = (each for each in there if draft.resistance[each] < draft.priority[row] and not draft.ends(each))
        in_the_way = [each for each in lower if int(draft.devices[each]) & wanted]
        for each in stopped_with(draft, in_the_way):
            draft.unseat(each)
    if not _fits(draft, row, node, seat):
        return False
    draft.put(row, Choice(node, wanted, 0.0))
    return True
