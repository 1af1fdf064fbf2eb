"""Advice on a fleet: what its idle, stranded, scattered and unsuitable GPUs cost, in dollars. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cluster.plans import Plan
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import WHOLE_GPU_MILLI, InstanceType, PodShape
from controller.api import notation
from controller.api.gpu_type import GPUType
from controller.api.labels import is_device_number
from controller.api.structs import Amount, Node
from controller.objects.read import Read
from controller.queries.plan_diff import cost_per_hour
from controller.queries.usage import NO_TYPE, Usage, of_nodes, of_services, of_types, total
from controller.snapshot.nodes import GPU_RESOURCES

Decide = Callable[[Snapshot], Plan]
HOURS_PER_MONTH = 730.0
"""Mean hours of a month: 365 × 24 / 12."""
LEAST_STRANDED = 0.05
"""Smallest part of a device that is worth naming. Chosen: fractions are given in twentieths."""
CENT = 0.01
EXPLAIN = "tonnage explain ModelService/{} -f FILE says why, and what would be cheaper"


@dataclass(frozen=True, slots=True)
class Advice:
    """One way to spend less, or to serve more with what is there."""

    topic: str
    """`idle`, `closed`, `unusable`, `stranded`, `fragmentation`, `types`, `services`, `waiting` or `held`."""
    headline: str
    remedy: str
    dollars_per_hour: float
    """Price of the devices concerned, US dollars per hour: an upper limit of what following the advice saves."""
    about: tuple[str, ...] = ()
    """Nodes or pods concerned."""


@dataclass(frozen=True, slots=True)
class AdviceReport:
    """Fleet, and the advice on it, most expensive first."""

    fleet: Usage
    by_type: tuple[Usage, ...]
    advice: tuple[Advice, ...]
    unpriced: tuple[str, ...]
    """Nodes with GPUs of unknown type, which are in no amount of dollars."""
    watts: "Watts"


@dataclass(frozen=True, slots=True)
class Watts:
    """Power limits of the devices whose product has a known one, watts."""

    all_w: float
    idle_w: float
    """Of the devices that no pod holds: what is provisioned for them, not what they draw."""
    gpus: int
    """Devices of known limit."""


def advise(
    now: Snapshot,
    decide: Decide,
    *,
    replaced: Collection[str] = (),
    limit_w: Mapping[str, float] | None = None,
    also: Collection[Advice] = (),
) -> AdviceReport:
    """Advice on a fleet.

    decide: planner, asked once for the fleet as it is and once with the pods that may be moved taken from their nodes.
    replaced: pods that their controllers would make anew elsewhere, by which they may be moved. limit_w: power limit of
    a device by the node label that names its product. also: advice from elsewhere.
    """
    nodes = [each for each in of_nodes(now) if each.gpus]
    found = [*also, *_unused(nodes), *_scattered(now, decide, frozenset(replaced))]
    plan = decide(now) if now.services or len(_waiting_rows(now)) else Plan()
    found += [*_types(now), *_services(now, plan), *_waiting(now, plan)]
    return AdviceReport(
        total(nodes),
        tuple(each for each in of_types(now) if each.gpus),
        tuple(sorted(found, key=lambda each: -each.dollars_per_hour)),
        tuple(each.name for each in nodes if each.gpu_type == NO_TYPE),
        _watts(now, nodes, limit_w or {}),
    )


def _watts(now: Snapshot, nodes: list[Usage], limit_w: Mapping[str, float]) -> Watts:
    by_name = {each.name: each for each in nodes}
    all_w = idle_w = 0.0
    gpus = 0
    for name, labels in zip(now.nodes.names, now.nodes.labels, strict=True):
        each = by_name.get(name)
        limit = next((limit_w[value] for value in labels.values() if value in limit_w), None)
        if each is not None and limit is not None:
            all_w, idle_w = all_w + limit * each.gpus, idle_w + limit * (each.gpus - each.used)
            gpus += each.gpus
    return Watts(all_w, idle_w, gpus)


def _unused(nodes: list[Usage]) -> Iterator[Advice]:
    """Devices without a pod: of idle nodes, of closed ones, and beside used ones, where CPU or memory is short."""
    if idle := [each for each in nodes if each.schedulable and not each.used]:
        gpus = sum(each.gpus for each in idle)
        yield Advice(
            "idle",
            f"{_many(len(idle), 'node')} with {gpus} GPUs without a pod that uses one",
            "give them back, or run what waits there",
            sum(each.cost_per_hour for each in idle),
            tuple(each.name for each in idle),
        )
    if closed := [each for each in nodes if each.closed > LEAST_STRANDED]:
        yield Advice(
            "closed",
            f"{sum(each.closed for each in closed):.4g} idle GPUs are on nodes that are cordoned or not ready",
            "tonnage uncordon NODE, repair the node, or give it back",
            sum(each.idle_cost_per_hour for each in closed),
            tuple(each.name for each in closed),
        )
    if stranded := [each for each in nodes if each.used and each.stranded > LEAST_STRANDED]:
        count = sum(each.stranded for each in stranded)
        yield Advice(
            "stranded",
            f"{count:.1f} idle GPUs cannot be used by typical pods: too little of another resource is left beside them",
            "request less CPU and memory where pods do not use it, and let Tonnage place the pods",
            sum(each.stranded * each.cost_per_hour / each.gpus for each in stranded),
            tuple(each.name for each in stranded),
        )


def unusable_devices(nodes: Iterable[Read[Node]], types: Iterable[Read[GPUType]]) -> Iterator[Advice]:
    """Devices that nodes have, by their capacity or by their label, and do not offer."""
    prices = {
        (each.object.spec.node_label.key, value): each.object.spec.price_per_hour.usual
        for each in types
        for value in each.object.spec.node_label.values
    }
    gpus, dollars, about = 0, 0.0, list[str]()
    for node in nodes:
        labels, status = node.object.metadata.labels, node.object.status
        count = labels.get("nvidia.com/gpu.count", "")
        capacity, offered = (
            sum(_devices(each.get(name, 0)) for name in GPU_RESOURCES)
            for each in (status.capacity, status.allocatable or status.capacity)
        )
        missing = max(capacity, int(count) if is_device_number(count) else 0) - offered
        if missing > 0:
            gpus += missing
            dollars += missing * max((prices.get(label, 0.0) for label in labels.items()), default=0.0)
            about.append(node.name)
    if about:
        yield Advice(
            "unusable",
            f"{gpus} GPUs of {_many(len(about), 'node')} are there and not offered to pods",
            "see what their driver and device plugin say, or give the nodes back",
            dollars,
            tuple(about),
        )


def _devices(written: Amount) -> int:
    try:
        return notation.whole(notation.quantity(written))
    except ValueError:  # which is said of its node
        return 0


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _scattered(now: Snapshot, decide: Decide, replaced: frozenset[str]) -> Iterator[Advice]:
    """Nodes that become free when the pods that may be moved are placed anew, each on a GPU type that it may use."""
    # Rows of running pods with GPUs that may be moved, or are made anew elsewhere, and belong to no gang.
    with_gpus = np.array([shape.gpus > 0 for shape in now.pods.shapes], dtype=bool)[now.pods.shape]
    movable = now.pods.movable | np.fromiter((name in replaced for name in now.pods.names), bool, len(now.pods.names))
    loose: np.ndarray = with_gpus & movable & now.pods.may_be_stopped & (now.pods.node != PENDING) & (now.pods.gang < 0)
    if not loose.any():
        return
    start = _without_pending(now, keep=loose)
    taken = replace(start.pods, node=start.pods.node.copy(), devices=start.pods.devices.copy())
    again = np.isin(np.asarray(start.pods.names), [now.pods.names[row] for row in np.flatnonzero(loose).tolist()])
    taken.node[again], taken.devices[again] = PENDING, 0
    plan = decide(replace(start, pods=taken))
    if plan.unplaced:  # this order of placing them is worse than what runs; no claim
        return
    after = replace(start, pods=taken).after(plan.actions)
    before_used, after_used = _used_nodes(now), _used_nodes(after)
    # Price of all devices of each node, US dollars per hour, shape (nodes,); 0 where the type is unknown.
    prices = np.array([*(each.price_per_hour for each in now.gpu_types), 0.0])
    price: np.ndarray = prices[now.nodes.gpu_type] * now.nodes.gpus
    saved = float(price[before_used].sum() - price[after_used].sum())
    freed = [now.nodes.names[row] for row in np.flatnonzero(before_used & ~after_used).tolist()]
    if saved > 0 and freed:
        moved = int((after.pods.node[again] != start.pods.node[again]).sum())
        yield Advice(
            "fragmentation",
            f"{_many(int(before_used.sum()), 'node')} in use, where {int(after_used.sum())} can hold the same pods; "
            f"{_many(moved, 'pod')} would run elsewhere",
            "let Tonnage place pods (docs/operator.md); running ones follow as they restart",
            saved,
            tuple(freed),
        )


def _without_pending(now: Snapshot, *, keep: np.ndarray) -> Snapshot:
    """The fleet with its running pods alone; those of `keep` are kept to GPU types that they may surely use.

    A pod that names no type stays on the one that it runs on: whether its model fits another is unknown.
    """
    rows = np.flatnonzero(now.pods.node != PENDING)
    shapes, pinned = now.pods.shapes, dict[int, PodShape]()
    made: dict[PodShape, PodShape] = {}
    for row in np.flatnonzero(keep).tolist():
        own, kind = shapes[now.pods.shape[row]], int(now.nodes.gpu_type[now.pods.node[row]])
        if not own.gpu_types and kind >= 0:
            narrow = replace(own, gpu_types=(now.gpu_type_names[kind],))
            pinned[row] = made.setdefault(narrow, narrow)
    pods = now.pods.reshaped(pinned).only(rows)
    return replace(now, pods=pods, services=())


def _used_nodes(now: Snapshot) -> np.ndarray:
    """Nodes on which a pod holds a GPU, shape (nodes,)."""
    with_gpus = np.array([shape.gpus > 0 for shape in now.pods.shapes], dtype=bool)[now.pods.shape]
    rows = now.pods.node[(now.pods.node != PENDING) & with_gpus]
    return np.bincount(rows, minlength=len(now.nodes)) > 0


def _types(now: Snapshot) -> Iterator[Advice]:
    """Pods that name no GPU type and hold a dear one, while cheaper devices are idle."""
    idle = np.maximum(now.free().gpu_milli, 0).sum(axis=1) // WHOLE_GPU_MILLI
    left = Counter[int]()
    for row in np.flatnonzero(now.nodes.schedulable & (now.nodes.gpu_type >= 0)).tolist():
        left[int(now.nodes.gpu_type[row])] += int(idle[row])
    held: list[tuple[float, int, str]] = []
    for row in np.flatnonzero(now.pods.node != PENDING).tolist():
        shape, kind = now.pods.shapes[now.pods.shape[row]], int(now.nodes.gpu_type[now.pods.node[row]])
        if shape.gpus and not shape.gpu_types and kind >= 0:
            held.append((now.gpu_types[kind].price_per_hour, row, now.pods.names[row]))
    difference, about = 0.0, list[str]()
    for price, row, name in sorted(held, reverse=True):
        shape = now.pods.shapes[now.pods.shape[row]]
        devices = shape.gpus * shape.gpu_milli / WHOLE_GPU_MILLI
        cheaper = [
            (now.gpu_types[kind].price_per_hour, kind)
            for kind, count in left.items()
            if count >= shape.gpus and now.gpu_types[kind].price_per_hour < price
        ]
        if cheaper:
            other, kind = min(cheaper)
            left[kind] -= shape.gpus
            difference += devices * (price - other)
            about.append(name)
    if about:
        yield Advice(
            "types",
            f"{_many(len(about), 'pod')} without a GPU type on dearer GPUs, while cheaper ones are idle",
            "name the types that serve each pod (annotation tonnage.dev/gpu-types); Tonnage then takes the cheapest",
            difference,
            tuple(about),
        )


def _services(now: Snapshot, plan: Plan) -> Iterator[Advice]:
    """Each service's cheapest mix for its demand, beside what runs of it."""
    running = {each.name: each.running for each in of_services(now)}
    for service in now.services:
        planned = next((each for each in plan.services if each.service == service.name), None)
        if planned is None:
            continue
        name = f"ModelService {service.name}"
        if planned.refusal is not None:
            said = f"no mix serves ModelService {planned.refusal.words}"
            yield Advice("services", said, EXPLAIN.format(service.name), 0.0)
            continue
        runs = running[service.name]
        costs = cost_per_hour(now, service, runs)
        mix = f"{_mix(planned.instances)} at ${planned.cost_per_hour:,.2f}/h"
        if not runs:
            yield Advice("services", f"{name}: {mix} serve its demand at its SLO", EXPLAIN.format(service.name), 0.0)
        elif costs > planned.cost_per_hour + CENT:
            said = f"{name} runs on {_mix(runs)} at ${costs:,.2f}/h, where {mix} serve its demand at its SLO"
            yield Advice("services", said, EXPLAIN.format(service.name), costs - planned.cost_per_hour)


