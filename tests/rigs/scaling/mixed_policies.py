"""Policies on a mixed fleet: the operator's own deciders, and an HPA, a fixed mix and perfect foresight as rivals."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from autoscaler.decision.decide import WEIGHING
from cluster.actions import Scale
from cluster.arrays import FloatArray, IntArray
from cluster.autoscaling import Replicas
from cluster.demand import Forecast
from cluster.errors import ConfigError, Mistake
from cluster.plans import Plan, Reason
from controller.api.scaling_policy import ScalingPolicy, ScalingPolicyStatus
from controller.brain.inline import InlineBrain, decisions_from
from controller.cycle import stopped
from controller.deciders.decisions import Decisions
from controller.report.scaling_status import scaling_status_after
from controller.settings import OperatorSettings
from controller.snapshot.scalers import PolicyState, scaler_of
from placement.mix.heuristics import best_single_type
from simulator.scaling.replay import TRAINED_STARTS, LoadScenario, Outlook, Policy, ReplaySettings, ReplicaFleet, replay
from simulator.scaling.rival_rules import Hpa
from tests.rigs.scaling.mixed_fleet import Counts, MixAccount, MixCapacity, MixedService, MixRun, account

LEVEL_STEP = 0.01
"""Relative distance of the rates at which perfect foresight asks for mixes; each rate is rounded down."""
MOST_UNITS = 100_000
HPA_TARGET = 0.7
"""Fraction of a unit's profiled throughput that the HPAs aim at."""


@dataclass(frozen=True, slots=True)
class Units:
    """Fleet of a policy that knows one number: a row of instances for each number of units."""

    load: float
    """Requests per second that one unit serves at its profiled throughput."""
    whole: Counts
    """Instances of `whole_units` units."""
    whole_units: int
    most: Counts
    """Most instances of each type."""

    def counts(self, units: int) -> Counts:
        """Instances of that many units, rounded up, as far as there is stock."""
        shares = (math.ceil(count * units / self.whole_units - 1e-9) for count in self.whole)
        return tuple(min(count, most) for count, most in zip(shares, self.most, strict=True))


def single_type(fleet: MixedService, peak_rate: float) -> tuple[str, Units]:
    """The one type that serves the peak within the SLO for the fewest dollars, with unlimited stock of it."""
    need = fleet.need(peak_rate)
    mix = best_single_type(need, {})
    if mix is None:
        raise ConfigError(Mistake(fleet.service.name, "no GPU type alone serves all requests within the SLO"))
    offer = need.offers[int(mix.instances.argmax())]
    one = tuple(int(name == offer.gpu_type) for name in fleet.types)
    return offer.gpu_type, Units(peak_rate / float(offer.load.sum()), one, 1, tuple(MOST_UNITS * n for n in one))


def static_mix(fleet: MixedService, peak_rate: float) -> Units:
    """The mix for the peak, scaled as a whole: as many units as it has instances, of the same load each."""
    whole = fleet.counts(peak_rate)
    number = sum(whole)
    inventory = (each.inventory for each in fleet.fleet.gpu_types)
    most = tuple(MOST_UNITS if held is None else held for held in inventory)
    return Units(MixCapacity(fleet, raw=True).highest(whole) / number, whole, number, most)


def run_of(scenario: LoadScenario, units: Units, policy: Policy, lead_s: float) -> MixRun:
    """A policy that scales these units."""
    in_units = LoadScenario(
        scenario.trace, scenario.step_s, scenario.start_s, scenario.load / units.load,
        scenario.trained / units.load, scenario.unit * units.load,
    )  # fmt: skip
    settings = ReplaySettings(max_replicas=MOST_UNITS)
    run = replay(in_units, policy, lead_s, lambda _: None, settings)
    return MixRun(_rows(units, run.wanted), _rows(units, run.ready))


def hpa(scenario: LoadScenario, target: float = HPA_TARGET) -> Policy:
    return Hpa(target, step_s=scenario.step_s)


def fixed_run(scenario: LoadScenario, counts: Counts) -> MixRun:
    """The same instances at all times, ready from the beginning."""
    rows: IntArray = np.tile(np.array(counts, dtype=np.int64), (len(scenario.load), 1))
    return MixRun(rows, rows)


def foresight(scenario: LoadScenario, fleet: MixedService, lead_s: float) -> MixAccount:
    """Least dollars of any policy that misses nothing with this lead time: a bound that none may reach.

    An instance that is ready at one of the next steps within the lead time is billed now, so those that are billed now
    hold the highest of these loads, and cost at least the proven bound of the cheapest mix for it. It may be another
    mix at every step, at no cost.
    """
    steps = round(lead_s / scenario.step_s)
    highest = scenario.demand.copy()
    for ahead in range(1, min(steps, len(scenario.demand) - 1) + 1):
        highest[:-ahead] = np.maximum(highest[:-ahead], scenario.demand[ahead:])
    levels = np.floor(np.log(np.maximum(highest, 1e-6)) / LEVEL_STEP).astype(np.int64)
    price = {level: _least_price(fleet, math.exp(level * LEVEL_STEP)) for level in np.unique(levels).tolist()}
    per_hour: FloatArray = np.array([price[level] for level in levels.tolist()])
    return account(scenario, per_hour, scenario.demand)


def _least_price(fleet: MixedService, rate_per_s: float) -> float:
    """Lower bound on the dollars per hour of a mix; without limits of the stock where that does not hold the rate."""
    answer = fleet.mix(rate_per_s)
    if isinstance(answer, Reason):
        answer = fleet.mix(rate_per_s, {})
    if isinstance(answer, Reason):
        raise ConfigError(Mistake(f"{rate_per_s:.1f} requests/s", answer.words))
    return answer.certificate.bound


