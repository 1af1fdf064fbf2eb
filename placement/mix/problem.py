"""Problem of the mix, and its solution: the cheapest GPUs of which types serve the services' demand.

Source of the model: Mélange (arXiv 2404.14527), section 5. It differs in: equal slices are counted and not
distinguished, services share a finite inventory, instances keep headroom, an instance may hold several GPUs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cluster import arrays, demand, plans, workloads
from placement.stock import Footprint, InstanceGroup, Stock, footprint_of


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """One way to serve a need: instances of one type."""

    instance_type: workloads.InstanceType
    price_per_hour: float
    """Price of one instance and hour in dollars, all its devices included."""
    load: arrays.FloatArray
    """Shape (buckets,): instances that the bucket keeps busy if all of it is routed here; inf: cannot be served
    here."""
    variance: arrays.FloatArray
    """Shape (buckets,): variance of those busy instances (`placement.mix.problem`); 0 where the load is inf."""
    cpu_milli: int = 0
    """CPU of one instance on its node, thousandths of a core."""
    memory_bytes: int = 0
    """Main memory of one instance on its node."""
    places: tuple[str, ...] = ()
    """Stocks that its instances may use, the least wanted by others first; empty: that of its GPU type."""
    quotas: tuple[tuple[str, int], ...] = ()
    """Quotas that each of its instances uses besides, with the units of it."""

    @property
    def gpu_type(self) -> str:
        return self.instance_type.gpu_type

    @property
    def gpus(self) -> int:
        """Devices that one instance holds."""
        return self.instance_type.gpus

    @property
    def takes(self) -> str:
        """What its instances take of nodes, by name: devices of a type, or memory beside them."""
        return self.gpu_type if self.gpus else f"{self.gpu_type} memory"

    @property
    def stocks(self) -> tuple[str, ...]:
        """Stocks that its instances may use: each of them uses one."""
        return self.places or (self.takes,)

    @property
    def footprint(self) -> Footprint:
        return footprint_of(self.gpus, self.cpu_milli, self.memory_bytes)

    @property
    def group(self) -> InstanceGroup:
        """Instances that are interchangeable where seats are counted."""
        return InstanceGroup(self.stocks, self.footprint, self.quotas)


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """Requirement of one service on the mix. Contains only buckets with demand."""

    service: str
    slo: demand.Slo
    grid: demand.LengthGrid
    cells: tuple[tuple[int, int], ...]
    """Grid cell of each bucket."""
    rate_per_s: arrays.FloatArray
    """Shape (buckets,), all above 0."""
    offers: tuple[Offer, ...]
    slice_factor: int | None = 8
    """Equal slices into which each bucket is cut, each served by one GPU type; None: any split."""
    headroom_share: float | None = None
    """As in `ModelService`."""
    priority: int = 0
    running: Mapping[workloads.InstanceType, int] | None = None
    """Instances per instance type now; None: never planned."""

    def running_count(self, offer: Offer) -> int:
        return (self.running or {}).get(offer.instance_type, 0)

    @property
    def running_counts(self) -> arrays.IntArray:
        """Running instances of each offer, shape (offers,)."""
        return np.array([self.running_count(offer) for offer in self.offers], dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class MixQuestion:
    needs: tuple[Need, ...]
    stock: Mapping[str, Stock] = field(default_factory=dict)
    """Devices by the names in `Offer.stocks`, and units by those in `Offer.quotas`; unlimited where missing."""

    @property
    def is_exact(self) -> bool:
        """Whether bounds of the model are bounds of the question: not where a stock counts with larger instances."""
        return all(stock.is_exact for stock in self.stock.values())


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """Solution for one need."""

    instances: arrays.IntArray
    """Shape (offers,)."""
    share: arrays.FloatArray
    """Shape (buckets, offers): fraction of each bucket that is routed to each offer; rows add up to 1."""


@dataclass(frozen=True, slots=True, eq=False)
class MixAnswer:
    """One mix per need, in their order."""

    mixes: tuple[Mix, ...]
    cost_per_hour: float
    certificate: plans.Certificate


def mix_cost(need: Need, mix: Mix) -> float:
    """Cost of a mix in dollars per hour."""
    return sum(int(count) * offer.price_per_hour for count, offer in zip(mix.instances, need.offers, strict=True))


def total_cost(question: MixQuestion, mixes: tuple[Mix, ...]) -> float:
    return sum(mix_cost(need, mix) for need, mix in zip(question.needs, mixes, strict=True))


def serves_any(offer: Offer, share: arrays.FloatArray) -> bool:
    """Whether requests are routed to an offer's pool by these bucket fractions, shape (buckets,)."""
    return bool((offer.load[share > 0] > 0).any())


