"""Replay of a load trace under a scaling policy: replicas step by step, and what they cost beside perfect foresight.

Conventions: the load of a step is known at its instant; a replica ordered at an instant serves the steps from that
instant plus its lead time on, and is billed from its order until it is stopped. The scale is 40 replicas at the 99.5th
percentile of the training days.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from autoscaler.lead_time import MODEL, lead_time_of
from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.autoscaling import Behavior, LeadTime, Replicas, Scaler, ScaleTarget, ScalingObjective
from cluster.demand import Forecast
from cluster.errors import ConfigError, Mistake
from simulator.scaling.rival_rules import Recommendation, oracle_replicas
from simulator.scaling.traces import DAY_S, LoadTrace


class ReplicaFleet:
    """Replicas over time. A scale-down stops the latest orders first, then ready replicas, as a Deployment does."""

    def __init__(self, ready: int, lead_s: float) -> None:
        self._lead_s = lead_s
        self._ready = ready
        self._pending: list[tuple[float, float]] = []

    @property
    def wanted(self) -> int:
        return self._ready + len(self._pending)

    @property
    def ready(self) -> int:
        return self._ready

    def replicas(self) -> Replicas:
        return Replicas(self.wanted, self._ready, tuple(ordered for ordered, _ in self._pending))

    def reach(self, at_s: float) -> list[float]:
        """Let those become ready whose time has come; the result is the time that each took."""
        came = [(ordered, due) for ordered, due in self._pending if due <= at_s + 1e-6]
        self._pending = [each for each in self._pending if each[1] > at_s + 1e-6]
        self._ready += len(came)
        return [due - ordered for ordered, due in came]

    def scale(self, replicas: int, at_s: float) -> None:
        for _ in range(replicas - self.wanted):
            self._pending.append((at_s, at_s + self._lead_s))
        surplus = self.wanted - replicas
        if surplus > 0:
            kept = max(0, len(self._pending) - surplus)
            self._ready -= surplus - (len(self._pending) - kept)
            del self._pending[kept:]


Policy = Callable[[Scaler, float], Recommendation]
Outlook = Callable[[int], Forecast | None]
"""Forecast of the load in replicas from the samples up to a step of the replay."""

PEAK_REPLICAS = 40
_PEAK_LEVEL = 0.995
MISS_COST = 99.0
"""Cost of load that is missed, in the price of the capacity that would have served it: J = ratio + 99 × shortfall."""
TRAINED_STARTS = 50
"""Starts that were observed in the training days, so that the learned lead time does not begin with its assumption."""
_MEMORY_S = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class LoadScenario:
    """Load of one service over the days that are replayed."""

    trace: str
    step_s: float
    start_s: float
    load: FloatArray
    """Shape (steps,), in replicas; NaN where the trace has no value."""
    trained: FloatArray
    """Load of the training days before them, likewise."""
    unit: float
    """Load of one replica in the trace's unit."""

    @property
    def demand(self) -> FloatArray:
        """Load with gaps bridged by straight lines: what the oracle serves and what is billed against it."""
        known = np.isfinite(self.load)
        return np.asarray(np.interp(np.arange(len(self.load)), np.flatnonzero(known), self.load[known]))

    @property
    def observed(self) -> BoolArray:
        return np.isfinite(self.load)


