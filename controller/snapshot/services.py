"""Services and throughput profiles from their objects, with their cross-checks, and what a replica of one serves."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
from msgspec import ValidationError

from autoscaler.demand.lengths import demand_from
from cluster import arrays, changes, errors, plans
from cluster.arrays import FloatArray
from cluster.demand import DeferredWork, Demand, LengthGrid, Slo, ThroughputProfile
from cluster.quotas import QuotaAsk
from cluster.snapshot import PodTable, Snapshot
from cluster.workloads import (
    CACHE,
    InstanceType,
    MixObjective,
    ModelService as Service,
    PromptCache,
    Routes,
    ServedModel,
    Terms,
    Toleration,
    instance_type_named,
)
from controller.api import notation
from controller.api.conditions import PROFILE_ESTIMATED, condition_of
from controller.api.model_profile import ModelProfile
from controller.api.model_service import ModelService, PhasePool
from controller.api.rule import Path
from controller.api.structs import NodeConstraints, PodSpec, object_from
from controller.objects.read import Findings, Read
from controller.snapshot.nodes import TypeIndex, terms_of, tolerations_of
from controller.snapshot.own_profiles import card_of, own_profiles, pool_of
from controller.snapshot.quotas import ask_of_instance
from placement.mix.problem_builder import need_of, usable_profiles
from placement.roofline import Chip

PHASES = ("prefill", "decode", CACHE)
UNKNOWN_ERROR = 0.25
"""Error of an estimate that names none. Chosen: that of a model of an unusual kind."""


def profiles_from(
    read: Sequence[Read[ModelProfile]], types: TypeIndex, findings: Findings
) -> tuple[ThroughputProfile, ...]:
    """One profile per table of each ModelProfile, without those that contradict the GPU types or an earlier profile."""
    first: dict[tuple[str, str, int, float], Read[ModelProfile]] = {}
    made: list[ThroughputProfile] = []
    for each in read:
        try:
            made += _profiles_of(each, types, first, findings)
        except Exception as error:  # noqa: BLE001 - one profile must not stop the others
            findings.mistake(each.unreadable(error))
    return tuple(made)


def _profiles_of(
    each: Read[ModelProfile],
    types: TypeIndex,
    first: dict[tuple[str, str, int, float], Read[ModelProfile]],
    findings: Findings,
) -> list[ThroughputProfile]:
    """Profiles of one object. first: that of each model, GPU type, number of GPUs, and SLO, brought up to date."""
    spec = each.object.spec
    if types.named(spec.gpu_type) is None:
        problem = f"there is no GPUType {spec.gpu_type!r}"
        findings.mistake(each.mistake(("spec", "gpuType"), problem, errors.meant(spec.gpu_type, types.names)))
        return []
    instance_type = InstanceType(spec.gpu_type, spec.gpus_per_instance)
    names = {instance_type.name, replace(instance_type, spot=True).name} - {spec.gpu_type}
    if taken := sorted(names & set(types.names)):
        problem = f"its instances are called {taken[0]}, and so is a GPUType"
        findings.mistake(each.mistake(("spec", "gpusPerInstance"), problem, "rename that GPUType"))
        return []
    per_pod = types.types[types.named(spec.gpu_type) or 0].per_pod
    if per_pod and spec.gpus_per_instance not in per_pod:
        problem = f"is {spec.gpus_per_instance}, and a pod requests {' or '.join(map(str, per_pod))} of {spec.gpu_type}"
        findings.mistake(each.mistake(("spec", "gpusPerInstance"), problem, "see spec.devicesPerPod of the GPUType"))
        return []
    made = []
    for n, table in enumerate(spec.throughput):
        other = first.setdefault((spec.model, spec.gpu_type, spec.gpus_per_instance, table.slo.tpot), each)
        if other is not each:
            problem = f"{spec.model} on {instance_type} at this SLO is already in {other.subject}"
            findings.mistake(each.mistake(("spec", "throughput", n, "slo"), problem, "keep one of them"))
            continue
        profile = ThroughputProfile(
            model=spec.model,
            gpu_type=spec.gpu_type,
            slo=Slo(table.slo.tpot),
            grid=LengthGrid(spec.grid.input_tokens, spec.grid.output_tokens),
            requests_per_s=arrays.column(np.array(table.requests_per_second, dtype=np.float64), np.float64),
            gpus_per_instance=spec.gpus_per_instance,
            prefill_s=spec.prefill,
            decoded_per_s=None
            if table.decoded_per_second is None
            else arrays.column(np.array(table.decoded_per_second, dtype=np.float64), np.float64),
            cache_bytes_per_token=spec.cache_bytes_per_token,
            cache_tokens=spec.cache_tokens,
            watts=table.watts,
            error_share=None if spec.origin == "measured" else spec.error or UNKNOWN_ERROR,
        )
        made.append(profile)
    return made


def valid_services(
    read: Sequence[Read[ModelService]],
    profiles: Sequence[ThroughputProfile],
    types: TypeIndex,
    findings: Findings,
    chips: Mapping[str, Chip] = {},
) -> tuple[Service, ...]:
    """Services whose GPU types exist and whose lengths are within some profile of their model.

    chips: data sheets by GPU type, for the estimates of models without a profile. Without one either, the plan refuses
    the service and leaves its instances unchanged: the profile may be measured later.
    """
    valid: list[Service] = []
    for each in read:
        own = Findings()
        try:
            of_own = tuple(own_profiles(each, profiles, types, chips, own))
            made = _service(each, profiles, of_own, types, own)
            if made is not None:
                valid += _with_pools(made, each, {other.name for other in read}, own)
        except Exception as error:  # noqa: BLE001 - one service must not stop the others
            own.mistake(each.unreadable(error))
        findings.extend(own)
    return tuple(valid)


def _service(
    read: Read[ModelService],
    profiles: Sequence[ThroughputProfile],
    of_own: tuple[ThroughputProfile, ...],
    types: TypeIndex,
    findings: Findings,
) -> Service | None:
    """Service of an object, with the replicas in its status, which may have none; None for one with mistakes.

    A service without a template has no replicas but the mix that was planned last, so that a plan changes it only where
    another mix is better by what a change must save.
    """
    spec, status, template = read.object.spec, read.object.status, read.object.spec.template
    here = ("spec", "template", "spec")
    terms: Terms = ()
    tolerations: tuple[Toleration, ...] = ()
    quota_ask: QuotaAsk | None = None
    try:
        # The parts of a template that are read here have the form of a Pod's; the API server checks the rest.
        constraints: NodeConstraints = PodSpec()
        if template is not None:
            constraints = made = object_from(template.spec.model_dump(by_alias=True), PodSpec)
            cpu_milli, memory_bytes = notation.milli(spec.instance.cpu), notation.whole(spec.instance.memory)
            with suppress(ValueError):  # a quantity that the API server refuses in the pod, which then never is
                quota_ask = ask_of_instance(made, cpu_milli, memory_bytes)
        terms, wrong_terms = terms_of(constraints)
        tolerations, wrong_tolerations = tolerations_of(constraints)
        for field, problems in (("affinity", wrong_terms), ("tolerations", wrong_tolerations)):
            for problem, remedy in problems:
                findings.mistake(read.mistake((*here, field), problem, remedy))
    except ValidationError as error:
        findings.mistake(read.mistake(here, str(error), "write it as in a Pod"))
    variants = enumerate(template.variants if template is not None else ())
    named: list[tuple[Path, str]] = [(("spec", "gpuTypes", n), name) for n, name in enumerate(spec.gpu_types)]
    named += [(("spec", "template", "variants", n, "gpuType"), each.gpu_type) for n, each in variants if each.gpu_type]
    for path, name in named:
        if types.named(name) is None:
            problem = f"there is no GPUType {name!r}"
            findings.mistake(read.mistake(path, problem, errors.meant(name, types.names)))
    models = _models(read, findings)
    floors = _quality_floors(read, models, findings)
    pools, only_own = {each.name: each.pool for each in models}, {p.model for p in of_own}
    usable = [*(p for p in profiles if p.model in pools.keys() - only_own), *of_own]
    usable = [p for p in usable if p.gpu_type in (spec.gpu_types or types.names)]
    for name in sorted(set(spec.gpu_types) & set(types.names) - {p.gpu_type for p in usable}):
        words = f"it may use {name}, but no ModelProfile of {spec.model} exists for it: never used"
        findings.note(read.subject, "GpuTypeWithoutProfile", words)
    if usable:
        _check_lengths(read, usable, findings)
    errors_of = [p.error_share for p in usable if p.error_share is not None]
    estimated = ""
    if errors_of:
        estimated = f"{len(errors_of)} of its {len(usable)} tables are estimated: {max(errors_of):.0%} median error"
        bases = [f"{m} by {card_of(spec, m)[1]}" for m in spec.all_models if all(p.model != m for p in profiles)]
        estimated = "; ".join([estimated, *bases, "measure or refine them (tonnage profile)"])
        findings.note(read.subject, "ProfileEstimated", estimated)
    if spec.adapters and (blind := sorted({p.gpu_type for p in usable if p.cache_tokens is None})):
        words = f"profiles on {', '.join(blind)} have no cacheTokens: what its adapters take of memory is not counted"
        findings.note(read.subject, "AdaptersNotCounted", words)
    cache = _cache_of(read, findings)
    linked = {each.name for each in types.types if each.network_bytes_per_s}
    counted = (p for p in usable if p.cache_bytes_per_token and (spec.phases or p.decoded_per_s is not None))
    if cache and not any(p.gpu_type in linked for p in counted):
        words = "no profile has cacheBytesPerToken and decodedPerSecond on a GPUType with a network: it gets no cache"
        findings.note(read.subject, "CacheNotCounted", words)
    if findings.mistakes:
        return None
    demand: Demand | None = None
    if spec.demand is not None:
        # The histogram is scaled to a sum of exactly 1.
        share = np.array(spec.demand.histogram, dtype=np.float64)
        grid = LengthGrid(spec.demand.input_tokens, spec.demand.output_tokens)
        demand = Demand(spec.demand.requests_per_second, grid, arrays.column(share / share.sum(), np.float64))
    replicas = status.mix if template is None and status.replicas is None else status.replicas
    by_type = {instance_type_named(name, types.names): count for name, count in sorted((replicas or {}).items())}
    return Service(
        name=read.name,
        model=spec.model,
        demand=demand,
        slo=Slo(spec.slo.tpot, spec.slo.ttft, spec.slo.share),
        headroom_share=spec.headroom,
        gpu_types=tuple(sorted(spec.gpu_types)),
        spot=spec.spot,
        continuous_split=spec.split == "continuous",
        slice_factor=spec.slice_factor,
        instance_cpu_milli=notation.milli(spec.instance.cpu),
        instance_memory_bytes=notation.whole(spec.instance.memory),
        priority=spec.priority,
        replicas=None if replicas is None else by_type,
        node_terms=terms,
        tolerations=tolerations,
        is_planned_only=template is None,
        quota_ask=quota_ask,
        objective=None if (asked := spec.objective) is None else MixObjective(asked.dollars, asked.kwh, asked.kg_co2),
        watts={
            InstanceType(p.gpu_type, p.gpus_per_instance, phase=pools[p.model]): watts
            for p in sorted(usable, key=attrgetter("slo.tpot_s"))  # as planning takes the loosest that holds
            if p.slo.tpot_s <= spec.slo.tpot * (1 + 1e-9)
            if (watts := p.watts or types.types[types.named(p.gpu_type) or 0].owned_w * p.gpus_per_instance)
        },
        routes=Routes(**spec.routes.model_dump()) if spec.routes is not None else None,
        deferred=_deferred(read.object),
        own_profiles=of_own,
        served=models,
        quality_floors=floors,
        adapters=spec.adapters,
        cache=cache,
        estimated=estimated,
        was_estimated=condition_of(status.conditions, PROFILE_ESTIMATED) is not None,
    )


def _models(read: Read[ModelService], findings: Findings) -> tuple[ServedModel, ...]:
    """Models of a service, each with the pool of its instances where there are several."""
    spec, found = read.object.spec, dict[str, ServedModel]()
    for each in spec.all_models:
        pool = pool_of(spec, each)
        quality = spec.quality.of.get(each) if spec.quality else 1.0
        if quality is None:
            findings.mistake(read.mistake(("spec", "quality", "of"), f"says nothing of {each}", "add its quality"))
        if pool in {*found, *PHASES} or (spec.phases is not None and pool):
            problem = f"{each} is called {pool} in names, as another pool" if not spec.phases else "has phases, too"
            findings.mistake(read.mistake(("spec", "models"), problem, "leave out one of the two"))
        found[pool] = ServedModel(each, pool, quality or 0.0)
    return tuple(found.values())


def _quality_floors(
    read: Read[ModelService], models: Sequence[ServedModel], findings: Findings
) -> tuple[tuple[float, float], ...]:
    """Fractions of the requests whose answers are of at least a quality, so that their mean is what is asked for.

    As many as needed are answered at the level above the mean or better, the others at the one below it or better.
    """
    asked = read.object.spec.quality
    if asked is None:
        return ((1.0, 0.0),)
    above = min((each.quality for each in models if each.quality >= asked.mean), default=None)
    below = max((each.quality for each in models if each.quality < asked.mean), default=None)
    if above is None:
        findings.mistake(read.mistake(("spec", "quality", "mean"), "is above that of every model", "ask for less"))
    if above is None or below is None:
        return ((1.0, above or 0.0),)
    share = (asked.mean - below) / (above - below)
    return ((share, above), (1 - share, below)) if share < 1 else ((1.0, above),)


def _deferred(service: ModelService) -> DeferredWork | None:
    batch, status = service.spec.demand.batch if service.spec.demand else None, service.status.batch
    if batch is None:
        return None
    done = 0.0
    if status is not None and (status.deadline is None or int(status.deadline) == int(batch.deadline)):
        done = status.done
    return DeferredWork(batch.requests, batch.deadline, batch.most_per_second, batch.begin or 0.0, done)


def with_batches(snapshot: Snapshot, _: object = ()) -> Snapshot:
    """The snapshot in which requests that may wait are demand as far as they are to be answered now, by all pools of a
    service at one rate."""
    pools: dict[str, tuple[DeferredWork, list[Service]]] = {}
    for each in snapshot.services:
        if each.deferred is not None and each.demand is not None:
            pools.setdefault(each.part_of or each.name, (each.deferred, []))[1].append(each)
    if not pools:
        return snapshot
    series = {
        each.name: np.array([(p.from_s, p.dollars_per_kwh, p.grams_per_kwh) for p in each.power_prices]).T
        for each in snapshot.gpu_types
        if each.power_prices
    }
    rates = {name: work.rate_at(snapshot.at_s, *_costs(own, snapshot, series)) for name, (work, own) in pools.items()}
    services = []
    for each in snapshot.services:
        rate = rates.get(each.part_of or each.name)
        if rate is not None and each.demand is not None:
            demand = replace(each.demand, rate_per_s=each.demand.rate_per_s + rate)
            each = replace(each, demand=demand, deferred_per_s=rate)
        services.append(each)
    return replace(snapshot, services=tuple(services))


def _costs(
    pools: Sequence[Service], snapshot: Snapshot, series: Mapping[str, FloatArray]
) -> tuple[FloatArray, Callable[[FloatArray], FloatArray]]:
    """Instants at which a request's cost changes, and that cost at instants, on the type with the least.

    series: prices of power by GPU type, shape (3, entries): since when, dollars and grams of CO2 per kWh.
    """
    types = {each.name: each for each in snapshot.gpu_types}
    offers = [(each, *of) for each in pools for of in usable_profiles(each, snapshot, each.slo.tpot_s).items()]
    used = {kind.gpu_type for _, kind, _ in offers} & series.keys()

    def costs_at(at_s: FloatArray) -> FloatArray:
        least = np.full(len(at_s), np.inf)
        for service, kind, profile in offers:
            known = types[kind.gpu_type]
            cost, counted = np.full(len(at_s), snapshot.price_per_hour(service, kind)), service.objective
            if known.name in used:  # that price is of now, the first instant
                row = np.maximum(np.searchsorted(series[known.name][0], at_s, side="right") - 1, 0)
                dollars, grams = series[known.name][1:, row] - series[known.name][1:, row[:1]]
                is_owned = known.price(spot=service.spot and not len(snapshot.nodes)) == known.price_per_hour
                cost += is_owned * kind.gpus * known.owned_w / 1000 * dollars * (counted.dollars if counted else 1.0)
                cost += service.watts.get(kind, 0.0) / 1000 * grams / 1000 * (counted.kg_co2 if counted else 0.0)
            least = np.minimum(least, cost / max(float(profile.requests_per_s.mean()), 1e-9))
        return least

    return np.unique([at for name in used for at in series[name][0]]), costs_at


PUBLISHED_HITS = ((10.0, 0.30), (103.0, 0.40), (309.0, 0.48), (514.0, 0.50))
"""Seconds of prompts that a cache holds, and the fraction of tokens that they find in it: 1,000 to 50,000 blocks of 512
tokens, by least recent use, at 6.56 prompts per second of 7,590 tokens. Source: Mooncake (arXiv 2407.00079), table 1
and section 4: a chat service."""


def _cache_of(read: Read[ModelService], findings: Findings) -> PromptCache | None:
    """The cache that a service may have, with no instances."""
    asked = read.object.spec.cache
    if asked is None:
        return None
    if read.object.spec.models:
        findings.mistake(read.mistake(("spec", "cache"), "is of one model", "leave out spec.models"))
    memory_bytes = -(-notation.whole(asked.instance_memory) // 2**30) * 2**30
    most, price = notation.whole(asked.memory) // memory_bytes, asked.price_per_gib_hour * memory_bytes / 2**30
    if not most:
        findings.mistake(read.mistake(("spec", "cache", "memory"), "is less than instanceMemory", "ask for more"))
    hits = sorted((each.within, each.share) for each in asked.hits) or PUBLISHED_HITS
    rising = np.maximum.accumulate([share for _, share in hits]).tolist()
    return PromptCache(most, memory_bytes, price, tuple((at_s, x) for (at_s, _), x in zip(hits, rising, strict=True)))


NO_TYPE = ("",)
"""GPU types of a pool that may have none."""


def _with_pools(
    service: Service, read: Read[ModelService], names: Collection[str], findings: Findings
) -> Iterator[Service]:
    """The service for whole requests, and its pools for prefill, decode and cache, as it may or does have.

    Pools are services with the whole's demand. Where phases may be apart no more, they are there to be scaled to 0.
    """
    spec, had = read.object.spec, dict[str, dict[InstanceType, int]]()
    for model in service.models if len(service.models) > 1 else ():
        if (name := f"{service.name}-{model.pool}") in names:
            problem = f"has instances called {name} of {model.name}, and so is another service"
            findings.mistake(read.mistake(("spec", "models"), problem, "rename that service"))
            return
    for each, count in (service.replicas or {}).items():
        of_phase = each.phase if each.phase in PHASES else ""
        had.setdefault(of_phase, {})[replace(each, phase="") if of_phase else each] = count
    yield replace(service, replicas=had.get("", {})) if service.replicas is not None else service
    apart: dict[str, PhasePool | None] = {}
    if (phases := spec.phases) is not None:
        apart = {"prefill": phases.prefill, "decode": phases.decode}
    elif had.keys() & {"prefill", "decode"}:
        apart = {"prefill": None, "decode": None}
    wanted = apart | ({CACHE: spec.cache} if spec.cache or CACHE in had else {})
    for phase, asked in wanted.items():
        name, replicas = f"{service.name}-{phase}", None if service.replicas is None else had.get(phase, {})
        if name in names:
            problem = f"has a pool called {name}, and so is another service"
            findings.mistake(
                read.mistake(("spec", phase if phase == CACHE else "phases"), problem, "rename that service")
            )
            continue
        own = NO_TYPE if asked is None else tuple(sorted(asked.gpu_types)) or service.gpu_types
        pool = replace(service, name=name, phase=phase, part_of=service.name, gpu_types=own, replicas=replicas)
        if phase == CACHE:
            memory_bytes = service.cache.memory_bytes if service.cache else 0
            pool = replace(pool, instance_cpu_milli=0, instance_memory_bytes=memory_bytes)
            if (ask := service.quota_ask) is not None:  # its pods ask for memory alone
                of = {"memory": memory_bytes, "cpu": 0}
                amounts = {name: of.get(name.rpartition(".")[2], amount) for name, amount in ask.amounts.items()}
                pool = replace(pool, quota_ask=replace(ask, amounts=amounts))
        yield pool


def _check_lengths(read: Read[ModelService], usable: Sequence[ThroughputProfile], findings: Findings) -> None:
    """A mistake for demand whose lengths are beyond every one of these profiles."""
    demand = read.object.spec.demand
    if demand is None:
        return
    ends = [(p.grid.input_tokens[-1], p.grid.output_tokens[-1]) for p in usable]
    beyond = [
        (i, j)
        for i, (long_in, row) in enumerate(zip(demand.input_tokens, demand.histogram, strict=True))
        for j, (long_out, share) in enumerate(zip(demand.output_tokens, row, strict=True))
        if share > 0 and not any(long_in <= most_in and long_out <= most_out for most_in, most_out in ends)
    ]
    if not beyond:
        return
    i, j = beyond[0]
    grid = LengthGrid(demand.input_tokens, demand.output_tokens)
    longest = max((p.grid for p in usable), key=lambda g: (g.input_tokens[-1], g.output_tokens[-1]))
    many = f" and {len(beyond) - 1} more buckets" if len(beyond) > 1 else ""
    findings.mistake(
        read.mistake(
            ("spec", "demand", "histogram", i, j),
            f"has requests of {grid.label(i, j)}{many}, beyond every profile of {read.object.spec.model}, "
            f"which end at {longest.label(-1, -1)}",
            "measure a profile up to these lengths, or set the share to 0",
        )
    )


def with_instances_counted(services: Sequence[Service], pods: PodTable) -> tuple[Service, ...]:
    """Services with existing instances as `replicas` where the status has none; None when there are no instances."""
    uncounted = {service.name for service in services if service.replicas is None}
    counted = Counter[tuple[str, InstanceType]]()
    types = [changes.instance_type_of(shape) for shape in pods.shapes]
    for row, owner in enumerate(pods.owner) if uncounted else ():
        instance_type = types[pods.shape[row]]
        if owner in uncounted and instance_type:
            counted[owner, instance_type] += 1
    found: dict[str, dict[InstanceType, int]] = {}
    for (name, instance_type), count in sorted(counted.items()):
        found.setdefault(name, {})[instance_type] = count
    return tuple(replace(s, replicas=found[s.name]) if s.name in found else s for s in services)


@dataclass(frozen=True, slots=True)
class ReplicaUnit:
    """One replica of a service, as its ScalingPolicy counts: an instance of the cheapest type for each request."""

    load: float
    """Requests per second that it serves within the SLO."""
    price_per_hour: float
    """Dollars."""
    worth: Mapping[InstanceType, float]
    """Most replicas that an instance of each type stands for: on the requests that it serves best."""

    def worth_of(self, instances: Mapping[InstanceType, int]) -> float:
        """Replicas that these instances stand for."""
        return sum(self.worth.get(each, 0.0) * count for each, count in instances.items())


def on_profiles(service: Service, demand: Demand, snapshot: Snapshot) -> Demand:
    """Measured demand on the edges of the profiles that may serve it; unchanged where there are none.

    Buckets of a server's histogram end elsewhere. A profile would round them up, and what ends beyond its last edge it
    could not serve at all: lengths are spread over its edges instead, and longer requests join the last bucket.
    """
    grids = [profile.grid for profile in usable_profiles(service, snapshot, service.slo.tpot_s).values()]
    if not grids:
        return demand
    inputs = sorted({edge for grid in grids for edge in grid.input_tokens})
    outputs = sorted({edge for grid in grids for edge in grid.output_tokens})
    target = LengthGrid(tuple(inputs), tuple(outputs))
    return demand_from(demand.rate_per_s, demand.grid, demand.share, target)


def replica_unit(service: Service, demand: Demand, snapshot: Snapshot) -> ReplicaUnit | plans.Reason:
    """The replica of a service under these request lengths, or the reason why there is none.

    Each bucket of lengths counts with the type that serves it for the fewest dollars; where one type is the cheapest
    for all, that is an instance of this type. The mix then decides which types serve the load.
    """
    need = need_of(replace(service, demand=replace(demand, rate_per_s=1.0)), snapshot)
    if isinstance(need, plans.Reason):
        return need
    loads = np.array([offer.load for offer in need.offers])  # (types, buckets): busy instances at 1 request per second
    prices = np.array([offer.price_per_hour for offer in need.offers])
    cost = np.where(np.isinf(loads), np.inf, loads * np.maximum(prices, 1e-9)[:, None])
    best = cost.argmin(axis=0)
    busy = float(loads[best, np.arange(loads.shape[1])].sum())
    if not np.isfinite(busy) or busy <= 0:
        return plans.Reason(
            "NoTypeServes", f"{service.name}: no GPU type serves all of its request lengths within the SLO"
        )
    price = float((loads * prices[:, None])[best, np.arange(loads.shape[1])].sum())
    # A type is worth its share of the cheapest cost where that share is highest.
    worth = (cost.min(axis=0) / np.maximum(loads, 1e-12)).max(axis=1) * busy / max(price, 1e-9)
    types = (offer.instance_type for offer in need.offers)
    return ReplicaUnit(1 / busy, price / busy, dict(zip(types, worth.tolist(), strict=True)))
