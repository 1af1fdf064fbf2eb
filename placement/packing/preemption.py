"""Preemption: the node where stopping the least important pods frees the resources for a more important one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray
from cluster.power_floors import held_devices
from cluster.snapshot import PENDING, device_numbers
from cluster.workloads import WHOLE_GPU_MILLI, PodShape
from placement.packing.draft import Draft, members_running

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


def seat_by_preemption(draft: Draft, row: int, priority: int, within: BoolArray | None) -> bool:
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


def cheapest_clearing(draft: Draft, row: int, priority: int, within: BoolArray | None) -> Clearing | None:
    """Cheapest preemption that frees a node for this pod; None when no victims suffice anywhere."""
    nodes = _candidates(draft, draft.shape(row), priority, within)
    draft.work += PLACES_PER_SEARCH
    clearings = (_clearing_on(draft, row, node, priority) for node in nodes)
    return min((one for one in clearings if one is not None), key=lambda one: one.price, default=None)


def _candidates(draft: Draft, shape: PodShape, priority: int, within: BoolArray | None) -> list[int]:
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


def _clearing_on(draft: Draft, row: int, node: int, priority: int) -> Clearing | None:
    """Cheapest preemption on a node for this pod; remembered while the node does not change."""
    key = (draft.kind(row)[0], priority, node)
    if draft.packer.power is None and (known := draft.victims.get(key)) and known[0] == draft.changed_at(node):
        victims = known[1]
    else:
        draft.work += PLACES_PER_CLEARING
        victims = _victims_on(draft, draft.shape(row), node, priority)
        draft.victims[key] = (draft.changed_at(node), victims)
    if not victims:  # it would have been placed without preemption, had its policy taken the devices counted here
        return None
    stopped = _with_gang_mates(draft, victims)
    return Clearing(_losses(draft, stopped), node, tuple(stopped))


def _losses(draft: Draft, victims: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    lost: dict[int, tuple[int, int]] = {}
    for row in victims:
        gpu_milli, count = lost.get(level := int(draft.priority[row]), (0, 0))
        lost[level] = (gpu_milli + draft.shape(row).total_gpu_milli, count + 1)
    return tuple((level, *lost[level]) for level in sorted(lost, reverse=True))


def _victims_on(draft: Draft, shape: PodShape, node: int, priority: int) -> tuple[int, ...]:
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
        for device in device_numbers(int(draft.devices[row])):
            gpu[device] -= sign * own.gpu_milli

    def fits() -> bool:
        if cpu < shape.cpu_milli or memory < shape.memory_bytes:
            return False
        if not shape.gpus:
            return True
        if sum(free >= shape.gpu_milli for free in gpu) < shape.gpus:
            return False
        return floors is None or floors.bears(node, _held_with(shape, gpu[:width]))

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


def _held_with(shape: PodShape, gpu: Sequence[int]) -> int:
    """Allocated devices of a node with the pod there; it shares allocated devices as far as it can.

    gpu: thousandths left of each of the node's GPUs.
    """
    in_use = [free for free in gpu if free < WHOLE_GPU_MILLI]
    shared = sum(free >= shape.gpu_milli for free in in_use)
    return len(in_use) + max(0, shape.gpus - shared)


def _with_gang_mates(draft: Draft, victims: Sequence[int]) -> list[int]:
    """Victims with the rest of every gang that would fall below its minimum, since the rest would only wait."""
    pods, gone = draft.snapshot.pods, set(victims)
    for gang in sorted({int(pods.gang[row]) for row in victims} - {-1}):
        running = members_running(draft, gang)
        if len([row for row in running if row not in gone]) < draft.snapshot.gangs[gang].min_members:
            gone.update(running)
    return sorted(gone)


def spare_victims(draft: Draft) -> None:
    """Puts pods back that a preemption stopped, where nothing has taken their place.

    A preemption may have served a pod that a more important one then replaced, and a victim may have found a place
    elsewhere while its own stayed free. The most important return first.
    """
    is_spared = True
    while is_spared:
        leaving, _ = draft.changed()
        groups = sorted(stopped_together(draft, leaving), key=lambda rows: (-draft.priority[rows[0]], rows))
        is_spared = sum(_return(draft, rows) for rows in groups) > 0


def stopped_together(draft: Draft, leaving: Iterable[int]) -> list[tuple[int, ...]]:
    """These leaving pods in groups of which all leave or none: a gang that falls below its minimum, or a single pod."""
    pods, gangs, alone = draft.snapshot.pods, dict[int, list[int]](), list[tuple[int, ...]]()
    for row in leaving:
        if pods.gang[row] < 0:
            alone.append((row,))
        else:
            gangs.setdefault(int(pods.gang[row]), []).append(row)
    for gang, rows in gangs.items():
        ran = sum(bool(pods.node[row] != PENDING) for row in draft.members(gang))
        if ran - len(rows) >= draft.snapshot.gangs[gang].min_members:
            alone += [(row,) for row in rows]
        else:
            alone.append(tuple(rows))
    return alone


def _return(draft: Draft, rows: Sequence[int]) -> bool:
    """Puts these pods back where they run, if all of them fit there now."""
    if not _may_return(draft, rows):
        return False
    mark = draft.mark
    for row in rows:
        if draft.node[row] != PENDING:
            draft.unseat(row)
    for row in rows:
        if not _fits_where_it_runs(draft, row):
            draft.roll_back(mark)
            return False
        draft.reseat(row)
    return True


def _may_return(draft: Draft, rows: Sequence[int]) -> bool:
    """Whether the gang of these pods, if they are all of it that ran, has no member that now starts elsewhere."""
    pods, gang = draft.snapshot.pods, int(draft.snapshot.pods.gang[rows[0]])
    if gang < 0:
        return True
    joining = any(draft.node[row] != PENDING and pods.node[row] == PENDING for row in draft.members(gang))
    return len(rows) == 1 or not joining


def _fits_where_it_runs(draft: Draft, row: int) -> bool:
    pods, ledger, shape = draft.snapshot.pods, draft.packer.ledger, draft.shape(row)
    node, devices = int(pods.node[row]), list(device_numbers(int(pods.devices[row])))
    if ledger.cpu_milli[node] < shape.cpu_milli or ledger.memory_bytes[node] < shape.memory_bytes:
        return False
    gpu_milli = ledger.gpu_milli[node : node + 1].copy()
    if (gpu_milli[0, devices] < shape.gpu_milli).any():
        return False
    gpu_milli[0, devices] -= shape.gpu_milli
    held = int(held_devices(gpu_milli, ledger.gpus[node : node + 1])[0])
    return draft.packer.floors is None or draft.packer.floors.bears(node, held)
