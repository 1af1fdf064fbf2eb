"""Learned needs: peak memory and duration of past calls, per command class, as decaying histograms."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from isolation.ledger import MIB

BUCKETS_PER_OCTAVE = 4
"""A bucket is 19 % wide: below the spread of calls of one class by far."""
HALF_LIFE_CALLS = 64
"""Calls after which an observation counts half; a class changes with the repository that an agent works on."""
ENOUGH_CALLS = 8
"""Weight below which the prior decides: the 90th percentile of fewer is their maximum or a guess."""

PRIOR_BYTES: Mapping[str, int] = {
    "light": 10 * MIB,
    "test": 512 * MIB,
    "install": 256 * MIB,
    "build": 256 * MIB,
    "python": 192 * MIB,
}
"""95th percentiles of calls in published runs (arXiv 2602.09345: tests 518 MB, install 233 MB)."""
PRIOR_OTHER_BYTES = 128 * MIB
PRIOR_S = 10.0
"""Duration of a call of which nothing is known."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Weights by quarter octave."""

    weights: Mapping[int, float] = field(default_factory=dict)

    def with_value(self, value: float) -> "Histogram":
        decay = 0.5 ** (1 / HALF_LIFE_CALLS)
        bucket = math.ceil(math.log2(max(1.0, value)) * BUCKETS_PER_OCTAVE)
        weights = {key: kept * decay for key, kept in self.weights.items() if kept > 1e-3}
        return Histogram({**weights, bucket: weights.get(bucket, 0.0) + 1.0})

    @property
    def weight(self) -> float:
        return sum(self.weights.values())

    def quantile(self, fraction: float) -> float:
        """Upper edge of the bucket that holds the quantile. The histogram must not be empty."""
        left = fraction * self.weight
        for bucket in sorted(self.weights):
            left -= self.weights[bucket]
            if left <= 1e-9:
                return float(2 ** (bucket / BUCKETS_PER_OCTAVE))
        return float(2 ** (max(self.weights) / BUCKETS_PER_OCTAVE))


@dataclass(frozen=True, slots=True)
class Learned:
    """Knowledge of past calls by command class. A tenant's are named `<tenant>/<class>`: nobody learns from another's
    calls, nor is misled by them.
    """

    peak_bytes: Mapping[str, Histogram] = field(default_factory=dict)
    duration_ms: Mapping[str, Histogram] = field(default_factory=dict)

    def after(self, command_class: str, peak_bytes: int, duration_s: float) -> "Learned":
        peaks = self.peak_bytes.get(command_class, Histogram()).with_value(peak_bytes)
        durations = self.duration_ms.get(command_class, Histogram()).with_value(duration_s * 1e3)
        return replace(
            self,
            peak_bytes={**self.peak_bytes, command_class: peaks},
            duration_ms={**self.duration_ms, command_class: durations},
        )

    def need_bytes(self, command_class: str, fraction: float) -> int:
        """Quantile of the class's peaks; the prior where fewer calls than ENOUGH_CALLS count."""
        peaks = self.peak_bytes.get(command_class)
        if peaks is None or peaks.weight < ENOUGH_CALLS:
            return PRIOR_BYTES.get(command_class.rpartition("/")[2], PRIOR_OTHER_BYTES)
        return round(peaks.quantile(fraction))

    def expected_s(self, command_class: str) -> float:
        """Median duration of the class."""
        durations = self.duration_ms.get(command_class)
        return PRIOR_S if durations is None else durations.quantile(0.5) / 1e3
