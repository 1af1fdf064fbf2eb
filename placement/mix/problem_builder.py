"""Builder of the mix problem from a snapshot: the need of each service, and the stock."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from cluster import arrays, changes, nodes, plans, workloads
from cluster.demand import LengthGrid, Slo, ThroughputProfile
from cluster.snapshot import PENDING, Snapshot, device_numbers
from placement.mix.heuristics import most_of
from placement.mix.problem import ATTAINMENT_Z, IDLE_SHARE, Need, Offer, in_flight_at_slo
from placement.stock import Footprint, Stock, footprint_of, stock_of_nodes


def need_of(service: workloads.ModelService, snapshot: Snapshot, *, slo_s: float | None = None) -> Need | plans.Reason:
    """Need of a service, or the reason why there is none.

    slo_s: an SLO other than the service's own.
    """
    if service.demand is None:
        return plans.Reason("DemandUnknown", f"{service.name}: no demand was measured; the running instances stay")
    promise = service.slo.tpot_s if slo_s is None else slo_s
    profiles = usable_profiles(service, snapshot, promise)
    if not profiles:
        words = f"{service.name}: no profile of {service.model} at {promise * 1000:g}ms or tighter"
        remedy = "measure one, or take GPUTypes with a data sheet and room for its weights (tonnage profile estimate)"
        return plans.Reason("NoProfile", f"{words}; {remedy}")
    if service.slo.ttft_s is not None and not any(p.prefill_s for p in profiles.values()):
        words = f"{service.name}: no profile of {service.model} has the time of its prefill, and slo.ttft needs it"
        return plans.Reason("NoProfile", words)
    counted = service.objective
    if counted is not None and (counted.kwh or counted.kg_co2):
        profiles = {kind: p for kind, p in profiles.items() if kind in service.watts}
        if not profiles:
            words = f"{service.name}: no profile of {service.model} has its watts, and its objective counts energy"
            return plans.Reason("NoProfile", words)
    links = {each.name: each.network_bytes_per_s for each in snapshot.gpu_types}
    if service.phase == workloads.CACHE:
        return _need_of_memory(service, {p.gpu_type for p in profiles.values() if links.get(p.gpu_type)}, snapshot)
    if service.phase:
        has_phases = {k for k, p in profiles.items() if p.decoded_per_s is not None and p.prefill_s}
        profiles = {kind: p for kind, p in profiles.items() if kind in has_phases and links.get(p.gpu_type)}
        if not profiles:
            words = f"{service.name}: no profile of {service.model} has its phases, on a GPUType with a network"
            return plans.Reason("NoProfile", words)
    slowest = min(
        (
            link * p.gpus_per_instance
            for _, p in snapshot.profiles_of(service)
            if p.prefill_s and (link := links.get(p.gpu_type))
        ),
        default=math.inf,
    )
    demand = service.demand
    lengths = tuple((int(i), int(j)) for i, j in np.argwhere(demand.share * demand.rate_per_s > 0))
    # A bucket for each fraction of the requests of some length, where fractions may be answered by unlike models.
    cells = tuple(cell for _ in service.quality_floors for cell in lengths)
    rate = np.array([part * demand.share[c] * demand.rate_per_s for part, _ in service.quality_floors for c in lengths])
    least = np.repeat([floor for _, floor in service.quality_floors], len(lengths))
    quality = {each.pool: each.quality for each in service.models}
    prompts_per_s = float(demand.rate_per_s * (demand.share.sum(axis=1) @ np.array(demand.grid.input_tokens)))
    cache_bytes = max((p.cache_bytes_per_token or 0.0 for p in profiles.values()), default=0.0)
    found = service.cache.found_share(prompts_per_s * cache_bytes) if service.cache and cache_bytes else 0.0
    # Instances on demand and, where the service may use spot nodes and there are some, on spot. Looked at only for
    # services that may use them: thousands of nodes have labels.
    with_spot = service.spot and any(map(workloads.is_spot, snapshot.nodes.labels))
    offers = []
    for kind, profile in profiles.items():
        for on_spot in (False, True) if with_spot else (False,):
            each = replace(kind, spot=on_spot)
            price = snapshot.price_per_hour(service, each) / each.gpus
            link = (links.get(profile.gpu_type) or math.inf) * each.gpus
            own_found = found if links.get(profile.gpu_type) and profile.cache_bytes_per_token else 0.0
            work = Work(service.phase, service.slo, link, slowest, own_found)
            offer = offer_of(profile, price, demand.grid, cells, rate, work)
            cpu, memory = service.instance_cpu_milli, service.instance_memory_bytes
            offer = replace(offer, instance_type=each, cpu_milli=cpu, memory_bytes=memory)
            if (bad := least > quality.get(each.phase, 1.0)).any():
                load, variance = np.where(bad, np.inf, offer.load), np.where(bad, 0.0, offer.variance)
                offer = replace(offer, load=load, variance=variance)
            offers.append(offer)
    return Need(
        service=service.name,
        slo=service.slo,
        grid=demand.grid,
        cells=cells,
        rate_per_s=rate,
        offers=tuple(offers),
        slice_factor=None if service.continuous_split else service.slice_factor,
        headroom_share=service.headroom_share,
        priority=service.priority,
        running=service.replicas,
    )


def _need_of_memory(
    service: workloads.ModelService, gpu_types: Collection[str], snapshot: Snapshot
) -> Need | plans.Reason:
    """Need of the pool of a service's cache: as many instances as it says, on nodes of any of these GPU types."""
    cache = service.cache
    if cache is None or not gpu_types:
        words = (
            f"{service.name}: no profile of {service.model} has a GPUType with a network, or it has no cache any more"
        )
        return plans.Reason("NoNetwork", words)
    types = (workloads.InstanceType(name, 0) for name in snapshot.gpu_type_names if name in gpu_types)
    load, size = np.array([cache.instances]), cache.memory_bytes
    offers = (Offer(each, snapshot.price_per_hour(service, each), load, np.zeros(1), 0, size) for each in types)
    return Need(
        service=service.name,
        slo=service.slo,
        grid=LengthGrid((1,), (1,)),
        cells=((0, 0),),
        rate_per_s=np.ones(1),
        offers=tuple(offers),
        slice_factor=max(1, cache.instances),
        headroom_share=0.0,
        priority=service.priority,
        running=service.replicas,
    )


