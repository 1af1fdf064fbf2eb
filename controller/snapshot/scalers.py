"""Scalers of the snapshot: each ScalingPolicy with what is known of its target and its load.

From files, and for one-off commands, a policy's status stands in for the measurements; the operator has newer ones.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from operator import attrgetter
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from autoscaler.decision.missed_share import first
from autoscaler.demand.promql import Serving, observation_from
from autoscaler.lead_time import LeadTimeModel, lead_time_of
from cluster import autoscaling
from cluster.demand import Demand, Forecast, LengthGrid
from cluster.plans import Reason
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import InstanceType
from controller.api import scaling_policy
from controller.api.kind import Kind
from controller.api.model_service import KIND as SERVICE
from controller.objects.read import Read
from controller.snapshot.namespace_bounds import EXCEEDED, first_by_name
from controller.snapshot.services import on_profiles, replica_unit

DIGITS = 6


def wanted_limit(policy: scaling_policy.ScalingPolicy) -> int:
    """Limit that was decided last, within the bounds of the spec; that of the spec before the first decision."""
    spec, status = policy.spec.concurrency, policy.own_status.concurrency
    if spec is None:
        raise ValueError(f"{policy.metadata.name} has no spec.concurrency")
    decided = spec.start_limit if status is None or status.time is None else status.limit
    return max(spec.min, min(spec.max, decided))


def state_of(status: scaling_policy.ConcurrencyStatus | None) -> autoscaling.BanditState:
    """What the tuner remembers. The last context is the first of those learned."""
    if status is None:
        return autoscaling.BanditState()
    learned = tuple(
        autoscaling.Learned(
            context=autoscaling.Context(each.gpu_type, each.input_bucket, each.output_bucket),
            arms=tuple(autoscaling.Arm(**arm.model_dump()) for arm in each.arms),
            **each.model_dump(exclude={"gpu_type", "input_bucket", "output_bucket", "arms"}),
        )
        for each in status.learned
    )
    return autoscaling.BanditState(
        decisions=status.decisions,
        context=learned[0].context if learned else None,
        learned=learned,
        pool=autoscaling.Pool() if status.pool is None else autoscaling.Pool(**status.pool.model_dump()),
    )


def contexts_of(state: autoscaling.BanditState) -> tuple[scaling_policy.ConcurrencyContext, ...]:
    """What was learned, for a status."""
    found = []
    for each in state.learned:
        arms = tuple(scaling_policy.ConcurrencyArm(**_rounded(a)) for a in each.arms if round(a.weight, DIGITS) > 0)
        fields = _rounded(each)
        context = fields.pop("context")
        found.append(scaling_policy.ConcurrencyContext(**{**fields, **context, "arms": arms}))
    return tuple(found)


def pool_of(state: autoscaling.BanditState) -> scaling_policy.ConcurrencyPool | None:
    """Intervals with too few requests, for a status; None: there are none."""
    return scaling_policy.ConcurrencyPool(**_rounded(state.pool)) if state.pool.intervals else None


def _rounded(known: autoscaling.Learned | autoscaling.Arm | autoscaling.Pool) -> dict[str, Any]:
    """Its fields by name; a millionth of a logarithm is far below the scatter of any measurement."""
    return {name: round(each, DIGITS) if isinstance(each, float) else each for name, each in asdict(known).items()}


Fact = Callable[[Snapshot, tuple[Read[Any], ...]], Snapshot]
"""Adds the meaning of a kind's valid objects to a snapshot, where there are any; they are sorted by name."""
Facts = tuple[tuple[Kind, Fact], ...]
"""Each with the kind of its objects."""


@dataclass(frozen=True, slots=True)
class ReplicaBounds:
    """Lowest and highest number of replicas."""

    low: int
    high: int
    scheduled: str = ""
    """Names of the schedules that hold; empty: none."""


