"""Multiplier of a target for the missed share of the load: the miss cost at which just that share is missed."""

import math
from dataclasses import replace

from cluster.autoscaling import MissedShare, Scaler

RATE_PER_S = 0.1 / 60
"""Speed of the multiplier's logarithm, times the target: what a missed load adds is the same for each target. With a
target of 0.5 % the multiplier falls to half in a day in which nothing is missed. Faster ones follow single bursts."""
MEAN_S = 86_400.0
"""Time over which means are taken, of the load and of the multiplier: a day has all of its hours."""
SETTLED_S = 2 * MEAN_S
"""Time in which the speed falls with the root of the time observed, from twice `RATE_PER_S`: what it begins with is a
guess. Chosen on the public traces."""
LONGEST_S = 300.0
"""Longest time that one observation stands for."""
FIRST, LEAST = 0.15, 0.05
"""Miss cost times the target: before anything was observed, as on the public traces one of 99 misses about 0.15 % of
the load; and the least, as quiet days say nothing about the burst that ends them."""
MOST = 1e4


def first(target: float, at_s: float) -> MissedShare:
    """What is known before anything was observed."""
    return MissedShare(target, FIRST / target, FIRST / target, at_s=at_s)


def missed_after(scaler: Scaler) -> MissedShare | None:
    """What is known of the missed share after the last sample; unchanged where nothing new was observed.

    Dual ascent on the constraint E[missed load] ≤ target × E[load]: the multiplier rises with each missed load, and
    falls while less than the target's share is missed. Single bursts move it, so its mean is decided by: the mean of
    the iterates is what converges (Polyak and Juditsky 1992).
    """
    known, replicas = scaler.missed, scaler.replicas
    if known is None or replicas is None or scaler.load is None or scaler.observed_at_s <= known.at_s:
        return known
    for_s = min(scaler.observed_at_s - known.at_s, LONGEST_S)
    weight = min(1.0, for_s / min(known.for_s + for_s, MEAN_S))
    served = replicas.ready * scaler.replica_load if scaler.ready_load is None else scaler.ready_load
    missed = max(0.0, scaler.load - served)
    load = known.load + weight * (scaler.load - known.load)
    share = known.share + weight * ((missed / load if load else 0.0) - known.share)
    over = missed / (known.target * load) if load else 0.0
    rate_per_s = RATE_PER_S * math.sqrt(SETTLED_S / max(min(known.for_s, SETTLED_S), SETTLED_S / 4))
    multiplier = known.multiplier * math.exp(rate_per_s * known.target * for_s * (over - 1))
    multiplier = min(max(multiplier, LEAST / known.target), MOST)
    mean = min(max(known.miss_cost, LEAST / known.target), MOST)
    return replace(
        known,
        miss_cost=mean * (multiplier / mean) ** weight,
        multiplier=multiplier,
        load=load,
        share=share,
        for_s=min(known.for_s + for_s, SETTLED_S),
        at_s=scaler.observed_at_s,
    )
