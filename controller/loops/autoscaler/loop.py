"""ScalingPolicies as objects, read from their cache once per version."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any

import structlog

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.api.model_service import KIND as SERVICE
from controller.api.scaling_policy import KIND, ScalingPolicy, Target
from controller.api.structs import Meta, OwnObject, Slim
from controller.brain.from_settings import fit_slots_of
from controller.deciders.load_fits import ShardFits
from controller.kube.cache import Cache, Resource
from controller.kube.discovery import Discovered, discover
from controller.loops.autoscaler.collector import Collector, CustomMetrics
from controller.loops.autoscaler.endpoints import allowed_by, open_endpoints, pace_of, prometheus_access
from controller.loops.autoscaler.forecasting import Forecasts, LoadSeries
from controller.loops.autoscaler.measured import Measured
from controller.loops.autoscaler.prometheus import PrometheusServers
from controller.loops.autoscaler.targets import Targets, TargetState
from controller.loops.loop import Surroundings
from controller.objects.own_objects import own_from
from controller.objects.read import Read
from controller.settings import OperatorSettings
from controller.snapshot.scalers import PolicyState, scaler_of, state_in, with_conflicts, within_bounds


class PolicyBook:
    """Valid policies that are evaluated, by `namespace/name`; it remembers what it read. Thread-safe."""

    def __init__(self, cache: Cache[OwnObject]) -> None:
        self._cache = cache
        self._lock = Lock()
        self._read: dict[str, tuple[OwnObject, ScalingPolicy | None]] = {}

    def all(self) -> Mapping[str, ScalingPolicy]:
        with self._lock:
            return self._current(self._cache.all())

    def _current(self, objects: Mapping[str, OwnObject]) -> Mapping[str, ScalingPolicy]:
        for name, obj in objects.items():
            known = self._read.get(name)
            if known is None or known[0] is not obj:
                read = own_from(name, KIND, obj)
                self._read[name] = (obj, read.object if isinstance(read, Read) else None)
        self._read = {name: each for name, each in self._read.items() if name in objects}
        valid = {name: policy for name, (_, policy) in sorted(self._read.items()) if policy is not None}
        within = within_bounds(valid)
        return {name: policy for name, policy in valid.items() if name in within}


class ScaleTargetRef(Slim, frozen=True):
    kind: str
    name: str
    api_version: str = ""


class HpaSpec(Slim, frozen=True):
    scale_target_ref: ScaleTargetRef


class Owner(Slim, frozen=True):
    kind: str
    name: str


class HpaMeta(Meta, frozen=True):
    owner_references: tuple[Owner, ...] = ()


class Hpa(Slim, frozen=True):
    """HorizontalPodAutoscaler (autoscaling/v2)."""

    metadata: HpaMeta
    spec: HpaSpec


HPAS = Resource("autoscalers", "/apis/autoscaling/v2/horizontalpodautoscalers", Hpa)


_Key = tuple[str, str, str, str]
"""Namespace, API group, kind and name of a target. Versions of one API group are the same object."""
Conflicts = Mapping[_Key, str]
"""Autoscaler of each target, as `Kind/namespace/name`."""


def conflicts_of(hpas: Iterable[Hpa]) -> Conflicts:
    """What these autoscalers scale; of several with one target the first by name.

    KEDA scales through an HPA that its ScaledObject owns; then that is named, which its users know.
    """
    found: dict[_Key, str] = {}
    for hpa in sorted(hpas, key=lambda each: each.metadata.name):
        ref = hpa.spec.scale_target_ref
        keda = next((owner for owner in hpa.metadata.owner_references if owner.kind == "ScaledObject"), None)
        kind, name = ("HorizontalPodAutoscaler", hpa.metadata.name) if keda is None else (keda.kind, keda.name)
        key = _key(hpa.metadata.namespace, ref.api_version, ref.kind, ref.name)
        found.setdefault(key, f"{kind}/{hpa.metadata.namespace}/{name}")
    return found


def conflict_of(target: Target, namespace: str, conflicts: Conflicts) -> str:
    """Autoscaler of a policy's target; empty: none."""
    return conflicts.get(_key(namespace, target.api_version, target.kind, target.name), "")


def _key(namespace: str, api_version: str, kind: str, name: str) -> _Key:
    return namespace, api_version.rpartition("/")[0], kind, name


REQUEST_ROLES = ("load", "requests")
"""Roles that can be the load of a ModelService, in requests per second."""


def with_measured(
    snapshot: Snapshot,
    policies: Mapping[str, ScalingPolicy],
    measured: Measured,
    target_of: Callable[[str], TargetState],
    conflict_with: Callable[[ScalingPolicy], str],
) -> Snapshot:
    """The snapshot with each scaler as it was measured.

    target_of: by the policy's name. conflict_with: another autoscaler of a policy's target.
    """
    scalers = []
    for scaler in snapshot.scalers:
        policy = policies.get(scaler.name)
        if policy is not None:
            state = state_of(
                scaler.name, policy, measured, target_of(scaler.name), conflict_with(policy), snapshot.at_s
            )
            scaler = scaler_of(scaler.name, policy, snapshot, state)
        scalers.append(scaler)
    return replace(snapshot, scalers=with_conflicts(scalers))


