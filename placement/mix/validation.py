"""Validation of the mix's input: every mistake in GPU types, profiles and services, with its place."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from cluster.arrays import FloatArray
from cluster.demand import Demand, LengthGrid, ThroughputProfile
from cluster.errors import Mistake
from cluster.snapshot import Snapshot
from cluster.workloads import GpuType, InstanceType, ModelService

HISTOGRAM_TOLERANCE = 1e-4
"""Tolerance of a length histogram's sum around 1: ten times the rounding error of 100 buckets with 6 digits."""


def mix_mistakes(snapshot: Snapshot) -> tuple[Mistake, ...]:
    """Mistakes in the services, profiles and GPU types that prevent a mix."""
    return (
        *gpu_type_mistakes(snapshot.gpu_types),
        *profile_mistakes(snapshot.profiles, snapshot.gpu_type_names),
        *_duplicates("services", (service.name for service in snapshot.services)),
        *(m for service in snapshot.services for m in service_mistakes(service, snapshot.gpu_type_names)),
    )


def gpu_type_mistakes(gpu_types: Sequence[GpuType]) -> Iterator[Mistake]:
    yield from _duplicates("gpu types", (gpu_type.name for gpu_type in gpu_types))
    for gpu_type in gpu_types:
        place = f"gpu type {gpu_type.name}"
        for price in (gpu_type.price_per_hour, gpu_type.spot_price_per_hour):
            if price is not None and not (math.isfinite(price) and price > 0):
                yield Mistake(place, f"price {price} $/h", "give dollars per device and hour, above 0")
        if gpu_type.inventory is not None and gpu_type.inventory < 0:
            yield Mistake(place, f"inventory {gpu_type.inventory}", "give the number of devices, 0 or more")


def profile_mistakes(profiles: Sequence[ThroughputProfile], gpu_types: Sequence[str]) -> Iterator[Mistake]:
    yield from _duplicates("profiles", (_profile_place(profile) for profile in profiles))
    for profile in profiles:
        place = _profile_place(profile)
        if profile.gpu_type not in gpu_types:
            yield Mistake(place, f"unknown GPU type {profile.gpu_type}", f"known are {', '.join(gpu_types) or 'none'}")
        if profile.gpus_per_instance < 1:
            yield Mistake(place, f"{profile.gpus_per_instance} GPUs per instance", "an instance holds 1 or more")
        yield from _slo_mistakes(place, profile.slo.tpot_s)
        yield from _grid_mistakes(place, profile.grid)
        yield from _table_mistakes(place, "throughput", profile.requests_per_s, profile.grid)


def service_mistakes(service: ModelService, gpu_types: Sequence[str]) -> Iterator[Mistake]:
    place = f"service {service.name}"
    for name in service.gpu_types:
        if name not in gpu_types:
            yield Mistake(place, f"unknown GPU type {name}", f"known are {', '.join(gpu_types) or 'none'}")
    if service.headroom_share is not None and not 0 <= service.headroom_share < 1:
        yield Mistake(place, f"headroom share {service.headroom_share}", "give 0 ≤ fraction < 1, or none")
    if service.slice_factor < 1:
        yield Mistake(place, f"slice factor {service.slice_factor}", "give 1 or more")
    if any(count < 0 for count in (service.replicas or {}).values()):
        yield Mistake(place, "a negative number of replicas")
    yield from _slo_mistakes(place, service.slo.tpot_s)
    if service.demand is not None:
        yield from demand_mistakes(place, service.demand)


def demand_mistakes(place: str, demand: Demand) -> Iterator[Mistake]:
    if not (math.isfinite(demand.rate_per_s) and demand.rate_per_s >= 0):
        yield Mistake(place, f"request rate {demand.rate_per_s} per second", "give a number, 0 or more")
    yield from _grid_mistakes(place, demand.grid)
    faults = list(_table_mistakes(place, "histogram", demand.share, demand.grid))
    yield from faults
    total = float(demand.share.sum())
    if not faults and abs(total - 1) > HISTOGRAM_TOLERANCE:
        yield Mistake(place, f"the histogram adds up to {total:g}", "fractions of the buckets must add up to 1")


def _slo_mistakes(place: str, tpot_s: float) -> Iterator[Mistake]:
    if not (math.isfinite(tpot_s) and tpot_s > 0):
        yield Mistake(place, f"SLO of {tpot_s} s per token", "give seconds, above 0")


def _grid_mistakes(place: str, grid: LengthGrid) -> Iterator[Mistake]:
    for what, edges in (("input", grid.input_tokens), ("output", grid.output_tokens)):
        if not edges or edges[0] <= 0 or any(b <= a for a, b in pairwise(edges)):
            yield Mistake(place, f"{what} bucket edges {list(edges)}", "give edges above 0 that increase strictly")


def _table_mistakes(place: str, what: str, table: FloatArray, grid: LengthGrid) -> Iterator[Mistake]:
    if table.shape != grid.shape:
        yield Mistake(place, f"{what} has shape {table.shape} and its grid {grid.shape}", "fill in every bucket")
        return
    for i, j in np.argwhere(~np.isfinite(table) | (table < 0)):
        yield Mistake(place, f"{what} at {grid.label(int(i), int(j))} is {table[i, j]}", "give a number, 0 or more")


def _duplicates(place: str, names: Iterable[str]) -> Iterator[Mistake]:
    for name, count in Counter(names).items():
        if count > 1:
            yield Mistake(place, f"{count} are called {name}", "give each its own name")


def _profile_place(profile: ThroughputProfile) -> str:
    instance_type = InstanceType(profile.gpu_type, profile.gpus_per_instance)
    return f"profile of {profile.model} on {instance_type} at {profile.slo.label}"
