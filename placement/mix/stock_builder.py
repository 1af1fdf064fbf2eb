"""Builder of the stock from a snapshot: nodes, and the instances that may use them, or inventories."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import BoolArray
from cluster.changes import instance_type_of
from cluster.nodes import eligible_nodes
from cluster.snapshot import PENDING, Snapshot, device_numbers
from cluster.workloads import WHOLE_GPU_MILLI, InstanceType, PodShape
from placement.mix.problem import Need, Offer
from placement.seating.footprint import Footprint, footprint_of
from placement.seating.stock import Stock, stock_of_nodes

Claimant = tuple[str, InstanceType]
"""Service and instance type."""


@dataclass(frozen=True, slots=True)
class Room:
    """Free resources of a node, or those that an instance holds where no further one may start."""

    free: Footprint
    claimants: frozenset[Claimant]
    """Instances that may be there."""


def stocked(
    snapshot: Snapshot, needs: Sequence[Need], stay: Collection[Claimant] = ()
) -> tuple[tuple[Need, ...], dict[str, Stock]]:
    """Needs whose offers name the stocks that they may use, and these stocks.

    With nodes: those of a GPU type that the same instances may use are one stock, of their whole free devices, CPU and
    memory, and of what the services' own instances hold. So an instance that is sold has a seat, wherever its service
    may run. Without nodes: the GPU types' inventories.

    stay: instances that stay where they run; others may start where they stop.
    """
    if not len(snapshot.nodes):
        used = {offer.gpu_type for need in needs for offer in need.offers}
        types = (each for each in snapshot.gpu_types if each.inventory is not None and each.name in used)
        return tuple(needs), {each.name: Stock(each.inventory or 0) for each in types}
    offers = {(need.service, offer.instance_type): offer for need in needs for offer in need.offers}
    by_claimants: dict[frozenset[Claimant], list[Footprint]] = {}
    for room in _rooms(snapshot, offers, stay):
        by_claimants.setdefault(room.claimants, []).append(room.free)
    stock: dict[str, Stock] = {}
    places: dict[Claimant, tuple[str, ...]] = {}
    for gpu_type in dict.fromkeys(offer.gpu_type for offer in offers.values()):
        own = {claimant: offer for claimant, offer in offers.items() if offer.gpu_type == gpu_type}
        of_own = {claimants: rooms for claimants, rooms in by_claimants.items() if claimants <= own.keys()}
        found, of_type = _of_type(gpu_type, of_own, own)
        stock |= found
        places |= of_type
    placed = (
        replace(
            need,
            offers=tuple(replace(each, places=places[need.service, each.instance_type]) for each in need.offers),
        )
        for need in needs
    )
    return tuple(placed), stock


def _of_type(
    gpu_type: str, by_claimants: Mapping[frozenset[Claimant], Sequence[Footprint]], offers: Mapping[Claimant, Offer]
) -> tuple[dict[str, Stock], dict[Claimant, tuple[str, ...]]]:
    """Stocks of one GPU type, and the names of those that each kind of instance may use, the least wanted first.

    by_claimants: free resources of its nodes, by the instances that may be there.
    """
    sets = sorted(by_claimants, key=lambda claimants: (len(claimants), sorted(claimants)))
    is_one = len(sets) == 1 and sets[0] == offers.keys()
    names = {each: gpu_type if is_one else f"{gpu_type} {number}" for number, each in enumerate(sets)}
    stock = {}
    for each in sets:
        held = stock_of_nodes(by_claimants[each], [offers[claimant].footprint for claimant in each])
        stock[names[each]] = replace(held, gpu_type=gpu_type)
    places = {claimant: tuple(names[each] for each in sets if claimant in each) for claimant in offers}
    nowhere = f"{gpu_type} nowhere"  # a stock that is missing would have no limit
    if not all(places.values()):
        stock[nowhere] = Stock(0, gpu_type=gpu_type)
    return stock, {claimant: own or (nowhere,) for claimant, own in places.items()}


def _rooms(snapshot: Snapshot, offers: Mapping[Claimant, Offer], stay: Collection[Claimant]) -> list[Room]:
    """Rooms of all nodes for these instances.

    What the services' running instances hold counts as free on nodes where they may start. Elsewhere, such as on a
    cordoned node, and where they stay, it is a room for the same instance alone.
    """
    allowed = _allowed(snapshot, offers)
    services = {service for service, _ in offers}
    free, pods = snapshot.free(), snapshot.pods
    usable = np.logical_or.reduce(list(allowed.values()))
    rooms = []
    for row in np.flatnonzero(pods.node != PENDING).tolist():
        if not pods.owner[row] or pods.owner[row] not in services:
            continue
        shape, node = pods.shapes[pods.shape[row]], int(pods.node[row])
        on_type = int(snapshot.nodes.gpu_type[node])
        known = snapshot.gpu_type_names[on_type] if on_type >= 0 else ""
        claimant = pods.owner[row], instance_type_of(shape) or InstanceType(known, shape.gpus)
        if claimant in allowed and (claimant in stay or not allowed[claimant][node]):
            rooms.append(Room(footprint_of(shape), frozenset((claimant,))))
        elif usable[node]:
            free.cpu_milli[node] += shape.cpu_milli
            free.memory_bytes[node] += shape.memory_bytes
            free.gpu_milli[node, list(device_numbers(int(pods.devices[row])))] += shape.gpu_milli
    whole = (free.gpu_milli >= WHOLE_GPU_MILLI).sum(axis=1)
    claimants = list(allowed)
    may = np.array([allowed[each] for each in claimants])
    sets: dict[bytes, frozenset[Claimant]] = {}
    for node in np.flatnonzero(usable & (whole > 0)).tolist():
        column = may[:, node]
        key = column.tobytes()
        if key not in sets:
            sets[key] = frozenset(claimants[n] for n in np.flatnonzero(column))
        room = Footprint(int(whole[node]), int(free.cpu_milli[node]), int(free.memory_bytes[node]))
        rooms.append(Room(room, sets[key]))
    return rooms


def _allowed(snapshot: Snapshot, offers: Mapping[Claimant, Offer]) -> dict[Claimant, BoolArray]:
    """Shape (nodes,) by service and instance type: nodes where instances may start, whatever is free there."""
    services = {service.name: service for service in snapshot.services}
    of_shapes: dict[PodShape, BoolArray] = {}
    found = {}
    for name, instance_type in offers:
        shape = replace(services[name].instance_shape(instance_type), cpu_milli=0, memory_bytes=0, gpus=1)
        if shape not in of_shapes:
            of_shapes[shape] = eligible_nodes(shape, snapshot.nodes, snapshot.gpu_type_names)
        found[name, instance_type] = of_shapes[shape]
    return found
