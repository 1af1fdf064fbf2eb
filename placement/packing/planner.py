"""Packing decider: pending pods and gangs onto nodes and devices, by priority, as a plan with reasons."""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cluster.plans import CutShort, Phase, Plan, Reason, Unplaced
from cluster.snapshot import PENDING, HeldSeat, HeldSeats, Snapshot, device_mask
from placement.budget import Budget
from placement.engine.packer import Choice, Packer
from placement.move_price import MovePrice
from placement.packing.draft import NEVER, PLACES_PER_POD, PackingDraft, Within, members_running
from placement.packing.gangs import Seat
from placement.packing.group_levels import seat_gang
from placement.packing.phases import Reasons, phases_of
from placement.packing.preemption import (
    PLACES_PER_SEARCH,
    put_back,
    seat_by_preemption,
    spare_victims,
    stopped_together,
    stopped_with,
)
from placement.packing.room import make_room
from placement.packing.spared import SparedPods, left_to_kube_scheduler
from placement.packing.units import FairQueue, Unit, UnitQueue, as_of_now, order_of_service, pending_units, units_of

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
    if service.has_stopped_pods and draft.shares is not None:
        lose_less(draft, budget)
        left = pending_units(draft)
    if left and not turn.ended and make_room(draft, left, moves) and (left := pending_units(draft)):
        UnitService(draft, budget, preempt=False).serve(left)  # what made room for one may have left some for another
        left = pending_units(draft)
    phases, waiting = phases_of(draft)
    unplaced = list(waiting)
    released = left_to_kube_scheduler(draft, left) if preempt and left and draft.shares is None else {}
    if released:
        phases = (*phases, Phase("leave to kube-scheduler", tuple(released.values())))
    if left:
        reasons, spared = Reasons(draft), SparedPods(draft)
        for unit in left:
            if unit.rows[0] in released:
                continue
            had_no_turn = turn.ended and not unserved.isdisjoint(unit.rows)
            why = NO_TURN[turn.ended] if had_no_turn else _told_of_share(draft, unit, spared, reasons)
            unplaced.append(Unplaced(unit.label(snapshot), why))
    return Plan(phases=phases, unplaced=tuple(unplaced), cut_short=(OUT_OF_TIME,) if turn.ended == "time" else ())


TEAM_LIMIT = "TeamLimit"
"""Code of the reason of a unit whose team holds as much as it may."""


def _told_of_share(draft: PackingDraft, unit: Unit, spared: SparedPods, reasons: Reasons) -> Reason:
    """Reason of a unit that waits, with what its team's share has to do with it."""
    if draft.shares is None:
        return spared.added_to(reasons.of(unit), unit)
    rows = unit.rows[: max(unit.need, 1)]
    eligible = draft.packer.eligible(draft.shape(rows[0]))
    words = draft.shares.words(rows, eligible)
    if draft.shares.is_at_limit(rows, eligible):
        return Reason(TEAM_LIMIT, f"{words}, which its limit on borrowing does not allow")
    why = reasons.of(unit)
    return replace(why, words=f"{why.words}; {words}") if words else spared.added_to(why, unit)


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
        if may_stop:
            draft.consider(unit.rows[: max(unit.need, 1)])
        if may_stop and ((draft.node != PENDING) & (draft.resistance < unit.priority)).any():
            if unit.gang < 0:
                is_seated = self._by_preemption(row, None)
            else:
                is_seated = seat_gang(draft, unit, Seat(self._in_either, below=unit.priority))
        draft.consider(())
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
        self._draft.renew_resistance()
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


MOST_SPARED, MOST_ANEW = 48, 12
"""Trials to do without a stop in a plan, and pods that one of them places anew. Chosen: a few hundred pods at most."""


def lose_less(draft: PackingDraft, budget: Budget) -> None:
    """Does without stops for shares where those that took the place find others at less work in all, dearest first.

    Measured on 800 random fleets beside every set of victims (`tests/properties/test_shares.py`): 1.08 to 1.11 times
    the least work is lost with it, 1.22 to 1.26 times without, at five times the CPU of these small plans.
    """
    tries, is_better = MOST_SPARED, True
    while is_better:
        stopped = [(_work_of(draft, rows), rows) for rows in stopped_together(draft, draft.changed()[0])]
        is_better = False
        for _, rows in sorted(each for each in stopped if each[0])[::-1]:
            if is_better or tries <= 0 or not budget.allows_more():
                break
            tries -= 1
            is_better = _does_without(draft, rows, budget)