def bounds_at(spec: scaling_policy.ScalingPolicySpec, at_s: float, sample_age_s: float) -> ReplicaBounds:
    """Bounds at an instant (seconds since the epoch).

    The fallback raises the lower one during an outage of the metrics. It never lowers anything: an outage of the
    metrics must not take capacity away (KEDA issue 6659). sample_age_s: age of the last sample of the load.
    """
    now = [each for each in spec.schedules if holds(each, at_s)]
    lows = [each.min_replicas for each in now if each.min_replicas is not None]
    highs = [each.max_replicas for each in now if each.max_replicas is not None]
    low, high = max(lows, default=spec.min_replicas), max(highs, default=spec.max_replicas)
    if spec.fallback is not None and sample_age_s >= spec.fallback.after:
        low = max(low, spec.fallback.replicas)
    return ReplicaBounds(min(low, high), high, ", ".join(each.name for each in now))


def holds(schedule: scaling_policy.Schedule, at_s: float) -> bool:
    """Whether a schedule holds at an instant, by the clocks of its time zone."""
    local = datetime.fromtimestamp(at_s, ZoneInfo(schedule.timezone))
    time = local.strftime("%H:%M")
    if schedule.start < schedule.end:
        return schedule.start <= time < schedule.end and _starts_on(schedule, local)
    return (time >= schedule.start and _starts_on(schedule, local)) or (
        time < schedule.end and _starts_on(schedule, local - timedelta(days=1))
    )


def _starts_on(schedule: scaling_policy.Schedule, local: datetime) -> bool:
    return not schedule.days or _DAYS[local.weekday()] in schedule.days


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


NEVER_S = -math.inf
MOST_POLICIES = 256
"""Policies of one namespace that are evaluated, the first by name. Each takes a millisecond of every cycle and a dozen
series in the metrics, and whoever has `edit` in a namespace decides how many there are."""
FOLLOWED = 1.1
"""Requests in flight, as a fraction of the limit in force, above which something else than that limit is in force: they
are counted at scrapes, and those that began under a higher limit end later (chosen)."""


@dataclass(frozen=True, slots=True, eq=False)
class PolicyState:
    """Observed state of a policy: its load, and its target."""

    load: float | None = None
    observed_at_s: float = NEVER_S
    """Instant of the load, seconds since the epoch."""
    forecast: Forecast | None = None
    lengths: tuple[LengthGrid, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] | None = None
    """Measured request lengths of a ModelService: grid, and fraction of the requests in each bucket."""
    replicas: autoscaling.Replicas | None = None
    """Replicas of a target with a scale subresource, or instances of a ModelService."""
    ready: Mapping[InstanceType, int] = field(default_factory=dict)
    """Instances of a ModelService that serve."""
    took_s: tuple[float, ...] = ()
    """Observed lead times, oldest first, seconds."""
    plural: str = ""
    """Resource of the target in paths."""
    conflict: str = ""
    skill: autoscaling.ForecastSkill | None = None
    source_problem: str = ""
    """Why the last reading of the load failed, as `Code: words`."""
    problem: str = ""
    """Why the target cannot be scaled, as `Code: words`."""
    serving: Serving | None = None
    """Figures of the replicas over the last interval of their concurrency's tuning."""
    serving_problem: str = ""
    """Why they were not read, as `Code: words`."""
    pods: tuple[str, ...] = ()
    """Names of the target's pods; empty: not known."""
    changed_at_s: float = NEVER_S
    """Last change among the replicas that are ready, seconds since the epoch."""


def with_scalers(snapshot: Snapshot, reads: tuple[Read[scaling_policy.ScalingPolicy], ...]) -> Snapshot:
    """The snapshot with the scalers of all policies, by their statuses."""
    policies = {read.name: read.object for read in reads}
    within = first_by_name(policies, MOST_POLICIES)
    words = f"{EXCEEDED}: its namespace has more than {MOST_POLICIES} ScalingPolicies; the first by name are evaluated"
    scalers = [
        scaler_of(name, policy, snapshot, state_in(policy.own_status))
        if name in within
        else _undecided(name, policy, words)
        for name, policy in policies.items()
    ]
    return replace(snapshot, scalers=with_conflicts(scalers))


def is_past_bound(scaler: autoscaling.Scaler) -> bool:
    """Whether a policy is not evaluated because its namespace has too many."""
    return scaler.problem.startswith(EXCEEDED)


