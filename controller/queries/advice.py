"""Advice on a fleet: changes that planning carried out on a snapshot of it, each with what it saves or frees. Pure."""

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cluster.plans import Plan
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import InstanceType, is_spot
from controller.api import notation
from controller.api.gpu_type import GPUType
from controller.api.labels import GPU_TYPES_ANNOTATION, is_device_number
from controller.api.structs import Node
from controller.objects.accelerators import is_device
from controller.objects.read import Read
from controller.queries.counterfactual import Counterfactual, FleetChange
from controller.queries.explain import PackerOf
from controller.queries.holders import DeviceHolder
from controller.queries.plan_diff import cost_per_hour
from controller.queries.usage import NO_TYPE, Usage, of_nodes, of_types, total
from controller.report.fleet_metrics import running_instances
from controller.report.idle_devices import idle_devices

Decide = Callable[[Snapshot], Plan]
HOURS_PER_MONTH = 730.0
"""Mean hours of a month: 365 × 24 / 12."""
LEAST_STRANDED = 0.05
"""Smallest part of a device that is worth naming. Chosen: fractions are given in twentieths."""
CENT = 0.01
EXPLAIN = "tonnage explain ModelService/{} -f FILE says why, and what would be cheaper"
GPU_COUNTS = ("nvidia.com/gpu.count", "karpenter.k8s.aws/instance-gpu-count", "cloud.google.com/gke-accelerator-count")
"""Labels with the number of a node's devices, whether its plugin offers them or not."""

Effect = Literal["saves", "serves", "frees"]
"""saves: the fleet costs less, as nodes are given back. serves: idle devices are put to use by what waits. frees:
devices that are held or closed in vain can be used, or their node given back."""


@dataclass(frozen=True, slots=True)
class Item:
    """Node or pod that an advice is about, with its part of the amount."""

    name: str
    dollars_per_hour: float
    words: str = ""


@dataclass(frozen=True, slots=True)
class NotOffered:
    """Devices that a node has and does not offer."""

    item: Item
    count: int
    gpu_type: str


@dataclass(frozen=True, slots=True)
class Command:
    """Command that follows an advice, and the one that takes it back."""

    do: str
    undo: str


@dataclass(frozen=True, slots=True)
class Advice:
    """One way to spend less, or to serve more with what is there. No device is in two that save or serve."""

    topic: str
    headline: str
    remedy: str
    dollars_per_hour: float
    """US dollars per hour that the fleet costs less, or price of the devices put to use, by `effect`."""
    effect: Effect = "saves"
    items: tuple[Item, ...] = ()
    """Dearest first."""
    steps: tuple[Command, ...] = ()
    changes: tuple[FleetChange, ...] = ()
    """As the engine carried them out."""

    @property
    def about(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.items)


@dataclass(frozen=True, slots=True)
class CostSplit:
    """Cost of some devices by what becomes of them, US dollars per hour."""

    name: str
    working: float = 0.0
    """Held by pods that run; used or not, where that is not known."""
    unused: float = 0.0
    """Held by pods that do not use them."""
    unrequested: float = 0.0
    useless: float = 0.0
    """Held by pods that do not run, on closed nodes, or not offered."""

    @property
    def total(self) -> float:
        return self.working + self.unused + self.unrequested + self.useless