def pool_load(offer: Offer, share: arrays.FloatArray) -> tuple[float, float]:
    """Load and variance of an offer's pool under these bucket fractions, shape (buckets,).

    Infinite where the offer cannot serve them.
    """
    sent = share > 0
    return float(offer.load[sent] @ share[sent]), float(offer.variance[sent] @ share[sent])


ATTAINMENT_Z = 3.290
"""Standard normal quantile of 0.9995: by this model one request in two thousand may be late.

The SLO is 99.5 %. Late requests come in clusters, as long as the longest request takes. With the quantile of 0.999 the
mean over many half hours met it easily, but one half hour in 48 was at 99.3 %. Chosen; the replay of `benchmarks.mix`
shows both the attained SLO and its cost.
"""

IDLE_SHARE = 0.5
"""Time per token of a lone request over that of the SLO, as assumed for sizing.

One decode step reads the weights once (fixed) and each request's cache (grows with the batch), so a lone request is
faster than the SLO. The fraction is below 0.4 for a 7B model on L4, A10G, A100 and H100 at the SLOs of the public
profiles (weights of 14 GB over the sheet's memory bandwidth); one half is the conservative side. Chosen.
"""


class Tangent(NamedTuple):
    """Line that is nowhere below the headroom curve: slope · variance + room."""

    slope: float
    room: float


_HEIGHT = ATTAINMENT_Z * math.sqrt(IDLE_SHARE)
TANGENTS = tuple(Tangent(_HEIGHT / (2 * 2.0**n), _HEIGHT * 2.0**n / 2) for n in range(-5, 5))
"""Lines that touch z · √(φ · V) at V = 4^-5 … 4^4: at most 6 % above the curve between their points of contact."""
_CROSSINGS = tuple((b.room - a.room) / (a.slope - b.slope) for a, b in pairwise(TANGENTS))
RANGES = tuple(zip((0.0, *_CROSSINGS), (*_CROSSINGS, math.inf), strict=True))
"""Range of variances where each tangent is the lowest."""


def burst_room(variance: float) -> float:
    """Instances that a pool keeps free for its bursts, given the variance of its busy instances.

    Square-root staffing. Requests in flight at Poisson arrivals have the variance of their mean. With load L_b
    instances from requests of kind b, of which an instance holds K_b at the SLO, the busy instances vary by V = Σ L_b /
    K_b. Instances speed up when they are emptier (`IDLE_SHARE` φ), so a burst drains faster than at constant speed, and
    only φ · V of it counts: linearising the number in flight around its mean gives L + z·√(φ·V) ≤ instances. The curve
    is replaced by the lowest of `TANGENTS`, which are never below it, so that a linear model and this function agree.
    """
    return min(tangent.slope * variance + tangent.room for tangent in TANGENTS) if variance > 0 else 0.0


def room_needed(load: float, variance: float, headroom_share: float | None) -> float:
    """Instances (not yet rounded up) for that load: with a fixed fraction kept free, or with headroom for bursts.

    load: busy instances on average. variance: see `burst_room`.
    """
    if headroom_share is None:
        return load + burst_room(variance)
    return load / (1 - headroom_share)


def in_flight_at_slo(
    requests_per_s: arrays.FloatArray, tpot_s: float, output_tokens: arrays.FloatArray
) -> arrays.FloatArray:
    """Requests that one instance holds at its profiled throughput; at least 1 where it serves at all.

    Little's law: throughput × time in the instance, and a request stays output tokens × time per token.
    """
    held = requests_per_s * tpot_s * output_tokens
    return np.where(requests_per_s > 0, np.maximum(held, 1.0), 0.0)
