"""Preemption: pods that are stopped for a more important one, where that loses least, and those spared after all."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from cluster import arrays, snapshot, workloads
from cluster.capacity import GPU, NodeRoom, everything_asked
from placement.packing.draft import ENDING, NEVER, PackingDraft, lacking, members_running

CANDIDATES = 16
"""Nodes that are examined in detail, those that lose least first. Chosen: their order is already that of the price,
but for devices and sizes of single pods."""
PLACES_PER_SEARCH = 1_500
"""Price of a search for victims, in examined places, beside the nodes that are examined in detail."""
PLACES_PER_CLEARING = 200
"""Price of a node that is examined in detail."""
MOST_TRIED = 4
"""Nodes that are tried one after the other, where a pod does not fit although what it asks for is free."""
PLACES_PER_STEP = 20
"""Price of a set of victims that is tried on a node."""
MOST_STEPS, MOST_STEPS_BY_RULES = 400, 40
"""Sets that are tried on a node, at most; fewer for a pod with rules between pods, which are looked up on all nodes."""


Price = tuple[int, int, int, int, tuple[tuple[int, int, int], ...], int, int]
"""What a preemption loses; the least is chosen. In order: the highest resistance of a stopped pod to those that are
placed, thousandths of GPUs stopped (work, where teams have shares), pods stopped, those of them that no gang can spare,
the same at each resistance from the highest down (so that among equals the less important are stopped), how long the
oldest of the highest has run (as its start's negative), and the row of the node. What a budget or a share forbids, or
would be stopped for nothing, is no choice at all.

kube-scheduler's order, but that it takes a violated budget as a last resort, and adds up priorities instead of GPUs.
Source: kube-scheduler, default preemption, `pickOneNodeForPreemption`.
"""
NOTHING: Price = (ENDING, 0, 0, 0, (), 0, 0)
"""Price where only pods leave that end by themselves."""


@dataclass(frozen=True, slots=True)
class Clearing:
    """Price of preempting some pods on a node."""

    price: Price
    node: int
    victims: tuple[int, ...]
    """With the rest of every gang that would fall below its minimum, and with the pods that end by themselves."""


def seat_by_preemption(draft: PackingDraft, row: int, priority: int, within: arrays.BoolArray | None) -> bool:
    """Places a pod by preempting pods of strictly lower priority where that costs least. Changes nothing on failure."""
    for clearing in clearings(draft, row, priority, within)[:MOST_TRIED]:
        mark = draft.mark
        for victim in clearing.victims:
            draft.unseat(victim)
        if draft.seat(row, clearing.node):
            return True
        draft.roll_back(mark)
    return False


def clearings(draft: PackingDraft, row: int, priority: int, within: arrays.BoolArray | None) -> list[Clearing]:
    """Preemptions that free a node for this pod, one a node, the cheapest first."""
    nodes = _candidates(draft, draft.shape(row), priority, within)
    draft.work += PLACES_PER_SEARCH
    found: list[Clearing] = []
    for node in nodes:
        key = (draft.shape_number(row), priority, node, draft.view)
        known = draft.victims.get(key) if draft.packer.power is None else None
        if known is not None and known[0] == draft.changed_at(node) and _price(draft, known[1], node) is not None:
            victims = known[1]
        else:
            draft.work += PLACES_PER_CLEARING
            victims = fewest_victims(draft, draft.shape(row), node, priority)
            draft.victims[key] = (draft.changed_at(node), victims)
        price = _price(draft, victims, node)
        # Without victims it would have been placed before, had its policy taken the devices counted here.
        if victims and price is not None:
            found.append(Clearing(price, node, tuple(sorted(stopped_with(draft, victims)))))
    return sorted(found, key=lambda one: one.price)


def _candidates(
    draft: PackingDraft, shape: workloads.PodShape, priority: int, within: arrays.BoolArray | None
) -> list[int]:
    """Nodes where the pod would fit without the pods of lower priority; those that lose least first."""
    lower, found = draft.reclaimable(priority), list[int]()
    allowed = draft.packer.eligible(shape)
    if within is not None:
        allowed = allowed & within
    if not (allowed & lower.fits(shape, lower.bands - 1)).any():
        return found
    for band in range(lower.bands):
        nodes = np.flatnonzero(allowed & lower.fits(shape, band))
        by_work = [work_lost(draft, shape, int(lower.ceilings[band]))[nodes]] if draft.shares else None
        found += nodes[np.lexsort(by_work or lower.losses(shape, band, nodes))].tolist()
        if len(found) >= CANDIDATES:
            break
        allowed = allowed.copy()
        allowed[nodes] = False
    return found[:CANDIDATES]


def work_lost(draft: PackingDraft, shape: workloads.PodShape, ceiling: int) -> arrays.FloatArray:
    """Work that a stop of others up to this resistance loses on each node for a pod, about. Shape (nodes,).

    Of gangs that would be stopped whole, each node counts a part: as if all that are there were needed.
    """
    assert draft.shares is not None  # noqa: S101 - work is only counted where teams have shares
    milli, gang = draft.shares.milli, draft.snapshot.pods.gang
    free = np.maximum(draft.packer.ledger.free.gpu_milli, 0)
    free = np.where(free >= shape.gpu_milli, free, 0).sum(axis=1)
    rows = np.flatnonzero((draft.node != snapshot.PENDING) & (draft.resistance <= ceiling) & (milli > 0))
    loss = draft.loss[rows].astype(np.float64)
    loss[draft.resistance[rows] == ENDING] = 0.0
    for each in np.unique(gang[rows][gang[rows] >= 0]).tolist():
        mine = np.flatnonzero(gang[rows] == each)
        if len(mine) and lacking(draft, each, members_running(draft, each)[1:]) > 0:
            there = np.bincount(draft.node[rows[mine]])[draft.node[rows[mine]]]
            loss[mine] = draft.loss[members_running(draft, each)].sum() / there
    order = np.lexsort((loss / milli[rows], draft.node[rows]))
    rows, loss = rows[order], loss[order]
    short = np.maximum(0, shape.total_gpu_milli - free).astype(np.float64)
    found = np.zeros(len(draft.snapshot.nodes))
    for row, lost in zip(rows.tolist(), loss.tolist(), strict=True):
        node = int(draft.node[row])
        if short[node] > 0:
            found[node] += lost
            short[node] -= milli[row]
    return found


def stopped_with(draft: PackingDraft, victims: Sequence[int]) -> set[int]:
    """These pods, with the rest of every gang that would fall below its minimum, since the rest would only wait."""
    gone, of_pod = set(victims), draft.snapshot.pods.gang
    for gang in sorted({int(of_pod[each]) for each in victims if not draft.ends(each)} - {-1}):
        running = members_running(draft, gang)
        if lacking(draft, gang, (each for each in running if each not in gone)) > 0:
            gone.update(running)
    return gone


def _price(draft: PackingDraft, victims: Sequence[int], node: int) -> Price | None:
    """Price of stopping these pods; None where one of them, or of their gangs, may not be stopped."""
    gone = [each for each in stopped_with(draft, victims) if not draft.ends(each)]
    if not may_all_leave(draft, gone):
        return None
    lost: dict[int, tuple[int, int]] = {}
    for each in gone:
        loss, count = lost.get(level := int(draft.resistance[each]), (0, 0))
        lost[level] = (loss + int(draft.loss[each]), count + 1)
    losses = tuple((level, *lost[level]) for level in sorted(lost, reverse=True))
    if not losses:
        return (*NOTHING[:6], node)
    highest = losses[0][0]
    first_s = min(draft.loses_since_s(each) for each in gone if draft.resistance[each] == highest)
    of_gang = Counter(draft.snapshot.pods.gang[gone].tolist())
    missed = sum(count for gang, count in of_gang.items() if not _is_spared(draft, gone, gang))
    return highest, sum(loss for loss, _ in lost.values()), len(gone), missed, losses, -first_s, node


def _is_spared(draft: PackingDraft, gone: Sequence[int], gang: int) -> bool:
    """Whether a gang runs on without these of its members."""
    if gang < 0:
        return False
    left = set(members_running(draft, gang)).difference(gone)
    return bool(left) and lacking(draft, gang, left) <= 0


def may_all_leave(draft: PackingDraft, gone: Sequence[int]) -> bool:
    """Whether all of these pods may be stopped."""
    gone = [each for each in gone if not draft.ends(each)]
    if any(draft.resistance[each] == NEVER for each in gone) or draft.budgets.forbidding(gone) is not None:
        return False
    return draft.shares is None or draft.shares.may_lose(gone, draft.node, draft.snapshot.pods.gang)


def fewest_victims(draft: PackingDraft, shape: workloads.PodShape, node: int, priority: int) -> tuple[int, ...]:
    """The pods of a node that lose least, by `Price`, of those that suffice for a pod; none where none suffice, or none
    are needed.

    First, all of lower priority leave, and the most important are spared one by one. Then sets are tried in the order
    of what they and all larger ones lose at least, within a number of steps.
    """
    without = NodeWithout(draft, shape, node)
    there = [row for row in draft.pods_on(node) if draft.resistance[row] < priority]
    # Those that end cost nothing, so they come last, when pods are spared; among equals the oldest is spared first.
    there.sort(key=lambda r: (-draft.resistance[r], -draft.loss[r], draft.loses_since_s(r), r))
    ending = [row for row in there if draft.ends(row)]
    best: tuple[Price, Sequence[int]] | None = None

    def note(victims: Sequence[int]) -> None:
        nonlocal best
        price = _price(draft, victims, node)
        if price is not None and (best is None or price < best[0]):
            best = price, victims

    if without.fits(()) or not without.fits(there):
        without.fits(())  # with the rules between pods as they were
        return ()
    needed = there
    for row in there:
        if without.fits(fewer := [each for each in needed if each != row]):
            needed = fewer
    note(needed)
    # None above the highest of these is needed: all above it were spared while all below it were gone. So it is, or
    # one of its own priority.
    level = max(int(draft.resistance[row]) for row in needed)
    live = [row for row in there if not draft.ends(row) and (best is None or draft.resistance[row] <= level)]
    live.sort(key=lambda r: (draft.resistance[r], -draft.shape(r).total_gpu_milli, -draft.loses_since_s(r), r))
    may_spare = any(_is_spared(draft, (row,), int(draft.snapshot.pods.gang[row])) for row in live)
    most = Counter[str]()
    for row in live:
        most |= Counter(everything_asked(draft.shape(row)))

    wide = [row for row in live if draft.shape(row).gpus]
    least_rate = min((draft.loss[row] / draft.shape(row).total_gpu_milli for row in wide), default=0.0)

    def least(chosen: Sequence[int]) -> tuple[int, int, int]:
        """First three of the price of every set with these pods, which do not suffice: they are gone now."""
        short = without.room.missing(shape)
        further = max((-(-amount // most[name]) for name, amount in short.items() if most[name]), default=1)
        highest = max([level, *(int(draft.resistance[row]) for row in chosen)])
        loss = sum(int(draft.loss[row]) for row in chosen) + int(short.get(GPU, 0) * least_rate)
        return highest, loss, len(chosen) + further

    without.fits(ending)
    queue: list[tuple[tuple[int, int, int], tuple[int, ...]]] = [(least(()), ())]
    """Sets, as positions among the live ones, with what they lose at least."""
    steps = MOST_STEPS if shape.beside == workloads.ALONE else MOST_STEPS_BY_RULES
    while queue and steps > 0:
        loss, chosen = heappop(queue)
        if best is not None and (loss > best[0][:3] or (loss == best[0][:3] and not may_spare)):
            break
        tried = set[object]()
        for position in range(chosen[-1] + 1 if chosen else 0, len(live)):
            # A pod like one that was tried brings nothing that it would not.
            if (kind := draft.interchangeable(live[position])) in tried:
                continue
            tried.add(kind)
            steps -= 1
            draft.work += PLACES_PER_STEP
            more = (*chosen, position)
            victims = [live[each] for each in more]
            if without.fits((*ending, *victims)):
                note(victims)
            else:
                heappush(queue, (least(victims), more))
    without.fits(())
    if best is None:
        return ()
    return tuple(best[1]) if all(map(draft.ends, best[1])) else tuple({*best[1], *ending})


class NodeWithout:
    """A node without some of its pods: whether another would fit there, by resources, power and rules between pods."""

    def __init__(self, draft: PackingDraft, shape: workloads.PodShape, node: int) -> None:
        self._draft, self._shape, self._node = draft, shape, node
        self.room = NodeRoom(draft.packer.ledger.free, node)
        self._near = None if shape.beside == workloads.ALONE else draft.packer.neighbours
        self._gone = set[int]()

    def fits(self, gone: Iterable[int]) -> bool:
        """Whether the pod fits with these pods gone, and no others."""
        draft, shape, node, before, self._gone = self._draft, self._shape, self._node, self._gone, {*gone}
        for row in before ^ self._gone:
            own, sign = draft.shape(row), -1 if row in self._gone else 1
            self.room.charge(own, snapshot.device_numbers(int(draft.devices[row])), sign)
            if self._near is not None:
                self._near.count(own.beside, node, sign)
        if self.room.missing(shape):
            return False
        if shape.gpus and (floors := draft.packer.floors) is not None:
            # The pod shares allocated devices as far as it can.
            held = self.room.held(int(draft.packer.ledger.gpus[node]))
            shared = sum(shape.gpu_milli <= free < workloads.WHOLE_GPU_MILLI for free in self.room.gpu_milli)
            if not floors.bears(node, held + max(0, shape.gpus - shared)):
                return False
        allowed = None if self._near is None else self._near.allowed(shape)
        return allowed is None or bool(allowed[node])


def spare_victims(draft: PackingDraft) -> None:
    """Puts pods back that a preemption stopped, where nothing has taken their place.

    A preemption may have served a pod that a more important one then replaced, and a victim may have found a place
    elsewhere while its own stayed free. The most important return first.
    """
    is_spared = True
    while is_spared:
        leaving, _ = draft.changed()
        groups = sorted(stopped_together(draft, leaving), key=lambda rows: (-draft.priority[rows[0]], rows))
        is_spared = sum(put_back(draft, rows) for rows in groups) > 0


def stopped_together(draft: PackingDraft, leaving: Iterable[int]) -> list[tuple[int, ...]]:
    """These leaving pods in groups of which all leave or none: a gang that falls below its minimum, or a single pod."""
    pods, gangs, alone = draft.snapshot.pods, dict[int, list[int]](), list[tuple[int, ...]]()
    for row in leaving:
        if pods.gang[row] < 0 or draft.ends(row):
            alone.append((row,))
        else:
            gangs.setdefault(int(pods.gang[row]), []).append(row)
    for gang, rows in gangs.items():
        ran = (row for row in draft.members(gang) if pods.node[row] != snapshot.PENDING)
        if lacking(draft, gang, set(ran).difference(rows)) <= 0:
            alone += [(row,) for row in rows]
        else:
            alone.append(tuple(rows))
    return alone


def put_back(draft: PackingDraft, rows: Sequence[int]) -> bool:
    """Puts these pods back where they run, if all of them fit there now. Returns whether it did."""
    pods, gang = draft.snapshot.pods, int(draft.snapshot.pods.gang[rows[0]])
    # Not if these are all of a gang that ran, and a member of it now starts elsewhere.
    mates = draft.members(gang) if len(rows) > 1 and gang >= 0 else []
    if any(draft.node[row] != snapshot.PENDING and pods.node[row] == snapshot.PENDING for row in mates):
        return False
    mark = draft.mark
    for row in rows:
        if draft.node[row] != snapshot.PENDING:
            draft.unseat(row)
    for row in rows:
        if not draft.fits_at(row, int(pods.node[row]), snapshot.device_numbers(int(pods.devices[row]))):
            draft.roll_back(mark)
            return False
        draft.reseat(row)
    return True