def usable_profiles(
    service: workloads.ModelService, snapshot: Snapshot, promise_s: float
) -> dict[workloads.InstanceType, ThroughputProfile]:
    """Loosest profile per allowed GPU type and width that still meets the SLO: a tighter one meets it as well.

    Widths are offers side by side, so cost chooses the degree of tensor parallelism.
    """
    best: dict[workloads.InstanceType, ThroughputProfile] = {}
    for instance_type, profile in snapshot.profiles_of(service):
        allowed = not service.gpu_types or profile.gpu_type in service.gpu_types
        if allowed and profile.slo.tpot_s <= promise_s * (1 + 1e-9):
            known = best.get(instance_type)
            if known is None or known.slo.tpot_s < profile.slo.tpot_s:
                best[instance_type] = profile
    order = {name: number for number, name in enumerate(snapshot.gpu_type_names)}
    known_types = (each for each in best if each.gpu_type in order)
    return {each: best[each] for each in sorted(known_types, key=lambda each: (order[each.gpu_type], each))}


@dataclass(frozen=True, slots=True)
class Work:
    """What instances do of each request, within which SLO."""

    phase: str = ""
    slo: Slo | None = None
    link_bytes_per_s: float = math.inf
    """Of one instance's network, each way."""
    slowest_bytes_per_s: float = math.inf
    """Of any instance that its prompts' cache may come from."""
    found_share: float = 0.0
    """Fraction of the prompts' tokens whose cache is found elsewhere, and needs no prefill."""


