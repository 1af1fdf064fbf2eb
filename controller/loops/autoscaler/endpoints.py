"""Endpoints of the autoscaler: the push endpoint and the external metrics API, in a thread and event loop of their own,
so that no client can delay the renewal of the Lease."""

import asyncio
import json
from collections.abc import Awaitable, Iterable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from functools import partial

import structlog

from cluster.clock import Clock
from cluster.errors import ObservationError
from controller.kube.api_server import ApiServer
from controller.kube.loop_thread import LoopThread
from controller.kube.request import Body
from controller.loops.autoscaler.external_metrics import METRIC, ExternalMetrics, FrontError, front_in
from controller.loops.autoscaler.http_server import AccessReviews, Handler, Request, Response, serve
from controller.loops.autoscaler.measured import Measured
from controller.loops.autoscaler.policies import DesiredReplicas, PolicyReader
from controller.loops.autoscaler.push import MOST_BYTES, PATH, PushEndpoint
from controller.loops.loop import LoopContext, repeat
from controller.loops.server_tls import ServerTls
from controller.metrics.registry import Sample
from controller.settings import AutoscalerSettings

log = structlog.get_logger(__name__)
FRONT_PATH = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
FRONT_EVERY_S = 60.0
CLOSE_WITHIN_S = 3.0
PUBLISH_EVERY_S = 5.0
NO_BODY = 1024
"""Largest body of a request that should have none."""


@dataclass(frozen=True, slots=True)
class EndpointAddress:
    """Where an endpoint listens."""

    host: str
    port: int
    setting: str
    """Name of the port's setting, for errors."""


class Endpoints:
    """Thread that serves both endpoints; requests to the API server run in `kube`, the loop of its connection."""

    def __init__(self, connection: ApiServer, kube: LoopThread, stack: ExitStack) -> None:
        """stack: ends the endpoints when it is closed."""
        self._connection, self._kube = connection, kube
        self._thread = LoopThread("endpoints")
        self._open = AsyncExitStack()
        stack.callback(self._thread.close)
        stack.callback(lambda: self._thread.run_within(self._open.aclose(), CLOSE_WITHIN_S))

    def reviews(self, clock: Clock, audience: str = "") -> AccessReviews:
        """Access reviews by the API server. clock: monotonic, seconds."""

        def post(path: str, body: Body) -> Awaitable[bytes]:
            return self._kube.run_from_another(self._connection.write("POST", path, body))

        return AccessReviews(post, clock, audience)

    def serve_push(self, endpoint: PushEndpoint, at: EndpointAddress, tls: ServerTls | None = None) -> int:
        """Serves the push endpoint; returns its port. Raises ConfigError."""

        async def handle(request: Request) -> Response:
            if tls is not None:
                tls.look()
            if request.path != PATH or request.method != "POST":
                status = 404 if request.path != PATH else 405
                return Response(status, json.dumps({"message": f"POST {PATH}"}).encode())
            reply = await endpoint.take(request.headers.get("authorization", ""), request.body)
            wait = {} if reply.retry_after_s is None else {"Retry-After": str(reply.retry_after_s)}
            # Behind a Service, only a new connection may reach the other replica.
            again = {"Connection": "close"} if reply.status == 503 else {}
            return Response(reply.status, json.dumps({"message": reply.words}).encode(), {**wait, **again})

        return self._serve(handle, at, MOST_BYTES, tls)

    def serve_external_metrics(self, api: ExternalMetrics, at: EndpointAddress, tls: ServerTls) -> int:
        """Serves the API for the front that the cluster names; returns the port. Raises ConfigError."""
        look = partial(self._look, api, tls)
        # Before the first connection: one that began without a client certificate never shows any.
        self._thread.run(look())

        async def follow() -> None:
            await asyncio.sleep(FRONT_EVERY_S)
            await repeat(look, FRONT_EVERY_S, "reading the API server's front failed")

        self._thread.begin(follow())
        return self._serve(api.respond, at, NO_BODY, tls)

    async def _look(self, api: ExternalMetrics, tls: ServerTls) -> None:
        try:
            front = front_in(await self._kube.run_from_another(self._connection.read(FRONT_PATH)))
            tls.trust_clients_of(front.authority)
            api.front = front
        except (ObservationError, FrontError) as error:
            log.warning("the API server's front is not known", why=str(error))
        tls.look()

    def _serve(self, handle: Handler, at: EndpointAddress, most_bytes: int, tls: ServerTls | None) -> int:
        context = tls.context if tls is not None else None
        work = serve(handle, at.host, at.port, tls=context, most_bytes=most_bytes, setting=at.setting, stack=self._open)
        return self._thread.run(work)


def open_endpoints(
    settings: AutoscalerSettings, host: str, context: LoopContext, policies: PolicyReader, measured: Measured
) -> dict[str, int]:
    """Opens the endpoints that are enabled; returns their ports, by name. Raises ConfigError."""
    ports: dict[str, int] = {}
    push, external, clocks = settings.push, settings.external_metrics, context.clocks
    publish = partial(_publish, context, policies)
    context.keep(repeat(publish, PUBLISH_EVERY_S, "publishing desired replicas failed"))
    if not (push.enabled or external.enabled):
        return ports
    endpoints = Endpoints(context.connection, context.thread, context.stack)
    if push.enabled:
        setting, tls = "autoscaler.push", None
        if push.tls:
            tls = ServerTls(push.tls.certificate, push.tls.key, clocks.monotonic, f"{setting}.tls")
        reviews = endpoints.reviews(clocks.monotonic, push.audience)
        endpoint = PushEndpoint(measured, reviews, policies, context.leadership, clocks, context.meter)
        ports["push"] = endpoints.serve_push(endpoint, EndpointAddress(host, push.port, f"{setting}.port"), tls)
    if external.enabled:
        setting = "autoscaler.external_metrics"
        serving = ServerTls(external.tls.certificate, external.tls.key, clocks.monotonic, f"{setting}.tls")
        api = ExternalMetrics(policies, endpoints.reviews(clocks.monotonic), clocks.wall)
        at = EndpointAddress(host, external.port, f"{setting}.port")
        ports["external_metrics"] = endpoints.serve_external_metrics(api, at, serving)
    return ports


async def _publish(context: LoopContext, policies: PolicyReader) -> None:
    """Keeps the gauge of desired replicas up to date, in the leader only."""
    desired = policies.desired(context.clocks.wall()) if context.leadership.may_write() else ()
    context.meter.publish_scaling(samples_of(desired))


def samples_of(desired: Iterable[DesiredReplicas]) -> tuple[Sample, ...]:
    """Desired replicas as gauges."""
    return tuple(Sample(METRIC, (f"{each.namespace}/{each.policy}",), each.replicas) for each in desired)
