"""Seats that the annotations of pods keep, with the pods that take them now."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np

from cluster.held_seats import in_force
from cluster.snapshot import PENDING, HeldSeat, HeldSeats, Snapshot
from controller.api import notation
from controller.api.structs import Pod, Slim
from controller.objects.read import Read

CLOCKS_DIFFER_S = 5.0
"""Seconds by which the clocks of the operator and of the API server, which dates pods, may differ. Chosen."""


class SeatRecord(Slim, frozen=True):
    """One seat, as it is written."""

    pod: str
    node: str
    devices: tuple[int, ...] = ()
    gpu_milli: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    owner: str = ""
    """Controller whose next pod takes it, `Kind/namespace/name`; empty: the pod itself does."""


class HoldRecord(Slim, frozen=True):
    """What the annotation says."""

    since: str
    until: str
    seats: tuple[SeatRecord, ...] = ()


def written(held: HeldSeats, at_s: float, owners: Mapping[str, str]) -> str:
    """Text of the annotation. owners: controller of each pod that moves."""
    seats = tuple(
        SeatRecord(
            s.pod, s.node, s.devices, s.gpu_milli, s.cpu_milli, s.memory_bytes, owners[s.pod] if s.is_moved else ""
        )
        for s in held.seats
    )
    record = HoldRecord(notation.rfc3339(at_s), notation.rfc3339(held.until_s), seats)
    return bytes(msgspec.json.encode(record)).decode()


def with_held_seats(snapshot: Snapshot, holders: Mapping[str, str], pods: Mapping[str, Read[Pod]]) -> Snapshot:
    """The snapshot with the seats that are held. holders: annotation of each pod that has one.

    A seat whose pod has it, or will never want it, is not held any more, nor is one of a holder that is being deleted.
    An annotation that cannot be read holds nothing.
    """
    found, taken = list[HeldSeats](), set[str]()
    for holder, text in sorted(holders.items()):
        try:
            record = msgspec.json.decode(text, type=HoldRecord)
        except msgspec.MsgspecError:
            continue
        since_s, until_s = notation.instant_or_none(record.since), notation.instant_or_none(record.until)
        if since_s is None or until_s is None or pods[holder].object.metadata.deletion_timestamp is not None:
            continue
        come, seats = set[str](), list[HeldSeat]()
        for each in record.seats:
            amounts = each.gpu_milli, each.cpu_milli, each.memory_bytes
            seat = HeldSeat(each.pod, each.node, each.devices, *amounts, is_moved=bool(each.owner), owner=each.owner)
            if each.owner:
                took = _came(snapshot, each, since_s, pods, come)
                if took is not None:
                    come.add(took)
                    continue
                taker = _comes(snapshot, each, since_s, pods, taken)
            else:
                row = snapshot.pods.names.row(each.pod)
                if row is None or snapshot.pods.node[row] != PENDING:
                    continue
                taker = each.pod
            taken.add(taker)
            seats.append(replace(seat, taker=taker))
        found.append(HeldSeats(holder, until_s, tuple(seats)))
    return replace(snapshot, held=in_force(found, snapshot.at_s))


def _came(
    snapshot: Snapshot, seat: SeatRecord, since_s: float, pods: Mapping[str, Read[Pod]], others: set[str]
) -> str | None:
    """Replacement that runs on the node of the seat, and has no other; None: none has come."""
    node = snapshot.nodes.names.row(seat.node)
    rows = [] if node is None else np.flatnonzero(snapshot.pods.node == node).tolist()
    names = (snapshot.pods.names[row] for row in rows)
    return next((name for name in names if name not in others and _replaces(pods.get(name), seat, since_s)), None)


def _comes(
    snapshot: Snapshot, seat: SeatRecord, since_s: float, pods: Mapping[str, Read[Pod]], others: set[str]
) -> str:
    """Replacement that waits and has no other seat; empty: it is not there yet."""
    table = snapshot.pods
    for row in table.pending:
        name, shape = table.names[int(row)], table.shapes[int(table.shape[row])]
        ask = shape.gpus, shape.gpu_milli
        is_same = ask == (len(seat.devices), seat.gpu_milli) or not (shape.gpus or seat.devices)
        if is_same and name not in others and _replaces(pods.get(name), seat, since_s):
            return name
    return ""


def _replaces(read: Read[Pod] | None, seat: SeatRecord, since_s: float) -> bool:
    """Whether a pod was made by the owner since the seat is held."""
    if read is None or read.object.controller != seat.owner:
        return False
    meta = read.object.metadata
    created_s = notation.instant_or_none(meta.creation_timestamp)
    return meta.deletion_timestamp is None and created_s is not None and created_s >= since_s - CLOCKS_DIFFER_S
