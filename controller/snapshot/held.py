"""Seats that the annotations of pods keep, with the pods that take them now."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np

from cluster.arrays import BoolArray
from cluster.held_seats import in_force
from cluster.snapshot import PENDING, HeldSeat, HeldSeats, Snapshot, device_mask
from cluster.workloads import MAX_GPUS_PER_NODE
from controller.api import notation
from controller.api.structs import Pod
from controller.objects.read import Read
from controller.snapshot.pods import MOST_OF_OTHERS

CLOCKS_DIFFER_S = 5.0
"""Seconds by which the clocks of the operator and of the API server, which dates pods, may differ. Chosen."""


def with_held_seats(snapshot: Snapshot, holders: Mapping[str, str], pods: Mapping[str, Read[Pod]]) -> Snapshot:
    """The snapshot with the seats that are held. holders: annotation of each pod that has one.

    A seat whose pod has it, or will never want it, is not held any more, nor is one of a holder that is being deleted.
    An annotation that cannot be read holds nothing. Several decisions may hold seats for the pods of one owner: each
    replacement has one of them, and none has that of a pod that is yet to move.
    """
    decisions, table = list[HeldSeats](), snapshot.pods
    for holder, text in sorted(holders.items()):
        if pods[holder].object.metadata.deletion_timestamp is None and (held := held_from(holder, text)) is not None:
            decisions.append(held)
    seats = (seat for each in decisions for seat in each.seats)
    vacated = [(seat, _candidates(snapshot, seat)) for seat in seats if _is_vacated(snapshot, seat, pods)]
    replacements, known = dict[int, str](), set[str]()
    for likely in range(4):
        for seat, candidates in vacated:
            rows = [] if id(seat) in replacements else np.flatnonzero(candidates[likely]).tolist()
            names = (table.names[row] for row in rows)
            if name := next((n for n in names if n not in known and _replaces(pods.get(n), seat)), ""):
                replacements[id(seat)] = name
                known.add(name)
    found = list[HeldSeats]()
    for held in decisions:
        takers = ((seat, replacements.get(id(seat), "") if seat.is_moved else seat.pod) for seat in held.seats)
        taken = ((replace(seat, taker=taker), table.names.row(taker)) for seat, taker in takers)
        waits = (each for each, row in taken if (not each.taker if row is None else table.node[row] == PENDING))
        found.append(replace(held, seats=tuple(waits)))
    return replace(snapshot, held=in_force(found, snapshot.at_s))


def held_from(holder: str, text: str) -> HeldSeats | None:
    """What an annotation of this holder keeps, but seats whose numbers no pod may have; None where it cannot be read.

    Anybody can write an annotation where no policy forbids it.
    """
    try:
        held = msgspec.json.decode(text, type=HeldSeats)
    except msgspec.MsgspecError:
        return None
    seats = (replace(each, since_s=each.since_s or held.since_s) for each in held.seats if _is_sound(each))
    return replace(held, holder=holder, seats=tuple(seats))


def _is_sound(seat: HeldSeat) -> bool:
    amounts = (seat.gpu_milli, seat.cpu_milli, seat.memory_bytes)
    has_devices = all(0 <= each < MAX_GPUS_PER_NODE for each in seat.devices) and bool(seat.owner) == seat.is_moved
    return has_devices and all(0 <= each <= MOST_OF_OTHERS for each in amounts)


def _is_vacated(snapshot: Snapshot, seat: HeldSeat, pods: Mapping[str, Read[Pod]]) -> bool:
    """Whether it is for the replacement of a pod that does not run elsewhere any more; one of its name that was made
    since, as a StatefulSet does, may.
    """
    row, table = snapshot.pods.names.row(seat.pod), snapshot.pods
    if not seat.is_moved or row is None or table.node[row] in (PENDING, snapshot.nodes.names.row(seat.node)):
        return seat.is_moved
    is_ending = table.ending is not None and bool(table.ending[row])
    return is_ending or _is_made_since(pods[seat.pod].object, seat.since_s + 2 * CLOCKS_DIFFER_S)


def _candidates(snapshot: Snapshot, seat: HeldSeat) -> tuple[BoolArray, ...]:
    """Pods that may replace the one that moved, the surest first. Each of shape (pods,).

    Those that hold exactly its devices, as they were put there and not on a seat beside it; those on its node; those
    that wait and ask for as many devices, and as much of each; and those that started anywhere, where the pod that
    moved is gone: its owner needs no seat for it any more.
    """
    table, asked = snapshot.pods, (len(seat.devices), seat.gpu_milli)
    is_alike = [(s.gpus, s.gpu_milli) == asked or not (s.gpus or seat.devices) for s in table.shapes]
    waits = (table.node == PENDING) & np.array(is_alike, dtype=np.bool_)[table.shape]
    here = table.node == snapshot.nodes.names.row(seat.node)
    started = (np.zeros(len(table)) if table.started_s is None else table.started_s) >= seat.since_s - CLOCKS_DIFFER_S
    started &= table.node != PENDING
    is_gone = (row := table.names.row(seat.pod)) is None or bool(started[row])
    return here & (table.devices == device_mask(seat.devices)), here, waits, started & is_gone


def _replaces(read: Read[Pod] | None, seat: HeldSeat) -> bool:
    """Whether a pod was made by the owner since the seat is held."""
    if read is None or read.object.metadata.controller != seat.owner:
        return False
    return read.object.metadata.deletion_timestamp is None and _is_made_since(read.object, seat.since_s)


def _is_made_since(pod: Pod, since_s: float) -> bool:
    created_s = notation.instant_or_none(pod.metadata.creation_timestamp)
    return created_s is not None and created_s >= since_s - CLOCKS_DIFFER_S
