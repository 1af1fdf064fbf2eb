"""Wiring of the autoscaler: reads sources and targets, keeps forecasts, and adds what is measured to snapshots."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import structlog

from cluster.frame import FrameError
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.api.scaling_policy import KIND, ScalingPolicy
from controller.brain.from_settings import fit_slots_of
from controller.deciders import load_fits
from controller.kube.cache import Cache
from controller.kube.discovery import Discovered, discover
from controller.loops.autoscaler.conflicts import HPAS, conflict_of, conflicts_of
from controller.loops.autoscaler.facts import with_measured
from controller.loops.autoscaler.forecasting import Forecasts, LoadSeries
from controller.loops.autoscaler.measured import Measured
from controller.loops.autoscaler.policies import PolicyBook
from controller.loops.autoscaler.sources.collector import Collector
from controller.loops.autoscaler.sources.custom_metrics import CustomMetrics
from controller.loops.autoscaler.sources.servers import PrometheusServers
from controller.loops.autoscaler.targets import Targets
from controller.loops.autoscaler.wire_endpoints import allowed_by, open_endpoints, pace_of, prometheus_access
from controller.loops.loop import Surroundings
from controller.settings import OperatorSettings

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
        """Hands the fits of background deciders to the forecasts; an unreadable one is logged, and fitted again."""
        for name, frame in plan.learned.items():
            if name.startswith(load_fits.NAME):
                try:
                    self._forecasts.put_fits(load_fits.fits_from_frame(frame))
                except FrameError as error:
                    log.warning("fits of a background decider cannot be read", slot=name, why=str(error))

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