def scenario_of(
    trace: LoadTrace, train_days: int = 7, days: int = 7, replica_load: float | None = None
) -> LoadScenario:
    """The days after the training days. A short trace is trained on the first four sevenths of it.

    replica_load: load of one replica in the trace's unit; without it the peak of training is 40 replicas.
    Raises ConfigError for a trace with less than two days, or without load.
    """
    per_day = round(DAY_S / trace.step_s)
    whole_days = len(trace.values) // per_day
    train = train_days if whole_days > train_days else max(1, whole_days * 4 // 7)
    if whole_days < 2:
        raise ConfigError(Mistake(trace.name, f"has {len(trace.values)} steps", "two days are the least"))
    trained = trace.values[: train * per_day]
    load = trace.values[train * per_day : (train + days) * per_day]
    unit = replica_load or (
        float(np.nanquantile(trained, _PEAK_LEVEL)) / PEAK_REPLICAS if np.isfinite(trained).any() else 0.0
    )
    if not unit > 0 or not np.isfinite(load).any():
        raise ConfigError(Mistake(trace.name, "has no load in its training days or after them"))
    start_s = trace.start_s + train * DAY_S
    return LoadScenario(trace.name, trace.step_s, start_s, load / unit, trained / unit, unit)


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """Facts of the simulated target."""

    objective: ScalingObjective = field(default_factory=ScalingObjective)
    min_replicas: int = 1
    max_replicas: int = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class ReplayRun:
    """Replicas of a policy over the steps of a scenario."""

    wanted: IntArray
    """Shape (steps,): replicas that are billed."""
    ready: IntArray
    """Shape (steps,): replicas that serve."""


def replay(
    scenario: LoadScenario, policy: Policy, lead_s: float, outlook: Outlook, settings: ReplaySettings | None = None
) -> ReplayRun:
    """Let a policy scale the service step by step."""
    settings = settings or ReplaySettings()
    service = _Service(scenario, lead_s, settings)
    steps = len(scenario.load)
    wanted, ready = np.zeros(steps, dtype=np.int64), np.zeros(steps, dtype=np.int64)
    for step in range(steps):
        service.decide(step, policy, outlook(step))
        wanted[step], ready[step] = service.fleet.wanted, service.fleet.ready
    return ReplayRun(wanted, ready)


class _Service:
    """State of the simulated service: its replicas, what was observed of its load and its starts, and its memory."""

    def __init__(self, scenario: LoadScenario, lead_s: float, settings: ReplaySettings) -> None:
        self._scenario, self._settings = scenario, settings
        self._took_s = deque([lead_s] * TRAINED_STARTS, maxlen=MODEL.most)
        first = scenario.demand[0]
        self.fleet = ReplicaFleet(max(settings.min_replicas, int(np.ceil(first / 0.7))), lead_s)
        self._load, self._observed_at_s = float(scenario.trained[np.isfinite(scenario.trained)][-1]), 0.0
        self._recommended: deque[tuple[float, int]] = deque()
        self._changes: deque[tuple[float, int]] = deque()
        self._lead: tuple[int, LeadTime] | None = None

    def decide(self, step: int, policy: Policy, forecast: Forecast | None) -> None:
        at_s = self._scenario.start_s + step * self._scenario.step_s
        if took_s := self.fleet.reach(at_s):
            self._took_s.extend(took_s)
            self._lead = None
        if np.isfinite(load := float(self._scenario.load[step])):
            self._load, self._observed_at_s = load, at_s
        answer = policy(
            Scaler(
                name="replay",
                target=_TARGET,
                mode="Auto",
                replicas=self.fleet.replicas(),
                min_replicas=self._settings.min_replicas,
                max_replicas=self._settings.max_replicas,
                replica_load=1.0,
                objective=self._settings.objective,
                behavior=Behavior(),
                load=self._load,
                observed_at_s=self._observed_at_s,
                max_age_s=3 * self._scenario.step_s,
                forecast=forecast,
                lead_time=self._lead_time(at_s),
                recommended=tuple(self._recommended),
                changes=tuple(self._changes),
            ),
            at_s,
        )
        _remember(self._recommended, at_s, answer.recommended)
        if change := answer.replicas - self.fleet.wanted:
            _remember(self._changes, at_s, change)
        self.fleet.scale(answer.replicas, at_s)

    def _lead_time(self, at_s: float) -> LeadTime:
        """Learned distribution; estimated again when a start has finished, and every five minutes."""
        if self._lead is None or self._lead[0] != int(at_s // 300.0):
            pending_s = [at_s - ordered for ordered in self.fleet.replicas().ordered_at_s]
            self._lead = (int(at_s // 300.0), lead_time_of(tuple(self._took_s), pending_s))
        return self._lead[1]


_TARGET = ScaleTarget("apps/v1", "Deployment", "simulated/replay")


def _remember(events: deque[tuple[float, int]], at_s: float, number: int) -> None:
    events.append((at_s, number))
    while events[0][0] <= at_s - _MEMORY_S:
        events.popleft()


@dataclass(frozen=True, slots=True)
class Score:
    """Cost and quality of a run, beside perfect foresight with the same lead time."""

    gpu_hours_ratio: float
    """Replica-hours from order to stop, over those of the oracle."""
    shortfall_ratio: float
    """Load that no ready replica served, in replica-hours, over the oracle's replica-hours."""
    violation_minutes_pct: float
    """Percent of the observed steps with more load than ready capacity."""
    direction_changes_per_day: float

    @property
    def j(self) -> float:
        """Expected cost in units of the oracle's."""
        return self.gpu_hours_ratio + MISS_COST * self.shortfall_ratio


def missed_load(scenario: LoadScenario, run: ReplayRun) -> FloatArray:
    """Load beyond the ready replicas, shape (steps,), in replicas. Load that was not observed is not missed."""
    return np.asarray(np.where(scenario.observed, np.maximum(scenario.demand - run.ready, 0.0), 0.0))


def score(scenario: LoadScenario, run: ReplayRun, lead_s: float) -> Score:
    """Score of a run."""
    oracle = oracle_replicas(scenario.demand, round(lead_s / scenario.step_s)).sum()
    missed = missed_load(scenario, run)
    days = len(scenario.load) * scenario.step_s / DAY_S
    return Score(
        gpu_hours_ratio=float(run.wanted.sum() / oracle),
        shortfall_ratio=float(missed.sum() / oracle),
        violation_minutes_pct=float(100.0 * (missed > 1e-9).sum() / scenario.observed.sum()),
        direction_changes_per_day=direction_changes(run.wanted) / days,
    )


def direction_changes(replicas: IntArray) -> int:
    """Number of times that replicas rise after they fell last, or fall after they rose last."""
    signs = np.sign(np.diff(replicas))
    signs = signs[signs != 0]
    return int((signs[1:] != signs[:-1]).sum())


def oracle_run(scenario: LoadScenario, lead_s: float) -> ReplayRun:
    """Run of perfect foresight: everything is ready when it is needed."""
    wanted = oracle_replicas(scenario.demand, round(lead_s / scenario.step_s))
    return ReplayRun(wanted, wanted)
