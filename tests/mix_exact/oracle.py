"""Exact model of the mix with a seat for every instance, written from the manifests' documentation alone.

It shares no code with `placement.mix`, so that an error there has no twin here. It reads manifests as plain objects,
places every instance on a node of its own choice, and is solved without a limit; for small fleets only.

Sets        services k with buckets b; offers o of k: (GPU type, width); nodes v, or the inventory of a type.
Data        load L[b,o]: instances kept busy by all of b on o; variance V[b,o] of those; F slices per bucket.
Variables   s[k] in {0, 1}: served. x[b,o] in 0..F (or a fraction): slices of b on o. n[o,v]: instances on node v.
            w[o,t] in {0, 1}: tangent t of the burst curve. z[o] in {0, 1}: whether running instances are stopped.
Objective   first: served services in their order, lexicographically; then: dollars per hour and the price of changes.
Constraints every slice is on one offer; each pool holds its load and headroom; each node holds devices, CPU and memory.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulp

Manifest = Mapping[str, Any]

Z_TIMES_ROOT_IDLE = 3.290 * math.sqrt(0.5)
"""Burst headroom is this number times the root of the variance (`placement/mix/problem.py`, its docstring)."""
CONTACTS = tuple(2.0**n for n in range(-5, 5))
"""Roots of the variances where the lines touch that stand for the curve."""


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    is_open: bool
    gpu_type: str
    gpus: int
    """Devices without those of pods that are no instances; cpu and memory likewise."""
    cpu: float
    memory: float


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    gpu_type: str
    width: int
    loads: tuple[float, ...]
    """By bucket; infinite where it cannot be served."""
    variances: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    name: str
    spec: Manifest
    offers: tuple[Offer, ...]
    cpu: float
    memory: float
    running: Mapping[tuple[str, int, str], int]
    """(GPU type, width, node) → instances."""


@dataclass(frozen=True, slots=True, eq=False)
class Fleet:
    services: tuple[Service, ...]
    """In the order in which they are served where not all can be."""
    nodes: tuple[Node, ...]
    prices: Mapping[str, Mapping[str, float]]
    """GPU type → `onDemand` and perhaps `spot`."""
    inventory: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exact:
    """Optimum of a fleet."""

    served: tuple[str, ...]
    objective: float
    """Dollars per hour, with the price of changes."""
    is_proven: bool
    bound: float
    """Proven lower bound on the objective for the same services."""


# Reading


def fleet_of(manifests: Sequence[Manifest]) -> Fleet:
    """The fleet that these manifests describe."""
    of: dict[str, list[Manifest]] = {}
    for each in manifests:
        of.setdefault(each["kind"], []).append(each)
    types = {each["metadata"]["name"]: each["spec"] for each in of["GPUType"]}
    pods = of.get("Pod", [])
    strangers = [pod for pod in pods if _owner(pod) is None]
    nodes = tuple(_node(each, types, strangers) for each in of.get("Node", []))
    services = [_service(each, of["ModelProfile"], types, pods) for each in of["ModelService"]]
    limits = {} if nodes else {name: spec["inventory"] for name, spec in types.items() if "inventory" in spec}
    return Fleet(
        services=tuple(sorted(services, key=lambda service: -service.spec.get("priority", 0))),
        nodes=nodes,
        prices={name: spec["pricePerHour"] for name, spec in types.items()},
        inventory=limits,
    )


def _owner(pod: Manifest) -> str | None:
    owner = pod["metadata"].get("labels", {}).get("tonnage.dev/service")
    return None if owner is None else str(owner)


def _asks(pod: Manifest) -> tuple[int, float, float]:
    resources = pod["spec"]["containers"][0]["resources"]
    return (
        int(resources["limits"]["nvidia.com/gpu"]),
        float(resources["requests"]["cpu"]),
        _gib(resources["requests"]["memory"]),
    )


def _gib(quantity: str) -> float:
    return float(quantity.removesuffix("Gi"))


def _node(written: Manifest, types: Mapping[str, Manifest], strangers: Sequence[Manifest]) -> Node:
    labels = written["metadata"]["labels"]
    product = labels["nvidia.com/gpu.product"]
    conditions = written["status"].get("conditions", [])
    has = written["status"]["allocatable"]
    used = [_asks(pod) for pod in strangers if pod["spec"]["nodeName"] == written["metadata"]["name"]]
    return Node(
        name=written["metadata"]["name"],
        labels=labels,
        taints=tuple(written["spec"].get("taints", ())),
        is_open=not written["spec"].get("unschedulable") and all(c["status"] == "True" for c in conditions),
        gpu_type=next(name for name, spec in types.items() if product in spec["nodeLabel"]["values"]),
        gpus=int(has["nvidia.com/gpu"]) - sum(gpus for gpus, _, _ in used),
        cpu=float(has["cpu"]) - sum(cpu for _, cpu, _ in used),
        memory=_gib(has["memory"]) - sum(memory for _, _, memory in used),
    )


def _service(
    written: Manifest, profiles: Sequence[Manifest], types: Mapping[str, Manifest], pods: Sequence[Manifest]
) -> Service:
    spec, name = written["spec"], written["metadata"]["name"]
    instance = spec.get("instance", {})
    running: dict[tuple[str, int, str], int] = {}
    for pod in pods:
        if _owner(pod) == name:
            kind = (pod["metadata"]["annotations"]["tonnage.dev/gpu-types"], _asks(pod)[0], pod["spec"]["nodeName"])
            running[kind] = running.get(kind, 0) + 1
    allowed = spec.get("gpuTypes") or list(types)
    own = [p["spec"] for p in profiles if p["spec"]["model"] == spec["model"] and p["spec"]["gpuType"] in allowed]
    return Service(
        name=f"{written['metadata']['namespace']}/{name}",
        spec=spec,
        offers=tuple(_offers(spec, own)),
        cpu=float(instance.get("cpu", "0")),
        memory=_gib(instance.get("memory", "0Gi")),
        running=running,
    )


def _offers(spec: Manifest, profiles: Sequence[Manifest]) -> Iterator[Offer]:
    """One offer per GPU type and width, by the loosest measured SLO that is not looser than the service's."""
    within = _seconds(spec["slo"]["tpot"])
    best: dict[tuple[str, int], tuple[float, Manifest, Manifest]] = {}
    for profile in profiles:
        for table in profile["throughput"]:
            tpot, kind = _seconds(table["slo"]["tpot"]), (profile["gpuType"], profile.get("gpusPerInstance", 1))
            if tpot <= within and (kind not in best or tpot > best[kind][0]):
                best[kind] = (tpot, profile, table)
    for (gpu_type, width), (tpot, profile, table) in best.items():
        loads, variances = zip(*_busy(spec["demand"], profile["grid"], table["requestsPerSecond"], tpot), strict=True)
        yield Offer(gpu_type, width, loads, variances)


