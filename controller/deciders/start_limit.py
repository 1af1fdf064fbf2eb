"""Plan edit that leaves pods to the next plan where one would start more than the API server takes in some seconds."""

from collections.abc import Iterator
from dataclasses import replace

from cluster.plans import Phase, Plan, Reason, Step, Unplaced
from cluster.snapshot import Snapshot
from controller.deciders.decisions import Decisions

MOST_STARTS = 1000
"""Pods that an operator's plan starts. Chosen: an API server binds some 300 a second, so that a pod of high priority
that comes meanwhile waits for three seconds, and not for a flood of 20,000."""
WHY = Reason("WorkUsedUp", f"a plan starts {MOST_STARTS} pods, by priority, and was full; the next one goes on")


def edit(snapshot: Snapshot, plan: Plan, decisions: Decisions) -> Plan:
    """The plan with as many starts as the decisions allow."""
    return plan if decisions.most_starts is None else with_first_starts(snapshot, plan, decisions.most_starts)


def with_first_starts(snapshot: Snapshot, plan: Plan, most: int) -> Plan:
    """The plan with its first `most` starts of pods, which are those of the highest priority.

    A gang is never cut: the last one that begins within the limit starts whole, and so do pods for which others are
    stopped. Nothing is stopped for pods that are left to the next plan. Phases that start no pod stay.
    """
    phases: list[Phase] = []
    later: list[Step] = []
    left = most
    for phase in plan.phases:
        starts = sum(map(_is_start, phase.steps))
        if not starts or (left > 0 and (starts <= left or phase.whole or any(map(_is_stop, phase.steps)))):
            kept = phase.steps
        else:
            kept = tuple(_first(phase.steps, left))
            later += phase.steps[len(kept) :]
        left = max(0, left - starts)
        if kept:
            phases.append(replace(phase, steps=kept))
    if not later:
        return plan
    workloads = dict.fromkeys(_workload(snapshot, step) for step in later if _is_start(step))
    unplaced = tuple(Unplaced(workload, WHY) for workload in workloads)
    return replace(plan, phases=tuple(phases), unplaced=plan.unplaced + unplaced)


def _first(steps: tuple[Step, ...], starts: int) -> Iterator[Step]:
    """The steps before the first start that is too much."""
    for step in steps:
        if _is_start(step):
            if not starts:
                return
            starts -= 1
        elif not starts:
            return
        yield step


def _is_start(step: Step) -> bool:
    return any(change.node_before is None and change.node_after is not None for change in step.action.seat_changes)


def _is_stop(step: Step) -> bool:
    return any(change.node_after is None for change in step.action.seat_changes)


def _workload(snapshot: Snapshot, step: Step) -> str:
    """The pod that a step starts, or its gang, as `Kind/namespace/name`."""
    pod = step.action.seat_changes[0].pod
    row = snapshot.pods.names.row(pod)
    gang = -1 if row is None else int(snapshot.pods.gang[row])
    return f"Gang/{snapshot.gangs[gang].name}" if gang >= 0 else f"Pod/{pod}"