def _work_of(draft: PackingDraft, rows: Iterable[int]) -> int:
    return sum(int(draft.loss[row]) for row in rows if not draft.ends(row))


def _does_without(draft: PackingDraft, rows: tuple[int, ...], budget: Budget) -> bool:
    """Puts these stopped pods back, and those that took their places, or all where they are few, elsewhere. Returns
    whether less work is lost.
    """
    pods, mark, before = draft.snapshot.pods, draft.mark, _work_of(draft, draft.changed()[0])
    if any(draft.node[row] != PENDING for row in rows):
        return False
    on = {int(pods.node[row]): int(pods.devices[row]) for row in rows}
    started = np.flatnonzero((pods.node == PENDING) & (draft.node != PENDING)).tolist()
    near = [each for each in started if int(draft.devices[each]) & on.get(int(draft.node[each]), 0)]
    own = draft.keep(rows)
    for takers in (near, started):
        if not takers or draft.held_for.intersection(takers) or len(takers) > MOST_ANEW:
            continue
        gangs = {int(pods.gang[each]) for each in takers} - {-1}
        of_gangs = (each for gang in gangs for each in members_running(draft, gang) if pods.node[each] == PENDING)
        takers = list(dict.fromkeys((*takers, *of_gangs)))
        for each in takers:
            draft.unseat(each)
        put_back(draft, rows)
        units = sorted(units_of(draft, takers), key=lambda unit: order_of_service(draft, unit))
        if all(draft.node[row] != PENDING for row in rows) and all(
            Attempt(draft, budget).seat(unit, preempt=True) for unit in units
        ):
            spare_victims(draft)
            if _work_of(draft, draft.changed()[0]) < before:
                draft.restore(own)
                return True
        draft.roll_back(mark)
    draft.restore(own)
    return False


def _alike(draft: PackingDraft, unit: Unit) -> Hashable:
    """Key of units that fail alike: pods of one kind and priority, and gangs of equal content that wait whole.

    Free resources only shrink from one unit to the next unless pods are preempted, and a pod that must be near others,
    or spread with them, is let in only where one of them starts. Thousands of units that fit nowhere therefore cost no
    more than one, and leave the work to the units behind them.
    """
    near = draft.packer.neighbours
    is_late = draft.shares is not None and draft.shares.is_served_first(unit.rows)
    helped = is_late, 0 if near is None else sum(near.changes(draft.shape(row)) for row in unit.rows)
    if unit.gang < 0:
        return (draft.kind(unit.rows[0]), unit.priority, helped)
    wanted = draft.snapshot.gangs[unit.gang]
    content = tuple(sorted(Counter(draft.kind(row) for row in unit.rows).items()))
    which = unit.gang if members_running(draft, unit.gang) else -1
    return (which, wanted.within, wanted.prefer_within, unit.priority, unit.need, content, helped)


def take_held_seats(draft: PackingDraft) -> None:
    """Places every pod that has a held seat on it, if what is still in its way ends by itself or has lower priority.

    Where a seat cannot be had any more, none of those that were held for the same gang is taken: it is placed anew.
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
    """Whether the pod has the seat, or a place of its own, once what may be stopped for it has left."""
    row, node = draft.snapshot.pods.names.row(seat.taker), draft.snapshot.nodes.names.row(seat.node)
    gang = -1 if row is None else draft.snapshot.pods.gang[row]
    if row is None or node is None or (gang >= 0 and draft.snapshot.gangs[gang].must_restart):
        return False  # a gang that restarts is stopped whole first, from which a member with a seat would keep it
    if draft.node[row] != PENDING:
        return True  # it has a place
    wanted = device_mask(seat.devices)

    def leave(rows: Iterable[int]) -> None:
        for each in rows:
            if draft.node[each] == node and not _fits(draft, row, node, seat):
                draft.unseat(each)

    there = draft.pods_on(node)
    leave(each for each in there if draft.ends(each) and int(draft.devices[each]) & wanted)
    leave(each for each in there if draft.ends(each))
    if not _fits(draft, row, node, seat) and draft.may_preempt(row):
        draft.consider((row,))
        lower = (each for each in there if draft.resistance[each] < draft.priority[row] and not draft.ends(each))
        in_the_way = [each for each in lower if int(draft.devices[each]) & wanted]
        for each in stopped_with(draft, in_the_way):
            draft.unseat(each)
        draft.consider(())
    if not _fits(draft, row, node, seat):
        return False
    draft.put(row, Choice(node, wanted, 0.0))
    return True
