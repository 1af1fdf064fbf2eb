"""Autoscaling: replicas of scaled targets, and the demand that services are planned for, by each ScalingPolicy."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from autoscaler.concurrency.limit import limit_of
from autoscaler.decision.decide import WEIGHING
from autoscaler.decision.decide import decide as decide_replicas
from autoscaler.decision.expected_cost import start_cost
from autoscaler.decision.outcome import ScalingDecision
from cluster.actions import Scale, SetReplicas
from cluster.autoscaling import ConcurrencyLimit, Scaler
from cluster.demand import Demand, ExpectedDemand
from cluster.plans import Finding, Phase, Plan, Reason, Step
from cluster.snapshot import Snapshot
from cluster.workloads import ModelService, PodShape
from controller.deciders.decider import Turn
from placement.budget import Budget
from placement.engine.room import room_for
from placement.mix.optimizer import work_of
from placement.mix.part_of_demand import with_parts
from placement.mix.planner import plan_mix
from placement.mix.stabilization import held

AGAIN_S = 300.0
"""Seconds after which an unchanged recommendation is priced again: prices and stock may have changed."""
MOST_IN_A_PLAN = 2
"""Policies whose costs one plan computes, those first that have waited longest. Three mixes of a service take 0.2 s."""
WORK = work_of(0.5)
"""Solver work for one mix. Chosen: mixes of single services are proven with less (docs/benchmarks.md#mix)."""


def costs_of(
    snapshot: Snapshot, decided: Iterable[tuple[Scaler, ScalingDecision]], turn: Turn
) -> dict[str, dict[str, float]]:
    """Figures `mix_*`, dollars per hour, by policy, for those whose costs are due."""
    due = [(scaler, decision) for scaler, decision in decided if _is_due(scaler, decision, snapshot.at_s)]
    due.sort(key=lambda each: each[0].mix_costs_at_s)
    found: dict[str, dict[str, float]] = {}
    for scaler, decision in due[:MOST_IN_A_PLAN]:
        service = next((each for each in snapshot.services if each.name == scaler.target.name), None)
        if service is not None and scaler.demand is not None:
            found[scaler.name] = _costs(snapshot, service, scaler.demand, scaler.replica_load, decision.replicas, turn)
    return found


def _is_due(scaler: Scaler, decision: ScalingDecision, at_s: float) -> bool:
    if scaler.demand is None or scaler.mode != "Recommend":
        return False
    return scaler.mix_costs_for != decision.replicas or at_s - scaler.mix_costs_at_s >= AGAIN_S


def _costs(
    snapshot: Snapshot, service: ModelService, demand: Demand, unit: float, replicas: int, turn: Turn
) -> dict[str, float]:
    """Costs now, at these replicas' demand, and at that of one fewer and one more; without those that no mix serves."""
    now = sum(snapshot.price_per_hour(service, each) * count for each, count in (service.replicas or {}).items())
    asked = {"mix_recommended": replicas, "mix_one_fewer": replicas - 1, "mix_one_more": replicas + 1}
    costs: Mapping[str, float | None] = {
        name: _cost_at(snapshot, service, replace(demand, rate_per_s=count * unit), turn)
        for name, count in asked.items()
        if count >= 0
    }
    return {"mix_now": now, **{name: cost for name, cost in costs.items() if cost is not None}}


def _cost_at(snapshot: Snapshot, service: ModelService, demand: Demand, turn: Turn) -> float | None:
    """Cost of the service's own mix at this demand; None: no mix serves it."""
    if demand.rate_per_s == 0:
        return 0.0
    alone = replace(snapshot, services=(replace(service, demand=demand),))
    budget = Budget(WORK, turn.budget.clock, turn.budget.over_at_s)
    (planned,) = plan_mix(alone, budget, replace(turn.decisions.mix, explain=False)).services
    return None if planned.refusal else planned.cost_per_hour


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


TIME_SHARE = 0.7
"""Fraction of the deadline after which time ends the mix, so that pods are placed on a busy machine, too. The mix's
limit of work takes far less time on a quiet one."""
HOLD_SHARE = 0.25
"""Fraction of the mix's work for checking whether the running instances can stay. Chosen: only services that changed
recently are checked, and the supply of the running instances answers it at once."""

PARTS_SHARE = 0.5
"""Fraction of the mix's work for parts of an expected demand that the stock does not hold. Chosen: few trials."""


def decide_mix(snapshot: Snapshot, turn: Turn) -> Plan:
    """The cheapest mix of every service, unless its running instances still serve it and were changed recently.

    Where the stock is short of a demand that the autoscaler expects, the mix serves the largest part of it.
    """
    budget, decisions = turn.budget, turn.decisions
    for_holding = Budget(HOLD_SHARE * budget.work, budget.clock, budget.over_at_s)
    for_parts = Budget(PARTS_SHARE * budget.work, budget.clock, budget.over_at_s)
    mix = plan_mix(snapshot, budget, decisions.mix, turn.memory.mix)
    mix = with_parts(snapshot, mix, _of_expected_demand(snapshot, turn), for_parts, decisions.mix)
    plan = held(snapshot, mix, for_holding, hold_s=decisions.hold_s)
    return without_planned_only(snapshot, plan) if decisions.awaits_pods else plan


def without_planned_only(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan without actions on services whose instances are run by other means; their mixes stay in it.

    So nothing is scaled that nobody scales, and no instances that never come take seats from other pods.
    """
    apart = {each.name for each in snapshot.services if each.is_planned_only}

    def is_ours(step: Step) -> bool:
        return not (isinstance(step.action, Scale) and step.action.service in apart)

    phases = (replace(each, steps=tuple(filter(is_ours, each.steps))) for each in plan.phases)
    return replace(plan, phases=tuple(each for each in phases if each.steps))


def _of_expected_demand(snapshot: Snapshot, turn: Turn) -> set[str]:
    """Services that are planned for another demand than the observed one: the autoscaler expects it."""
    observed = {each.name: each.demand for each in turn.observed.services}
    return {each.name for each in snapshot.services if each.demand is not observed.get(each.name)}