def _seconds(duration: str) -> float:
    return float(duration.removesuffix("ms")) / 1000


def _busy(
    demand: Manifest, grid: Manifest, table: Sequence[Sequence[float]], tpot_s: float
) -> Iterator[tuple[float, float]]:
    """Busy instances and their variance, for each bucket that has demand."""
    for i, row in enumerate(demand["histogram"]):
        for j, share in enumerate(row):
            if share <= 0:
                continue
            longest = demand["inputTokens"][i], demand["outputTokens"][j]
            at = [
                next((n for n, edge in enumerate(grid[side]) if edge >= most), None)
                for side, most in zip(("inputTokens", "outputTokens"), longest, strict=True)
            ]
            served = 0.0 if at[0] is None or at[1] is None else table[at[0]][at[1]]
            if served <= 0:
                yield math.inf, 0.0
                continue
            load = share * demand["requestsPerSecond"] / served
            yield load, load / max(1.0, served * tpot_s * longest[1])


# Nodes


def may_use(service: Service, node: Node) -> bool:
    """Whether a new instance of the service may start on this node."""
    template = service.spec.get("template", {}).get("spec", {})
    if not node.is_open or any(not _tolerates(template.get("tolerations", ()), taint) for taint in node.taints):
        return False
    if any(node.labels.get(key) != value for key, value in template.get("nodeSelector", {}).items()):
        return False
    affinity = template.get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms")
    return terms is None or any(all(_meets(node.labels, r) for r in term["matchExpressions"]) for term in terms)


def _tolerates(tolerations: Sequence[Manifest], taint: Mapping[str, str]) -> bool:
    return any(t["key"] == taint["key"] and t["value"] == taint["value"] for t in tolerations)


def _meets(labels: Mapping[str, str], requirement: Manifest) -> bool:
    value, operator, values = labels.get(requirement["key"]), requirement["operator"], requirement.get("values", ())
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case _:
            return value is not None and int(value) < int(values[0])


def _is_spot(node: Node) -> bool:
    return node.labels.get("karpenter.sh/capacity-type") == "spot"


def price_on(fleet: Fleet, service: Service, offer: Offer, node: Node | None) -> float | None:
    """Dollars per hour of one instance there; None where the service may not pay for such a node."""
    prices, may_spot = fleet.prices[offer.gpu_type], service.spec.get("spot", False)
    pays_spot = may_spot
    if node is not None:
        if _is_spot(node) and not may_spot:
            return None
        pays_spot = _is_spot(node)
    return float(prices.get("spot", prices["onDemand"]) if pays_spot else prices["onDemand"]) * offer.width


