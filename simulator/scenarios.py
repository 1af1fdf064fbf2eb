"""What-if scenarios: a fleet with other demand, prices, nodes or policy, and the figures of its plan."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster.errors import ConfigError, Mistake
from cluster.snapshot import PENDING, Snapshot
from controller.brain.inline import InlineBrain, decisions_from, limits_from
from controller.guard import guard
from controller.settings import settings_from, with_changes
from placement.budget import stopped


@dataclass(frozen=True, slots=True)
class Scenario:
    """Changes to the present fleet. The default changes nothing."""

    policy: str = "tonnage"
    demand: float = 1.0
    """Factor on every service's request rate."""
    slo: float = 1.0
    """Factor on every service's SLO, the time per token; profiles must have a table for the result."""
    prices: tuple[tuple[str, float], ...] = ()
    """(GPU type, dollars per device and hour)."""
    nodes: tuple[tuple[str, int], ...] = ()
    """(GPU type, nodes more or fewer). New nodes are copies of the type's most frequent node. Nodes with the least
    load are removed first, and their pods wait for a place."""
    seed: int = 0
    lost: tuple[str, str] | None = None
    """Label and value of nodes that are lost, and with them what runs there."""


@dataclass(frozen=True, slots=True)
class ScenarioAnswer:
    """Figures of a scenario's plan."""

    services_per_hour: float
    """Price per hour of all services' instances, in dollars."""
    bound_per_hour: float | None
    """Proven lower bound on that price, where there is one."""
    fleet_per_hour: float
    """Price per hour of all GPUs of the fleet, allocated or not, in dollars."""
    idle_per_hour: float
    """Price per hour of the GPUs that hold no pod after the plan, in dollars."""
    gpus: int
    gpus_used: float
    pods: int
    """Pods after the plan, running or waiting."""
    running: int
    unplaced: int
    """Pods without a place after the plan."""
    refused_services: int
    refused: tuple[str, ...]
    """Names of the services without a plan, in order."""
    cost_of: dict[str, float]
    """Price per hour of each service with a plan, in dollars."""
    evictions: int
    moves: int


def change_per_hour(answer: ScenarioAnswer, today: ScenarioAnswer) -> float:
    """What services that are planned in both cost more, dollars per hour: a refused service saves nothing."""
    both = answer.cost_of.keys() & today.cost_of.keys()
    return sum(answer.cost_of[name] - today.cost_of[name] for name in sorted(both))


def changed(snapshot: Snapshot, scenario: Scenario) -> Snapshot:
    """Fleet with the scenario's changes. Raises ConfigError for unknown GPU types and missing nodes."""
    _check(snapshot, scenario)
    prices = dict(scenario.prices)
    types = tuple(
        replace(each, price_per_hour=prices[each.name], spot_price_per_hour=None) if each.name in prices else each
        for each in snapshot.gpu_types
    )
    services = tuple(
        replace(
            each,
            demand=each.demand and replace(each.demand, rate_per_s=each.demand.rate_per_s * scenario.demand),
            slo=replace(each.slo, tpot_s=each.slo.tpot_s * scenario.slo),
        )
        for each in snapshot.services
    )
    made = replace(snapshot, gpu_types=types, services=services)
    for name, count in scenario.nodes:
        number = made.gpu_type_names.index(name)
        made = _with_nodes(made, number, count) if count > 0 else _without_nodes(made, number, -count)
    if scenario.lost:
        label, value = scenario.lost
        made = without_nodes(made, [row for row, labels in enumerate(made.nodes.labels) if labels.get(label) == value])
    return made


def losses(snapshot: Snapshot, label: str) -> tuple[tuple[str, str], ...]:
    """The label with each value that nodes have of it, in order. Raises ConfigError where none has it."""
    values = sorted({labels[label] for labels in snapshot.nodes.labels if label in labels})
    if not values:
        known = ", ".join(sorted(set().union(*snapshot.nodes.labels))) or "none"
        raise ConfigError(Mistake(f"--lose {label}", "no node has this label", f"choose from {known}"))
    return tuple((label, value) for value in values)


def survives(answer: ScenarioAnswer, before: ScenarioAnswer) -> bool:
    """Whether a loss leaves no pod without a place, and no service without a plan, that has one without the loss."""
    return answer.unplaced <= before.unplaced and set(answer.refused) <= set(before.refused)


