"""Loop of the autoscaler: reads sources and targets, keeps forecasts, and adds what is measured to snapshots."""

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from autoscaler.demand.promql import Windows
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.api.scaling_policy import KIND, ScalingPolicy
from controller.brain.from_settings import fit_slots_of
from controller.deciders.load_fits import ShardFits
from controller.kube.cache import Cache
from controller.kube.discovery import discover
from controller.loops.autoscaler.collector import Collector, CollectorPace, CustomMetrics
from controller.loops.autoscaler.endpoints import open_endpoints
from controller.loops.autoscaler.forecasting import Forecasts, LoadSeries
from controller.loops.autoscaler.measured import Measured
from controller.loops.autoscaler.policies import HPAS, PolicyReader, conflicts_of, with_measured
from controller.loops.autoscaler.prometheus import PrometheusAccess, PrometheusServers
from controller.loops.autoscaler.readings import Allowed
from controller.loops.autoscaler.targets import Targets
from controller.loops.loop import ControlLoop, LoopContext
from controller.settings import OperatorSettings

log = structlog.get_logger(__name__)
CLOSE_WITHIN_S = 1.0
TAKE_EVERY_S = 1.0
"""Seconds between two looks for fits from the brain."""


class AutoscalerLoop(ControlLoop):
    """Evaluates ScalingPolicies: what is measured of them, and what they may expect."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings, self._host = settings.autoscaler, settings.host
        self._namespace = settings.lease.namespace
        self._hpas = Cache(HPAS)
        self._measured = Measured(time.time)
        self._forecasts = Forecasts(self._measured, time.time, fit_slots_of(settings))
        self._running: tuple[PolicyReader, Targets] | None = None
        """None before the start."""

    @property
    def caches(self) -> tuple[Cache[Any], ...]:
        return (self._hpas,)

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with each policy's measurements; unchanged before the start."""
        if self._running is None or not snapshot.scalers:
            return snapshot
        policies, targets = self._running
        conflicts = conflicts_of(self._hpas.all().values())
        seen = with_measured(snapshot, policies.all(), self._measured, targets.state, conflicts)
        return replace(seen, load_histories=self._forecasts.offered)

    def learn(self, plan: Plan) -> None:
        """Hands the fits of background deciders to the forecasts."""
        for shard in plan.fits:
            if isinstance(shard, ShardFits):
                self._forecasts.put_fits(shard.by_scaler())

    def start(self, context: LoopContext) -> dict[str, int]:
        """Reads sources and targets while this replica leads, and opens the endpoints; returns their ports."""
        asked, clocks, find = self._settings.prometheus, context.clocks, partial(discover, context.connection)
        policies = PolicyReader(context.caches.own[KIND])
        targets = Targets(context.connection, find, clocks.wall)
        self._running = policies, targets
        access = PrometheusAccess(
            url=asked.url,
            ca_file=asked.ca_file,
            token_file=asked.token_file,
            namespace_parameter=asked.namespace_parameter,
            timeout_s=asked.timeout_s,
            most_bytes=asked.most_bytes,
            concurrency=asked.concurrency,
        )
        servers = PrometheusServers(access, clocks.monotonic)
        context.stack.callback(lambda: context.thread.run_within(servers.close(), CLOSE_WITHIN_S))
        collector = Collector(
            self._measured,
            servers,
            CustomMetrics(context.connection, find, clocks.wall),
            Allowed(asked.url, asked.other_urls, asked.allow_queries, self._settings.custom_metrics, self._namespace),
            CollectorPace(self._settings.sync_s, asked.step_s, Windows(asked.window_s, asked.lengths_window_s)),
            clocks.wall,
            context.meter,
        )
        context.keep(collector.run(policies, context.leadership))
        context.keep(self._keep(context, policies, targets))
        return open_endpoints(self._settings, self._host, context, policies, self._measured)

    async def _keep(self, context: LoopContext, policies: PolicyReader, targets: Targets) -> None:
        """Reads targets and renews forecasts for ever. An internal error is logged, and the next turn tries again."""
        clock = context.clocks.monotonic
        while True:
            try:
                if context.leadership.may_write():
                    known = policies.all()
                    self._measured.keep(known)
                    await targets.turn(known)
                    series = {name: series_of(policy) for name, policy in known.items() if policy.spec.mode != "Off"}
                    # In a thread: two weeks of a new policy's history take a tenth of a second.
                    await asyncio.to_thread(self._forecasts.turn, series)
                    if series:
                        context.trigger.changed()
            except Exception:
                log.exception("a turn of the autoscaler failed")
            until_s = clock() + self._settings.sync_s
            while (left_s := until_s - clock()) > 0:
                await asyncio.sleep(min(left_s, TAKE_EVERY_S))
                if self._forecasts.has_fits:  # taken at once, so that the brain has the next ones
                    await asyncio.to_thread(self._forecasts.take_fits)
                    context.trigger.changed()


def series_of(policy: ScalingPolicy) -> LoadSeries:
    """What is forecast of a policy."""
    forecast = policy.spec.forecast
    return LoadSeries(policy.spec.demand.load.role, forecast.history, boosted=forecast.model != "core")


def enabled(settings: OperatorSettings) -> AutoscalerLoop | None:
    """The loop of the autoscaler; None where the settings do not enable it."""
    return AutoscalerLoop(settings) if settings.autoscaler.enabled else None