TOKEN_QUANTILE = 10.0
"""One in so many of the requests that may miss an SLO is planned to: they come in clusters (`ATTAINMENT_Z`)."""


def offer_of(
    profile: ThroughputProfile,
    price_per_hour: float,
    grid: LengthGrid,
    cells: Sequence[tuple[int, int]],
    rate_per_s: arrays.FloatArray,
    work: Work = Work(),
) -> Offer:
    """Offer of a profile for demand on `grid`. price_per_hour: of one device.

    The grids may differ: a bucket of the demand takes the throughput of the smallest bucket of the profile that
    contains it (edges are rounded up). Requests longer than the profile's last edge cannot be served.
    """
    rows = np.searchsorted(profile.grid.input_tokens, grid.input_tokens)
    columns = np.searchsorted(profile.grid.output_tokens, grid.output_tokens)
    beyond = np.zeros((profile.grid.shape[0] + 1, profile.grid.shape[1] + 1))
    is_decode = work.phase == "decode" and profile.decoded_per_s is not None
    beyond[:-1, :-1] = profile.decoded_per_s if is_decode else profile.requests_per_s
    i = np.array([cell[0] for cell in cells], dtype=np.int64)
    j = np.array([cell[1] for cell in cells], dtype=np.int64)
    requests_per_s = beyond[rows[i], columns[j]]
    output_tokens = np.array(grid.output_tokens, dtype=np.float64)[j]
    first_s = np.append(np.array(profile.prefill_s or np.full(profile.grid.shape[0], np.nan)), np.inf)[rows[i]]
    moved = np.array(grid.input_tokens)[i] * (profile.cache_bytes_per_token or 0.0)
    if work.found_share and not work.phase and profile.decoded_per_s is not None:
        # A request takes the time of one without prefill, and of its prefill what is not found, or comes no sooner.
        beyond[:-1, :-1] = profile.decoded_per_s
        whole_s = 1 / np.maximum(requests_per_s, 1e-9)
        saved_s = whole_s - 1 / np.maximum(np.maximum(beyond[rows[i], columns[j]], requests_per_s), 1e-9)
        found = np.minimum(work.found_share, whole_s / (saved_s + moved / work.link_bytes_per_s))
        requests_per_s = np.where(requests_per_s > 0, 1 / (whole_s - found * saved_s), 0.0)
    held = in_flight_at_slo(requests_per_s, profile.slo.tpot_s, output_tokens)
    waits = np.zeros(len(cells))  # variance of the prompts' work in progress: as many may wait as are in time
    if work.slo is not None and (work.slo.ttft_s is not None or work.phase):
        ttft_s = math.inf if work.slo.ttft_s is None else work.slo.ttft_s
        in_time = first_s <= ttft_s
        if work.phase != "decode":
            waits = np.where(in_time, rate_per_s * first_s * first_s / ttft_s, 0.0)
            requests_per_s = np.where(in_time, requests_per_s, 0.0)
        if work.phase == "prefill":
            busy_s = np.maximum(first_s * (1 - work.found_share), moved / work.link_bytes_per_s)
            requests_per_s = np.where(in_time, 1 / busy_s, 0.0)
            held = np.full(len(cells), np.inf)
        if work.phase == "decode":
            # A token may be later on average by what the cache was under way: fewer requests go on at a time.
            under_way_s = moved / work.link_bytes_per_s + moved / work.slowest_bytes_per_s
            kept = 1 - under_way_s / (output_tokens * profile.slo.tpot_s) / (1 - IDLE_SHARE)
            arriving = work.link_bytes_per_s / np.maximum(moved, 1e-9)
            requests_per_s = np.minimum(requests_per_s * np.maximum(kept, 0.0), arriving)
            held = np.maximum(held * kept, 1.0)
    can = requests_per_s > 0
    load = np.divide(rate_per_s, requests_per_s, out=np.full(len(cells), np.inf), where=can)
    variance = np.maximum(np.divide(load, held, out=np.zeros(len(cells)), where=can), np.where(can, waits, 0.0))
    if work.slo is not None and work.slo.share is not None:
        late = (1 - work.slo.share) / TOKEN_QUANTILE
        variance = variance * (NormalDist().inv_cdf(1 - late) / ATTAINMENT_Z) ** 2
    width = profile.gpus_per_instance
    return Offer(workloads.InstanceType(profile.gpu_type, width), price_per_hour * width, load, variance)


