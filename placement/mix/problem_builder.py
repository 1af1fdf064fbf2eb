"""Builder of the mix problem from a snapshot: the need of each service, and the available devices."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.demand import LengthGrid, ThroughputProfile
from cluster.hardware import WHOLE_GPU_MILLI
from cluster.nodes import eligible_nodes
from cluster.plans import Reason
from cluster.pods import PENDING, device_numbers
from cluster.snapshot import Snapshot
from cluster.workloads import InstanceType, ModelService, PodShape
from placement.mix.headroom import in_flight_at_slo
from placement.mix.problem import Need, Offer, Stock


def need_of(service: ModelService, snapshot: Snapshot, *, slo_s: float | None = None) -> Need | Reason:
    """Need of a service with valid input, or the reason why there is none.

    slo_s: an SLO other than the service's own.
    """
    if service.demand is None:
        return Reason("DemandUnknown", f"{service.name}: no demand was measured; the running instances stay")
    promise = service.slo.tpot_s if slo_s is None else slo_s
    prices = {gpu_type.name: gpu_type.price(spot=service.spot) for gpu_type in snapshot.gpu_types}
    profiles = _usable_profiles(service, snapshot, promise)
    if not profiles:
        return Reason("NoProfile", f"{service.name}: no profile of {service.model} at {promise * 1000:g}ms or tighter")
    demand = service.demand
    cells = tuple((int(i), int(j)) for i, j in np.argwhere(demand.share * demand.rate_per_s > 0))
    rate = np.array([demand.share[cell] * demand.rate_per_s for cell in cells])
    return Need(
        service=service.name,
        slo=service.slo,
        grid=demand.grid,
        cells=cells,
        rate_per_s=rate,
        offers=tuple(offer_of(profile, prices[profile.gpu_type], demand.grid, cells, rate) for profile in profiles),
        slice_factor=None if service.continuous_split else service.slice_factor,
        headroom_share=service.headroom_share,
        priority=service.priority,
        running=service.replicas,
    )


def _usable_profiles(service: ModelService, snapshot: Snapshot, promise_s: float) -> list[ThroughputProfile]:
    """Loosest profile per allowed GPU type and width that still meets the SLO: a tighter one meets it as well.

    Widths are offers side by side, so cost chooses the degree of tensor parallelism.
    """
    best: dict[InstanceType, ThroughputProfile] = {}
    for profile in snapshot.profiles:
        allowed = not service.gpu_types or profile.gpu_type in service.gpu_types
        if profile.model == service.model and allowed and profile.slo.tpot_s <= promise_s * (1 + 1e-9):
            instance_type = InstanceType(profile.gpu_type, profile.gpus_per_instance)
            known = best.get(instance_type)
            if known is None or known.slo.tpot_s < profile.slo.tpot_s:
                best[instance_type] = profile
    order = {name: number for number, name in enumerate(snapshot.gpu_type_names)}
    known_types = (each for each in best if each.gpu_type in order)
    return [best[each] for each in sorted(known_types, key=lambda each: (order[each.gpu_type], each))]


def offer_of(
    profile: ThroughputProfile,
    price_per_hour: float,
    grid: LengthGrid,
    cells: Sequence[tuple[int, int]],
    rate_per_s: FloatArray,
) -> Offer:
    """Offer of a profile for demand on `grid`. price_per_hour: of one device.

    The grids may differ: a bucket of the demand takes the throughput of the smallest bucket of the profile that
    contains it (edges are rounded up). Requests longer than the profile's last edge cannot be served.
    """
    rows = np.searchsorted(profile.grid.input_tokens, grid.input_tokens)
    columns = np.searchsorted(profile.grid.output_tokens, grid.output_tokens)
    beyond = np.zeros((profile.grid.shape[0] + 1, profile.grid.shape[1] + 1))
    beyond[:-1, :-1] = profile.requests_per_s
    i = np.array([cell[0] for cell in cells], dtype=np.int64)
    j = np.array([cell[1] for cell in cells], dtype=np.int64)
    requests_per_s = beyond[rows[i], columns[j]]
    output_tokens = np.array(grid.output_tokens, dtype=np.float64)[j]
    held = in_flight_at_slo(requests_per_s, profile.slo.tpot_s, output_tokens)
    can = requests_per_s > 0
    load = np.divide(rate_per_s, requests_per_s, out=np.full(len(cells), np.inf), where=can)
    variance = np.divide(load, held, out=np.zeros(len(cells)), where=can)
    width = profile.gpus_per_instance
    return Offer(InstanceType(profile.gpu_type, width), price_per_hour * width, load, variance)


def stock_of(snapshot: Snapshot, services: Iterable[ModelService], widths: Iterable[int]) -> dict[str, Stock]:
    """Devices per GPU type that these services may use together.

    With nodes: the whole free devices of the nodes that may take their instances, and the devices that their own
    instances hold wherever they run. Without nodes: the types' inventory.
    """
    if not len(snapshot.nodes):
        return {t.name: Stock(t.inventory) for t in snapshot.gpu_types if t.inventory is not None}
    widths = sorted({width for width in widths if width > 1})
    services = tuple(services)
    anywhere = np.zeros(len(snapshot.nodes), dtype=bool)
    for mask in _allowed(snapshot, services).values():
        anywhere |= mask
    devices = _whole_devices(snapshot, anywhere, {service.name for service in services})
    return {name: _stock(snapshot, name, devices, widths) for name in snapshot.gpu_type_names}


def with_narrower_stock(
    snapshot: Snapshot, needs: Sequence[Need], stock: Mapping[str, Stock]
) -> tuple[tuple[Need, ...], dict[str, Stock]]:
    """Needs and their stock per GPU type, with further stocks for nodes that not all of them may use.

    Where services are restricted to different nodes of a type, they cannot together use all of it. Each set of nodes to
    which some of them are restricted is therefore a stock of its own, and so is each union of such sets. With instances
    of one device that is exact (Hall's theorem), unless there are too many unions: then the sets alone bound it.
    """
    asking = {need.service for need in needs}
    services = tuple(service for service in snapshot.services if service.name in asking)
    if not len(snapshot.nodes) or len({(each.node_terms, each.tolerations) for each in services}) < 2:
        return tuple(needs), dict(stock)
    widths = sorted({offer.gpus for need in needs for offer in need.offers if offer.gpus > 1})
    masks = _allowed(snapshot, services)
    found = dict(stock)
    within: dict[tuple[str, str], list[str]] = {}
    for name in stock:
        users = [need.service for need in needs if any(offer.gpu_type == name for offer in need.offers)]
        of_users = {user: frozenset(np.flatnonzero(masks[user, name]).tolist()) for user in users}
        for rows in _narrower(set(of_users.values())):
            owners = [user for user in users if of_users[user] <= rows]
            narrow = f"{name} on nodes for {', '.join(owners)}"
            there = np.zeros(len(snapshot.nodes), dtype=bool)
            there[list(rows)] = True
            found[narrow] = _stock(snapshot, name, _whole_devices(snapshot, there, set(owners)), widths)
            for owner in owners:
                within.setdefault((owner, name), []).append(narrow)
    restricted = (
        replace(
            need,
            offers=tuple(
                replace(offer, within=tuple(within.get((need.service, offer.gpu_type), ()))) for offer in need.offers
            ),
        )
        for need in needs
    )
    return tuple(restricted), found


_MOST_UNIONS = 64
"""Maximum stocks per GPU type; beyond it unions of sets of nodes are left out."""


def _narrower(sets: Set[frozenset[int]]) -> list[frozenset[int]]:
    """Sets and their unions, except the union of all, which is the stock of the type. In a fixed order."""
    everything = frozenset[int]().union(*sets)
    found = set(sets)
    for one in sorted(sets, key=sorted):
        found |= {one | other for other in found}
        if len(found) > _MOST_UNIONS:
            found = set(sets)
            break
    return sorted(found - {everything}, key=sorted)


def _allowed(snapshot: Snapshot, services: Iterable[ModelService]) -> dict[tuple[str, str], BoolArray]:
    """Shape (nodes,) by service and GPU type: nodes where instances may run, whatever is free there."""
    of_shapes: dict[PodShape, BoolArray] = {}
    found = {}
    for service in services:
        for name in snapshot.gpu_type_names:
            shape = _one_device(service, name)
            if shape not in of_shapes:
                of_shapes[shape] = eligible_nodes(shape, snapshot.nodes, snapshot.gpu_type_names)
            found[service.name, name] = of_shapes[shape]
    return found


def _stock(snapshot: Snapshot, gpu_type: str, devices: IntArray, widths: Sequence[int]) -> Stock:
    """Stock of one type, from devices per node, shape (nodes,)."""
    counts = devices[snapshot.nodes.gpu_type == snapshot.gpu_type_names.index(gpu_type)]
    return Stock(int(counts.sum()), {width: int((counts // width).sum()) for width in widths})


def _whole_devices(snapshot: Snapshot, allowed: BoolArray, owners: Set[str]) -> IntArray:
    """Whole devices per node, shape (nodes,): free where that is allowed, or held by instances of the owners."""
    pods = snapshot.pods
    milli = np.where(allowed[:, None], snapshot.free().gpu_milli, 0)
    for row in np.flatnonzero(pods.node != PENDING):
        if pods.owner[row] in owners:
            for device in device_numbers(int(pods.devices[row])):
                milli[pods.node[row], device] += pods.shapes[pods.shape[row]].gpu_milli
    return np.asarray((milli >= WHOLE_GPU_MILLI).sum(axis=1))


def _one_device(service: ModelService, gpu_type: str) -> PodShape:
    """Shape of an instance with only the properties that decide where it may run."""
    return replace(service.instance_shape(InstanceType(gpu_type)), cpu_milli=0, memory_bytes=0)