@dataclass(frozen=True, slots=True)
class AdviceReport:
    """Fleet, and the advice on it, most expensive first."""

    fleet: Usage
    by_type: tuple[Usage, ...]
    advice: tuple[Advice, ...]
    unpriced: tuple[str, ...]
    """Nodes with GPUs of unknown type, which are in no amount of dollars."""
    watts: "Watts"
    nodes: int
    """Nodes with GPUs, offered or not."""
    not_offered: int
    """Devices that nodes have and do not offer, which are in `whole` and not in `fleet`."""
    whole: CostSplit
    types: tuple[CostSplit, ...]
    namespaces: tuple[CostSplit, ...]
    """Of devices that pods hold, by namespace; likewise by team, where pods have its label."""
    teams: tuple[CostSplit, ...]

    def saving(self, effect: Effect) -> float:
        return sum(each.dollars_per_hour for each in self.advice if each.effect == effect)


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
    packer_of: PackerOf,
    *,
    held: Sequence[DeviceHolder] = (),
    replaced: Collection[str] = (),
    own: Collection[str] = (),
    unusable: Sequence[NotOffered] = (),
    limit_w: Mapping[str, float] | None = None,
) -> AdviceReport:
    """Advice on a fleet.

    decide, packer_of: planner, and the packing engine that it uses. held: every pod that holds devices. replaced: pods
    that their controllers would make anew elsewhere, by which they may be moved; own: those that belong to their node.
    limit_w: power limit of a device by the node label that names its product.
    """
    nodes = [each for each in of_nodes(now) if each.gpus]
    found = [*_held(held), *_unusable(unusable)]
    fixed = {each.name for each in held if each.use in ("held", "unused")}
    names = tuple(now.pods.names)
    loose = now.pods.movable | np.fromiter((name in replaced for name in names), np.bool_, len(names))
    loose &= now.pods.may_be_stopped & ~np.fromiter((name in fixed for name in names), np.bool_, len(names))
    # The fleet in which nothing that runs is stopped for what waits.
    calm = replace(now, pods=replace(now.pods, settled=now.pods.node != PENDING), services=())
    asks = [shape.gpus > 0 for shape in now.pods.shapes]
    waiting = [row for row in now.pods.pending.tolist() if asks[now.pods.shape[row]] and not now.pods.owner[row]]
    plan = decide(calm) if waiting else Plan()
    trial = Counterfactual(
        now.after(plan.actions), packer_of, loose, np.fromiter((n in own for n in names), np.bool_, len(names))
    )
    unblocked, emptied = trial.started(), trial.emptied()
    started = {each.unit for each in unblocked}
    found += _waiting(now, plan, waiting, started)
    found += _unblocked(unblocked)
    by_owner = {each.name: each for each in held}
    found += _emptied(now, emptied, by_owner)
    of_mix = decide(now) if now.services else Plan()
    opened = _opened(now, trial, calm, plan, decide, started) if waiting else None
    found += [opened[0]] if opened else []
    wanted = {change.node_after for action in of_mix.actions for change in action.seat_changes}
    found += _idle(now, trial, wanted | (set(opened[1]) if opened else set()))
    found += _services(now, of_mix)
    split = _splits(now, held, unusable)
    return AdviceReport(
        total(nodes),
        tuple(each for each in of_types(now) if each.gpus),
        tuple(sorted((each for each in found if each.items or not each.dollars_per_hour),
                     key=lambda each: -each.dollars_per_hour)),
        tuple(each.name for each in nodes if each.gpu_type == NO_TYPE),
        _watts(now, nodes, limit_w or {}),
        len({each.name for each in nodes} | {each.item.name for each in unusable}),
        sum(each.count for each in unusable),
        *split,
    )  # fmt: skip


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


def _advice(topic: str, headline: str, remedy: str, items: Iterable[Item], effect: Effect = "saves",
            steps: Iterable[Command] = (), changes: Iterable[FleetChange] = ()) -> Iterator[Advice]:  # fmt: skip
    """Advice about these items; none without any."""
    order = tuple(sorted(items, key=lambda each: (-each.dollars_per_hour, each.name)))
    dollars = sum(each.dollars_per_hour for each in order)
    if order:
        yield Advice(topic, headline, remedy, dollars, effect, order, tuple(steps), tuple(changes))


def _many(count: float, word: str) -> str:
    return f"{round(count, 2):.9g} {word}{'' if count == 1 else 's'}"


def _drain(node: str, *, is_empty: bool = False) -> Command:
    drain = f"kubectl drain {node} --ignore-daemonsets --delete-emptydir-data"
    return Command(f"kubectl cordon {node}" if is_empty else drain, f"kubectl uncordon {node}")


def _delete(name: str) -> Command:
    namespace, _, pod = name.partition("/")
    get = f"kubectl -n {namespace} get pod {pod} -o yaml > {pod}.yaml"
    return Command(f"{get} && kubectl -n {namespace} delete pod {pod}", f"kubectl create -f {pod}.yaml")


