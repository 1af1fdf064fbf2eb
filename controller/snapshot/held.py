"""Seats that the annotations of pods keep, with the pods that take them now."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec
import numpy as np

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
    decisions, pending = list[HeldSeats](), snapshot.pods.node == PENDING
    for holder, text in sorted(holders.items()):
        try:
            held = msgspec.json.decode(text, type=HeldSeats)
        except msgspec.MsgspecError:
            continue
        if pods[holder].object.metadata.deletion_timestamp is None:
            seats = (replace(each, since_s=each.since_s or held.since_s) for each in held.seats if _is_sound(each))
            decisions.append(replace(held, holder=holder, seats=tuple(seats)))
    vacated = [seat for each in decisions for seat in each.seats if _is_vacated(snapshot, seat, pods)]
    replacements, known = dict[int, str](), set[str]()
    for candidates in (_with_its_devices, _on_its_node, _waiting, _elsewhere):
        for seat in vacated:
            names = candidates(snapshot, seat) if id(seat) not in replacements else ()
            if name := next((n for n in names if n not in known and _replaces(pods.get(n), seat)), ""):
                replacements[id(seat)] = name
                known.add(name)
    found = list[HeldSeats]()
    for held in decisions:
        takers = ((seat, replacements.get(id(seat), "") if seat.is_moved else seat.pod) for seat in held.seats)
        rows = ((seat, taker, snapshot.pods.names.row(taker)) for seat, taker in takers)
        kept = (
            replace(seat, taker=taker)
            for seat, taker, row in rows
            if (seat.is_moved and not taker) or (row is not None and pending[row])
        )
        found.append(replace(held, seats=tuple(kept)))
    return replace(snapshot, held=in_force(found, snapshot.at_s))


def _is_sound(seat: HeldSeat) -> bool:
    """Whether the numbers are such as a pod may have; anybody can write an annotation where no policy forbids it."""
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


def _on_its_node(snapshot: Snapshot, seat: HeldSeat) -> Iterator[str]:
    rows = np.flatnonzero(snapshot.pods.node == snapshot.nodes.names.row(seat.node))
    return (snapshot.pods.names[int(row)] for row in rows)


def _with_its_devices(snapshot: Snapshot, seat: HeldSeat) -> Iterator[str]:
    """The pods on its node that hold exactly its devices: those that were put there, and not on a seat beside it."""
    wanted, table = device_mask(seat.devices), snapshot.pods
    return (name for name in _on_its_node(snapshot, seat) if table.devices[table.names.row(name)] == wanted)


def _waiting(snapshot: Snapshot, seat: HeldSeat) -> Iterator[str]:
    """Pending pods that ask for as many devices, and as much of each."""
    table = snapshot.pods
    for row in table.pending:
        shape = table.shapes[int(table.shape[row])]
        is_same = (shape.gpus, shape.gpu_milli) == (len(seat.devices), seat.gpu_milli)
        if is_same or not (shape.gpus or seat.devices):
            yield table.names[int(row)]


def _elsewhere(snapshot: Snapshot, seat: HeldSeat) -> Iterator[str]:
    """Pods that started on other nodes, where the one that moved is gone: its owner needs no seat for it any more."""
    table = snapshot.pods
    if table.started_s is not None and table.names.row(seat.pod) is None:
        rows = np.flatnonzero((table.node != PENDING) & (table.started_s >= seat.since_s - CLOCKS_DIFFER_S))
        yield from (table.names[int(row)] for row in rows)


def _replaces(read: Read[Pod] | None, seat: HeldSeat) -> bool:
    """Whether a pod was made by the owner since the seat is held."""
    if read is None or read.object.controller != seat.owner:
        return False
    return read.object.metadata.deletion_timestamp is None and _is_made_since(read.object, seat.since_s)


def _is_made_since(pod: Pod, since_s: float) -> bool:
    created_s = notation.instant_or_none(pod.metadata.creation_timestamp)
    return created_s is not None and created_s >= since_s - CLOCKS_DIFFER_S
