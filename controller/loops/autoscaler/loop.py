"""Loop of the autoscaler: reads sources and targets, keeps forecasts, and adds what is measured to snapshots."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
import structlog

from autoscaler.demand.lengths import BadLengthsError, lengths_from, shares_of
from autoscaler.demand.presets import SATURATED, Role, load_from, quantities
from autoscaler.demand.promql import QUANTITY, Serving, Windows, combined, lengths_query, serving_query
from cluster.clock import Clock
from cluster.errors import UNREADABLE, ObservationError
from cluster.snapshot import Snapshot
from controller.api.notation import quantity
from controller.api.scaling_policy import KIND, ScalingPolicy
from controller.kube import api_server, cache, request
from controller.kube.discovery import discover
from controller.loops.autoscaler import readings
from controller.loops.autoscaler.endpoints import open_endpoints
from controller.loops.autoscaler.forecasting import Forecasts, LoadSeries, SavedFits
from controller.loops.autoscaler.measured import LengthShares, Measured, Sample
from controller.loops.autoscaler.policies import HPAS, PolicyReader, conflicts_of, with_measured
from controller.loops.autoscaler.prometheus import MOST_POINTS, PrometheusServers, Series, SourceError
from controller.loops.autoscaler.readings import Allowed
from controller.loops.autoscaler.targets import KnownKinds, Targets
from controller.loops.loop import ControlLoop, Leader, LoopContext, repeat
from controller.metrics.registry import Meter
from controller.settings import AutoscalerSettings, OperatorSettings

PATH = "/apis/custom.metrics.k8s.io/v1beta2"


class _Value(msgspec.Struct):
    value: str
    timestamp: str | None = None
    """None, written as null, where the adapter sets no instant."""


class _Values(msgspec.Struct):
    items: tuple[_Value, ...] = ()


class CustomMetrics:
    """Reads metrics of objects, with the plural of each kind from API discovery."""

    def __init__(self, connection: api_server.ApiServer, kinds: KnownKinds, clock: Clock) -> None:
        """clock: seconds since the epoch."""
        self._connection, self._kinds, self._clock = connection, kinds, clock

    async def read(self, namespace: str, reading: readings.CustomReading) -> Sample:
        """Newest value. Raises SourceError."""
        target = reading.target
        try:
            found = await self._kinds.of_kind(target)
        except ObservationError as error:
            raise SourceError("CustomMetricsUnreachable", str(error)[:200]) from error
        if found is None:
            raise SourceError("TargetUnknown", f"the server has no {target.kind} in {target.api_version}")
        # Plural, group and name, as the API writes an object: `deployments.apps/chat`.
        about = f"{found.full_name}/{target.name}"
        path = f"{PATH}/namespaces/{namespace}/{about}/{quote(reading.metric, safe='')}"
        selector = ",".join(f"{name}={value}" for name, value in reading.selector)
        try:
            body = await self._connection.read(path, {"metricLabelSelector": selector} if selector else {})
        except request.KubeReadError as error:
            code = "MetricNotFound" if error.refusal.status == 404 else "CustomMetricsUnreachable"
            raise SourceError(code, error.refusal.words[:200]) from error
        return sample_in(body, reading.role, self._clock())


def sample_in(body: bytes, role: Role, now_s: float) -> Sample:
    """Value in a MetricValueList; several are added up. Raises SourceError.

    now_s: instant of the value where the adapter names none, and the latest possible one.
    """
    try:
        items = msgspec.json.decode(body, type=_Values).items
        values = [float(quantity(item.value)) for item in items]
        instants = (datetime.fromisoformat(each.timestamp).timestamp() if each.timestamp else now_s for each in items)
        at_s = min(instants, default=now_s)
    except UNREADABLE as error:
        raise SourceError("AnswerMalformed", f"the custom metrics API answered {str(error)[:150]}") from error
    if not values:
        raise SourceError("MetricNotFound", f"the custom metrics API has no value for {role}")
    return Sample(min(at_s, now_s), sum(values))


log = structlog.get_logger(__name__)
LENGTHS_EVERY_S = 300.0
"""Seconds between two readings of request lengths, which are averaged over a longer window."""


def served_by(policy: ScalingPolicy) -> float:
    """Load that the ready replicas of a policy serve, or one; 0: not known. Of a new policy, no status says it yet."""
    capacity, status = policy.spec.capacity, policy.own_status
    each = (status.replica_load or 0.0) if capacity is None else capacity.per_replica
    return (status.current_replicas or 1) * each


class Collector:
    """Reads the sources of policies. It begins with their histories, since another replica read before."""

    def __init__(
        self,
        measured: Measured,
        servers: PrometheusServers,
        custom: CustomMetrics,
        allowed: readings.Allowed,
        settings: AutoscalerSettings,
        clock: Clock,
        meter: Meter,
    ) -> None:
        """clock: seconds since the epoch."""
        self._measured, self._servers, self._custom = measured, servers, custom
        self._allowed, self._settings, self._clock, self._meter = allowed, settings, clock, meter
        self._windows = Windows(settings.prometheus.window_s, settings.prometheus.lengths_window_s)
        self._backfilled: dict[str, set[readings.Reading]] = {}
        """Readings whose history was read, by policy and what it is about."""
        self._lengths_at_s: dict[str, float] = {}
        self._serving_at_s: dict[str, float] = {}
        self._histories: dict[tuple[str, readings.Reading], asyncio.Task[None]] = {}

    async def run(self, policies: PolicyReader, leader: Leader) -> None:
        """Reads while this process leads, until it is cancelled."""

        async def turn() -> None:
            await self.turn(policies.all() if leader.may_write() else {})

        try:
            await repeat(turn, self._settings.sync_s, "a reading of the sources of demand failed")
        finally:
            self._forget(())

    async def turn(self, policies: Mapping[str, ScalingPolicy]) -> None:
        """Reads every source once, and begins to read histories that are missing. policies: by `namespace/name`."""
        self._forget(policies)
        if policies:  # before a new history comes
            self._measured.keep({name: policy.about for name, policy in policies.items()})
            self._measured.served = {name: served_by(policy) for name, policy in policies.items()}
        wanted = {name: policy for name, policy in policies.items() if policy.spec.mode != "Off"}
        work = [self._read_serving(name, policy) for name, policy in wanted.items()]
        work += [
            self._read(name, policy, reading)
            for name, policy in wanted.items()
            for reading in readings.readings_of(policy, self._allowed)
        ]
        await asyncio.gather(*work)
        for name, policy in wanted.items():
            recorded = readings.recorded_reading_of(policy, self._allowed)
            if recorded is not None:
                self._begin_history(name, policy, recorded, self._allowed.own_namespace)

    async def histories(self) -> None:
        """Waits for the histories that are being read."""
        await asyncio.gather(*self._histories.values(), return_exceptions=True)

    async def _read(self, name: str, policy: ScalingPolicy, reading: readings.Reading) -> None:
        namespace, at_s = policy.metadata.namespace, self._clock()
        if isinstance(reading, readings.RefusedSource):
            self._count(reading.source, reading.code)
            self._measured.put_failure(name, reading.role, at_s, reading.code, reading.words)
            return
        source = "custom" if isinstance(reading, readings.CustomReading) else "prometheus"
        try:
            if isinstance(reading, readings.CustomReading):
                sample = await self._custom.read(namespace, reading)
                self._measured.put_sample(name, reading.role, sample)
            else:
                query, server = _query(reading, self._windows), self._servers.of(reading.server)
                full = policy.spec.demand.load.role, SATURATED * self._measured.served.get(name, 0.0)
                found = _by_role(reading, await server.now(query, namespace, at_s, reading.max_age_s), full)
                for role in reading.roles:
                    samples = found.get(role, ())
                    for sample in samples[-1:]:
                        self._measured.put_sample(name, role, sample)
                    if not samples:
                        words = "the query has no result; are the pods scraped, and do the labels fit?"
                        self._measured.put_failure(name, role, at_s, "QueryEmpty", words)
                if isinstance(reading, readings.PresetReading) and reading.with_lengths:
                    await self._read_lengths(name, namespace, reading)
        except SourceError as error:
            self._count(source, error.code)
            for role in reading.roles:
                self._measured.put_failure(name, role, self._clock(), error.code, str(error))
            return
        self._count(source, "ok")
        if not isinstance(reading, readings.CustomReading):
            self._begin_history(name, policy, reading, namespace)

    def _count(self, source: str, result: str) -> None:
        self._meter.count("tonnage_demand_readings_total", source, result)

    async def _read_serving(self, name: str, policy: ScalingPolicy) -> None:
        """Reads the figures of the replicas once in each interval of their tuning, which goes on from the status."""
        reading, at_s = readings.serving_reading_of(policy, self._allowed), self._clock()
        if reading is None:
            return
        if isinstance(reading, readings.RefusedSource):
            self._measured.put_serving_failure(name, reading.code, reading.words)
            return
        decided = policy.own_status.concurrency.time if policy.own_status.concurrency else None
        if at_s - max(decided or 0.0, self._serving_at_s.get(name, 0.0)) < reading.every_s:
            return
        windows = replace(self._windows, rate_s=reading.for_s)
        query = serving_query(reading.preset, reading.service, windows)
        try:
            server = self._servers.of(reading.server)
            series = await server.now(query, policy.metadata.namespace, at_s, reading.for_s)
        except SourceError as error:
            self._measured.put_serving_failure(name, error.code, str(error))
            return
        figures = _newest(series, QUANTITY)
        if not figures:
            words = "the replicas' figures have no result; are the pods scraped, and do the labels fit?"
            self._measured.put_serving_failure(name, "QueryEmpty", words)
            return
        self._serving_at_s[name] = at_s
        self._measured.put_serving(name, Serving(at_s, reading.for_s, reading.latency, figures))  # type: ignore[arg-type]

    async def _read_lengths(self, name: str, namespace: str, reading: readings.PresetReading) -> None:
        """Reads request lengths when they are due; a failure leaves those that are known."""
        at_s = self._clock()
        if at_s - self._lengths_at_s.get(name, -LENGTHS_EVERY_S) < LENGTHS_EVERY_S:
            return
        server, histograms = self._servers.of(reading.server), []
        try:
            for which in ("input", "output"):
                query = lengths_query(reading.preset, reading.service, which, self._windows)
                series = await server.now(query, namespace, at_s, reading.max_age_s)
                histograms.append(lengths_from(_newest(series, "le")))
        except (SourceError, BadLengthsError) as error:
            log.debug("request lengths cannot be read", policy=name, why=str(error))
            return
        shares = shares_of(*histograms)
        if shares is not None:
            self._lengths_at_s[name] = at_s
            self._measured.put_lengths(name, LengthShares(at_s, *shares))

    def _begin_history(
        self, name: str, policy: ScalingPolicy, reading: readings.PresetReading | readings.QueryReading, namespace: str
    ) -> None:
        """Begins to read the history of a reading, once. namespace: for a proxy that limits queries to one."""
        key = f"{name} {policy.about}"
        if reading not in self._backfilled.get(key, ()) and (name, reading) not in self._histories:
            work = self._read_history(name, key, namespace, reading, policy.spec.forecast.history)
            self._histories[name, reading] = asyncio.get_running_loop().create_task(work)

    async def _read_history(
        self, name: str, key: str, namespace: str, reading: readings.PresetReading | readings.QueryReading, for_s: float
    ) -> None:
        """Reads the history of a reading, oldest first; a failure is made good in a later turn. key: of what was
        read."""
        step_s, end_s = self._settings.prometheus.step_s, self._clock()
        start_s, span_s = end_s - for_s, (MOST_POINTS - 1) * step_s
        query, server = _query(reading, self._windows), self._servers.of(reading.server)
        found = dict[Role, list[Sample]]()
        try:
            while start_s <= end_s:
                until_s = min(end_s, start_s + span_s)
                series = await server.over(query, namespace, start_s, until_s, step_s, reading.max_age_s)
                for role, samples in _by_role(reading, series).items():
                    found.setdefault(role, []).extend(samples)
                start_s = until_s + step_s
            for role, samples in found.items():
                self._measured.put_history(name, role, samples)
            self._backfilled.setdefault(key, set()).add(reading)
        except SourceError as error:
            log.info("the history of a policy cannot be read yet", policy=name, code=error.code, why=str(error))
        finally:
            del self._histories[name, reading]

    def _forget(self, policies: Iterable[str]) -> None:
        kept = set(policies)
        self._backfilled = {key: each for key, each in self._backfilled.items() if key.partition(" ")[0] in kept}
        self._lengths_at_s = {name: each for name, each in self._lengths_at_s.items() if name in kept}
        self._serving_at_s = {name: each for name, each in self._serving_at_s.items() if name in kept}
        for (name, _), task in tuple(self._histories.items()):
            if name not in kept:
                task.cancel()


def _query(reading: readings.PresetReading | readings.QueryReading, windows: Windows) -> str:
    if isinstance(reading, readings.QueryReading):
        return reading.query
    return combined(reading.preset, reading.service, quantities(reading.preset, reading.roles), windows)


def _by_role(
    reading: readings.PresetReading | readings.QueryReading,
    series: Sequence[Series],
    full: tuple[Role, float] = ("load", 0.0),
) -> Mapping[Role, Sequence[Sample]]:
    """Samples by role, oldest first; full: as of `load_from`. Raises SourceError when a policy's own query has several
    results."""
    if isinstance(reading, readings.QueryReading):
        if len(series) > 1:
            raise SourceError("QueryAmbiguous", f"the query has {len(series)} results; aggregate them, as by sum()")
        return {reading.role: tuple(Sample(*point) for each in series for point in each.points if point[1] >= 0)}
    measured: dict[float, dict[str, float]] = {}
    for each in series:
        for at_s, value in each.points:
            measured.setdefault(at_s, {})[each.labels.get(QUANTITY, "")] = value
    loads = {at_s: load_from(reading.preset, reading.roles, values, full) for at_s, values in sorted(measured.items())}  # type: ignore[arg-type]
    return {
        role: tuple(
            Sample(at_s, load.values[role], load.is_censored and role != "queue", load.is_full)
            for at_s, load in loads.items()
            if role in load.values
        )
        for role in reading.roles
    }


def _newest(series: Sequence[Series], label: str) -> dict[str, float]:
    """Newest value of each series that has any, by this label."""
    return {each.labels.get(label, ""): each.points[-1][1] for each in series if each.points}


CLOSE_WITHIN_S = 1.0
TAKE_EVERY_S = 1.0
"""Seconds between two looks for fits that came."""


class AutoscalerLoop(ControlLoop):
    """Evaluates ScalingPolicies: what is measured of them, and what they may expect."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings, self._host = settings.autoscaler, settings.host
        self._lease = settings.lease.namespace, settings.lease.name
        self._hpas = cache.Cache(HPAS)
        self._measured = Measured(time.time)
        self._running: tuple[PolicyReader, Targets] | None = None
        """None before the start."""

    @property
    def caches(self) -> tuple[cache.Cache[Any], ...]:
        return (self._hpas,)

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with each policy's measurements; unchanged before the start."""
        if self._running is None or not snapshot.scalers:
            return snapshot
        policies, targets = self._running
        conflicts = conflicts_of(self._hpas.all().values())
        return with_measured(snapshot, policies.all(), self._measured, targets.state, conflicts)

    def start(self, context: LoopContext) -> dict[str, int]:
        """Reads sources and targets while this replica leads, and opens the endpoints; returns their ports."""
        asked, clocks = self._settings.prometheus, context.clocks
        kinds = KnownKinds(partial(discover, context.connection), clocks.wall)
        policies = PolicyReader(context.caches.own[KIND])
        targets = Targets(context.connection, kinds, clocks.wall)
        self._running = policies, targets
        servers = PrometheusServers(asked, clocks.monotonic)
        context.stack.callback(lambda: context.thread.run_within(servers.close(), CLOSE_WITHIN_S))
        collector = Collector(
            self._measured,
            servers,
            CustomMetrics(context.connection, kinds, clocks.wall),
            Allowed(asked.url, asked.other_urls, asked.allow_queries, self._settings.custom_metrics, self._lease[0]),
            self._settings,
            clocks.wall,
            context.meter,
        )
        context.keep(collector.run(policies, context.leadership))
        context.keep(self._keep(context, policies, targets))
        return open_endpoints(self._settings, self._host, context, policies, self._measured)

    async def _keep(self, context: LoopContext, policies: PolicyReader, targets: Targets) -> None:
        """Reads targets and renews forecasts for ever. An internal error is logged, and the next turn tries again."""
        clock, forecasts = context.clocks.monotonic, Forecasts(self._measured, time.time, context.background)
        saved, term = SavedFits(context.connection, context.applier, self._lease), None
        while True:
            try:
                if context.leadership.may_write():
                    known = policies.all()
                    if term != context.leadership.epoch and known:
                        term = context.leadership.epoch
                        async for value in saved.read(known):
                            await asyncio.to_thread(forecasts.restore, [value])
                    self._measured.keep({name: policy.about for name, policy in known.items()})
                    await targets.turn(known)
                    series = {name: series_of(policy) for name, policy in known.items() if policy.spec.mode != "Off"}
                    # In a thread: two weeks of a new policy's history take a tenth of a second.
                    await asyncio.to_thread(forecasts.turn, series)
                    if series:
                        context.trigger.changed()
            except Exception:
                log.exception("a turn of the autoscaler failed")
            until_s = clock() + self._settings.sync_s
            while (left_s := until_s - clock()) > 0:
                await asyncio.sleep(min(left_s, TAKE_EVERY_S))
                if await asyncio.to_thread(forecasts.take_fits):  # at once, so that the next ones are begun
                    context.trigger.changed()
                await saved.write(forecasts.take_unsaved())


def series_of(policy: ScalingPolicy) -> LoadSeries:
    """What is forecast of a policy."""
    return LoadSeries(policy.spec.demand.load.role, policy.spec.forecast.history, policy.about)


def enabled(settings: OperatorSettings) -> AutoscalerLoop | None:
    """The loop of the autoscaler; None where the settings do not enable it."""
    return AutoscalerLoop(settings) if settings.autoscaler.enabled else None
