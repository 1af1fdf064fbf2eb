"""Preemption: pods that are stopped for a more important one, where that loses least, and those spared after all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cluster import arrays, power_floors, snapshot, workloads
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
"""Price of a set of victims that is tried on such a node."""


Price = tuple[int, int, int, tuple[tuple[int, int, int], ...], int]
"""What a preemption loses; the least is chosen. In order: the highest priority of a stopped pod, thousandths of GPUs
stopped, pods stopped, the same at each priority from the highest down (so that among equals the less important are
stopped), and the row of the node. What a budget forbids, or would be stopped for nothing, is no choice at all.

kube-scheduler's order, but that it takes a violated budget as a last resort, and adds up priorities instead of GPUs.
Source: kube-scheduler, default preemption, `pickOneNodeForPreemption`.
"""
NOTHING: Price = (ENDING, 0, 0, (), 0)
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
        only_there = np.zeros(len(draft.snapshot.nodes), dtype=bool)
        only_there[clearing.node] = True
        if draft.seat(row, only_there):
            return True
        draft.roll_back(mark)
    return False


def clearings(draft: PackingDraft, row: int, priority: int, within: arrays.BoolArray | None) -> list[Clearing]:
    """Preemptions that free a node for this pod, one a node, the cheapest first."""
    nodes = _candidates(draft, draft.shape(row), priority, within)
    draft.work += PLACES_PER_SEARCH
    found: list[Clearing] = []
    for node in nodes:
        key = (draft.shape_number(row), priority, node)
        known = draft.victims.get(key) if draft.packer.power is None else None
        if known is not None and known[0] == draft.changed_at(node) and _price(draft, known[1], node) is not None:
            victims = known[1]
        else:
            draft.work += PLACES_PER_CLEARING
            victims = VictimSearch(draft, draft.shape(row), node, priority).fewest()
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
    if not lower.bands or not (allowed & lower.fits(shape, lower.bands - 1)).any():
        return found
    for band in range(lower.bands):
        nodes = np.flatnonzero(allowed & lower.fits(shape, band))
        found += nodes[np.lexsort(lower.losses(shape, band, nodes))].tolist()
        if len(found) >= CANDIDATES:
            break
        allowed = allowed.copy()
        allowed[nodes] = False
    return found[:CANDIDATES]


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
    if any(draft.resistance[each] == NEVER for each in gone) or draft.budgets.forbidding(gone) is not None:
        return None
    lost: dict[int, tuple[int, int]] = {}
    for each in gone:
        gpu_milli, count = lost.get(level := int(draft.priority[each]), (0, 0))
        lost[level] = (gpu_milli + draft.shape(each).total_gpu_milli, count + 1)
    losses = tuple((level, *lost[level]) for level in sorted(lost, reverse=True))
    if not losses:
        return (*NOTHING[:4], node)
    return losses[0][0], sum(milli for milli, _ in lost.values()), len(gone), losses, node


class VictimSearch:
    """Search for the pods of one node that lose least, by `Price`, of those that suffice for a pod.

    First, all of lower priority leave, and the most important are spared one by one. Where what remains may be more
    than the least, sets are tried one after the other, within a number of steps.
    """

    def __init__(self, draft: PackingDraft, shape: workloads.PodShape, node: int, priority: int) -> None:
        self._draft, self._node = draft, node
        there = [row for row in draft.pods_on(node) if draft.resistance[row] < priority]
        slots = draft.packer.ledger.others.get(workloads.PODS)
        has_others = bool(shape.others) or shape.beside != workloads.ALONE or (slots is not None and slots[node] < 1)
        self._free = DraftWithout(draft, shape, node) if has_others else NodeWithout(draft, shape, node)
        self._steps = self._free.most_steps
        # Those that end cost nothing, so they come last, when pods are spared.
        self._there = sorted(there, key=lambda r: (-draft.resistance[r], -draft.shape(r).total_gpu_milli, r))
        self._best: tuple[Price, tuple[int, ...]] | None = None

    def fewest(self) -> tuple[int, ...]:
        """The pods that leave; none where none suffice, or none are needed."""
        free, draft = self._free, self._draft
        with free:
            if free.fits():
                return ()
            for row in self._there:
                free.stop(row)
            if not free.fits():
                return ()
            victims = []
            for row in self._there:
                free.start(row)
                if not free.fits():
                    free.stop(row)
                    victims.append(row)
            self._note(tuple(victims))
            for row in victims:
                free.start(row)
            # None above the highest that was stopped is needed: all above it were spared while all below it were gone.
            level = max(int(draft.resistance[row]) for row in victims)
            ending = [row for row in self._there if draft.ends(row)]
            for row in ending:
                free.stop(row)
            live = [row for row in self._there if not draft.ends(row)]
            live.sort(key=lambda r: (draft.resistance[r], -draft.shape(r).total_gpu_milli, r))
            if self._best is None:
                self._try(live, [])
            elif live and self._best[0][1:3] > self._least(level):
                self._try([row for row in live if draft.resistance[row] <= level], [])
            for row in ending:
                free.start(row)
        if self._best is None:
            return ()
        needed = self._best[1]
        return needed if all(map(draft.ends, needed)) else tuple({*needed, *ending})

    def _note(self, victims: tuple[int, ...]) -> None:
        price = _price(self._draft, victims, self._node)
        if price is not None and (self._best is None or price < self._best[0]):
            self._best = price, victims

    def _least(self, level: int) -> tuple[int, int]:
        """Thousandths of GPUs and pods that no choice gets below, without the pods that end."""
        if self._free.fits():
            return (0, 0)
        short_milli = self._free.short_milli()
        sizes = sorted(
            (self._draft.shape(row).total_gpu_milli for row in self._there if self._draft.resistance[row] <= level),
            reverse=True,
        )
        reached = count = 0
        while reached < short_milli and count < len(sizes):
            reached += sizes[count]
            count += 1
        return short_milli, max(1, count)

    def _try(self, rest: list[int], chosen: list[int]) -> None:
        """Tries all sets of `rest` beside the chosen ones that may be better than the best so far."""
        draft, free = self._draft, self._free
        if self._steps <= 0:
            return
        self._steps -= 1
        draft.work += PLACES_PER_STEP
        if free.fits():
            self._note(tuple(chosen))
            return
        if not rest or self._is_beaten(chosen):
            return
        for row in rest:
            free.stop(row)
        may_fit = free.fits()
        for row in rest:
            free.start(row)
        if not may_fit:
            return
        first, *others = rest
        free.stop(first)
        self._try(others, [*chosen, first])
        free.start(first)
        # A pod like the one that is spared brings nothing that it would not.
        self._try([row for row in others if not self._alike(row, first)], chosen)

    def _is_beaten(self, chosen: Sequence[int]) -> bool:
        """Whether these with one more pod lose more than the best so far."""
        if self._best is None:
            return False
        stopped_milli = sum(self._draft.shape(row).total_gpu_milli for row in chosen)
        highest = max((int(self._draft.priority[row]) for row in chosen), default=ENDING)
        return (highest, stopped_milli, len(chosen) + 1) > self._best[0][:3]

    def _alike(self, row: int, other: int) -> bool:
        draft, pods = self._draft, self._draft.snapshot.pods
        is_alone = pods.gang[row] < 0 and pods.gang[other] < 0 and draft.shape(row).is_whole_gpu
        same = draft.shape_number(row) == draft.shape_number(other) and draft.priority[row] == draft.priority[other]
        return bool(is_alone and same and not (draft.budgets.covers(row) or draft.budgets.covers(other)))


class NodeWithout:
    """What is free on a node while pods of it are thought away, for a pod that only counts CPU, memory and devices."""

    most_steps = 400

    def __init__(self, draft: PackingDraft, shape: workloads.PodShape, node: int) -> None:
        ledger = draft.packer.ledger
        self._draft, self._shape, self._at = draft, shape, node
        self._cpu, self._memory = int(ledger.cpu_milli[node]), int(ledger.memory_bytes[node])
        self._gpu: list[int] = ledger.gpu_milli[node].tolist()
        self._width = int(ledger.gpus[node])

    def __enter__(self) -> None:
        """Nothing of the draft is changed."""

    def __exit__(self, *_: object) -> None:
        """Nothing of the draft was changed."""

    def stop(self, row: int) -> None:
        self._charge(row, -1)

    def start(self, row: int) -> None:
        self._charge(row, 1)

    def _charge(self, row: int, sign: int) -> None:
        own = self._draft.shape(row)
        self._cpu -= sign * own.cpu_milli
        self._memory -= sign * own.memory_bytes
        for device in snapshot.device_numbers(int(self._draft.devices[row])):
            self._gpu[device] -= sign * own.gpu_milli

    def fits(self) -> bool:
        shape, floors = self._shape, self._draft.packer.floors
        if self._cpu < shape.cpu_milli or self._memory < shape.memory_bytes:
            return False
        if not shape.gpus:
            return True
        if sum(free >= shape.gpu_milli for free in self._gpu) < shape.gpus:
            return False
        # The pod shares allocated devices as far as it can.
        in_use = [free for free in self._gpu[: self._width] if free < workloads.WHOLE_GPU_MILLI]
        shared = sum(free >= shape.gpu_milli for free in in_use)
        return floors is None or floors.bears(self._at, len(in_use) + max(0, shape.gpus - shared))

    def short_milli(self) -> int:
        """Thousandths of GPUs that are missing at least."""
        missing = sorted(max(0, self._shape.gpu_milli - free) for free in self._gpu[: self._width])
        return sum(missing[: self._shape.gpus])


class DraftWithout:
    """The same for a pod with other demands: its pods leave the draft itself, which knows of all that a pod needs."""

    most_steps = 40

    def __init__(self, draft: PackingDraft, shape: workloads.PodShape, node: int) -> None:
        self._draft, self._shape, self._at = draft, shape, node
        self._was: dict[int, int] = {}

    def __enter__(self) -> None:
        self._mark = self._draft.mark

    def __exit__(self, *_: object) -> None:
        self._draft.roll_back(self._mark)

    def stop(self, row: int) -> None:
        self._was[row] = int(self._draft.devices[row])
        self._draft.unseat(row)

    def start(self, row: int) -> None:
        self._draft.put_back(row, self._at, self._was[row])

    def fits(self) -> bool:
        return bool(self._draft.packer.feasible(self._shape)[self._at])

    def short_milli(self) -> int:
        return 0


def spare_victims(draft: PackingDraft) -> None:
    """Puts pods back that a preemption stopped, where nothing has taken their place.

    A preemption may have served a pod that a more important one then replaced, and a victim may have found a place
    elsewhere while its own stayed free. The most important return first.
    """
    is_spared = True
    while is_spared:
        leaving, _ = draft.changed()
        groups = sorted(stopped_together(draft, leaving), key=lambda rows: (-draft.priority[rows[0]], rows))
        is_spared = sum(_return(draft, rows) for rows in groups) > 0


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


def _return(draft: PackingDraft, rows: Sequence[int]) -> bool:
    """Puts these pods back where they run, if all of them fit there now. Returns whether it did."""
    pods, packer, gang = draft.snapshot.pods, draft.packer, int(draft.snapshot.pods.gang[rows[0]])
    # Not if these are all of a gang that ran, and a member of it now starts elsewhere.
    mates = draft.members(gang) if len(rows) > 1 and gang >= 0 else []
    if any(draft.node[row] != snapshot.PENDING and pods.node[row] == snapshot.PENDING for row in mates):
        return False
    mark = draft.mark
    for row in rows:
        if draft.node[row] != snapshot.PENDING:
            draft.unseat(row)
    for row in rows:
        shape, node, devices = (
            draft.shape(row),
            int(pods.node[row]),
            list(snapshot.device_numbers(int(pods.devices[row]))),
        )
        here = slice(node, node + 1)
        gpu_milli = packer.ledger.gpu_milli[here].copy()
        fits = (
            packer.ledger.cpu_milli[node] >= shape.cpu_milli and packer.ledger.memory_bytes[node] >= shape.memory_bytes
        )
        fits = fits and not (gpu_milli[0, devices] < shape.gpu_milli).any()
        gpu_milli[0, devices] -= shape.gpu_milli
        held = int(power_floors.held_devices(gpu_milli, packer.ledger.gpus[here])[0])
        if not fits or not (packer.floors is None or packer.floors.bears(node, held)):
            draft.roll_back(mark)
            return False
        draft.reseat(row)
    return True
