"""Held seats: what a decision of several steps keeps for the pods that it is for, until they have it or time is up.

A gang that preempts, and a pod for which others move, start once the last pod in their way is gone; the replacements of
those that moved start once their owners have made them. Nobody of their priority or a lower one gets their seats
meanwhile. The record stands on the pod that the decision is for, so that the next leader finds it.
"""

from collections.abc import Iterable
from dataclasses import replace

import msgspec
import numpy as np

from cluster.arrays import column
from cluster.snapshot import HeldSeat, HeldSeats, PodTable, Snapshot, device_mask
from cluster.workloads import PodShape

DEADLINE_S = 300.0
"""Longest time for which seats are held, seconds. Chosen: as `gang_deadline_s`; the default grace of a pod is 30 s."""


def seat_of(pod: str, shape: PodShape, node: str, devices: tuple[int, ...], *, is_moved: bool = False) -> HeldSeat:
    """Seat of a pod of this shape."""
    amounts = shape.gpu_milli, shape.cpu_milli, shape.memory_bytes
    return HeldSeat(pod, node, devices, *amounts, is_moved=is_moved)


def text_of(held: HeldSeats) -> str:
    """The record as it is written on its holder."""
    return msgspec.json.encode(held).decode()


def with_unseen(held: Iterable[HeldSeats], unseen: Iterable[HeldSeats]) -> tuple[HeldSeats, ...]:
    """What is held, with decisions that the watch does not show yet: none of their replacements has come."""
    by_holder = {each.holder: each for each in held}
    for each in unseen:
        seats = (seat if seat.is_moved else replace(seat, taker=seat.pod) for seat in each.seats)
        by_holder[each.holder] = replace(each, seats=tuple(seats))
    return tuple(by_holder[holder] for holder in sorted(by_holder))


def in_force(held: Iterable[HeldSeats], at_s: float) -> tuple[HeldSeats, ...]:
    """Those whose deadline has neither passed nor lies beyond the longest time; with seats left."""
    return tuple(each for each in held if each.seats and at_s < each.until_s <= at_s + DEADLINE_S)


def with_room_kept(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which the seats of pods that do not exist yet are taken, by pods that nobody may stop.

    A seat that is not free is not kept: its pod has come, or it is lost; nor is that of a pod that still runs, and is
    yet to move.
    """
    free, kept = snapshot.free(), list[tuple[HeldSeat, int]]()
    ending = snapshot.pods.ending
    for held in snapshot.held:
        for seat in held.seats:
            shape, node = _shape(seat), snapshot.nodes.names.row(seat.node)
            if seat.taker or not seat.is_moved or node is None:
                continue
            row = snapshot.pods.names.row(seat.pod)
            if row is not None and (ending is None or not ending[row]):
                continue
            here = np.array([node])
            has_devices = all(
                device < free.gpu_milli.shape[1] and free.gpu_milli[node, device] >= seat.gpu_milli
                for device in seat.devices
            )
            if has_devices and free.fits(shape, here)[0]:
                free.charge(shape, node, seat.devices)
                kept.append((seat, node))
    if not kept:
        return snapshot
    names = (f"{seat.pod} (seat held {number})" for number, (seat, _) in enumerate(kept))
    shapes = tuple(dict.fromkeys(_shape(seat) for seat, _ in kept))
    ones = np.ones(len(kept), dtype=np.bool_)
    phantoms = PodTable.waiting(
        names,
        column(np.array([shapes.index(_shape(seat)) for seat, _ in kept]), np.int64),
        shapes,
        node=column(np.array([node for _, node in kept]), np.int64),
        devices=column(np.array([device_mask(seat.devices) for seat, _ in kept]), np.int64),
        movable=column(~ones, np.bool_),
        settled=column(ones, np.bool_),
    )
    return replace(snapshot, pods=snapshot.pods.plus(phantoms))


def _shape(seat: HeldSeat) -> PodShape:
    return PodShape(seat.cpu_milli, seat.memory_bytes, len(seat.devices), seat.gpu_milli if seat.devices else 0)
