"""Autoscaling: replicas of scaled targets, and the demand that services are planned for, by each ScalingPolicy."""

from collections.abc import Iterable
from dataclasses import replace

from autoscaler.concurrency.safe_bandit import limit_of
from autoscaler.decision.decide import WEIGHING, decide as decide_replicas
from autoscaler.decision.outcome import ScalingDecision
from cluster.actions import Scale, SetReplicas
from cluster.autoscaling import ConcurrencyLimit, Scaler
from cluster.demand import ExpectedDemand
from cluster.plans import Finding, Phase, Plan, Reason, Step
from cluster.snapshot import Snapshot
from cluster.workloads import STAY_S
from controller.deciders.decider import Turn
from placement.budget import Budget
from placement.engine.explanation import room_for
from placement.mix import corrections, optimizer, planner

AGAIN_S = 300.0
"""Seconds after which an unchanged recommendation is priced again: prices and stock may have changed."""
MOST_IN_A_PLAN = 2
"""Policies whose costs one plan computes, those first that have waited longest. Three mixes of a service take 0.2 s."""
WORK = optimizer.work_of(0.5)
"""Solver work for one mix. Chosen: mixes of single services are proven with less (docs/benchmarks.md#mix)."""


IN_FORCE = ("ScaleUpOnly", "Auto")
"""Modes in which decisions are carried out."""
UNDECIDED = (ArithmeticError, ValueError, IndexError)
"""Errors of a decision on figures that make no sense; they concern one policy alone."""
TIME_SHARE = 0.7
"""Fraction of the deadline after which time ends the mix, so that pods are placed on a busy machine, too. The mix's
limit of work takes far less time on a quiet one."""
STANDING_SHARE = 0.25
"""Fraction of the mix's work for standing mixes. Chosen: only services that would exchange instances are asked, and the
running instances bound the answer."""
PARTS_SHARE = 0.5
"""Fraction of the mix's work for parts of an expected demand that the stock does not hold. Chosen: few trials."""


def decide(snapshot: Snapshot, turn: Turn) -> Plan:
    """Changes of all targets in force, the expected demands of services, concurrency limits, and a finding about every
    policy."""
    steps, expected, limits = list[Step](), list[ExpectedDemand](), list[ConcurrencyLimit]()
    reasons: dict[str, Reason] = {}
    decided: list[tuple[Scaler, ScalingDecision]] = []
    for scaler in snapshot.scalers if turn.decisions.autoscale else ():
        if scaler.mode == "Off":
            continue
        if scaler.concurrency is not None:  # its limit does not depend on the number of replicas
            limit = limit_of(scaler.name, scaler.concurrency)
            limits += [limit] if limit else []
        decision = _decision(scaler, snapshot)
        if isinstance(decision, Reason):
            reasons[scaler.name] = decision
            continue
        reasons[scaler.name] = decision.reason
        decided.append((scaler, decision))
        if scaler.mode not in IN_FORCE or scaler.conflict:
            continue
        if scaler.demand is not None:
            demand = replace(scaler.demand, rate_per_s=decision.load)
            leads_s = scaler.lead_time.points_s
            start_share = sum(leads_s) / len(leads_s) / STAY_S
            awaited = scaler.replicas.ordered_at_s if scaler.replicas is not None else ()
            is_loading = any(snapshot.at_s - each <= WEIGHING.spread_s for each in awaited)
            expected.append(ExpectedDemand(scaler.target.name, demand, start_share, is_loading))
        elif decision.changes:
            action = SetReplicas(scaler.name, scaler.target, decision.replicas, decision.current)
            steps.append(Step(action, decision.reason))
    for name, costs in costs_of(snapshot, decided, turn).items():
        reasons[name] = replace(reasons[name], figures={**reasons[name].figures, **costs})
    return Plan(
        phases=(Phase("scale targets", tuple(steps)),) if steps else (),
        findings=tuple(Finding(f"ScalingPolicy/{name}", reason) for name, reason in reasons.items()),
        expected=tuple(expected),
        limits=tuple(limits),
    )


