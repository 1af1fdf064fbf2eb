"""Preemption: pods that are stopped for a more important one, where that loses least, and those spared after all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cluster import arrays, power_floors, snapshot, workloads
from placement.packing.draft import PackingDraft, lacking, members_running

CANDIDATES = 16
"""Nodes that are examined in detail, those that lose least first. Chosen: their order is already that of the price,
but for devices and sizes of single pods."""
PLACES_PER_SEARCH = 1_500
"""Price of a search for victims, in examined places, beside the nodes that are examined in detail."""
PLACES_PER_CLEARING = 200
"""Price of a node that is examined in detail."""


@dataclass(frozen=True, slots=True)
class Clearing:
    """Price of preempting some pods on a node."""

    losses: tuple[tuple[int, int, int], ...]
    """What is lost at each priority of the victims, the highest first: the priority, thousandths of GPUs, pods."""
    node: int
    victims: tuple[int, ...]

    @property
    def price(self) -> tuple[tuple[tuple[int, int, int], ...], int]:
        """Sort key: the importance of the victims, level by level; the node's row decides ties.

        So no pod is stopped where a less important one would do. Its preemption would stop that one afterwards.
        """
        return (self.losses, self.node)


def seat_by_preemption(draft: PackingDraft, row: int, priority: int, within: arrays.BoolArray | None) -> bool:
    """Places a pod by preempting pods of strictly lower priority where that costs least. Changes nothing on failure."""
    clearing = cheapest_clearing(draft, row, priority, within)
    if clearing is None:
        return False
    mark = draft.mark
    for victim in clearing.victims:
        draft.unseat(victim)
    only_there = np.zeros(len(draft.snapshot.nodes), dtype=bool)
    only_there[clearing.node] = True
    if draft.seat(row, only_there):
        return True
    draft.roll_back(mark)
    return False


def cheapest_clearing(draft: PackingDraft, row: int, priority: int, within: arrays.BoolArray | None) -> Clearing | None:
    """Cheapest preemption that frees a node for this pod; None when no victims suffice anywhere."""
    nodes = _candidates(draft, draft.shape(row), priority, within)
    draft.work += PLACES_PER_SEARCH
    clearings: list[Clearing] = []
    for node in nodes:
        key = (draft.shape_number(row), priority, node)
        if draft.packer.power is None and (known := draft.victims.get(key)) and known[0] == draft.changed_at(node):
            victims = known[1]
        else:
            draft.work += PLACES_PER_CLEARING
            victims = _victims_on(draft, draft.shape(row), node, priority)
            draft.victims[key] = (draft.changed_at(node), victims)
        if not victims:  # it would have been placed without preemption, had its policy taken the devices counted here
            continue
        gone = set(victims)
        # With the rest of every gang that would fall below its minimum, since the rest would only wait.
        for gang in sorted({int(draft.snapshot.pods.gang[each]) for each in victims} - {-1}):
            running = members_running(draft, gang)
            if lacking(draft, gang, (each for each in running if each not in gone)) > 0:
                gone.update(running)
        lost: dict[int, tuple[int, int]] = {}
        for each in gone:
            gpu_milli, count = lost.get(level := int(draft.priority[each]), (0, 0))
            lost[level] = (gpu_milli + draft.shape(each).total_gpu_milli, count + 1)
        losses = tuple((level, *lost[level]) for level in sorted(lost, reverse=True))
        clearings.append(Clearing(losses, node, tuple(sorted(gone))))
    return min(clearings, key=lambda one: one.price, default=None)


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


def _victims_on(draft: PackingDraft, shape: workloads.PodShape, node: int, priority: int) -> tuple[int, ...]:
    """Least important pods of a node that suffice: all lower pods at first, then the most important are spared."""
    ledger, floors = draft.packer.ledger, draft.packer.floors
    cpu, memory, gpu = int(ledger.cpu_milli[node]), int(ledger.memory_bytes[node]), ledger.gpu_milli[node].tolist()
    width = int(ledger.gpus[node])
    there = [row for row in draft.pods_on(node) if draft.priority[row] < priority]

    def charge(row: int, sign: int) -> None:
        nonlocal cpu, memory
        own = draft.shape(row)
        cpu -= sign * own.cpu_milli
        memory -= sign * own.memory_bytes
        for device in snapshot.device_numbers(int(draft.devices[row])):
            gpu[device] -= sign * own.gpu_milli

    def fits() -> bool:
        if cpu < shape.cpu_milli or memory < shape.memory_bytes:
            return False
        if not shape.gpus:
            return True
        if sum(free >= shape.gpu_milli for free in gpu) < shape.gpus:
            return False
        # The pod shares allocated devices as far as it can.
        in_use = [free for free in gpu[:width] if free < workloads.WHOLE_GPU_MILLI]
        shared = sum(free >= shape.gpu_milli for free in in_use)
        return floors is None or floors.bears(node, len(in_use) + max(0, shape.gpus - shared))

    for row in there:
        charge(row, -1)
    if not fits():
        return ()
    victims = []
    for row in sorted(there, key=lambda r: (-draft.priority[r], -draft.shape(r).total_gpu_milli, r)):
        charge(row, 1)
        if not fits():
            charge(row, -1)
            victims.append(row)
    return tuple(victims)


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
        if pods.gang[row] < 0:
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
