"""Seats that the annotations of pods keep, with the pods that take them now."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np

from cluster.held_seats import in_force
from cluster.snapshot import PENDING, HeldSeat, HeldSeats, Snapshot
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
    An annotation that cannot be read holds nothing.
    """
    found, taken = list[HeldSeats](), set[str]()
    for holder, text in sorted(holders.items()):
        try:
            held = msgspec.json.decode(text, type=HeldSeats)
        except msgspec.MsgspecError:
            continue
        if pods[holder].object.metadata.deletion_timestamp is not None:
            continue
        come, seats = set[str](), list[HeldSeat]()
        for seat in filter(_is_sound, held.seats):
            if seat.is_moved:
                node = snapshot.nodes.names.row(seat.node)
                there = [] if node is None else np.flatnonzero(snapshot.pods.node == node).tolist()
                names = (snapshot.pods.names[row] for row in there)
                took = next((n for n in names if n not in come and _replaces(pods.get(n), seat, held.since_s)), None)
                if took is not None:  # it runs there, as the replacement of no other seat
                    come.add(took)
                    continue
                taker = _comes(snapshot, seat, held.since_s, pods, taken)
            else:
                row = snapshot.pods.names.row(seat.pod)
                if row is None or snapshot.pods.node[row] != PENDING:
                    continue
                taker = seat.pod
            taken.add(taker)
            seats.append(replace(seat, taker=taker))
        found.append(replace(held, holder=holder, seats=tuple(seats)))
    return replace(snapshot, held=in_force(found, snapshot.at_s))


def _is_sound(seat: HeldSeat) -> bool:
    """Whether the numbers are such as a pod may have; anybody can write an annotation where no policy forbids it."""
    amounts = (seat.gpu_milli, seat.cpu_milli, seat.memory_bytes)
    has_devices = all(0 <= each < MAX_GPUS_PER_NODE for each in seat.devices) and bool(seat.owner) == seat.is_moved
    return has_devices and all(0 <= each <= MOST_OF_OTHERS for each in amounts)


def _comes(snapshot: Snapshot, seat: HeldSeat, since_s: float, pods: Mapping[str, Read[Pod]], others: set[str]) -> str:
    """Replacement that waits and has no other seat; empty: it is not there yet."""
    table = snapshot.pods
    for row in table.pending:
        name, shape = table.names[int(row)], table.shapes[int(table.shape[row])]
        ask = shape.gpus, shape.gpu_milli
        is_same = ask == (len(seat.devices), seat.gpu_milli) or not (shape.gpus or seat.devices)
        if is_same and name not in others and _replaces(pods.get(name), seat, since_s):
            return name
    return ""


def _replaces(read: Read[Pod] | None, seat: HeldSeat, since_s: float) -> bool:
    """Whether a pod was made by the owner since the seat is held."""
    if read is None or read.object.controller != seat.owner:
        return False
    meta = read.object.metadata
    created_s = notation.instant_or_none(meta.creation_timestamp)
    return meta.deletion_timestamp is None and created_s is not None and created_s >= since_s - CLOCKS_DIFFER_S
