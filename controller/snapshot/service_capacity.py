"""Demand, capacity and price of a service's replica: what an autoscaler counts where instances are of several types."""

from dataclasses import dataclass, replace

import numpy as np

from autoscaler.demand.lengths import demand_from
from cluster.demand import Demand, LengthGrid
from cluster.plans import Reason
from cluster.snapshot import Snapshot
from cluster.workloads import ModelService
from placement.mix.problem_builder import need_of, usable_profiles


@dataclass(frozen=True, slots=True)
class ReplicaUnit:
    """One replica of a service, as its ScalingPolicy counts: an instance of the cheapest type for each request."""

    load: float
    """Requests per second that it serves within the SLO."""
    price_per_hour: float
    """Dollars."""


def on_profiles(service: ModelService, demand: Demand, snapshot: Snapshot) -> Demand:
    """Measured demand on the edges of the profiles that may serve it; unchanged where there are none.

    Buckets of a server's histogram end elsewhere. A profile would round them up, and what ends beyond its last edge it
    could not serve at all: lengths are spread over its edges instead, and longer requests join the last bucket.
    """
    grids = [profile.grid for profile in usable_profiles(service, snapshot, service.slo.tpot_s)]
    if not grids:
        return demand
    inputs = sorted({edge for grid in grids for edge in grid.input_tokens})
    outputs = sorted({edge for grid in grids for edge in grid.output_tokens})
    target = LengthGrid(tuple(inputs), tuple(outputs))
    return demand_from(demand.rate_per_s, demand.grid, demand.share, target)


def replica_unit(service: ModelService, demand: Demand, snapshot: Snapshot) -> ReplicaUnit | Reason:
    """The replica of a service under these request lengths, or the reason why there is none.

    Each bucket of lengths counts with the type that serves it for the fewest dollars; where one type is the cheapest
    for all, that is an instance of this type. The mix then decides which types serve the load.
    """
    need = need_of(replace(service, demand=replace(demand, rate_per_s=1.0)), snapshot)
    if isinstance(need, Reason):
        return need
    loads = np.array([offer.load for offer in need.offers])  # (types, buckets): busy instances at 1 request per second
    prices = np.array([offer.price_per_hour for offer in need.offers])
    cost = np.where(np.isinf(loads), np.inf, loads * np.maximum(prices, 1e-9)[:, None])
    best = cost.argmin(axis=0)
    busy = float(loads[best, np.arange(loads.shape[1])].sum())
    if not np.isfinite(busy) or busy <= 0:
        return Reason("NoTypeServes", f"{service.name}: no GPU type serves all of its request lengths within the SLO")
    price = float((loads * prices[:, None])[best, np.arange(loads.shape[1])].sum())
    return ReplicaUnit(1 / busy, price / busy)
