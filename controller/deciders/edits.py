"""Edits of a whole plan: seats of a gang in the order of ranks, pods that do not exist yet, and the limit on starts."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from cluster.actions import Bind, Evict, RestartGang
from cluster.plans import Phase, Plan, Reason, Step, Unplaced
from cluster.snapshot import Snapshot
from cluster.workloads import MemberGroup
from controller.deciders.decisions import Decisions
from placement.network_tree import crossings, levels_of, natural, path_of
from placement.packing.group_levels import levels_in

AWAITS_POD = "AwaitsPod"
"""Reason code of a pod whose service is scaled in this same plan."""
MOST_STARTS = 1000
"""Pods that an operator's plan starts. Chosen: an API server binds some 300 a second, so that a pod of high priority
that comes meanwhile waits for three seconds, and not for a flood of 20,000."""
PLAN_IS_FULL = Reason(
    "WorkUsedUp", f"a plan starts {MOST_STARTS} pods, by priority, and was full; the next one goes on"
)


def order_ranks(snapshot: Snapshot, plan: Plan, decisions: Decisions) -> Plan:  # noqa: ARG001 - a PlanEdit
    """The plan with equal pods of each gang in rank order over its seats: depth first through the network's tree.

    Training frameworks take ranks from the index in a pod's name and send to the next rank, and groups of neighbours
    (tensor-parallel, then data-parallel) to each other. Which of several equal pods sits where is free until they
    start. In depth-first order every domain's pods are consecutive, so a ring enters and leaves each domain once, which
    is the least that a ring through it can do. Where that crosses no fewer boundaries, nothing is changed.

    The idea is the traffic planning of C4 (Dong et al., "Boosting Large-scale Parallel Training Efficiency with C4",
    arXiv 2406.04594), as far as a scheduler can carry it out.
    """
    phases = tuple(_in_rank_order(snapshot, phase) if phase.whole else phase for phase in plan.phases)
    return plan if phases == plan.phases else replace(plan, phases=phases)


def _in_rank_order(snapshot: Snapshot, phase: Phase) -> Phase:
    """A phase that starts a gang, with the seats of its equal pods in the order of their ranks."""
    pods, nodes, steps = snapshot.pods, snapshot.nodes, list(phase.steps)
    binds = {number: step.action for number, step in enumerate(phase.steps) if isinstance(step.action, Bind)}
    alike: defaultdict[tuple[int, int, str, int, str], list[int]] = defaultdict(list)
    """Numbers of binds whose pods differ in nothing that placement knows; by gang first."""
    group_of, known = dict[str, str](), set[int]()
    for number, bind in binds.items():
        row = pods.names.row(bind.pod)
        if row is not None and pods.gang[row] >= 0:
            gang, asks = int(pods.gang[row]), int(pods.shape[row])
            if gang not in known:
                known.add(gang)
                group_of |= dict(_groups_of(snapshot.gangs[gang].groups))
            kind = gang, asks, pods.owner[row], int(pods.priority[row]), group_of.get(bind.pod, "")
            alike[kind].append(number)
    for (gang, *_), numbers in alike.items():
        wanted = snapshot.gangs[gang]
        levels = levels_of((wanted.within, wanted.prefer_within, *levels_in(wanted.groups)))
        by_rank = sorted(numbers, key=lambda number: natural(binds[number].pod))
        paths = {}
        for number in by_rank:
            where = nodes.names.row(binds[number].node)
            paths[number] = path_of(binds[number].node, {} if where is None else nodes.labels[where], levels)
        seats = sorted(by_rank, key=lambda number: (*map(natural, paths[number]), binds[number].devices))
        if crossings([paths[number] for number in seats]) < crossings([paths[number] for number in by_rank]):
            for number, seat in zip(by_rank, seats, strict=True):
                steps[number] = replace(phase.steps[seat], action=replace(binds[seat], pod=binds[number].pod))
    return replace(phase, steps=tuple(steps))


def _groups_of(groups: Iterable[MemberGroup], within: str = "") -> Iterator[tuple[str, str]]:
    """Each pod of these groups with the path of its group; no seat in one is one in another."""
    for group in groups:
        path = f"{within}/{group.name}"
        yield from ((pod, path) for pod in group.members)
        yield from _groups_of(group.groups, path)


def await_pods(snapshot: Snapshot, plan: Plan, decisions: Decisions) -> Plan:
    """The plan for a cluster in which a service's pods are created only after it was scaled."""
    return without_pods_to_come(snapshot, plan) if decisions.awaits_pods else plan


