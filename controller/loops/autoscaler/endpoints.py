"""Endpoints of the autoscaler: the push endpoint and the external metrics API, in a thread and event loop of their own,
so that no client can delay the renewal of the Lease."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Protocol

import structlog

from cluster.clock import Clock
from cluster.errors import ObservationError
from controller.kube.loop_thread import LoopThread
from controller.kube.request import Body, Query
from controller.loops.autoscaler.access_review import AccessReviews
from controller.loops.autoscaler.external_metrics import ExternalMetrics, Front, FrontError, front_in
from controller.loops.autoscaler.http_message import Request, Response
from controller.loops.autoscaler.http_server import serve
from controller.loops.autoscaler.serving_tls import ServingTls
from controller.loops.autoscaler.sources.push_endpoint import MOST_BYTES, PATH, PushEndpoint

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
