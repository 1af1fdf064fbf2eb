"""Measurements of each ScalingPolicy: the newest samples by role, failures of sources, request lengths, forecasts.

Sources write in the event loop of the Kubernetes connection; planning reads in its own thread. Values are immutable and
replaced whole, so a reader never sees half of an update.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from threading import Lock

from autoscaler.demand.presets import Role
from autoscaler.demand.promql import Serving
from cluster import arrays, autoscaling, demand
from cluster.clock import Clock

MOST_WAITING = 50_000
"""Samples of one role that wait to be taken, at most: a month in steps of a minute, as a history has. The oldest are
dropped first."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured value."""

    at_s: float
    """Instant that the value describes, seconds since the epoch."""
    value: float
    """In the unit of its role, never negative."""
    is_censored: bool = False
    """Whether the target was saturated: the offered value is at least this."""


@dataclass(frozen=True, slots=True)
class SourceFailure:
    """Failed reading of a source."""

    at_s: float
    code: str
    """CamelCase, as in a condition's reason: `PrometheusUnreachable`, `QueryEmpty`, `MetricNotFound`."""
    words: str


@dataclass(frozen=True, slots=True, eq=False)
class LengthShares:
    """Measured distribution of request lengths."""

    at_s: float
    grid: demand.LengthGrid
    share: arrays.FloatArray
    """Fraction of the requests in each bucket, shape (inputs, outputs), adds up to 1."""


@dataclass(frozen=True, slots=True, eq=False)
class PolicyMeasurement:
    """Everything measured for one policy, at one instant."""

    newest: Mapping[Role, Sample] = field(default_factory=dict)
    """Newest sample by role."""
    failures: Mapping[Role, SourceFailure] = field(default_factory=dict)
    """Failure of the last reading, by role; a role whose last reading succeeded has none."""
    lengths: LengthShares | None = None
    """Request lengths, for a ModelService; None: not measured."""
    forecast: demand.Forecast | None = None
    """Newest predictive distribution of the load; None: too little history."""
    skill: autoscaling.ForecastSkill | None = None
    serving: Serving | None = None
    """Figures of the replicas over the last interval; None: not measured, or not asked for."""
    serving_problem: str = ""
    """Why the last reading of them failed, as `Code: words`."""


_NOTHING = PolicyMeasurement()


class Measured:
    """Measurements of all policies, by `namespace/name`. Thread-safe."""

    def __init__(self, clock: Clock = lambda: inf) -> None:
        """clock: seconds since the epoch, of which no source is ahead."""
        self._clock = clock
        self._lock = Lock()
        self._of: dict[str, PolicyMeasurement] = {}
        self._waiting: dict[tuple[str, Role], list[Sample]] = {}

    def put_sample(self, policy: str, role: Role, at_s: float, value: float, *, is_censored: bool = False) -> None:
        """Adds a sample. One that is no newer than the newest of its role only joins the history.

        A value that is not finite or is negative is no sample, and is ignored: missing is not zero.
        """
        if not 0 <= value < float("inf"):
            return
        sample = Sample(at_s, value, is_censored)
        with self._lock:
            waiting = self._waiting.setdefault((policy, role), [])
            waiting.append(sample)
            del waiting[:-MOST_WAITING]
            known = self._of.get(policy, _NOTHING)
            failures = {each: failure for each, failure in known.failures.items() if each != role}
            newest = known.newest.get(role)
            # One from the future was put before the clock was set back, and would stand until the clock is there again.
            is_newer = newest is None or at_s > newest.at_s or newest.at_s > self._clock()
            samples = {**known.newest, role: sample} if is_newer else known.newest
            self._of[policy] = replace(known, newest=samples, failures=failures)

    def put_history(self, policy: str, role: Role, samples: Sequence[Sample]) -> None:
        """Adds older samples, at once: a history has tens of thousands. They join the history only."""
        with self._lock:
            waiting = self._waiting.setdefault((policy, role), [])
            waiting.extend(sample for sample in samples if 0 <= sample.value < float("inf"))
            del waiting[:-MOST_WAITING]

    def put_failure(self, policy: str, role: Role, at_s: float, code: str, words: str) -> None:
        """Notes that a reading failed. The last samples stay, with their age."""
        failure = SourceFailure(at_s, code, words)
        with self._lock:
            known = self._of.get(policy, _NOTHING)
            self._of[policy] = replace(known, failures={**known.failures, role: failure})

    def put_lengths(self, policy: str, lengths: LengthShares) -> None:
        """Replaces the measured distribution of request lengths."""
        with self._lock:
            self._of[policy] = replace(self._of.get(policy, _NOTHING), lengths=lengths)

    def put_serving(self, policy: str, serving: Serving) -> None:
        """Replaces the figures of the replicas."""
        with self._lock:
            known = self._of.get(policy, _NOTHING)
            self._of[policy] = replace(known, serving=serving, serving_problem="")

    def put_serving_failure(self, policy: str, code: str, words: str) -> None:
        """Notes why the figures of the replicas were not read."""
        with self._lock:
            self._of[policy] = replace(self._of.get(policy, _NOTHING), serving_problem=f"{code}: {words}")

    def put_forecast(
        self, policy: str, forecast: demand.Forecast | None, skill: autoscaling.ForecastSkill | None
    ) -> None:
        """Replaces the forecast of the load, and what is known of its quality."""
        with self._lock:
            self._of[policy] = replace(self._of.get(policy, _NOTHING), forecast=forecast, skill=skill)

    def of(self, policy: str) -> PolicyMeasurement:
        """Everything measured for a policy; empty where nothing is."""
        with self._lock:
            return self._of.get(policy, _NOTHING)

    def waiting(self, policy: str, role: Role) -> int:
        """Number of samples of a role since the last `take_samples`."""
        with self._lock:
            return len(self._waiting.get((policy, role), ()))

    def take_samples(self, policy: str, role: Role) -> list[Sample]:
        """Samples of a role since the last call, in the order in which they were put."""
        with self._lock:
            return self._waiting.pop((policy, role), [])

    def keep(self, policies: Iterable[str]) -> None:
        """Forgets all policies except these."""
        kept = set(policies)
        with self._lock:
            self._of = {name: each for name, each in self._of.items() if name in kept}
            self._waiting = {key: each for key, each in self._waiting.items() if key[0] in kept}
