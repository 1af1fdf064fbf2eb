"""Plan edit that gives the seats of a gang to its pods in the order of their ranks, so that rings cross few uplinks."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from cluster.actions import Bind
from cluster.plans import Phase, Plan
from cluster.snapshot import Snapshot
from controller.deciders.decisions import Decisions
from placement.network_tree import Path, crossings, levels_of, natural, path_of


def edit(snapshot: Snapshot, plan: Plan, decisions: Decisions) -> Plan:  # noqa: ARG001 - a PlanEdit
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
    binds = {number: step.action for number, step in enumerate(phase.steps) if isinstance(step.action, Bind)}
    steps = list(phase.steps)
    for gang, numbers in _equal_pods(snapshot, binds):
        levels = levels_of((snapshot.gangs[gang].within, snapshot.gangs[gang].prefer_within))
        by_rank = sorted(numbers, key=lambda number: natural(binds[number].pod))
        paths = {number: _path(snapshot, binds[number], levels) for number in by_rank}
        seats = sorted(by_rank, key=lambda number: (*map(natural, paths[number]), binds[number].devices))
        if crossings([paths[number] for number in seats]) < crossings([paths[number] for number in by_rank]):
            for number, seat in zip(by_rank, seats, strict=True):
                steps[number] = replace(phase.steps[seat], action=replace(binds[seat], pod=binds[number].pod))
    return replace(phase, steps=tuple(steps))


def _equal_pods(snapshot: Snapshot, binds: Mapping[int, Bind]) -> Iterator[tuple[int, list[int]]]:
    """Gang and numbers of binds whose pods differ in nothing that placement knows."""
    pods = snapshot.pods
    alike: defaultdict[tuple[int, int, str, int], list[int]] = defaultdict(list)
    for number, bind in binds.items():
        row = pods.names.row(bind.pod)
        if row is not None and pods.gang[row] >= 0:
            alike[int(pods.gang[row]), int(pods.shape[row]), pods.owner[row], int(pods.priority[row])].append(number)
    return ((gang, numbers) for (gang, *_), numbers in alike.items())


def _path(snapshot: Snapshot, bind: Bind, levels: Sequence[str]) -> Path:
    row = snapshot.nodes.names.row(bind.node)
    return path_of(bind.node, {} if row is None else snapshot.nodes.labels[row], levels)