def answered(scenario: Scenario, snapshot: Snapshot, within_s: float) -> ScenarioAnswer:
    """Figures of the plan for the changed fleet, with the guard applied.

    within_s: deadline as an amount of work. No time ends it, so answers are the same on every machine.
    """
    fleet = changed(snapshot, scenario)
    settings = with_changes(settings_from({}), policy=scenario.policy, plan_deadline_s=within_s)
    brain = InlineBrain(replace(decisions_from(settings, awaits_pods=False), seed=scenario.seed), stopped)
    plan = guard(fleet, brain.plan(fleet, within_s), limits_from(settings))
    after = fleet.after(plan.actions)
    price = np.array([*(each.price_per_hour for each in fleet.gpu_types), 0.0])[after.nodes.gpu_type]
    free_milli = after.free().gpu_milli.sum(axis=1)
    kinds = Counter(type(action).__name__ for action in plan.actions)
    whole = plan.certificates.get("mix")
    refused = sorted(service.service for service in plan.services if service.refusal is not None)
    return ScenarioAnswer(
        services_per_hour=sum(service.cost_per_hour for service in plan.services),
        bound_per_hour=whole.bound if whole else None,
        fleet_per_hour=float(price @ after.nodes.gpus),
        idle_per_hour=float(price @ free_milli) / 1000,
        gpus=int(after.nodes.gpus.sum()),
        gpus_used=float(after.nodes.gpus.sum() - free_milli.sum() / 1000),
        pods=len(after.pods),
        running=int((after.pods.node != PENDING).sum()),
        unplaced=int((after.pods.node == PENDING).sum()),
        refused_services=len(refused),
        refused=tuple(refused),
        cost_of={each.service: each.cost_per_hour for each in plan.services if each.refusal is None},
        evictions=kinds["Evict"],
        moves=kinds["Move"],
    )


def _check(snapshot: Snapshot, scenario: Scenario) -> None:
    known = snapshot.gpu_type_names
    mistakes = [
        Mistake(
            f"GPU type {name!r}", "is not in the manifests", f"choose from {', '.join(known) or 'none: add a GPUType'}"
        )
        for name in dict.fromkeys((*dict(scenario.prices), *dict(scenario.nodes)))
        if name not in known
    ]
    for name, count in scenario.nodes:
        there = int((snapshot.nodes.gpu_type == known.index(name)).sum()) if name in known else 0
        if name in known and not there:
            mistakes.append(Mistake(f"nodes {name}", "there is no node of this type to copy", "add one"))
        elif name in known and there + count < 0:
            mistakes.append(Mistake(f"nodes {name}={count}", f"there are only {there}", "remove fewer"))
    if mistakes:
        raise ConfigError(tuple(mistakes))


def _with_nodes(snapshot: Snapshot, gpu_type: int, count: int) -> Snapshot:
    nodes = snapshot.nodes
    rows = np.flatnonzero(nodes.gpu_type == gpu_type)
    kinds = Counter((int(nodes.gpus[r]), int(nodes.cpu_milli[r]), int(nodes.memory_bytes[r])) for r in rows)
    common = kinds.most_common(1)[0][0]
    like = next(
        int(r) for r in rows if (int(nodes.gpus[r]), int(nodes.cpu_milli[r]), int(nodes.memory_bytes[r])) == common
    )
    free_names = (name for n in range(len(nodes) + count) if (name := f"whatif-{n}") not in nodes.names)
    fresh = [next(free_names) for _ in range(count)]
    grown = nodes.only(np.concatenate([np.arange(len(nodes)), np.full(count, like)]))
    cordoned = None if nodes.cordoned is None else np.append(nodes.cordoned, np.zeros(count, dtype=bool))
    own = ({**nodes.labels[like], "kubernetes.io/hostname": name} for name in fresh)
    return replace(
        snapshot,
        nodes=replace(
            grown,
            names=nodes.names.plus(fresh),
            schedulable=np.append(nodes.schedulable, np.ones(count, dtype=bool)),
            cordoned=cordoned,
            labels=(*nodes.labels, *own),
        ),
    )


def _without_nodes(snapshot: Snapshot, gpu_type: int, count: int) -> Snapshot:
    nodes = snapshot.nodes
    left = snapshot.free().gpu_milli.sum(axis=1)
    rows = sorted(np.flatnonzero(nodes.gpu_type == gpu_type), key=lambda row: (nodes.gpus[row] * 1000 - left[row], row))
    return without_nodes(snapshot, [int(row) for row in rows[:count]])


def without_nodes(snapshot: Snapshot, rows: Sequence[int]) -> Snapshot:
    """Snapshot after the loss of these nodes: their pods wait for a place elsewhere."""
    nodes, pods = snapshot.nodes, snapshot.pods
    gone = np.isin(np.arange(len(nodes)), rows)
    number = np.where(gone, PENDING, np.cumsum(~gone) - 1)
    node = np.where(pods.node == PENDING, PENDING, number[pods.node])
    lost = (pods.node != PENDING) & (node == PENDING)
    return replace(
        snapshot,
        nodes=nodes.only(np.flatnonzero(~gone)),
        pods=replace(pods, node=node, devices=np.where(lost, 0, pods.devices)),
    )