Claimant = tuple[str, workloads.InstanceType]
"""Service and instance type."""


def stocked(
    snapshot: Snapshot, needs: Sequence[Need], stay: Collection[Claimant] = ()
) -> tuple[tuple[Need, ...], dict[str, Stock]]:
    """Needs whose offers name the stocks that they may use, and these stocks.

    With nodes: those of a GPU type that the same instances may use are one stock, of their whole free devices, CPU and
    memory, and of what the services' own instances hold. So an instance that is sold has a seat, wherever its service
    may run. Without nodes: the GPU types' inventories.

    stay: instances that stay where they run; others may start where they stop.
    """
    services = {service.name: service for service in snapshot.services}
    needs, quotas = _within_quotas(needs, services)
    if not len(snapshot.nodes):
        used = {offer.takes for need in needs for offer in need.offers}
        types = (each for each in snapshot.gpu_types if each.inventory is not None and each.name in used)
        return tuple(needs), {each.name: Stock(each.inventory or 0) for each in types} | quotas
    offers = {(need.service, offer.instance_type): offer for need in needs for offer in need.offers}
    by_claimants = _rooms(snapshot, offers, stay)
    stock: dict[str, Stock] = {}
    places: dict[Claimant, tuple[str, ...]] = {}
    for name in dict.fromkeys(offer.takes for offer in offers.values()):
        own = {claimant: offer for claimant, offer in offers.items() if offer.takes == name}
        of_own = {claimants: rooms for claimants, rooms in by_claimants.items() if claimants <= own.keys()}
        found, of_type = _of_type(name, of_own, own)
        stock |= found
        places |= of_type
    placed = []
    for need in needs:
        own_offers = (replace(each, places=places[need.service, each.instance_type]) for each in need.offers)
        placed.append(replace(need, offers=tuple(own_offers)))
    return tuple(placed), stock | quotas


def _within_quotas(
    needs: Sequence[Need], services: Mapping[str, workloads.ModelService]
) -> tuple[Sequence[Need], dict[str, Stock]]:
    """The needs, whose offers name the quotas that they use, and these quotas as stocks.

    A quota that holds all that its services could use binds nothing, and is left out: what others take of it, pod by
    pod, would make each question a new one.
    """
    most: dict[str, int] = {}
    bounded, used = [], Counter[str]()
    for need in needs:
        own = services[need.service].quotas
        most |= {each.name: each.most for each in own}
        offers = (
            replace(offer, quotas=tuple((each.name, each.units_of(offer.gpu_type, offer.gpus)) for each in own))
            for offer in need.offers
        )
        bounded.append(replace(need, offers=tuple(offers)) if own else need)
        for group, count in most_of(bounded[-1]).items() if own else ():
            for name, units in group.quotas:
                used[name] += units * count
    return bounded, {
        name: Stock(units, gpu_type=name, is_quota=True) for name, units in most.items() if units < used[name]
    }


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


