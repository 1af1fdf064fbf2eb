"""Autoscaling: replicas of scaled targets, and the demand that services are planned for, by each ScalingPolicy."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autoscaler.concurrency.limit import limit_of
from autoscaler.decision.decide import WEIGHING
from autoscaler.decision.decide import decide as decide_replicas
from autoscaler.decision.expected_cost import start_cost
from autoscaler.decision.outcome import ScalingDecision
from cluster.actions import SetReplicas
from cluster.autoscaling import Scaler
from cluster.concurrency import ConcurrencyLimit
from cluster.demand import ExpectedDemand
from cluster.plans import Finding, Phase, Plan, Reason, Step
from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from controller.deciders.decider import Turn
from controller.deciders.mix_costs import costs_of
from placement.engine.explanation import room_for

IN_FORCE = ("ScaleUpOnly", "Auto")
"""Modes in which decisions are carried out."""
UNDECIDED = (ArithmeticError, ValueError, IndexError)
"""Errors of a decision on figures that make no sense; they concern one policy alone."""


@dataclass(frozen=True, slots=True)
class _Decided:
    """What one policy adds to the plan."""

    finding: Finding | None = None
    step: Step | None = None
    expected: ExpectedDemand | None = None
    decision: ScalingDecision | None = None


def decide(snapshot: Snapshot, turn: Turn) -> Plan:
    """Changes of all targets in force, the expected demands of services, concurrency limits, and a finding about every
    policy."""
    scalers = snapshot.scalers if turn.decisions.autoscale else ()
    decided = [_decided(scaler, snapshot) for scaler in scalers]
    decisions = ((scaler, each.decision) for scaler, each in zip(scalers, decided, strict=True) if each.decision)
    costs = costs_of(snapshot, decisions, turn)
    steps = tuple(each.step for each in decided if each.step)
    return Plan(
        phases=(Phase("scale targets", steps),) if steps else (),
        findings=tuple(_priced(each.finding, costs) for each in decided if each.finding),
        expected=tuple(each.expected for each in decided if each.expected),
        limits=tuple(limit for each in scalers if (limit := _limit(each))),
    )


def _limit(scaler: Scaler) -> ConcurrencyLimit | None:
    """Concurrency limit of the target's replicas, which does not depend on their number."""
    if scaler.mode == "Off" or scaler.concurrency is None:
        return None
    return limit_of(scaler.name, scaler.concurrency)


def _decided(scaler: Scaler, snapshot: Snapshot) -> _Decided:
    if scaler.mode == "Off":
        return _Decided()
    if scaler.problem:
        code, _, words = scaler.problem.partition(": ")
        return _Decided(_finding(scaler, Reason(code, words)))
    try:
        decision = decide_replicas(scaler, snapshot.at_s)
        if (
            decision is not None
            and scaler.shape is not None
            and decision.replicas > max(scaler.placed, decision.current)
        ):
            decision = decide_replicas(_on_hardware(scaler, scaler.shape, decision.replicas, snapshot), snapshot.at_s)
    except UNDECIDED as error:
        return _Decided(_finding(scaler, Reason("DecisionFailed", f"{type(error).__name__}: {error}")))
    if decision is None:
        return _Decided(_finding(scaler, Reason("TargetNotRead", f"{scaler.target} was not read yet")))
    finding = _finding(scaler, decision.reason)
    if scaler.mode not in IN_FORCE or scaler.conflict:
        return _Decided(finding, decision=decision)
    if scaler.demand is not None:
        return _Decided(finding, expected=_expected(scaler, decision))
    return _Decided(finding, _step(scaler, decision))


def _on_hardware(scaler: Scaler, shape: PodShape, wanted: int, snapshot: Snapshot) -> Scaler:
    """The scaler with the number of replicas that the hardware holds, as far as they are wanted."""
    room = room_for(snapshot, shape, wanted - scaler.placed)
    return replace(scaler, capacity_limit=scaler.placed + room.pods, capacity_limited_by=room.scarce)


def _finding(scaler: Scaler, reason: Reason) -> Finding:
    return Finding(f"ScalingPolicy/{scaler.name}", reason)


def _priced(finding: Finding, costs: Mapping[str, Mapping[str, float]]) -> Finding:
    """The finding with the costs of its policy's mix, where this plan computed them."""
    more = costs.get(finding.about.removeprefix("ScalingPolicy/"))
    if not more:
        return finding
    return replace(finding, reason=replace(finding.reason, figures={**finding.reason.figures, **more}))


def _step(scaler: Scaler, decision: ScalingDecision) -> Step | None:
    """The change of the target; none where it already asks for these replicas."""
    if not decision.changes:
        return None
    action = SetReplicas(scaler.name, scaler.target, decision.replicas, decision.current)
    return Step(action, decision.reason)


def _expected(scaler: Scaler, decision: ScalingDecision) -> ExpectedDemand | None:
    """The service's demand at the load that the decided replicas serve.

    A start costs the mix what it cost the decision: the next decision will soon ask for another demand.
    """
    if scaler.demand is None:
        return None
    demand = replace(scaler.demand, rate_per_s=decision.load)
    return ExpectedDemand(scaler.target.name, demand, start_cost(scaler, WEIGHING))
