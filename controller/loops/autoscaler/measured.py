"""Measurements of each ScalingPolicy: the newest samples by role, failures of sources, request lengths, forecasts.

Sources write in the event loop of the Kubernetes connection; planning reads in its own thread. Values are immutable and
replaced whole, so a reader never sees half of an update.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from threading import Lock

import numpy as np

from autoscaler.demand.presets import Role
from autoscaler.demand.promql import Serving
from cluster import arrays, autoscaling, demand
from cluster.clock import Clock

MOST_LOAD = 1e30
"""Value from which a sample is none: counters of 64 bits end at 2e19, and the series keep floats of 32 bits."""
CONFIRMED_S = 300.0
"""Time for which a load beyond all that its forecast holds for possible must last before it is obeyed. Chosen: a lead
time; a doubled series or a restarted counter lasts a scrape or two."""
FROZEN_S = 600.0
"""Least time after which equal values are those of a source that stands."""
FROZEN_RUNS = 20.0
"""Length of a run of equal values from which it is no chance, in mean runs of the series."""
FEWEST_RUNS = 30
"""Runs of equal values after which their mean length is known. A load that is constant by itself never has them."""
STANDING_RUNS = 3.0
"""Length of a run, likewise, from which its samples wait for the next value: those of a source that stands teach
nothing."""
FAR_FACTOR = 100.0
"""Ratio to all known loads, and to what the ready replicas serve, from which a load is far beyond them. Chosen:
launches and peaks stay below, wrong units do not."""
FAR_SHARE = 0.05
"""Part of the known history for which such a load must last, unless the servers are full: it is weighed against what
speaks against it. Chosen: 17 hours of two weeks."""
ROOM_FACTOR = 10.0
"""Ratio to what the ready replicas serve within their SLO that servers with room cannot have. Chosen: no declared
capacity is that far from the real one."""
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
    is_full: bool | None = None
    """Whether the servers' own figures say that they are full; None: those were not measured."""