def _mix(counts: Mapping[InstanceType, int]) -> str:
    return " + ".join(f"{count} × {each.name}" for each, count in sorted(counts.items()) if count)


def _waiting_rows(now: Snapshot) -> list[int]:
    return [
        row
        for row in now.pods.pending.tolist()
        if now.pods.shapes[now.pods.shape[row]].gpus and not now.pods.owner[row]
    ]


def _waiting(now: Snapshot, plan: Plan) -> Iterator[Advice]:
    """Pods that wait although Tonnage's packer has a place for them, and those that no node can hold now."""
    rows = _waiting_rows(now)
    if not rows:
        return
    waiting = {now.pods.names[row] for row in rows}
    short = {each.workload.partition("/")[2]: each.reason.words for each in plan.unplaced}
    able = sorted(name for name in waiting if name not in short)
    stuck = sorted(name for name in waiting if name in short)
    if able:
        yield Advice(
            "waiting",
            f"{len(able)} of {len(waiting)} waiting pods with GPUs have a place now",
            "let Tonnage place them: schedulingGates or schedulerName tonnage (docs/operator.md)",
            0.0,
            tuple(able),
        )
    if stuck:
        reason, _ = Counter(short[name] for name in stuck).most_common(1)[0]
        yield Advice(
            "waiting",
            f"{len(stuck)} of {len(waiting)} waiting pods with GPUs fit nowhere, most often: {reason}",
            "tonnage explain Pod/NAME -f FILE names what is short, on how many nodes",
            0.0,
            tuple(stuck),
        )
