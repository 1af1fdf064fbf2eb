"""A mixed fleet under the operator: its own deciders, in its own order and with its own defaults, once per step."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from cluster.actions import Scale
from cluster.autoscaling import Replicas
from cluster.demand import Forecast
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.api.scaling_policy import ScalingPolicy, ScalingPolicyStatus
from controller.brain.from_settings import decisions_from, inline_brain
from controller.deciders.decisions import Decisions
from controller.report.scaling_status import scaling_status_after
from controller.settings import OperatorSettings
from controller.snapshot.scalers import PolicyState, scaler_of
from simulator.scaling.fleet import Fleet
from simulator.scaling.mixed.accounting import MixRun
from simulator.scaling.mixed.service import Counts, MixedService
from simulator.scaling.replay import TRAINED_STARTS, Outlook, Scenario

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
    scenario: Scenario,
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
    service = _Operated(scenario, fleet, lead_s, _policy_of(fleet, spec), decisions or quick_decisions())
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
        self, scenario: Scenario, fleet: MixedService, lead_s: float, policy: ScalingPolicy, decisions: Decisions
    ) -> None:
        first = float(scenario.demand[0]) / FIRST_TARGET
        self._scenario, self._fleet = scenario, _at_rate(fleet, first)
        self._brain = inline_brain(decisions, clock=_standing)
        self._instances = [Fleet(count, lambda: lead_s) for count in fleet.counts(first)]
        self._policy = policy
        self._status: dict[str, Any] = {}
        self._took_s = [lead_s] * TRAINED_STARTS
        self._load, self._observed_at_s = 0.0, scenario.start_s
        self._scaled_at_s: float | None = None

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
        seen = self._seen(at_s, forecast)
        plan = self._brain.plan(seen, DEADLINE_S)
        self._act(plan, at_s)
        self._report(seen, plan, at_s)

    def _seen(self, at_s: float, forecast: Forecast | None) -> Snapshot:
        plain = self._fleet.seen(at_s, self.wanted, self._scaled_at_s)
        status = ScalingPolicyStatus.model_validate(self._status)
        policy = self._policy.model_copy(update={"status": status})
        state = PolicyState(
            load=self._load,
            observed_at_s=self._observed_at_s,
            forecast=forecast,
            replicas=self._replicas(at_s),
            took_s=tuple(self._took_s[-TRAINED_STARTS:]),
        )
        return replace(plain, scalers=(scaler_of(POLICY, policy, plain, state),))

    def _replicas(self, at_s: float) -> Replicas:
        """Instances of all types, as their pods show them."""
        each = [instances.replicas() for instances in self._instances]
        ordered = sorted(instant for one in each for instant in one.ordered_at_s)
        return Replicas(sum(self.wanted), sum(self.ready), tuple(ordered), at_s)

    def _act(self, plan: Plan, at_s: float) -> None:
        for step in plan.steps():
            if not isinstance(step.action, Scale):
                continue
            asked = {each.gpu_type: count for each, count in step.action.instances.items()}
            for name, instances in zip(self._fleet.types, self._instances, strict=True):
                instances.scale(asked.get(name, instances.wanted), at_s)
            self._scaled_at_s = at_s

    def _report(self, seen: Snapshot, plan: Plan, at_s: float) -> None:
        found = {finding.about: finding.reason for finding in plan.findings}
        reason = found.get(f"ScalingPolicy/{POLICY}")
        self._status = scaling_status_after(self._status, seen.scalers[0], reason, generation=1, at_s=at_s)


POLICY = "simulated/policy"


def _policy_of(fleet: MixedService, spec: Mapping[str, Any]) -> ScalingPolicy:
    """ScalingPolicy in force, with the defaults of its kind besides these fields."""
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
    return ScalingPolicy.model_validate(written)


def _at_rate(fleet: MixedService, rate_per_s: float) -> MixedService:
    """The service with this rate in its spec: what it is planned for before the first decision."""
    service = fleet.service
    demand = None if service.demand is None else replace(service.demand, rate_per_s=rate_per_s)
    return replace(fleet, fleet=replace(fleet.fleet, services=(replace(service, demand=demand),)))


def _standing() -> float:
    return 0.0