@dataclass(frozen=True, slots=True)
class Belief:
    """What the samples of one role so far say about the next one."""

    most: float = inf
    """Largest value that the forecast holds for possible."""
    largest: float = 0.0
    """Largest value that was believed."""
    since_s: float = inf
    """Instant of the first sample."""
    far_since_s: float = inf
    """Instant since which all samples are far beyond what is known."""
    doubted: tuple[Sample, ...] = ()
    """Samples in a row that are not believed yet: those of the last `CONFIRMED_S`, oldest first."""
    run: tuple[float, float] = (-1.0, 0.0)
    """Value of the run of equal values that goes on, and its beginning."""
    standing: tuple[Sample, ...] = ()
    """Samples of a long run, oldest first, that are learned once it ends."""
    runs: int = 0
    mean_run_s: float = 0.0
    """Mean length of earlier runs."""

    def judge(self, sample: Sample, served: float) -> tuple["Belief", tuple[Sample, ...], str]:
        """Belief after a sample, the samples that are learned now, and why this one does not count, as `Code: words`.

        served: load that the ready replicas serve; 0: not known.
        """
        value, since_s = self.run
        after, standing = replace(self, since_s=min(self.since_s, sample.at_s), standing=()), self.standing
        if sample.value != value:
            run_s = min(max(sample.at_s - since_s, 0.0), FROZEN_S)
            mean_run_s = self.mean_run_s + (run_s - self.mean_run_s) / min(self.runs, FEWEST_RUNS) if self.runs else 0.0
            after = replace(after, run=(sample.value, sample.at_s), runs=self.runs + 1, mean_run_s=mean_run_s)
        elif value and self.runs > FEWEST_RUNS:
            stands_s = sample.at_s - since_s
            if stands_s >= max(FROZEN_S, FROZEN_RUNS * self.mean_run_s):
                return after, (), f"LoadFrozen: {value:.6g} for {stands_s:.0f} s, in a series that changes"
            if stands_s >= STANDING_RUNS * self.mean_run_s and sample.value <= self.most:
                return replace(after, standing=(*standing, sample)), (), ""
        known = max(self.largest, served)
        for each in self.doubted:  # of a launch that grows tenfold each minute, no sample is far beyond the one before
            known = max(known, each.value) if each.value <= FAR_FACTOR * known else known
        far = FAR_FACTOR * known or inf
        if sample.value <= max(served, min(self.most, far)):
            after = replace(after, doubted=(), largest=max(self.largest, sample.value), far_since_s=inf)
            return after, (*standing, sample), ""
        doubted, begins_s = (*self.doubted, sample), sample.at_s - CONFIRMED_S
        doubted = doubted[sum(each.at_s <= begins_s for each in doubted[1:]) :]
        far_since_s = min(self.far_since_s, sample.at_s)
        says = {each.is_full for each in doubted}
        has_weight = sample.at_s - far_since_s >= FAR_SHARE * (far_since_s - after.since_s)
        is_confirmed = sample.value <= far or says == {True} or has_weight
        is_refuted = False in says and 0 < ROOM_FACTOR * served < sample.value
        if doubted[0].at_s <= begins_s and is_confirmed and not is_refuted:
            largest = max(self.largest, *(each.value for each in doubted))
            after = replace(after, doubted=(), most=inf, largest=largest, far_since_s=inf)
            return after, (*standing, *doubted), ""
        words = f"{sample.value:.6g} is beyond {min(self.most, far):.6g}, the most that is held for possible"
        after = replace(after, doubted=doubted, far_since_s=far_since_s)
        return after, standing, f"LoadImplausible: {words}{', and the servers have room' if is_refuted else ''}"

    def after_history(self, samples: Sequence[Sample], served: float) -> tuple["Belief", Sequence[Sample]]:
        """Belief after a history, and what of it is learned: not what is far beyond all but a small part of it.

        samples: oldest first.
        """
        values, at_s = np.array([each.value for each in samples]), np.array([each.at_s for each in samples])
        if not (values > 0).any():
            return self, samples
        far = values > FAR_FACTOR * max(np.quantile(values[values > 0], 1 - FAR_SHARE), served)
        far_since_s = at_s[~far][-1] if far[-1] else inf
        after = replace(self, largest=values[~far].max(), since_s=at_s[0], far_since_s=far_since_s)
        return after, [each for each, is_far in zip(samples, far.tolist(), strict=True) if not is_far]


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
    beliefs: Mapping[Role, Belief] = field(default_factory=dict)
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
        self._about: dict[str, str] = {}
        self.served: Mapping[str, float] = {}
        """Load that each policy's ready replicas serve within the SLO, or one replica; replaced whole."""

    def put_sample(self, policy: str, role: Role, sample: Sample) -> None:
        """Adds a sample. One that is no newer than the newest of its role only joins the history.

        A value that is not finite or is negative is no sample, and is ignored: missing is not zero. One that cannot be
        believed counts when later ones confirm it; until then the last one ages.
        """
        at_s, value = sample.at_s, sample.value
        if not 0 <= value < MOST_LOAD:
            if value >= MOST_LOAD:
                self.put_failure(policy, role, at_s, "LoadImplausible", f"{value:.6g} is no load")
            return
        with self._lock:
            known = self._of.get(policy, _NOTHING)
            belief, problem = known.beliefs.get(role, Belief()), ""
            counted: tuple[Sample, ...] = (sample,)
            newest = known.newest.get(role)
            # One from the future was put before the clock was set back, and would stand until the clock is there again.
            is_newer = newest is None or at_s > newest.at_s or newest.at_s > self._clock()
            if is_newer:
                belief, counted, problem = belief.judge(sample, self.served.get(policy, 0.0))
            waiting = self._waiting.setdefault((policy, role), [])
            waiting.extend(counted)
            del waiting[:-MOST_WAITING]
            failures = {each: failure for each, failure in known.failures.items() if each != role}
            if problem:
                code, _, words = problem.partition(": ")
                failures[role] = SourceFailure(at_s, code, words)
            samples = {**known.newest, role: sample} if is_newer and not problem else known.newest
            beliefs = {**known.beliefs, role: belief}
            self._of[policy] = replace(known, newest=samples, failures=failures, beliefs=beliefs)

    def put_history(self, policy: str, role: Role, samples: Sequence[Sample]) -> None:
        """Adds older samples, at once: a history has tens of thousands. They join the history only."""
        sound = [sample for sample in samples if 0 <= sample.value < MOST_LOAD]
        with self._lock:
            known = self._of.get(policy, _NOTHING)
            belief, learned = known.beliefs.get(role, Belief()).after_history(sound, self.served.get(policy, 0.0))
            self._of[policy] = replace(known, beliefs={**known.beliefs, role: belief})
            waiting = self._waiting.setdefault((policy, role), [])
            waiting.extend(learned)
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
        self,
        policy: str,
        forecast: demand.Forecast | None,
        skill: autoscaling.ForecastSkill | None,
        role: Role = "load",
    ) -> None:
        """Replaces the forecast of the load, and what is known of its quality. role: that of the load."""
        with self._lock:
            known = self._of.get(policy, _NOTHING)
            belief = replace(known.beliefs.get(role, Belief()), most=inf if forecast is None else forecast.most)
            beliefs = {**known.beliefs, role: belief}
            self._of[policy] = replace(known, forecast=forecast, skill=skill, beliefs=beliefs)

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

    def keep(self, policies: Mapping[str, str]) -> None:
        """Forgets all policies except these, and those that are about something else than before.

        policies: what each is about (`ScalingPolicy.about`), by name.
        """
        with self._lock:
            kept = {name for name, about in policies.items() if self._about.get(name, about) == about}
            self._about = dict(policies)
            self._of = {name: each for name, each in self._of.items() if name in kept}
            self._waiting = {key: each for key, each in self._waiting.items() if key[0] in kept}
