"""Endpoints of the autoscaler as the settings enable them, and clients of its sources."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from autoscaler.demand.promql import Windows
from controller.api.scaling_policy import ScalingPolicy
from controller.kube.loop_thread import LoopThread
from controller.loops.autoscaler.desired import desired_replicas, pushed_roles, samples_of
from controller.loops.autoscaler.endpoints import Address, Cluster, Endpoints
from controller.loops.autoscaler.external_metrics import ExternalMetrics
from controller.loops.autoscaler.measured import Measured
from controller.loops.autoscaler.serving_tls import ServingTls
from controller.loops.autoscaler.sources.collector import Pace
from controller.loops.autoscaler.sources.prometheus import PrometheusAccess
from controller.loops.autoscaler.sources.push_endpoint import PushEndpoint
from controller.loops.autoscaler.sources.readings import Allowed
from controller.loops.loop import Clocks
from controller.metrics.registry import Meter
from controller.settings import AutoscalerSettings, PrometheusSettings

Policies = Callable[[], Mapping[str, ScalingPolicy]]
"""Valid policies by `namespace/name`."""
PUBLISH_EVERY_S = 5.0


def allowed_by(settings: AutoscalerSettings, namespace: str) -> Allowed:
    """What policies may ask. namespace: of the operator's pods."""
    prometheus = settings.prometheus
    return Allowed(prometheus.url, prometheus.other_urls, prometheus.allow_queries, settings.custom_metrics, namespace)


def pace_of(settings: AutoscalerSettings) -> Pace:
    prometheus = settings.prometheus
    return Pace(settings.sync_s, prometheus.step_s, Windows(prometheus.window_s, prometheus.lengths_window_s))


def prometheus_access(settings: PrometheusSettings) -> PrometheusAccess:
    """Access to the operator's own Prometheus."""
    return PrometheusAccess(
        url=settings.url,
        ca_file=settings.ca_file,
        token_file=settings.token_file,
        namespace_parameter=settings.namespace_parameter,
        timeout_s=settings.timeout_s,
        most_bytes=settings.most_bytes,
        concurrency=settings.concurrency,
    )


def open_endpoints(
    settings: AutoscalerSettings,
    host: str,
    cluster: Cluster,
    kube: LoopThread,
    measured: Measured,
    policies: Policies,
    leads: Callable[[], bool],
    clocks: Clocks,
    meter: Meter,
    stack: ExitStack,
) -> dict[str, int]:
    """Opens the endpoints that are enabled; returns their ports, by name. Raises ConfigError.

    cluster: connection to the API server, which belongs to `kube`. stack: closes them.
    """
    ports: dict[str, int] = {}
    push, external = settings.push, settings.external_metrics
    stack.callback(kube.begin(_publish(meter, policies, leads, clocks)))
    if not (push.enabled or external.enabled):
        return ports
    endpoints = Endpoints(cluster, kube, stack)
    if push.enabled:
        setting = "autoscaler.push"
        tls = ServingTls(push.tls.certificate, push.tls.key, clocks.monotonic, f"{setting}.tls") if push.tls else None
        reviews = endpoints.reviews(clocks.monotonic, push.audience)
        endpoint = PushEndpoint(
            measured, reviews, lambda name: pushed_roles(policies(), name), leads, clocks.wall, clocks.monotonic,
            lambda result: meter.count("tonnage_demand_readings_total", "push", result),
        )  # fmt: skip
        ports["push"] = endpoints.serve_push(endpoint, Address(host, push.port, f"{setting}.port"), tls)
    if external.enabled:
        setting = "autoscaler.external_metrics"
        serving = ServingTls(external.tls.certificate, external.tls.key, clocks.monotonic, f"{setting}.tls")
        reviews = endpoints.reviews(clocks.monotonic)
        ports["external_metrics"] = endpoints.serve_external_metrics(
            lambda front: ExternalMetrics(lambda: desired_replicas(policies().values(), clocks.wall()), front, reviews),
            Address(host, external.port, f"{setting}.port"),
            serving,
        )
    return ports


async def _publish(meter: Meter, policies: Policies, leads: Callable[[], bool], clocks: Clocks) -> None:
    """Keeps the gauge of desired replicas up to date, in the leader only."""
    while True:
        found = desired_replicas(policies().values(), clocks.wall()) if leads() else ()
        meter.publish_scaling(samples_of(found))
        await asyncio.sleep(PUBLISH_EVERY_S)
