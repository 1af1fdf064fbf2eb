"""Explanation of a plan for one object: the plan's decision about it, and everything that led to it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from cluster.actions import Evict
from cluster.errors import ConfigError, Mistake, meant
from cluster.plans import Plan, Reason, ServicePlan, plans_of_services
from cluster.snapshot import PENDING, Snapshot, device_numbers
from cluster.workloads import OWN_NODE, Gang, ModelService, PodShape
from placement.engine.explanation import Explanation, explain as explain_seat
from placement.engine.packer import Packer

PackerOf = Callable[[Snapshot], Packer]


@dataclass(frozen=True, slots=True)
class ServiceWhy:
    """Explanation of a service."""

    service: ModelService
    plan: ServicePlan


@dataclass(frozen=True, slots=True)
class PodWhy:
    """Explanation of a pod: the plan's decision, and the nodes that it could have when all else is as planned."""

    name: str
    shape: PodShape
    priority: int
    node_before: str | None
    node_after: str | None
    devices: tuple[int, ...]
    """Devices on `node_after`."""
    gang: str | None
    """Gang of which it is a member; `seats` ignores the constraints of the gang."""
    reason: Reason | None
    """Reason of the step about it, or why it is unplaced; None where the plan leaves it unchanged."""
    seats: Explanation
    """Nodes that it could have, with their costs."""
    nodes: tuple[str, ...]
    """Node names by the row indices in `seats`."""


@dataclass(frozen=True, slots=True)
class GangWhy:
    """Explanation of a gang."""

    gang: Gang
    members: tuple[tuple[str, str | None, tuple[int, ...]], ...]
    """Members as (pod, node, devices); the node is None for an unplaced pod."""
    domains: tuple[str, ...]
    """Values of its topology label on the nodes of its members, sorted; empty without such a label."""
    reason: Reason | None
    """Reason why it is unplaced; None when it is placed."""
    seat: PodWhy | None
    """Explanation of one member: the first unplaced one, else the first; None for a gang without members."""


@dataclass(frozen=True, slots=True)
class NodeWhy:
    """Explanation of a node."""

    name: str
    gpu_type: str | None
    schedulable: bool
    pods: tuple[tuple[str, tuple[int, ...], str], ...]
    """Pods as (pod, devices, `runs`, `starts` or `leaves` by the plan), sorted by name."""
    free_cpu_milli: int
    free_memory_bytes: int
    free_gpu_milli: tuple[int, ...]
    """Free thousandths of each device after the plan."""


Why = ServiceWhy | PodWhy | GangWhy | NodeWhy

EXPLAINED = ("Gang", "ModelService", "Node", "Pod")
"""Kinds that can be explained, each with its own page."""


def explain(snapshot: Snapshot, plan: Plan, target: str, packer_of: PackerOf) -> Why:
    """Explanation of an object, named `KIND/NAME` (in the namespace `default`) or `KIND/NAMESPACE/NAME`.

    packer_of: creates the plan's packing engine for another snapshot. Raises ConfigError when the object exists neither
    before the plan nor after it.
    """
    found, name = kind_and_name(target)
    after = snapshot.after(plan.actions)
    if found == "Node":
        return _node(snapshot, after, _known(found, name, snapshot.nodes.names))
    full = name if "/" in name else f"default/{name}"
    match found:
        case "ModelService":
            name = _known(found, full, [service.name for service in snapshot.services])
            service = next(each for each in snapshot.services if each.name == name)
            whole = plans_of_services(plan.services, () if service.part_of else snapshot.services)
            return ServiceWhy(service, whole[name])
        case "Gang":
            gangs = [gang.name for gang in snapshot.gangs]
            return _gang(snapshot, after, plan, gangs.index(_known(found, full, gangs)), packer_of)
        case _:
            existing = snapshot.pods.names
            name = _known(found, full, dict.fromkeys((*existing, *after.pods.names)), alike=existing)
            return _pod(snapshot, after, plan, name, packer_of)


def kind_and_name(target: str) -> tuple[str, str]:
    """Kind as spelt in EXPLAINED, and name as written. Raises ConfigError for an unknown kind."""
    kind, _, name = target.partition("/")
    found = next((known for known in EXPLAINED if known.lower() == kind.lower()), None)
    if found is None or not name:
        raise ConfigError(Mistake(target, "should be KIND/NAME", meant(kind, EXPLAINED)))
    return found, name


def _known(kind: str, name: str, names: Iterable[str], alike: Iterable[str] | None = None) -> str:
    """Raises ConfigError unless the name is known. alike: names to suggest, without those that only the plan has."""
    if name not in names:
        remedy = meant(name, names if alike is None else alike)
        raise ConfigError(Mistake(f"{kind}/{name}", "there is no such object", remedy))
    return name