def with_conflicts(scalers: Sequence[autoscaling.Scaler]) -> tuple[autoscaling.Scaler, ...]:
    """The scalers, in which of several with one target only the first by name may change it."""
    owners: dict[tuple[str, str, str], str] = {}
    for each in sorted(scalers, key=attrgetter("name")):
        if each.mode in ("ScaleUpOnly", "Auto") and not is_past_bound(each):
            owners.setdefault(each.target.identity, each.name)
    found = []
    for each in scalers:
        owner = owners.get(each.target.identity, each.name)
        is_other = owner != each.name and each.mode != "Off" and not each.conflict
        found.append(replace(each, conflict=f"ScalingPolicy/{owner}") if is_other else each)
    return tuple(found)


def scaler_of(
    name: str, policy: scaling_policy.ScalingPolicy, snapshot: Snapshot, state: PolicyState
) -> autoscaling.Scaler:
    """Scaler of a policy in this state, at the snapshot's instant. name: `namespace/name`.

    Of a policy that raises, one that decides nothing, with the problem: it must not stop the others.
    """
    try:
        scaler = _scaler_of(name, policy, snapshot, state)
    except Exception as error:  # noqa: BLE001 - one policy must not stop the others
        return _undecided(name, policy, f"BadInput: it cannot be read: {type(error).__name__}; a bug of Tonnage")
    if scaler.recommended or scaler.replicas is None:
        return scaler
    # The present replicas are the first recommendation: what began to be observed just now is not scaled down on its
    # first sample. Source: recordInitialRecommendation of kube-controller-manager.
    return replace(scaler, recommended=((snapshot.at_s, scaler.replicas.wanted),))


def _undecided(name: str, policy: scaling_policy.ScalingPolicy, problem: str) -> autoscaling.Scaler:
    spec = policy.spec
    return autoscaling.Scaler(
        name=name,
        target=_target(policy, plural=""),
        mode=spec.mode,
        replicas=None,
        min_replicas=spec.min_replicas,
        max_replicas=spec.max_replicas,
        replica_load=1.0,
        objective=autoscaling.ScalingObjective(1.0, spec.objective.miss_cost, spec.objective.switch_seconds),
        behavior=autoscaling.Behavior(),
        load=None,
        observed_at_s=NEVER_S,
        max_age_s=spec.demand.load.max_age,
        forecast=None,
        lead_time=autoscaling.LeadTime((0.0,)),
        problem=problem,
    )


def _target(policy: scaling_policy.ScalingPolicy, plural: str) -> autoscaling.ScaleTarget:
    target = policy.spec.target
    return autoscaling.ScaleTarget(
        target.api_version, target.kind, f"{policy.metadata.namespace}/{target.name}", plural
    )