def _decision(scaler: Scaler, snapshot: Snapshot) -> ScalingDecision | Reason:
    """Decision on one policy's replicas, as many as the hardware holds, or the reason why there is none."""
    if scaler.problem:
        code, _, words = scaler.problem.partition(": ")
        return Reason(code, words)
    try:
        decision = decide_replicas(scaler, snapshot.at_s)
        if decision is None:
            return Reason("TargetNotRead", f"{scaler.target} was not read yet")
        if scaler.shape is None or decision.replicas <= max(scaler.placed, decision.current):
            return decision
        room = room_for(snapshot, scaler.shape, decision.replicas - scaler.placed)
        limited = replace(scaler, capacity_limit=scaler.placed + room.pods, capacity_limited_by=room.scarce)
        return decide_replicas(limited, snapshot.at_s) or decision
    except UNDECIDED as error:
        return Reason("DecisionFailed", f"{type(error).__name__}: {error}")


def costs_of(
    snapshot: Snapshot, decided: Iterable[tuple[Scaler, ScalingDecision]], turn: Turn
) -> dict[str, dict[str, float]]:
    """Figures `mix_*`, dollars per hour, by policy, for those whose costs are due: what the mix of a service costs now,
    at the demand of the recommended replicas, and of one fewer and one more; without those that no mix serves.

    A policy in mode Recommend changes no demand, so the plan's own mix says nothing about it.
    """
    due = [
        (scaler, decision.replicas)
        for scaler, decision in decided
        if scaler.demand is not None and scaler.mode == "Recommend"
        if scaler.mix_costs_for != decision.replicas or snapshot.at_s - scaler.mix_costs_at_s >= AGAIN_S
    ]
    due.sort(key=lambda each: each[0].mix_costs_at_s)
    found: dict[str, dict[str, float]] = {}
    for scaler, replicas in due[:MOST_IN_A_PLAN]:
        service = next((each for each in snapshot.services if each.name == scaler.target.name), None)
        if service is None or scaler.demand is None:
            continue
        running = (service.replicas or {}).items()
        figures = {"mix_now": sum(snapshot.price_per_hour(service, each) * count for each, count in running)}
        asked = {"mix_recommended": replicas, "mix_one_fewer": replicas - 1, "mix_one_more": replicas + 1}
        for name, count in asked.items():
            if count < 0:
                continue
            demand = replace(scaler.demand, rate_per_s=count * scaler.replica_load)
            if demand.rate_per_s == 0:
                figures[name] = 0.0
            else:
                alone = replace(snapshot, services=(replace(service, demand=demand),))
                budget = Budget(WORK, turn.budget.clock, turn.budget.over_at_s)
                (mix,) = planner.plan_mix(alone, budget, replace(turn.decisions.mix, explain=False)).services
                figures |= {} if mix.refusal else {name: mix.cost_per_hour}
        found[scaler.name] = figures
    return found


def decide_mix(snapshot: Snapshot, turn: Turn) -> Plan:
    """The cheapest mix of every service, unless it would not pay its starts.

    Where the stock is short of a demand that the autoscaler expects, the mix serves the largest part of it.
    """
    budget, decisions = turn.budget, turn.decisions
    for_standing = Budget(STANDING_SHARE * budget.work, budget.clock, budget.over_at_s)
    for_parts = Budget(PARTS_SHARE * budget.work, budget.clock, budget.over_at_s)
    observed = {each.name: each.demand for each in turn.observed.services}
    expected = {each.name for each in snapshot.services if each.demand is not observed.get(each.name)}
    mix = planner.plan_mix(snapshot, budget, decisions.mix, turn.memory.mix)
    mix = corrections.with_parts(snapshot, mix, expected, for_parts, decisions.mix)
    plan = corrections.standing(snapshot, mix, for_standing, decisions.mix.gap, turn.memory.mix)
    return without_planned_only(snapshot, plan) if decisions.awaits_pods else plan


def without_planned_only(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan without actions on services whose instances are run by other means; their mixes stay in it.

    So nothing is scaled that nobody scales, and no instances that never come take seats from other pods.
    """
    apart = {each.name for each in snapshot.services if each.is_planned_only}
    phases = []
    for phase in plan.phases:
        kept = tuple(s for s in phase.steps if not (isinstance(s.action, Scale) and s.action.service in apart))
        if kept:
            phases.append(replace(phase, steps=kept))
    return replace(plan, phases=tuple(phases))