def _typed(holder: DeviceHolder, types: Sequence[str]) -> Command | None:
    """Names the types that serve a Deployment's pods."""
    if not holder.owner.startswith("Deployment/"):
        return None

    def patch(value: str) -> str:
        annotations = f'{{"{GPU_TYPES_ANNOTATION}":{value}}}'
        content = f'{{"spec":{{"template":{{"metadata":{{"annotations":{annotations}}}}}}}}}'
        name = holder.owner.lower()
        return f"kubectl -n {holder.namespace} patch {name} --type merge -p {shlex.quote(content)}"

    return Command(patch(f'"{",".join(types)}"'), patch("null"))


_HELD = {
    "held": (
        "hold {} without running",
        "kubectl describe pod says why; mend or delete it, so that its devices serve others",
    ),
    "unused": ("hold {} and do not use them", "stop them, or let several share a device; who holds them is named"),
    "aged": (
        "hold {} for long and may be forgotten",
        "ask their owners: nothing would start them again, or they only wait; --prometheus says what is used",
    ),
}


def _held(held: Sequence[DeviceHolder]) -> Iterator[Advice]:
    """Devices whose holders do not run, do not use them, or may be forgotten."""
    for use, (words, remedy) in _HELD.items():
        found = [each for each in held if each.use == use]
        count = _many(sum(each.devices for each in found), "GPU")
        why = ", ".join(f"{said} ({n})" for said, n in Counter(each.why for each in found).most_common(3))
        verb = words.replace("hold", "holds", 1) if len(found) == 1 else words
        said = f"{_many(len(found), 'pod')} {verb.format(count)}" + ("" if use == "unused" else f": {why}")
        items = (Item(each.name, each.dollars_per_hour, each.said.partition(" ")[2]) for each in found)
        yield from _advice(use, said, remedy, items, "frees", (_delete(each.name) for each in found))


def unusable_devices(nodes: Iterable[Read[Node]], types: Iterable[Read[GPUType]]) -> Iterator[NotOffered]:
    """Devices that nodes have, by their capacity or by a label, and do not offer."""
    known = {
        (label.key, value): each
        for each in types
        for label in (each.object.spec.node_label, *each.object.spec.other_labels)
        for value in label.values
    }
    for node in nodes:
        labels, status = node.object.metadata.labels, node.object.status
        counts = [int(labels[name]) for name in GPU_COUNTS if is_device_number(labels.get(name, ""))]
        capacity, offered = (
            sum(notation.whole_or_zero(amount) for name, amount in each.items() if is_device(name))
            for each in (status.capacity, status.allocatable or status.capacity)
        )
        if (missing := max(capacity, *counts, 0) - offered) > 0:
            found = next((known[label] for label in labels.items() if label in known), None)
            price = found.object.spec.price_per_hour if found else None
            spot = price is not None and price.spot is not None and is_spot(labels)
            usd = 0.0 if price is None else (price.spot or 0.0) if spot else price.usual
            item = Item(node.name, missing * usd, f"{missing} of {offered + missing} not offered")
            yield NotOffered(item, missing, found.name if found else NO_TYPE)


def _unusable(unusable: Sequence[NotOffered]) -> Iterator[Advice]:
    said = f"{_many(sum(each.count for each in unusable), 'GPU')} of {_many(len(unusable), 'node')} are there and not"
    remedy = "see what their driver and device plugin say, or give the nodes back"
    items = [each.item for each in unusable]
    steps = (Command(f"kubectl describe node {each.name}", "") for each in items)
    yield from _advice("unusable", f"{said} offered to pods", remedy, items, "frees", steps)


def _emptied(now: Snapshot, changes: Sequence[FleetChange], held: Mapping[str, DeviceHolder]) -> Iterator[Advice]:
    """Nodes whose pods run elsewhere for less: on nodes in use, or on idle ones of cheaper types."""
    for is_retyped in (False, True):
        mine = [
            each
            for each in changes
            if is_retyped
            is any(move.devices and _type_of(now, move.node) != _type_of(now, move.from_node) for move in each.moves)
        ]
        moves = [move for each in mine for move in each.moves]
        said = f"{_many(len(mine), 'node')} would be free if {_many(len(moves), 'pod')} ran elsewhere"
        items = (
            Item(each.frees, each.dollars_per_hour, f"{_many(len(each.moves), 'pod')} to "
                 f"{', '.join(sorted({move.node for move in each.moves}))}")
            for each in mine
        )  # fmt: skip
        steps = [_drain(each.frees) for each in mine]
        if is_retyped:
            said = f"{said}, on cheaper GPUs that have as much memory"
            types = [_type_of(now, move.node) for move in moves]
            typed = (
                _typed(held[move.pod], [kind]) for move, kind in zip(moves, types, strict=True) if move.pod in held
            )
            steps = [*dict.fromkeys(each for each in typed if each), *steps]
        remedy = "name the types that serve each pod (annotation tonnage.dev/gpu-types), then give the nodes back"
        if not is_retyped:
            remedy = "let Tonnage place pods (docs/operator.md), or drain the nodes; then give them back"
        yield from _advice("types" if is_retyped else "fragmentation", said, remedy, items, "saves", steps, mine)