def _scaler_of(
    name: str, policy: scaling_policy.ScalingPolicy, snapshot: Snapshot, state: PolicyState
) -> autoscaling.Scaler:
    spec, at_s, objective = policy.spec, snapshot.at_s, policy.spec.objective
    bounds = bounds_at(spec, at_s, at_s - state.observed_at_s)
    price = objective.replica_hour_price
    if price is None:  # 1 where none is known, which leaves the decision unchanged
        known = next((each for each in snapshot.gpu_types if each.name == objective.gpu_type), None)
        price = known.price(spot=False) * objective.gpus if known else 1.0
    if spec.lead_time.fixed is not None:
        lead_time = autoscaling.LeadTime((spec.lead_time.fixed,))
    else:
        assumed_s = spec.lead_time.assumed
        model = LeadTimeModel() if assumed_s is None else LeadTimeModel(assumed_s=(assumed_s,))
        pending_s = [max(0.0, at_s - each) for each in state.replicas.ordered_at_s] if state.replicas else []
        lead_time = lead_time_of(state.took_s, pending_s, model)
    missed, learned = None, policy.own_status.missed
    if objective.missed is not None:
        missed = first(objective.missed, at_s)
        if learned is not None:
            costs = learned.miss_cost, learned.multiplier or learned.miss_cost
            missed = autoscaling.MissedShare(
                *(objective.missed, *costs, learned.load, learned.share, learned.seconds, learned.time)
            )
    scaler = autoscaling.Scaler(
        name=name,
        target=_target(policy, state.plural),
        missed=missed,
        about=policy.about,
        mode=spec.mode,
        replicas=state.replicas,
        min_replicas=bounds.low,
        max_replicas=bounds.high,
        scheduled=bounds.scheduled,
        replica_load=1.0 if spec.capacity is None else spec.capacity.per_replica,
        objective=autoscaling.ScalingObjective(
            price, missed.miss_cost if missed else objective.miss_cost, objective.switch_seconds
        ),
        behavior=autoscaling.Behavior(_rules(spec.behavior.scale_up), _rules(spec.behavior.scale_down)),
        load=state.load,
        observed_at_s=state.observed_at_s,
        max_age_s=spec.demand.load.max_age,
        forecast=state.forecast,
        lead_time=lead_time,
        recommended=recommended_in(policy.own_status, at_s),
        changes=tuple((each.time, each.change) for each in policy.own_status.changes),
        conflict=state.conflict,
        starts_s=state.took_s,
        skill=state.skill,
        source_problem=state.source_problem,
        problem=state.problem,
        concurrency=_tuning(policy, state, objective.gpu_type or ""),
    )
    if spec.target.kind == SERVICE.name and spec.target.api_version == SERVICE.api_version:
        return _of_service(scaler, policy, snapshot, state)
    # The needs of one replica are those of a pod that there is. Replicas without GPUs are not limited: their nodes are
    # cheap and come by themselves in many clusters.
    rows = [row for name in state.pods if (row := snapshot.pods.names.row(name)) is not None]
    if not rows or (spec.capacity is not None and spec.capacity.elastic):
        return scaler
    shape = snapshot.pods.shapes[snapshot.pods.shape[rows[-1]]]
    if not shape.gpus:
        return scaler
    return replace(scaler, shape=shape, placed=sum(int(snapshot.pods.node[row]) != PENDING for row in rows))


def _of_service(
    scaler: autoscaling.Scaler, policy: scaling_policy.ScalingPolicy, snapshot: Snapshot, state: PolicyState
) -> autoscaling.Scaler:
    """Scaler of a ModelService. Its replicas are those of the demand that it is planned for, not its instances: what
    the mix adds for bursts would otherwise be counted as load by the next decision."""
    service = next((each for each in snapshot.services if each.name == scaler.target.name), None)
    if service is None:
        return replace(scaler, replicas=None, problem=f"TargetNotFound: there is no valid {scaler.target}")
    demand = service.demand
    if state.lengths is not None:
        demand = on_profiles(service, Demand(0.0, *state.lengths), snapshot)
    if demand is None:
        words = "request lengths were not measured yet, and its spec has no histogram"
        return replace(scaler, replicas=None, problem=f"LengthsUnknown: {words}")
    unit = replica_unit(service, demand, snapshot)
    if isinstance(unit, Reason):
        return replace(scaler, replicas=None, problem=f"{unit.code}: {unit.words}")
    objective = policy.spec.objective
    is_priced = objective.replica_hour_price is not None or objective.gpu_type is not None
    price = scaler.objective.price_per_hour if is_priced else unit.price_per_hour
    load = unit.load if policy.spec.capacity is None else policy.spec.capacity.per_replica
    # Its load is that of the last decision in force, or of its spec's demand.
    wanted = policy.own_status.desired_replicas
    if wanted is None:
        rate = service.demand.rate_per_s - service.deferred_per_s if service.demand else state.load or 0.0
        wanted = max(scaler.min_replicas, math.ceil(min(rate / load, scaling_policy.MOST_REPLICAS) - 1e-9))
    replicas, seen, served = autoscaling.Replicas(wanted, wanted), state.replicas, None
    if seen is not None and seen.wanted:
        # By what the instances are worth: of many small and few large ones, those that load may be most, or little.
        all_worth, worth = unit.worth_of(service.replicas or {}), unit.worth_of(state.ready)
        served = load * min(worth, wanted * min(1.0, worth / all_worth if all_worth else 0.0))
        ready = math.floor(served / load + 1e-9)
        oldest = seen.ordered_at_s[0] if seen.ordered_at_s else seen.observed_at_s
        replicas = autoscaling.Replicas(
            wanted, ready, (oldest,) * min(wanted - ready, autoscaling.MOST_ORDERED), seen.observed_at_s
        )
    # A mix of GPU types is a context of its own.
    gpu_types = "+".join(sorted({each.gpu_type for each, count in (service.replicas or {}).items() if count}))[:253]
    return replace(
        scaler,
        replicas=replicas,
        replica_load=load,
        ready_load=served,
        objective=replace(scaler.objective, price_per_hour=price),
        demand=replace(demand, rate_per_s=state.load or 0.0),
        concurrency=_tuning(policy, state, gpu_types),
    )


