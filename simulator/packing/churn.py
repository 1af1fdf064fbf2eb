"""Churn: arrivals and departures of a fleet in steady state at an offered load."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.snapshot import Snapshot
from simulator.packing.replay import Replay, gpu_milli_of

HEAVY_TAIL_SIGMA = 1.5
"""Standard deviation of the logarithm of heavy-tailed stays. Chosen: the mean is then three times the median, and a
tenth of the pods makes up two thirds of the load."""


@dataclass(frozen=True, slots=True)
class Stays:
    """Distribution of stays with mean 1, and of the rest of a stay at a random moment."""

    fresh: Callable[[np.random.Generator, int], FloatArray]
    """Stays of that many arriving pods."""
    residual: Callable[[np.random.Generator, int], FloatArray]
    """Remaining stays of that many pods that already run in a steady state."""


def _lognormal(chance: np.random.Generator, count: int) -> FloatArray:
    return chance.lognormal(-(HEAVY_TAIL_SIGMA**2) / 2, HEAVY_TAIL_SIGMA, count)


def _lognormal_residual(chance: np.random.Generator, count: int) -> FloatArray:
    # A running pod's stay is drawn with a chance in proportion to its length, of which a uniform part is left.
    stay = chance.lognormal(HEAVY_TAIL_SIGMA**2 / 2, HEAVY_TAIL_SIGMA, count)
    left: FloatArray = chance.random(count) * stay
    return left


STAYS: Mapping[str, Stays] = {
    "exponential": Stays(lambda chance, n: chance.exponential(size=n), lambda chance, n: chance.exponential(size=n)),
    "lognormal": Stays(_lognormal, _lognormal_residual),
}


@dataclass(frozen=True, slots=True)
class Churn:
    """Demand on a fleet whose pods leave. Times are in mean stays."""

    load: float
    """Offered load: mean GPUs that pods would hold if all found a place, as a fraction of the fleet's."""
    stays: str
    """Name in STAYS."""
    warm_up: float
    """Time that is not measured after the steady state's pods are placed on the empty fleet."""
    measured: float
    """Time over which the allocation is averaged."""


@dataclass(frozen=True, slots=True, eq=False)
class ChurningStream:
    """Pods of one run: first those that already run in the steady state, then the arrivals."""

    pods: IntArray
    """Indices into `trace.pods.shapes`, in order of arrival."""
    stay: IntArray
    """Shape (pods,): further arrivals after which each pod leaves."""
    measured_from_pct: float
    """GPUs requested when the measurement begins, percent of the fleet's."""


def churning_stream(trace: Snapshot, seed: int, churn: Churn) -> ChurningStream:
    """Pods drawn from the trace with replacement, with their stays; the same for every policy.

    Time is counted in arrivals: the mean stay is the number of pods that run in the mean when none is refused. As many
    pods are placed at first, in random order, with the rest of their stays; none leaves before all of them are placed.
    """
    chance = np.random.default_rng(seed)
    listed = trace.pods.shape[trace.pods.pending]
    _, total_milli = gpu_milli_of(trace.pods)
    capacity_milli = 1000.0 * float(trace.nodes.gpus.sum())
    mean_stay = churn.load * capacity_milli / float(total_milli[listed].mean())
    first, more = round(mean_stay), round((churn.warm_up + churn.measured) * mean_stay)
    pods = listed[chance.integers(len(listed), size=first + more)]
    kind = STAYS[churn.stays]
    stays = np.concatenate([kind.residual(chance, first), kind.fresh(chance, more)]) * mean_stay
    stays[:first] += np.arange(first, 0, -1)  # counted from the moment when the first arrival comes
    begins = first + round(churn.warm_up * mean_stay)
    measured_from_pct = 100.0 * float(total_milli[pods[:begins]].sum()) / capacity_milli
    return ChurningStream(pods.astype(np.int64), np.ceil(stays).astype(np.int64), measured_from_pct)


def mean_allocation_pct(played: Replay, stream: ChurningStream) -> float:
    """Mean of the allocated GPU, percent of the fleet's, read each time another percent had been requested."""
    measured = played.curve.arrived_pct > stream.measured_from_pct
    return float(played.curve.allocation_pct[measured].mean())