def _type_of(now: Snapshot, node: str) -> str:
    row = now.nodes.names.row(node)
    return now.gpu_type_names[int(now.nodes.gpu_type[row])] if row is not None else ""


def _idle(now: Snapshot, trial: Counterfactual, wanted: Collection[str | None]) -> Iterator[Advice]:
    """Devices that no pod holds: of nodes to give back, and of those that are closed or lack another resource."""
    idle, used, names = idle_devices(now), trial.used, now.nodes.names
    done: dict[str, list[FleetChange]] = {topic: [] for topic in ("idle", "unwanted", "closed", "blocked")}
    free = ~used & ~trial.gone & (now.nodes.gpus > 0) & (idle.all >= now.nodes.gpus)
    for row in sorted(np.flatnonzero(free).tolist(), key=lambda row: (-trial.node_usd[row], row)):
        topic = "closed" if idle.closed[row] else "unwanted" if idle.unwanted[row] else "idle"
        if names[row] not in wanted and (change := trial.given_back(row)):
            done[topic].append(change)
        elif names[row] not in wanted and (change := trial.given_back(row, by_force=True)):
            done["blocked"].append(change)
    words = {
        "idle": ("without a pod that uses one", "give them back, or run what waits there"),
        "unwanted": ("of a type that no pod may use", "give them back, or name their type in what may run there"),
        "closed": ("where no pod may start: cordoned, not ready or tainted", "repair, uncordon, or give them back"),
        "blocked": (
            "without a pod that uses one, kept by pods that Tonnage would not stop",
            "ask the owners of these pods, start them elsewhere, and give the nodes back",
        ),
    }  # fmt: skip
    for topic, (which, remedy) in words.items():
        changes = done[topic]
        gpus = sum(int(now.nodes.gpus[names.row(each.frees)]) for each in changes)
        said = f"{_many(len(changes), 'node')} with {_many(gpus, 'GPU')} {which}"
        items = (
            Item(each.frees, each.dollars_per_hour, ", ".join(move.pod for move in each.moves[:3])) for each in changes
        )
        steps = [_drain(each.frees, is_empty=not each.moves) for each in changes]
        yield from _advice(topic, said, remedy, items, "saves", steps, changes)
    in_use: list[int] = np.flatnonzero(used & ~trial.gone).tolist()
    shut = [row for row in in_use if idle.closed[row] > LEAST_STRANDED]
    count = _many(sum(float(idle.closed[row]) for row in shut), "idle GPU")
    said = f"{count} beside used ones are on nodes where no pod may start: cordoned, not ready or tainted"
    items = (Item(names[row], float(idle.closed[row] * trial.device_usd[row])) for row in shut)
    steps = [Command(f"kubectl uncordon {names[row]}", f"kubectl cordon {names[row]}") for row in shut]
    yield from _advice(
        "half-closed", said, "kubectl uncordon NODE, repair the node, or drain it", items, "frees", steps
    )
    lost = [row for row in in_use if idle.stranded[row] > LEAST_STRANDED]
    short = Counter(idle.short[row] for row in lost).most_common(2)
    said = (
        f"{sum(float(idle.stranded[row]) for row in lost):.1f} idle GPUs cannot be used by typical pods: too little "
        f"{' or '.join(name for name, _ in short)} is left beside them"
    )
    items = (
        Item(names[row], float(idle.stranded[row] * trial.device_usd[row]), f"short of {idle.short[row]}")
        for row in lost
    )
    remedy = "request less of it where pods do not use it, or move pods without GPUs off these nodes"
    yield from _advice("stranded", said, remedy, items, "frees")