# The model


@dataclass(frozen=True, slots=True, eq=False)
class _Pool:
    """Variables of one offer of one service."""

    service: Service
    offer: Offer
    slices: Mapping[int, pulp.LpVariable]
    """Bucket → slices of it."""
    seats: Mapping[str, pulp.LpVariable]
    """Node → instances; the only key without nodes is empty."""

    @property
    def count(self) -> pulp.LpAffineExpression:
        return pulp.lpSum(self.seats.values())

    def runs_on(self, node: str) -> int:
        return self.service.running.get((self.offer.gpu_type, self.offer.width, node), 0)

    @property
    def running(self) -> int:
        return sum(self.runs_on(name) for name in self.seats)


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    problem: pulp.LpProblem
    served: Mapping[str, pulp.LpVariable]
    pools: Sequence[_Pool]


def solve_exactly(fleet: Fleet, *, limit_s: float | None = None) -> Exact:
    """Served services, and the least objective for them. limit_s: of each of the two solves; None: until proven."""
    model = _model(fleet)
    order = [service.name for service in fleet.services]
    weights = {name: 2.0 ** (len(order) - 1 - n) for n, name in enumerate(order)}
    model.problem.setObjective(-pulp.lpSum(weights[name] * each for name, each in model.served.items()))
    is_proven = _solve(model.problem, limit_s)[0]
    served = tuple(name for name in order if model.served[name].value() > 0.5)
    for name, each in model.served.items():
        each.bounds(int(name in served), int(name in served))
    model.problem.setObjective(_dollars(fleet, model, set(served)))
    try:
        proven_cost, bound = _solve(model.problem, limit_s)
    except ArithmeticError:
        if limit_s is None:
            raise
        return Exact(served, math.inf, is_proven=False, bound=-math.inf)
    objective = float(pulp.value(model.problem.objective) or 0.0)
    return Exact(served, objective, is_proven and proven_cost, bound)


def room_for(service: Service, load: float, variance: float) -> float:
    """Instances, in fractions, that hold such a pool with its headroom."""
    share = service.spec.get("headroom")
    if share is not None:
        return load / (1 - float(share))
    lines = (Z_TIMES_ROOT_IDLE / (2 * at) * variance + Z_TIMES_ROOT_IDLE * at / 2 for at in CONTACTS)
    return load + min(lines) if load > 0 else 0.0


def _solve(problem: pulp.LpProblem, limit_s: float | None) -> tuple[bool, float]:
    """Whether it is solved to the end, and the proven bound. Raises ArithmeticError without any solution."""
    options = {"timeLimit": limit_s} if limit_s is not None else {}
    problem.solve(
        pulp.HiGHS(msg=False, gapRel=1e-9, threads=1, mip_abs_gap=1e-7, mip_feasibility_tolerance=1e-8, **options)
    )
    highs: Any = problem.solverModel
    ended = highs.modelStatusToString(highs.getModelStatus())
    if problem.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        raise ArithmeticError(f"the exact model has no solution: {ended}")
    return ended == "Optimal", float(highs.getInfo().mip_dual_bound)


def _model(fleet: Fleet) -> _Model:
    problem = pulp.LpProblem("mix", pulp.LpMinimize)
    served = {service.name: problem.add_variable(f"s{k}", cat="Binary") for k, service in enumerate(fleet.services)}
    pools = []
    for k, service in enumerate(fleet.services):
        own = [_pool(problem, fleet, service, offer, f"{k}_{o}") for o, offer in enumerate(service.offers)]
        _serve(problem, service, own, served[service.name])
        for o, pool in enumerate(own):
            _room(problem, pool, f"{k}_{o}")
            _keep(problem, pool, served[service.name], f"{k}_{o}")
        pools.extend(own)
    for constraint in _capacities(fleet, pools):
        problem += constraint
    return _Model(problem, served, pools)


def _pool(problem: pulp.LpProblem, fleet: Fleet, service: Service, offer: Offer, name: str) -> _Pool:
    factor, cat = _slices(service)
    slices = {
        b: problem.add_variable(f"x{name}_{b}", 0, factor, cat)
        for b, load in enumerate(offer.loads)
        if math.isfinite(load)
    }
    if not fleet.nodes:
        return _Pool(service, offer, slices, {"": problem.add_variable(f"n{name}", 0, cat="Integer")})
    seats = {}
    for node in fleet.nodes:
        runs = service.running.get((offer.gpu_type, offer.width, node.name), 0)
        is_usable = may_use(service, node) and price_on(fleet, service, offer, node) is not None
        if node.gpu_type == offer.gpu_type and (is_usable or runs):
            most = node.gpus // offer.width if is_usable else runs
            seats[node.name] = problem.add_variable(f"n{name}_{node.name}", 0, most, "Integer")
    return _Pool(service, offer, slices, seats)