def _tuning(
    policy: scaling_policy.ScalingPolicy, state: PolicyState, gpu_type: str
) -> autoscaling.ConcurrencyTuning | None:
    """Tuning of the policy's concurrency. Figures of an interval in which replicas came or went are frozen ones."""
    spec, status = policy.spec.concurrency, policy.own_status.concurrency
    if spec is None:
        return None
    tuning = autoscaling.ConcurrencyTuning(
        guard_s=spec.p95,
        lowest=spec.min,
        highest=spec.max,
        start=spec.start_limit,
        wanted=wanted_limit(policy),
        follows=spec.tune and policy.spec.mode == "Auto",
        config_map=f"{policy.metadata.namespace}/{spec.config_map}" if spec.config_map else "",
        state=state_of(status),
        decided_at_s=NEVER_S if status is None or status.time is None else status.time,
        problem=state.serving_problem,
    )
    serving, replicas = state.serving, state.replicas
    if serving is None:
        return tuning
    if replicas is None:
        return replace(tuning, problem=state.problem or "TargetNotRead: the target was not read yet")
    scaling = replicas.ready != replicas.wanted or state.changed_at_s > serving.at_s - serving.for_s
    seen = observation_from(serving, tuning.in_force, gpu_type, scaling=scaling)
    if seen.in_flight > FOLLOWED * tuning.in_force:
        words = f"{seen.in_flight:.4g} requests were in flight by replica, and {tuning.in_force} should be in force"
        return replace(tuning, problem=f"NotFollowed: {words}")
    return replace(tuning, seen=seen, seen_at_s=float(int(serving.at_s)))


def _rules(written: scaling_policy.ScalingBehavior) -> autoscaling.ScalingRules:
    return autoscaling.ScalingRules(
        stabilization_s=float(written.stabilization_window_seconds),
        select=written.select_policy,
        steps=tuple(
            autoscaling.ScalingStep(each.type, float(each.value), float(each.period_seconds))
            for each in written.policies
        ),
        tolerance=written.tolerance,
    )


def state_in(status: scaling_policy.ScalingPolicyStatus) -> PolicyState:
    """State that a status tells of."""
    current, desired = status.current_replicas, status.desired_replicas
    replicas = (
        None
        if desired is None
        else autoscaling.Replicas(desired, min(desired, desired if current is None else current))
    )
    at_s = NEVER_S if status.load_time is None else status.load_time
    known, forecast = status.forecast, None
    if known is not None:
        forecast = Forecast(
            made_at_s=at_s,
            leads_s=np.array([known.at_seconds]),
            levels=np.array([0.5, 0.9, 0.99]),
            quantiles=np.maximum.accumulate([[known.p50, known.p90, known.p99]], axis=1),
            model=known.model,
        )
    return PolicyState(
        load=status.load,
        observed_at_s=at_s,
        forecast=forecast,
        replicas=replicas,
        took_s=status.lead_time.learned if status.lead_time else (),
    )


def recommended_in(status: scaling_policy.ScalingPolicyStatus, at_s: float) -> tuple[tuple[float, int], ...]:
    """Earlier recommendations, with the instants from which and up to which each was in force, oldest first.

    A status has only the first instant of each. Both are needed: a window may begin in between.
    """
    known: Sequence[tuple[float, int]] = [(each.time, each.replicas) for each in status.recommendations]
    ends = [*(later for (_, (later, _)) in pairwise(known)), at_s][: len(known)]
    return tuple(
        point
        for (since_s, replicas), until_s in zip(known, ends, strict=True)
        for point in ((since_s, replicas), (max(since_s, until_s - 1e-3), replicas))
    )
