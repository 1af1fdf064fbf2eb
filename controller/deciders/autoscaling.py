"""Autoscaling: replicas of scaled targets, and the demand that services are planned for, by each ScalingPolicy."""

from dataclasses import replace

from autoscaler.concurrency.safe_bandit import limit_of
from autoscaler.decision.decide import decide as decide_replicas
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
from placement.mix import corrections, planner

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
        if scaler.mode not in IN_FORCE or scaler.conflict:
            continue
        if scaler.demand is not None:
            demand = replace(scaler.demand, rate_per_s=decision.load)
            leads_s = scaler.lead_time.points_s
            expected.append(ExpectedDemand(scaler.target.name, demand, sum(leads_s) / len(leads_s) / STAY_S))
        elif decision.changes:
            action = SetReplicas(scaler.name, scaler.target, decision.replicas, decision.current)
            steps.append(Step(action, decision.reason))
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


def decide_mix(snapshot: Snapshot, turn: Turn) -> Plan:
    """The cheapest mix of every service, unless it would not pay its starts.

    Where the stock is short of a demand that the autoscaler expects, the mix serves the largest part of it.
    """
    budget, decisions = turn.budget, turn.decisions
    for_standing = Budget(STANDING_SHARE * budget.work, budget.clock, budget.over_at_s)
    for_parts = Budget(PARTS_SHARE * budget.work, budget.clock, budget.over_at_s)
    observed = {each.name: each.demand for each in turn.observed.services}
    expected = {s.name for s in snapshot.services if s.demand is not observed.get(s.name) or s.deferred_per_s}
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