def _rooms(
    snapshot: Snapshot, offers: Mapping[Claimant, Offer], stay: Collection[Claimant]
) -> dict[frozenset[Claimant], list[Footprint]]:
    """Free resources of all nodes, by the instances that may be there.

    What the services' running instances hold counts as free on nodes where they may start. Elsewhere, such as on a
    cordoned node, and where they stay, it is a room for the same instance alone.
    """
    services = {service.name: service for service in snapshot.services}
    of_shapes: dict[workloads.PodShape, arrays.BoolArray] = {}
    allowed: dict[Claimant, arrays.BoolArray] = {}
    for name, instance_type in offers:
        shape = replace(
            services[name].instance_shape(instance_type), cpu_milli=0, memory_bytes=0, gpus=min(1, instance_type.gpus)
        )
        if shape not in of_shapes:
            of_shapes[shape] = nodes.eligible_nodes(shape, snapshot.nodes, snapshot.gpu_type_names)
        allowed[name, instance_type] = of_shapes[shape]
    asked = {service for service, _ in offers}
    free, pods, of_caches = snapshot.free(), snapshot.pods, np.zeros(len(snapshot.nodes), dtype=np.int64)
    usable = np.logical_or.reduce(list(allowed.values()))
    rooms: dict[frozenset[Claimant], list[Footprint]] = {}
    for row in np.flatnonzero(pods.node != PENDING).tolist():
        if not pods.owner[row] or pods.owner[row] not in asked:
            continue
        shape, node = pods.shapes[pods.shape[row]], int(pods.node[row])
        on_type = int(snapshot.nodes.gpu_type[node])
        known = snapshot.gpu_type_names[on_type] if on_type >= 0 else ""
        claimant = pods.owner[row], changes.instance_type_of(shape) or workloads.InstanceType(known, shape.gpus)
        if claimant in stay and claimant not in allowed:
            continue
        if claimant in allowed and (claimant in stay or not allowed[claimant][node]):
            held = footprint_of(shape.gpus, shape.cpu_milli, shape.memory_bytes)
            rooms.setdefault(frozenset((claimant,)), []).append(held)
        elif not shape.gpus:
            of_caches[node] += shape.memory_bytes
        elif usable[node]:
            free.cpu_milli[node] += shape.cpu_milli
            free.memory_bytes[node] += shape.memory_bytes
            free.gpu_milli[node, list(device_numbers(int(pods.devices[row])))] += shape.gpu_milli
    whole = (free.gpu_milli >= workloads.WHOLE_GPU_MILLI).sum(axis=1)
    with_device = {claimant: each for claimant, each in allowed.items() if claimant[1].gpus}
    for node, claimants in _claimants_of_nodes(with_device, whole > 0):
        room = Footprint(int(whole[node]), int(free.cpu_milli[node]), int(free.memory_bytes[node]))
        rooms.setdefault(claimants, []).append(room)
    if len(with_device) < len(allowed):
        # A cache has the memory that the idle devices' instances would leave, whichever they are.
        each_bytes = np.zeros(len(snapshot.gpu_types) + 1)
        for offer in offers.values():
            number = snapshot.gpu_type_names.index(offer.gpu_type)
            each_bytes[number] = max(each_bytes[number], offer.memory_bytes / offer.gpus if offer.gpus else 0)
        left = (free.memory_bytes + of_caches - whole * each_bytes[snapshot.nodes.gpu_type]) // 2**30
        for node, claimants in _claimants_of_nodes({k: v for k, v in allowed.items() if not k[1].gpus}, left > 0):
            rooms.setdefault(claimants, []).append(Footprint(int(left[node])))
    return rooms


def _claimants_of_nodes(
    allowed: Mapping[Claimant, arrays.BoolArray], has_room: arrays.BoolArray
) -> Iterator[tuple[int, frozenset[Claimant]]]:
    """Nodes with room, each with the instances that may be there, of these with the nodes that they may use."""
    claimants, may = list(allowed), np.array(list(allowed.values()))
    sets: dict[bytes, frozenset[Claimant]] = {}
    for node in np.flatnonzero(may.any(axis=0) & has_room).tolist() if claimants else ():
        column = may[:, node]
        key = column.tobytes()
        if key not in sets:
            sets[key] = frozenset(claimants[n] for n in np.flatnonzero(column))
        yield node, sets[key]
