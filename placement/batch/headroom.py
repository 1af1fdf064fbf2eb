"""Placements of a batch against the headroom of power domains, which the batch itself ignores.

A batch is planned as if power were free. Its placements are then checked in the order of service, and those whose
devices' floors no longer fit are dropped. Packing, which respects headroom, serves those pods, or they wait.
"""

import numpy as np

from cluster.arrays import IntArray
from cluster.power_floors import PowerFloors, held_devices
from cluster.snapshot import Snapshot, device_numbers
from placement.batch.gang_topology import Seats
from placement.engine.ledger import Ledger
from placement.packing.draft import effective_priority


def within_headroom(snapshot: Snapshot, seats: Seats) -> tuple[Seats, IntArray]:
    """Placements that the headroom carries, and the rows of pods that lost theirs; a gang keeps all of its or none.

    All of them where no headroom is published. By priority, then in the order of the batch.
    """
    floors = PowerFloors.of(snapshot)
    if floors is None or not len(seats):
        return seats, np.zeros(0, dtype=np.int64)
    ledger, keep = Ledger.of(snapshot), np.zeros(len(seats), dtype=np.bool_)
    for unit in _units(snapshot, seats):
        keep[unit] = _taken(snapshot, floors, ledger, seats, unit)
    kept = Seats(seats.row[keep], seats.node[keep], seats.devices[keep])
    return kept, seats.row[~keep]


def _units(snapshot: Snapshot, seats: Seats) -> list[list[int]]:
    """Positions of placements that are kept or dropped together, the most important first."""
    priority, gang = effective_priority(snapshot)[seats.row], snapshot.pods.gang[seats.row]
    found: dict[tuple[int, int], list[int]] = {}
    for seat in np.argsort(-priority, kind="stable").tolist():
        found.setdefault((int(gang[seat]), -1 if gang[seat] >= 0 else seat), []).append(seat)
    return list(found.values())


def _taken(snapshot: Snapshot, floors: PowerFloors, ledger: Ledger, seats: Seats, unit: list[int]) -> bool:
    """Charges the placements of a unit if all of them fit; else none."""
    for done, seat in enumerate(unit):
        if not _seated(snapshot, floors, ledger, seats, seat):
            for before in reversed(unit[:done]):
                _charge(snapshot, floors, ledger, seats, before, sign=-1)
            return False
    return True


def _seated(snapshot: Snapshot, floors: PowerFloors, ledger: Ledger, seats: Seats, seat: int) -> bool:
    node = int(seats.node[seat])
    before = _held(ledger, node)
    _charge(snapshot, floors, ledger, seats, seat, sign=1, follow=False)
    after = _held(ledger, node)
    if after == before or floors.bears(node, after):
        floors.follow((node,), np.array([after]))
        return True
    _charge(snapshot, floors, ledger, seats, seat, sign=-1, follow=False)
    return False


def _charge(
    snapshot: Snapshot, floors: PowerFloors, ledger: Ledger, seats: Seats, seat: int, *, sign: int, follow: bool = True
) -> None:
    shape = snapshot.pods.shapes[snapshot.pods.shape[seats.row[seat]]]
    node, devices = int(seats.node[seat]), device_numbers(int(seats.devices[seat]))
    if sign > 0:
        ledger.take(shape, node, devices)
    else:
        ledger.give(shape, node, devices)
    if follow:
        floors.follow((node,), np.array([_held(ledger, node)]))


def _held(ledger: Ledger, node: int) -> int:
    return int(held_devices(ledger.gpu_milli[node : node + 1], ledger.gpus[node : node + 1])[0])