def _services(now: Snapshot, plan: Plan) -> Iterator[Advice]:
    """Each service's cheapest mix for its demand, beside what runs of it."""
    running = running_instances(now)
    for service in now.services:
        planned = next((each for each in plan.services if each.service == service.name), None)
        if planned is None:
            continue
        name = f"ModelService {service.name}"
        if planned.refusal is not None:
            said = f"no mix serves ModelService {planned.refusal.words}"
            yield Advice("services", said, EXPLAIN.format(service.name), 0.0)
            continue
        runs = running.get(service.name, Counter())
        costs = cost_per_hour(now, service, runs)
        mix = f"{_mix(planned.instances)} at ${planned.cost_per_hour:,.2f}/h"
        if not runs:
            yield Advice("services", f"{name}: {mix} serve its demand at its SLO", EXPLAIN.format(service.name), 0.0)
        elif costs > planned.cost_per_hour + CENT:
            said = f"{name} runs on {_mix(runs)} at ${costs:,.2f}/h, where {mix} serve its demand at its SLO"
            items = [Item(service.name, costs - planned.cost_per_hour)]
            yield from _advice("services", said, EXPLAIN.format(service.name), items, "frees")


def _mix(counts: Mapping[InstanceType, int]) -> str:
    return " + ".join(f"{count} × {each.name}" for each, count in sorted(counts.items()) if count)


def _started(now: Snapshot, plan: Plan) -> dict[str, tuple[str, float]]:
    """Node, and price of the devices, of each pod with GPUs that a plan starts."""
    usd, found = now.device_prices(), dict[str, tuple[str, float]]()
    for action in plan.actions:
        for change in action.seat_changes:
            row, node = now.pods.names.row(change.pod), now.nodes.names.row(change.node_after or "")
            if row is not None and node is not None and (milli := now.pods.shapes[now.pods.shape[row]].total_gpu_milli):
                found[change.pod] = now.nodes.names[node], milli / 1000 * float(usd[node])
    return found


def _unit_of(now: Snapshot, name: str) -> str:
    gang = int(now.pods.gang[now.pods.names.row(name)])
    return f"Gang/{now.gangs[gang].name}" if gang >= 0 else f"Pod/{name}"


def _waiting(now: Snapshot, plan: Plan, rows: Sequence[int], unblocked: Collection[str]) -> Iterator[Advice]:
    """Pods that wait although Tonnage's packer has a place for them, and those that no change lets start."""
    waiting = [now.pods.names[row] for row in rows]
    seats, short = _started(now, plan), {each.workload: each.reason.words for each in plan.unplaced}
    able = [name for name in waiting if name in seats]
    items = (Item(name, seats[name][1], f"on {seats[name][0]}") for name in able)
    remedy = "let Tonnage place them: schedulingGates or schedulerName tonnage (docs/operator.md)"
    said = f"{len(able)} of {len(waiting)} waiting pods with GPUs have a place now"
    yield from _advice("waiting", said, remedy, items, "serves")
    stuck = [name for name in waiting if name not in seats and _unit_of(now, name) not in unblocked]
    if stuck:
        reasons = Counter(short.get(_unit_of(now, name), "no node has room") for name in stuck)
        ((reason, _),) = reasons.most_common(1)
        said = f"{len(stuck)} of {len(waiting)} waiting pods with GPUs fit nowhere, most often: {reason}"
        remedy = "tonnage explain Pod/NAME -f FILE names what is short, on how many nodes"
        yield Advice("stuck", said, remedy, 0.0, "serves", tuple(Item(name, 0.0) for name in sorted(stuck)))


