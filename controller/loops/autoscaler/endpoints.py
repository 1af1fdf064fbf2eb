"""Endpoints of the autoscaler: the push endpoint and the external metrics API, in a thread and event loop of their own,
so that no client can delay the renewal of the Lease.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Protocol

import structlog

from autoscaler.demand.presets import Role
from autoscaler.demand.promql import Windows
from cluster.clock import Clock
from cluster.errors import ObservationError
from controller.api.scaling_policy import ScalingPolicy
from controller.kube.loop_thread import LoopThread
from controller.kube.request import Body, Query
from controller.loops.autoscaler.collector import Pace
from controller.loops.autoscaler.external_metrics import (
    METRIC,
    DesiredReplicas,
    ExternalMetrics,
    Front,
    FrontError,
    front_in,
)
from controller.loops.autoscaler.http_server import AccessReviews, Request, Response, serve
from controller.loops.autoscaler.measured import Measured
from controller.loops.autoscaler.prometheus import PrometheusAccess
from controller.loops.autoscaler.push import MOST_BYTES, PATH, PushEndpoint
from controller.loops.autoscaler.readings import Allowed
from controller.loops.autoscaler.serving_tls import ServingTls
from controller.loops.loop import Clocks
from controller.metrics.registry import Meter, Sample
from controller.settings import AutoscalerSettings, PrometheusSettings

log = structlog.get_logger(__name__)
FRONT_PATH = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
FRONT_EVERY_S = 60.0
CLOSE_WITHIN_S = 3.0
NO_BODY = 1024
"""Largest body of a request that should have none."""


class Cluster(Protocol):
    """Part of a connection that the endpoints need."""

    async def read(self, path: str, query: Query | None = None) -> bytes:
        """Response body of a GET. Raises KubeReadError."""
        ...

    async def write(self, method: str, path: str, body: Body | None = None) -> bytes:
        """Response body of a POST. Raises KubeWriteError."""
        ...


@dataclass(frozen=True, slots=True)
class Address:
    """Where an endpoint listens."""

    host: str
    port: int
    setting: str
    """Name of the port's setting, for errors."""


class Endpoints:
    """Thread that serves both endpoints; requests to the API server run in `kube`, the loop of its connection."""

    def __init__(self, cluster: Cluster, kube: LoopThread, stack: ExitStack) -> None:
        """stack: ends the endpoints when it is closed."""
        self._cluster, self._kube = cluster, kube
        self._thread = LoopThread("endpoints")
        self._open = AsyncExitStack()
        stack.callback(self._thread.close)
        stack.callback(lambda: self._thread.run_within(self._open.aclose(), CLOSE_WITHIN_S))

    def reviews(self, clock: Clock, audience: str = "") -> AccessReviews:
        """Access reviews by the API server. clock: monotonic, seconds."""

        def post(path: str, body: Body) -> Awaitable[bytes]:
            return self._kube.run_from_another(self._cluster.write("POST", path, body))

        return AccessReviews(post, clock, audience)

    def serve_push(self, endpoint: PushEndpoint, at: Address, tls: ServingTls | None = None) -> int:
        """Serves the push endpoint; returns its port. Raises ConfigError."""

        async def handle(request: Request) -> Response:
            if tls is not None:
                tls.look()
            return await _pushed(endpoint, request)

        return self._serve(handle, at, MOST_BYTES, tls)

    def serve_external_metrics(
        self, metrics: Callable[[Callable[[], Front | None]], ExternalMetrics], at: Address, tls: ServingTls
    ) -> int:
        """Serves the API for the front that the cluster names; returns the port. Raises ConfigError.

        metrics: makes the API, given how to find the front.
        """
        known: list[Front] = []

        async def look() -> None:
            try:
                front = front_in(await self._kube.run_from_another(self._cluster.read(FRONT_PATH)))
                tls.trust_clients_of(front.authority)
                known[:] = [front]
            except (ObservationError, FrontError) as error:
                log.warning("the API server's front is not known", why=str(error))
            tls.look()

        async def follow() -> None:
            while True:
                await asyncio.sleep(FRONT_EVERY_S)
                await look()

        # Before the first connection: one that began without a client certificate never shows any.
        self._thread.run(look())
        self._thread.begin(follow())
        api = metrics(lambda: known[0] if known else None)
        return self._serve(api.respond, at, NO_BODY, tls)

    def _serve(
        self, handle: Callable[[Request], Awaitable[Response]], at: Address, most_bytes: int, tls: ServingTls | None
    ) -> int:
        context = tls.context if tls is not None else None
        work = serve(handle, at.host, at.port, tls=context, most_bytes=most_bytes, setting=at.setting, stack=self._open)
        return self._thread.run(work)


async def _pushed(endpoint: PushEndpoint, request: Request) -> Response:
    if request.path != PATH:
        return _words(404, f"POST {PATH}")
    if request.method != "POST":
        return _words(405, f"POST {PATH}")
    reply = await endpoint.take(request.headers.get("authorization", ""), request.body)
    wait = {} if reply.retry_after_s is None else {"Retry-After": str(reply.retry_after_s)}
    # Behind a Service, only a new connection may reach the other replica.
    again = {"Connection": "close"} if reply.status == 503 else {}
    return Response(reply.status, json.dumps({"message": reply.words}).encode(), {**wait, **again})


def _words(status: int, words: str) -> Response:
    return Response(status, json.dumps({"message": words}).encode())


def desired_replicas(policies: Iterable[ScalingPolicy], now_s: float) -> Iterator[DesiredReplicas]:
    """Recommendations; a policy that has none, or is off, is left out: missing is not zero."""
    for policy in policies:
        replicas, spec, metadata = policy.status.recommended_replicas, policy.spec, policy.metadata
        if replicas is not None and spec.mode != "Off":
            at_s = policy.status.load_time or now_s
            yield DesiredReplicas(metadata.namespace, metadata.name, spec.target.name, replicas, at_s)


def samples_of(desired: Iterable[DesiredReplicas]) -> tuple[Sample, ...]:
    """The same for /metrics."""
    return tuple(Sample(METRIC, (f"{each.namespace}/{each.policy}",), each.replicas) for each in desired)


def pushed_roles(policies: Mapping[str, ScalingPolicy], name: str) -> tuple[Role, ...] | None:
    """Roles that a policy lets be pushed; None: there is no such policy."""
    policy = policies.get(name)
    if policy is None or policy.spec.mode == "Off":
        return None
    return tuple(source.role for source in policy.spec.demand.sources if source.push is not None)


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
