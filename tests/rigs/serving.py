"""Replay of a mix: requests arrive at random, share the instances they are routed to, and meet their SLO or miss it.

The serving model. An instance batches continuously: all its requests advance together, one token per step. By its
profile, an instance sustains T requests/s of a bucket at the SLO's time per token. By Little's law it then holds K = T
× tokens × SLO of them. A request of that bucket fills 1/K of the instance, u is the sum over the requests in it, and a
step takes

    SLO × (φ + (1 − φ) × u)

A full instance (u = 1) therefore runs exactly at its SLO. A lone request takes φ of it (`idle_share`: reading the
weights costs the same for one request as for many), and more than a full batch is slower than the SLO. No request is
rejected, and none waits outside the batch. A request meets the SLO when its mean time per token does.

The model leaves out: prefill as a phase of its own (it is inside T), memory running full, lengths that the router does
not know beforehand, and lengths that differ inside a bucket (each request is as long as its bucket's edge, where the
profile was taken).
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cluster.arrays import FloatArray, IntArray

Router = Literal["weights", "random"]
"""`weights`: GPU type by the mix's routing weights, and its emptiest instance. `random`: any instance at all."""


@dataclass(frozen=True, slots=True, eq=False)
class ServingPool:
    """Instances of one GPU type."""

    gpu_type: str
    instances: int
    held: FloatArray
    """Shape (buckets,): requests of a bucket that fill one instance (K); 0 where the type cannot meet the SLO."""
    weight: FloatArray
    """Shape (buckets,): fraction of the bucket's requests that is routed here."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedService:
    """Requests that arrive at a service, and the pools of instances that serve them."""

    rate_per_s: FloatArray
    """Shape (buckets,)."""
    output_tokens: FloatArray
    """Shape (buckets,)."""
    tpot_s: float
    pools: tuple[ServingPool, ...]


@dataclass(frozen=True, slots=True)
class Attained:
    """Attained SLO of the requests that arrived after the warm-up."""

    requests: int
    met_share: float
    stretch_p50: float
    """Mean time per token over that of the SLO: 1 is exactly at the SLO."""
    stretch_p99: float
    misrouted_share: float
    """Fraction of requests that reached a type which cannot meet their SLO; each counts as missed."""


def replay_serving(
    service: ReplayedService, *, router: Router, seed: int, for_s: float, warm_s: float = 600.0, idle_share: float = 0.5
) -> Attained:
    """Serves Poisson arrivals for warm_s + for_s seconds, then drains; requests of the last for_s seconds count.

    A misrouted request is not simulated: it would slow its neighbours, so the reported figures flatter random routing.
    """
    rng = np.random.default_rng(seed)
    rate, until_s = float(service.rate_per_s.sum()), warm_s + for_s
    at_s = np.sort(rng.uniform(0.0, until_s, rng.poisson(rate * until_s)))
    bucket = rng.choice(len(service.rate_per_s), size=len(at_s), p=service.rate_per_s / rate)
    pool, instance = _routes(rng, service, bucket, router)
    held = np.array([pool.held for pool in service.pools])[pool, bucket]
    lost = (held == 0) & (at_s >= warm_s)
    fleet = _Fleet(service, idle_share)
    stretches: list[float] = []
    for n in np.flatnonzero(held > 0):
        fleet.run_until(float(at_s[n]), stretches)
        judged = bool(at_s[n] >= warm_s)
        tokens = float(service.output_tokens[bucket[n]])
        fleet.admit(int(pool[n]), int(instance[n]), 1 / float(held[n]), tokens, judged=judged)
    fleet.run_until(np.inf, stretches)
    misrouted, total = int(lost.sum()), len(stretches) + int(lost.sum())
    met = sum(stretch <= 1 + 1e-9 for stretch in stretches)
    p50, p99 = np.percentile(stretches, [50, 99]) if stretches else (np.nan, np.nan)
    return Attained(total, met / total if total else np.nan, float(p50), float(p99), misrouted / max(total, 1))


ANY = -1
"""Instance number for the emptiest instance of the pool."""


def _routes(
    rng: np.random.Generator, service: ReplayedService, bucket: IntArray, router: Router
) -> tuple[IntArray, IntArray]:
    """Pool and instance of each request."""
    if router == "random":
        owner = np.repeat(np.arange(len(service.pools)), [pool.instances for pool in service.pools])
        number = np.concatenate([np.arange(pool.instances) for pool in service.pools])
        chosen = rng.integers(len(owner), size=len(bucket))
        return owner[chosen], number[chosen]
    edge = np.cumsum([pool.weight for pool in service.pools], axis=0)
    edge /= edge[-1]
    passed = (rng.random(len(bucket)) >= edge[:, bucket]).sum(axis=0)
    return passed, np.full(len(bucket), ANY, dtype=np.int64)


class _Instance:
    """One batch. Its own clock counts tokens per request, so that one number advances all its requests."""

    def __init__(self) -> None:
        self.full = 0.0
        self.tokens = 0.0
        self.at_s = 0.0
        self.version = 0
        self.requests: list[tuple[float, float, float, float, bool]] = []
        """Heap of (token at which it ends, arrival, part of the instance, tokens, judged)."""


class _Fleet:
    """All instances, and one heap of their next finishes."""

    def __init__(self, service: ReplayedService, idle_share: float) -> None:
        self.tpot_s = service.tpot_s
        self.idle_share = idle_share
        self.pools: Sequence[list[_Instance]] = [[_Instance() for _ in range(p.instances)] for p in service.pools]
        self.next: list[tuple[float, int, int, _Instance]] = []
        self.serial = 0
        self.now_s = 0.0

    def admit(self, pool: int, number: int, part: float, tokens: float, *, judged: bool) -> None:
        instances = self.pools[pool]
        instance = min(instances, key=lambda i: i.full) if number == ANY else instances[number]
        self._advance(instance, self.now_s)
        heapq.heappush(instance.requests, (instance.tokens + tokens, self.now_s, part, tokens, judged))
        instance.full += part
        self._announce(instance)

    def run_until(self, at_s: float, stretches: list[float]) -> None:
        """Finishes every request that ends before `at_s`."""
        while self.next and self.next[0][0] <= at_s:
            now_s, _, version, instance = heapq.heappop(self.next)
            if version != instance.version:
                continue
            self._advance(instance, now_s)
            _, arrived_s, part, tokens, judged = heapq.heappop(instance.requests)
            instance.full = instance.full - part if instance.requests else 0.0
            if judged:
                stretches.append((now_s - arrived_s) / (tokens * self.tpot_s))
            self._announce(instance)
        self.now_s = at_s

    def _step_s(self, instance: _Instance) -> float:
        return self.tpot_s * (self.idle_share + (1 - self.idle_share) * instance.full)

    def _advance(self, instance: _Instance, now_s: float) -> None:
        if instance.requests:
            instance.tokens += (now_s - instance.at_s) / self._step_s(instance)
        instance.at_s = now_s

    def _announce(self, instance: _Instance) -> None:
        """Enters the instance's next finish; its earlier entries are then outdated."""
        instance.version += 1
        if instance.requests:
            self.serial += 1
            ends_s = instance.at_s + max(0.0, instance.requests[0][0] - instance.tokens) * self._step_s(instance)
            heapq.heappush(self.next, (ends_s, self.serial, instance.version, instance))