def _unblocked(changes: Sequence[FleetChange]) -> Iterator[Advice]:
    """Pods and gangs that start when others move."""
    moves = [move for each in changes for move in each.moves]
    said = f"{_many(len(changes), 'waiting workload')} would start if {_many(len(moves), 'pod')} ran elsewhere"
    items = (
        Item(each.unit, each.dollars_per_hour, "; ".join(f"{m.pod}: {m.from_node} to {m.node}" for m in each.moves))
        for each in changes
    )
    steps = []
    for move in moves:
        namespace, _, pod = move.pod.partition("/")
        # Closed only until the pod's replacement has a place elsewhere: what waits is to start there.
        cordon, opened = f"kubectl cordon {move.from_node}", f"kubectl uncordon {move.from_node}"
        steps.append(Command(f"{cordon} && kubectl -n {namespace} delete pod {pod} && {opened}", opened))
    remedy = "let Tonnage move these pods and place what waits (docs/operator.md)"
    yield from _advice("unblock", said, remedy, items, "serves", steps, changes)


def _opened(
    now: Snapshot, trial: Counterfactual, calm: Snapshot, plan: Plan, decide: Decide, started: Collection[str]
) -> tuple[Advice, tuple[str, ...]] | None:
    """What would start on nodes that are only cordoned, and these nodes."""
    cordoned = now.nodes.cordoned
    if cordoned is None or not plan.unplaced or not (cordoned & (now.nodes.gpus > 0) & ~trial.gone).any():
        return None
    seen = calm.after(plan.actions)
    pods = replace(seen.pods, settled=seen.pods.node != PENDING)
    opened = decide(replace(seen, nodes=replace(seen.nodes, schedulable=seen.nodes.schedulable | cordoned), pods=pods))
    seats = {
        pod: seat
        for pod, seat in _started(now, opened).items()
        if cordoned[now.nodes.names.row(seat[0])] and _unit_of(now, pod) not in started
    }
    nodes = sorted({node for node, _ in seats.values()})
    steps = [Command(f"kubectl uncordon {node}", f"kubectl cordon {node}") for node in nodes]
    said = f"{_many(len(seats), 'waiting pod')} would start on {_many(len(nodes), 'cordoned node')}"
    items = (Item(pod, dollars, f"on {node}") for pod, (node, dollars) in seats.items())
    found = next(_advice("opened", said, "kubectl uncordon NODE, if it is sound", items, "serves", steps), None)
    return (found, tuple(nodes)) if found else None


def _splits(
    now: Snapshot, held: Sequence[DeviceHolder], unusable: Sequence[NotOffered]
) -> tuple[CostSplit, tuple[CostSplit, ...], tuple[CostSplit, ...], tuple[CostSplit, ...]]:
    """Cost by what becomes of the devices: of all, by type, by namespace and by team."""
    idle, usd = idle_devices(now), now.device_prices()
    kinds = [now.gpu_type_names[kind] if kind >= 0 else NO_TYPE for kind in now.nodes.gpu_type.tolist()]
    sums: dict[str, defaultdict[str, defaultdict[str, float]]] = {
        which: defaultdict(lambda: defaultdict(float)) for which in ("types", "namespaces", "teams")
    }
    by_type = sums["types"]
    for row, kind in enumerate(kinds):
        if now.nodes.gpus[row]:
            by_type[kind]["working"] += (now.nodes.gpus[row] - idle.all[row]) * usd[row]
            by_type[kind]["unrequested"] += (idle.all[row] - idle.closed[row]) * usd[row]
            by_type[kind]["useless"] += idle.closed[row] * usd[row]
    for each in held:
        state = {"held": "useless", "unused": "unused"}.get(each.use, "working")
        kind = kinds[now.nodes.names.row(each.node) or 0]
        by_type[kind]["working"] -= each.dollars_per_hour
        by_type[kind][state] += each.dollars_per_hour
        sums["namespaces"][each.namespace][state] += each.dollars_per_hour
        if each.team:
            sums["teams"][each.team][state] += each.dollars_per_hour
    for lost in unusable:
        by_type[lost.gpu_type]["useless"] += lost.item.dollars_per_hour
    made = {
        which: tuple(sorted((_split(name, each) for name, each in of.items()), key=lambda s: (-s.total, s.name)))
        for which, of in sums.items()
    }
    whole = {
        state: sum(each[state] for each in by_type.values())
        for state in ("working", "unused", "unrequested", "useless")
    }
    return _split("all", whole), made["types"], made["namespaces"], made["teams"]


def _split(name: str, dollars: Mapping[str, float]) -> CostSplit:
    return CostSplit(name, **{state: max(0.0, float(each)) for state, each in dollars.items()})