def _rows(units: Units, numbers: IntArray) -> IntArray:
    known = {number: units.counts(number) for number in np.unique(numbers).tolist()}
    return np.array([known[number] for number in numbers.tolist()], dtype=np.int64)


FIRST_TARGET = 0.7
"""Fraction of the first fleet's capacity that the first load uses: every policy begins with ready instances for it."""
DEADLINE_S = 60.0
"""Deadline of a plan; the clock stands, so that only the limit of work ends one."""
MOST_REPLICAS = 10_000
WITHIN_S = 0.2
"""Nominal seconds of solver work per plan: a tenth of the operator's."""
GAP = 0.01
"""Relative distance from the proven bound at which a mix is good enough: ten times the operator's. Both let a week take
minutes of CPU time; more work changes the dollars of 2.4 hours by a thousandth."""


def operator_run(
    scenario: LoadScenario,
    fleet: MixedService,
    outlook: Outlook,
    lead_s: float,
    spec: Mapping[str, Any] = MappingProxyType({}),
    decisions: Decisions | None = None,
) -> MixRun:
    """Instances that the operator asks for and has, step by step. The scenario's load is in requests per second.

    spec: fields of the ScalingPolicy's spec besides its defaults. decisions: settings of the deciders; None: the
    operator's defaults, with less solver work.
    """
    # ScalingPolicy in force, with the defaults of its kind besides these fields.
    namespace, _, name = fleet.service.name.partition("/")
    written = {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "ScalingPolicy",
        "metadata": {"name": POLICY.rpartition("/")[2], "namespace": namespace},
        "spec": {
            "target": {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ModelService", "name": name},
            "maxReplicas": MOST_REPLICAS,
            "mode": "Auto",
            "demand": {"sources": [{"role": "requests", "push": {}, "maxAge": "180s"}]},
            **spec,
        },
    }
    service = _Operated(scenario, fleet, lead_s, ScalingPolicy.model_validate(written), decisions or quick_decisions())
    steps = len(scenario.load)
    wanted = np.zeros((steps, len(fleet.types)), dtype=np.int64)
    ready = wanted.copy()
    for step in range(steps):
        service.decide(step, outlook(step))
        wanted[step], ready[step] = service.wanted, service.ready
    return MixRun(wanted, ready)


def quick_decisions() -> Decisions:
    """The operator's defaults, with little solver work."""
    usual = decisions_from(OperatorSettings(plan_deadline_s=WITHIN_S))
    return replace(usual, mix=replace(usual.mix, gap=GAP))


class _Operated:
    """State of the simulated service, and of its ScalingPolicy."""

    def __init__(
        self, scenario: LoadScenario, fleet: MixedService, lead_s: float, policy: ScalingPolicy, decisions: Decisions
    ) -> None:
        first = float(scenario.demand[0]) / FIRST_TARGET
        # The service with this rate in its spec: what it is planned for before the first decision.
        service = fleet.service
        demand = None if service.demand is None else replace(service.demand, rate_per_s=first)
        self._scenario, self._fleet = (
            scenario,
            replace(fleet, fleet=replace(fleet.fleet, services=(replace(service, demand=demand),))),
        )
        self._brain = InlineBrain(decisions, clock=stopped)
        self._instances = [ReplicaFleet(count, lead_s) for count in fleet.counts(first)]
        self._policy = policy
        self._status: dict[str, Any] = {}
        self._took_s = [lead_s] * TRAINED_STARTS
        self._load, self._observed_at_s = 0.0, scenario.start_s

    @property
    def wanted(self) -> Counts:
        return tuple(each.wanted for each in self._instances)

    @property
    def ready(self) -> Counts:
        return tuple(each.ready for each in self._instances)

    def decide(self, step: int, forecast: Forecast | None) -> None:
        at_s = self._scenario.start_s + step * self._scenario.step_s
        for instances in self._instances:
            self._took_s.extend(instances.reach(at_s))
        if np.isfinite(load := float(self._scenario.load[step])):
            self._load, self._observed_at_s = load, at_s
        plain = self._fleet.seen(at_s, self.wanted)
        status = ScalingPolicyStatus.model_validate(self._status)
        policy = self._policy.model_copy(update={"status": status})
        # Instances of all types, as their pods show them.
        each = [instances.replicas() for instances in self._instances]
        ordered = sorted(instant for one in each for instant in one.ordered_at_s)
        state = PolicyState(
            load=self._load,
            observed_at_s=self._observed_at_s,
            forecast=forecast,
            replicas=Replicas(sum(self.wanted), sum(self.ready), tuple(ordered), at_s),
            took_s=tuple(self._took_s[-TRAINED_STARTS:]),
            ready=self._fleet.by_type(self.ready),
        )
        is_loading = any(at_s - instant <= WEIGHING.spread_s for instant in ordered)
        plain = replace(plain, services=tuple(replace(own, is_loading=is_loading) for own in plain.services))
        seen = replace(plain, scalers=(scaler_of(POLICY, policy, plain, state),))
        plan = self._brain.plan(seen, DEADLINE_S)
        self._act(plan, at_s)
        found = {finding.about: finding.reason for finding in plan.findings}
        reason = found.get(f"ScalingPolicy/{POLICY}")
        self._status = scaling_status_after(self._status, seen.scalers[0], reason, generation=1, at_s=at_s)

    def _act(self, plan: Plan, at_s: float) -> None:
        for step in plan.steps():
            if not isinstance(step.action, Scale):
                continue
            asked = {each.gpu_type: count for each, count in step.action.instances.items()}
            for name, instances in zip(self._fleet.types, self._instances, strict=True):
                instances.scale(asked.get(name, instances.wanted), at_s)


POLICY = "simulated/policy"