def _pod(snapshot: Snapshot, after: Snapshot, plan: Plan, name: str, packer_of: PackerOf) -> PodWhy:
    is_ended = name not in after.pods.names  # an instance that its service no longer needs
    seen = snapshot if is_ended else after
    before, row = snapshot.pods.names.row(name), seen.pods.names.row(name)
    assert row is not None  # noqa: S101  # `_known` has checked
    shape, node = seen.pods.shapes[seen.pods.shape[row]], PENDING if is_ended else int(after.pods.node[row])
    # The rest of the plan is kept, and only this pod is placed again.
    without = after if node == PENDING else after.after([Evict(name, after.nodes.names[node])])
    # A pod pinned to where it runs may use that node.
    pins = {r.key: OWN_NODE for term in shape.node_terms for r in term if OWN_NODE in r.values}
    if pins and node != PENDING:
        labels = list(without.nodes.labels)
        labels[node] = {**labels[node], **pins}
        without = replace(without, nodes=replace(without.nodes, labels=tuple(labels)))
    concerned = (f"Pod/{name}", f"Gang/{_gang_name(seen, row)}")
    unplaced = [each.reason for each in plan.unplaced if each.workload in concerned]
    steps = [step.reason for step in plan.steps() if any(seat.pod == name for seat in step.action.seat_changes)]
    scales = [step.reason for step in plan.steps() if step.action.subject == f"ModelService/{seen.pods.owner[row]}"]
    last = scales[:1] if is_ended else (steps if node != PENDING else unplaced or steps)[-1:]
    return PodWhy(
        name=name,
        shape=shape,
        priority=int(seen.pods.priority[row]),
        node_before=None if before is None else _node_name(snapshot, int(snapshot.pods.node[before])),
        node_after=_node_name(after, node),
        devices=() if is_ended else device_numbers(int(after.pods.devices[row])),
        gang=_gang_name(seen, row),
        reason=last[0] if last else None,
        seats=Explanation(()) if is_ended else explain_seat(packer_of(without), shape),
        nodes=tuple(seen.nodes.names),
    )


def _node_name(snapshot: Snapshot, node: int) -> str | None:
    return None if node == PENDING else snapshot.nodes.names[node]


def _gang_name(snapshot: Snapshot, row: int) -> str | None:
    gang = int(snapshot.pods.gang[row])
    return None if gang < 0 else snapshot.gangs[gang].name


def _gang(snapshot: Snapshot, after: Snapshot, plan: Plan, row: int, packer_of: PackerOf) -> GangWhy:
    gang = snapshot.gangs[row]
    rows = np.flatnonzero(after.pods.gang == row)
    label = gang.within or gang.prefer_within
    used = after.pods.node[rows]
    values = {after.nodes.labels[node].get(label, "") for node in used[used != PENDING]} if label else set()
    members = tuple(
        (
            after.pods.names[int(r)],
            _node_name(after, int(after.pods.node[r])),
            device_numbers(int(after.pods.devices[r])),
        )
        for r in rows
    )
    shown = next((pod for pod, node, _ in members if node is None), members[0][0] if members else None)
    return GangWhy(
        gang=gang,
        members=members,
        domains=tuple(sorted(values)),
        reason=next((each.reason for each in plan.unplaced if each.workload == f"Gang/{gang.name}"), None),
        seat=None if shown is None else _pod(snapshot, after, plan, shown, packer_of),
    )


def _node(snapshot: Snapshot, after: Snapshot, name: str) -> NodeWhy:
    row = after.nodes.names.row(name)
    assert row is not None  # noqa: S101  # `_known` has checked
    there = {after.pods.names[int(p)]: int(p) for p in np.flatnonzero(after.pods.node == row)}
    was = {snapshot.pods.names[int(p)]: int(p) for p in np.flatnonzero(snapshot.pods.node == row)}
    pods = [
        (pod, device_numbers(int(after.pods.devices[p])), "runs" if pod in was else "starts")
        for pod, p in there.items()
    ]
    pods += [
        (pod, device_numbers(int(snapshot.pods.devices[p])), "leaves") for pod, p in was.items() if pod not in there
    ]
    free, kind = after.free(), int(after.nodes.gpu_type[row])
    return NodeWhy(
        name=name,
        gpu_type=after.gpu_type_names[kind] if kind >= 0 else None,
        schedulable=bool(after.nodes.schedulable[row]),
        pods=tuple(sorted(pods)),
        free_cpu_milli=int(free.cpu_milli[row]),
        free_memory_bytes=int(free.memory_bytes[row]),
        free_gpu_milli=tuple(free.gpu_milli[row, : after.nodes.gpus[row]].tolist()),
    )