def state_of(
    name: str, policy: ScalingPolicy, measured: Measured, target: TargetState, conflict: str, at_s: float
) -> PolicyState:
    """State of a policy: measurements of this process, and until there are any those in its status.

    at_s: now. A status of the future is of a clock that was set back, or of another leader's.
    """
    state = state_in(policy.status)
    known, role = measured.of(name), policy.spec.demand.load.role
    newest, failure = known.newest.get(role), known.failures.get(role)
    if newest is not None and (newest.at_s >= state.observed_at_s or state.observed_at_s > at_s):
        state = replace(state, load=newest.value, observed_at_s=newest.at_s)
    problem = target.problem
    if policy.spec.target.kind == SERVICE.name and role not in REQUEST_ROLES:
        problem = f"NoRequestRate: a {SERVICE.name} needs a source of role requests, not only of {role}"
    return replace(
        state,
        forecast=known.forecast or state.forecast,
        lengths=None if known.lengths is None else (known.lengths.grid, known.lengths.share),
        replicas=target.replicas,
        took_s=target.took_s or state.took_s,
        plural=target.plural,
        conflict=conflict,
        skill=known.skill,
        source_problem="" if failure is None else f"{failure.code}: {failure.words}",
        problem=problem,
        serving=known.serving,
        serving_problem=known.serving_problem,
        changed_at_s=target.changed_at_s,
        pods=target.pods,
    )


log = structlog.get_logger(__name__)
CLOSE_WITHIN_S = 1.0
TAKE_EVERY_S = 1.0
"""Seconds between two looks for fits from the brain."""


class AutoscalerPart:
    """The autoscaler as a part of the operator."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings, self._host = settings.autoscaler, settings.host
        self._namespace = settings.lease.namespace
        self._hpas = Cache(HPAS, lambda: None)
        self._measured = Measured(time.time)
        self._forecasts = Forecasts(self._measured, time.time, fit_slots_of(settings))
        self._running: tuple[PolicyBook, Targets] | None = None
        """None before the start."""

    @property
    def caches(self) -> tuple[Cache[Any], ...]:
        return (self._hpas,)

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with each policy's measurements; unchanged before the part has started."""
        if self._running is None or not snapshot.scalers:
            return snapshot
        book, targets = self._running
        conflicts = conflicts_of(self._hpas.all().values())

        def conflict_with(policy: ScalingPolicy) -> str:
            return conflict_of(policy.spec.target, policy.metadata.namespace, conflicts)

        seen = with_measured(snapshot, book.all(), self._measured, targets.state, conflict_with)
        return replace(seen, load_histories=self._forecasts.offered)

    def learn(self, plan: Plan) -> None:
        """Hands the fits of background deciders to the forecasts."""
        for shard in plan.fits:
            if isinstance(shard, ShardFits):
                self._forecasts.put_fits(shard.by_scaler())

    def probe(self) -> str | None:
        return None

    def start(self, around: Surroundings) -> dict[str, int]:
        """Reads sources and targets while this replica leads, and opens the endpoints; returns their ports."""
        clocks, leads = around.clocks, around.leadership.may_write

        async def found() -> Discovered:
            return await discover(around.connection)

        book = PolicyBook(around.caches.own[KIND])
        targets = Targets(around.connection, found, clocks.wall)
        self._running = book, targets
        servers = PrometheusServers(prometheus_access(self._settings.prometheus), clocks.monotonic)
        around.stack.callback(lambda: around.loop.run_within(servers.close(), CLOSE_WITHIN_S))
        collector = Collector(
            lambda: book.all().values(),
            self._measured,
            servers.of,
            CustomMetrics(around.connection, found, clocks.wall).read,
            allowed_by(self._settings, self._namespace),
            pace_of(self._settings),
            leads,
            clocks.wall,
            lambda source, code: around.meter.count("tonnage_demand_readings_total", source, code or "ok"),
        )
        around.stack.callback(around.loop.begin(collector.run()))
        around.stack.callback(around.loop.begin(self._keep(around, book, targets)))
        return open_endpoints(
            self._settings,
            self._host,
            around.connection,
            around.loop,
            self._measured,
            book.all,
            leads,
            clocks,
            around.meter,
            around.stack,
        )

    async def _keep(self, around: Surroundings, book: PolicyBook, targets: Targets) -> None:
        """Reads targets and renews forecasts for ever. An internal error is logged, and the next turn tries again."""
        while True:
            try:
                if around.leadership.may_write():
                    await self._turn(around, book.all(), targets)
            except Exception:
                log.exception("a turn of the autoscaler failed")
            await self._pause(around)

    async def _pause(self, around: Surroundings) -> None:
        """Waits for the next turn; fits that come meanwhile are taken at once, so that the brain has the next ones."""
        until_s = around.clocks.monotonic() + self._settings.sync_s
        while (left_s := until_s - around.clocks.monotonic()) > 0:
            await asyncio.sleep(min(left_s, TAKE_EVERY_S))
            if self._forecasts.has_fits:
                await asyncio.to_thread(self._forecasts.take_fits)
                around.changed()

    async def _turn(self, around: Surroundings, policies: Mapping[str, ScalingPolicy], targets: Targets) -> None:
        self._measured.keep(policies)
        await targets.turn(policies)
        series = {name: series_of(policy) for name, policy in policies.items() if policy.spec.mode != "Off"}
        # In a thread: two weeks of a new policy's history take a tenth of a second.
        await asyncio.to_thread(self._forecasts.turn, series)
        if series:
            around.changed()


def series_of(policy: ScalingPolicy) -> LoadSeries:
    """What is forecast of a policy."""
    forecast = policy.spec.forecast
    return LoadSeries(policy.spec.demand.load.role, forecast.history, boosted=forecast.model != "core")


def enabled(settings: OperatorSettings) -> AutoscalerPart | None:
    """The part of the autoscaler; None where the settings do not enable it."""
    return AutoscalerPart(settings) if settings.autoscaler.enabled else None