def without_pods_to_come(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan without binds of pods that do not exist yet: their owner has to create them first.

    Deciders plan on instances as soon as a Scale asks for them, under made-up names, and on the members of a gang that
    is restarted under the names that they had. Nothing is evicted for them
    either: a whole phase that starts one of them waits with all its steps. Outside whole phases the plan does not
    record which eviction makes room for which pod, so all of those wait for the next cycle.
    """
    binds = [step.action.pod for step in plan.steps() if isinstance(step.action, Bind)]
    restarts = (step.action for step in plan.steps() if isinstance(step.action, RestartGang))
    restarted = {pod for action in restarts for pod, _, _ in action.pods}
    waiting = dict.fromkeys(pod for pod in binds if pod not in snapshot.pods.names or pod in restarted)
    if not waiting:
        return plan
    phases = []
    for phase in plan.phases:
        kept = tuple(s for s in phase.steps if not (isinstance(s.action, Bind) and s.action.pod in waiting))
        if phase.whole and len(kept) < len(phase.steps):
            continue
        if not phase.whole:
            kept = tuple(step for step in kept if not isinstance(step.action, Evict))
        if kept:
            phases.append(Phase(phase.name, kept, phase.whole))
    why = Reason(AWAITS_POD, "it was asked for in this cycle; it is placed as soon as its owner has made it")
    unplaced = tuple(Unplaced(f"Pod/{pod}", why) for pod in waiting)
    return replace(plan, phases=tuple(phases), unplaced=plan.unplaced + unplaced)


def limit_starts(snapshot: Snapshot, plan: Plan, decisions: Decisions) -> Plan:
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
        stops = any(change.node_after is None for step in phase.steps for change in step.action.seat_changes)
        kept = phase.steps
        if starts and (left <= 0 or not (starts <= left or phase.whole or stops)):
            count, allowed = 0, left
            while allowed and count < len(phase.steps):
                allowed -= _is_start(phase.steps[count])
                count += 1
            kept = phase.steps[:count]
            later += phase.steps[count:]
        left = max(0, left - starts)
        if kept:
            phases.append(replace(phase, steps=kept))
    if not later:
        return plan
    workloads: dict[str, None] = {}
    for step in filter(_is_start, later):
        pod = step.action.seat_changes[0].pod
        row = snapshot.pods.names.row(pod)
        gang = -1 if row is None else int(snapshot.pods.gang[row])
        workloads[f"Gang/{snapshot.gangs[gang].name}" if gang >= 0 else f"Pod/{pod}"] = None
    unplaced = tuple(Unplaced(workload, PLAN_IS_FULL) for workload in workloads)
    return replace(plan, phases=tuple(phases), unplaced=plan.unplaced + unplaced)


def _is_start(step: Step) -> bool:
    return any(change.node_before is None and change.node_after is not None for change in step.action.seat_changes)


def tell_refusals(snapshot: Snapshot, plan: Plan, decisions: Decisions) -> Plan:  # noqa: ARG001 - a PlanEdit
    """The plan in which pods that wait are told what kube-scheduler or a kubelet said of others like them."""
    told = [
        replace(each, reason=replace(each.reason, words=f"{each.reason.words}; {snapshot.refused[each.workload]}"))
        if each.workload in snapshot.refused
        else each
        for each in plan.unplaced
    ]
    return replace(plan, unplaced=tuple(told)) if snapshot.refused else plan
