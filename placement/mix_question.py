"""From a snapshot to the question of the mix: what each service needs, and what may be spent."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.demand import LengthGrid, ThroughputProfile
from cluster.hardware import WHOLE_GPU_MILLI
from cluster.nodes import eligible_nodes
from cluster.plans import Reason
from cluster.pods import PENDING, device_numbers
from cluster.snapshot import Snapshot
from cluster.workloads import ModelService, PodShape
from placement.headroom import in_flight_at_slo
from placement.mix import Need, Offer, Stock


def need_of(service: ModelService, snapshot: Snapshot, *, slo_s: float | None = None) -> Need | Reason:
    """The need of a service whose input is sound, or why there is none to answer.

    slo_s: asks for another promise than the service's own.
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
    """Per allowed GPU type the loosest profile that still keeps the promise: a tighter one is kept all the more."""
    best: dict[str, ThroughputProfile] = {}
    for profile in snapshot.profiles:
        allowed = not service.gpu_types or profile.gpu_type in service.gpu_types
        if profile.model == service.model and allowed and profile.slo.tpot_s <= promise_s * (1 + 1e-9):
            known = best.get(profile.gpu_type)
            if known is None or known.slo.tpot_s < profile.slo.tpot_s:
                best[profile.gpu_type] = profile
    return [best[name] for name in snapshot.gpu_type_names if name in best]


def offer_of(
    profile: ThroughputProfile,
    price_per_hour: float,
    grid: LengthGrid,
    cells: Sequence[tuple[int, int]],
    rate_per_s: FloatArray,
) -> Offer:
    """What a profile offers to demand on `grid`. price_per_hour: of one device.

    The grids may differ: a bucket of the demand takes the throughput of the smallest bucket of the profile that
    holds all of it (edges are rounded up). What is longer than the profile's last edge cannot be served.
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
    return Offer(profile.gpu_type, width, price_per_hour * width, load, variance)


def stock_of(snapshot: Snapshot, services: Iterable[ModelService], widths: Iterable[int]) -> dict[str, Stock]:
    """What these services may spend together, per GPU type.

    With nodes: the whole free devices of the nodes that may take their instances, and the devices that their own
    instances hold wherever they run. Without nodes: the types' inventory.
    """
    if not len(snapshot.nodes):
        return {t.name: Stock(t.inventory) for t in snapshot.gpu_types if t.inventory is not None}
    usable = _usable_devices(snapshot, tuple(services))
    stock = {}
    for n, name in enumerate(snapshot.gpu_type_names):
        counts = usable[snapshot.nodes.gpu_type == n]
        slots = {width: int((counts // width).sum()) for width in sorted(set(widths)) if width > 1}
        stock[name] = Stock(int(counts.sum()), slots)
    return stock


def _usable_devices(snapshot: Snapshot, services: Sequence[ModelService]) -> IntArray:
    """Whole devices per node that are free to, or held by, instances of these services, shape (nodes,).

    A node counts when instances of any of them may run there.
    """
    nodes, pods = snapshot.nodes, snapshot.pods
    owners = {service.name for service in services}
    allowed = np.zeros(len(nodes), dtype=bool)
    for whole in {_one_device(service, name) for service in services for name in snapshot.gpu_type_names}:
        allowed |= eligible_nodes(whole, nodes, snapshot.gpu_type_names)
    milli = np.where(allowed[:, None], snapshot.free().gpu_milli, 0)
    for row in np.flatnonzero(pods.node != PENDING):
        if pods.owner[row] in owners:
            for device in device_numbers(int(pods.devices[row])):
                milli[pods.node[row], device] += pods.shapes[pods.shape[row]].gpu_milli
    return np.asarray((milli >= WHOLE_GPU_MILLI).sum(axis=1))


def _one_device(service: ModelService, gpu_type: str) -> PodShape:
    """An instance as far as it decides on which nodes it may run."""
    return replace(service.instance_shape(gpu_type, 1), cpu_milli=0, memory_bytes=0)