def _slices(service: Service) -> tuple[int, str]:
    if service.spec.get("split", "sliced") == "continuous":
        return 1, "Continuous"
    return service.spec.get("sliceFactor", 8), "Integer"


def _serve(problem: pulp.LpProblem, service: Service, pools: Sequence[_Pool], served: pulp.LpVariable) -> None:
    """All slices of every bucket are on some offer, if the service is served, and none otherwise."""
    factor, _ = _slices(service)
    for b in range(sum(share > 0 for row in service.spec["demand"]["histogram"] for share in row)):
        problem += pulp.lpSum(pool.slices[b] for pool in pools if b in pool.slices) == factor * served


def _room(problem: pulp.LpProblem, pool: _Pool, name: str) -> None:
    """The pool holds its load and its headroom."""
    factor, _ = _slices(pool.service)
    offer, count = pool.offer, pool.count
    load = pulp.lpSum(offer.loads[b] / factor * x for b, x in pool.slices.items())
    share = pool.service.spec.get("headroom")
    if share is not None:
        problem += load <= (1 - share) * count
        return
    variance = pulp.lpSum(offer.variances[b] / factor * x for b, x in pool.slices.items())
    most_load = sum(offer.loads[b] for b in pool.slices)
    most_variance = sum(offer.variances[b] for b in pool.slices)
    lines = []
    for t, contact in enumerate(CONTACTS):
        slope, base = Z_TIMES_ROOT_IDLE / (2 * contact), Z_TIMES_ROOT_IDLE * contact / 2
        line = problem.add_variable(f"w{name}_{t}", cat="Binary")
        over = most_load + slope * most_variance
        problem += load + slope * variance + base * line <= count + over * (1 - line)
        lines.append(line)
    # A pool without any line is empty.
    for x in pool.slices.values():
        problem += x <= factor * pulp.lpSum(lines)
        problem += x <= factor * count


def _keep(problem: pulp.LpProblem, pool: _Pool, served: pulp.LpVariable, name: str) -> None:
    """Running instances stay where they are, unless their pool shrinks; those of a refused service all stay."""
    shrinks = problem.add_variable(f"z{name}", cat="Binary")
    for node, seats in pool.seats.items():
        runs = pool.runs_on(node)
        most = seats.upBound
        problem += seats >= runs * (1 - shrinks)
        if most is not None:
            problem += seats <= runs + (most - runs) * (1 - shrinks)
            problem += seats <= runs + (most - runs) * served
        problem += seats >= runs * (1 - served)


def _capacities(fleet: Fleet, pools: Sequence[_Pool]) -> Iterator[pulp.LpConstraint]:
    for node in fleet.nodes:
        here = [(pool, pool.seats[node.name]) for pool in pools if node.name in pool.seats]
        yield pulp.lpSum(pool.offer.width * seats for pool, seats in here) <= node.gpus
        yield pulp.lpSum(pool.service.cpu * seats for pool, seats in here) <= node.cpu
        yield pulp.lpSum(pool.service.memory * seats for pool, seats in here) <= node.memory
    for gpu_type, most in fleet.inventory.items():
        yield pulp.lpSum(p.offer.width * p.count for p in pools if p.offer.gpu_type == gpu_type) <= most


def _dollars(fleet: Fleet, model: _Model, served: set[str]) -> pulp.LpAffineExpression:
    nodes = {node.name: node for node in fleet.nodes}
    dollars = []
    for pool in model.pools:
        if pool.service.name not in served:
            continue
        for name, seats in pool.seats.items():
            price = price_on(fleet, pool.service, pool.offer, nodes.get(name))
            dollars.append((price or fleet.prices[pool.offer.gpu_type]["onDemand"] * pool.offer.width) * seats)
    return pulp.lpSum(dollars)


# Seats


Counts = Mapping[str, Mapping[tuple[str, int], int]]
"""Service → (GPU type, width) → instances."""


def have_seats(fleet: Fleet, counts: Counts) -> bool:
    """Whether so many instances find seats on the nodes, in any arrangement that leaves running ones in place."""
    model = _model(fleet)
    problem = model.problem
    for pool in model.pools:
        pool_counts = counts.get(pool.service.name)
        model.served[pool.service.name].bounds(int(pool_counts is not None), int(pool_counts is not None))
        if pool_counts is not None:
            problem += pool.count == pool_counts.get((pool.offer.gpu_type, pool.offer.width), 0)
    model.problem.setObjective(pulp.lpSum([]))
    try:
        _solve(model.problem, None)
    except ArithmeticError:
        return False
    return True
