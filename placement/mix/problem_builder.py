"""Builder of the mix problem from a snapshot: the need of each service."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cluster.arrays import FloatArray
from cluster.demand import LengthGrid, ThroughputProfile
from cluster.plans import Reason
from cluster.snapshot import Snapshot
from cluster.workloads import InstanceType, ModelService, is_spot
from placement.mix.headroom import in_flight_at_slo
from placement.mix.problem import Need, Offer


def need_of(service: ModelService, snapshot: Snapshot, *, slo_s: float | None = None) -> Need | Reason:
    """Need of a service with valid input, or the reason why there is none.

    slo_s: an SLO other than the service's own.
    """
    if service.demand is None:
        return Reason("DemandUnknown", f"{service.name}: no demand was measured; the running instances stay")
    promise = service.slo.tpot_s if slo_s is None else slo_s
    # Looked at only for services that may use them: thousands of nodes have labels.
    with_spot = service.spot and any(map(is_spot, snapshot.nodes.labels))
    profiles = usable_profiles(service, snapshot, promise)
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
        offers=tuple(
            replace(
                offer_of(profile, snapshot.price_per_hour(service, each) / each.gpus, demand.grid, cells, rate),
                instance_type=each,
                cpu_milli=service.instance_cpu_milli,
                memory_bytes=service.instance_memory_bytes,
            )
            for profile in profiles
            for each in _instance_types(profile, with_spot=with_spot)
        ),
        slice_factor=None if service.continuous_split else service.slice_factor,
        headroom_share=service.headroom_share,
        priority=service.priority,
        running=service.replicas,
        start_share=service.start_share,
    )


def _instance_types(profile: ThroughputProfile, *, with_spot: bool) -> list[InstanceType]:
    """Instance types of a profile: on demand and, where the service may use spot nodes and there are some, on spot."""
    spots = (False, True) if with_spot else (False,)
    return [InstanceType(profile.gpu_type, profile.gpus_per_instance, spot) for spot in spots]


def usable_profiles(service: ModelService, snapshot: Snapshot, promise_s: float) -> list[ThroughputProfile]:
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
