"""Endpoints of the autoscaler: the push endpoint and the external metrics API, in a thread and event loop of their own,
so that no client can delay the renewal of the Lease.
"""

import asyncio
import json
import math
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from functools import partial

import msgspec
import numpy as np
import structlog

from autoscaler.demand.lengths import FEWEST_REQUESTS, MOST_EDGES
from autoscaler.demand.presets import Role
from cluster.demand import LengthGrid
from cluster.errors import UNREADABLE, ObservationError
from controller.api.labels import GROUP
from controller.kube.api_server import ApiServer
from controller.kube.connection import LoopThread
from controller.loops.autoscaler import http_server
from controller.loops.autoscaler.external_metrics import METRIC, ExternalMetrics, FrontError, front_in
from controller.loops.autoscaler.measured import LengthShares, Measured, Sample as LoadSample
from controller.loops.autoscaler.policies import DesiredReplicas, PolicyReader
from controller.loops.loop import Leader, LoopClocks, LoopContext, repeat
from controller.loops.reviews import Access, AccessReviews, TooBusyError
from controller.loops.server_tls import ServerTls
from controller.metrics.registry import Meter, Sample
from controller.settings import AutoscalerSettings

AHEAD_S = 30.0
"""How far the sender's clock may be ahead. Samples from further in the future would stay the newest for as long."""
LARGEST_VALUE = 1e12


class BadPushError(ValueError):
    """The body is no sample."""


class Histogram(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Requests by their lengths: `requests[i][j]` with at most inputTokens[i] input and outputTokens[j] output
    tokens, and more than the edges before."""

    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    requests: tuple[tuple[float, ...], ...]


class Push(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Body of a request."""

    policy: str
    """`namespace/name`."""
    at: float | None = None
    """Seconds since the epoch; absent: now."""
    load: float | None = None
    requests: float | None = None
    """Requests per second; tokens likewise."""
    input_tokens: float | None = None
    output_tokens: float | None = None
    queue: float | None = None
    histogram: Histogram | None = None
    """Requests of the last minutes by their lengths."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """Checked content of a request."""

    namespace: str
    name: str
    at_s: float
    values: Mapping[Role, float] = field(default_factory=dict)
    lengths: LengthShares | None = None


_PUSH = msgspec.json.Decoder(Push)


def pushed(body: bytes, now_s: float) -> Pushed:
    """Content of a request. Raises BadPushError, whose message the sender is shown."""
    try:
        push = _PUSH.decode(body)
    except UNREADABLE as error:
        raise BadPushError(str(error)) from error
    namespace, slash, name = push.policy.partition("/")
    if not (namespace and slash and name) or "/" in name or len(push.policy) > 317:
        raise BadPushError("policy should be namespace/name")
    at_s = now_s if push.at is None else push.at
    if not 0 < at_s <= now_s + AHEAD_S:
        raise BadPushError(f"at should be seconds since the epoch, and not in the future: now is {now_s:.0f}")
    given: dict[Role, float | None] = {
        "load": push.load,
        "requests": push.requests,
        "inputTokens": push.input_tokens,
        "outputTokens": push.output_tokens,
        "queue": push.queue,
    }
    values = {role: value for role, value in given.items() if value is not None}
    for role, value in values.items():
        if not 0 <= value <= LARGEST_VALUE:
            raise BadPushError(f"{role} should be between 0 and {LARGEST_VALUE:g}")
    if not values and push.histogram is None:
        raise BadPushError("nothing is measured: load, requests, inputTokens, outputTokens, queue or histogram")
    at_s = min(at_s, now_s)
    lengths = _lengths(push.histogram, at_s) if push.histogram is not None else None
    return Pushed(namespace, name, at_s, values, lengths)


def _lengths(histogram: Histogram, at_s: float) -> LengthShares | None:
    """Shares of a histogram; None: too few requests for a distribution."""
    inputs, outputs = histogram.input_tokens, histogram.output_tokens
    for edges in (inputs, outputs):
        if not edges or len(edges) > MOST_EDGES or edges[0] <= 0 or list(edges) != sorted(set(edges)):
            raise BadPushError(f"edges of the histogram should rise from above 0, at most {MOST_EDGES} of them")
    rows = histogram.requests
    if len(rows) != len(inputs) or any(len(row) != len(outputs) for row in rows):
        raise BadPushError(f"requests of the histogram should have {len(inputs)} rows of {len(outputs)}")
    if not all(math.isfinite(count) and count >= 0 for row in rows for count in row):
        raise BadPushError("requests of the histogram should not be negative")
    counts = np.array(rows)
    if counts.sum() < FEWEST_REQUESTS:
        return None
    return LengthShares(at_s, LengthGrid(inputs, outputs), counts / counts.sum())


PATH = "/v1/demand"
MOST_BYTES = 65_536
"""Largest body: a histogram of 64 × 64 buckets has 30 kB."""
BURST = 10.0
"""Requests of one policy that are accepted at once; then one a second."""
PER_S = 1.0


def _reply(status: int, words: str, retry_after_s: int | None = None) -> http_server.Response:
    """Response to a push."""
    wait = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    # Behind a Service, only a new connection may reach the other replica.
    again = {"Connection": "close"} if status == 503 else {}
    return http_server.Response(status, json.dumps({"message": words}).encode(), {**wait, **again})


class PushEndpoint:
    """Takes pushes while this replica leads: only the leader keeps samples."""

    def __init__(
        self,
        measured: Measured,
        reviews: AccessReviews,
        policies: PolicyReader,
        leader: Leader,
        clocks: LoopClocks,
        meter: Meter,
    ) -> None:
        self._measured, self._reviews, self._policies = measured, reviews, policies
        self._leader, self._clocks, self._meter = leader, clocks, meter
        self._budgets: dict[str, tuple[float, float]] = {}
        """Requests that each policy has left, and the instant of that."""

    async def respond(self, request: http_server.Request) -> http_server.Response:
        """Response to a request."""
        if request.path != PATH or request.method != "POST":
            return _reply(404 if request.path != PATH else 405, f"POST {PATH}")
        if not self._leader.may_write():
            return _reply(503, "this replica does not lead; ask again, the other one does", 1)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return _reply(401, "a bearer token is needed")
        try:
            push = pushed(request.body, self._clocks.wall())
            access = Access("update", GROUP, "scalingpolicies/demand", push.namespace, push.name)
            if not await self._reviews.allows_token(token.strip(), request.address, access):
                return _reply(403, f"the token may not update scalingpolicies/demand {push.name} in {push.namespace}")
        except BadPushError as error:
            return _reply(400, str(error)[:300])
        except TooBusyError as error:
            return _reply(503, str(error)[:300], 1)
        # Only a sender that may push learns whether the policy exists, and uses up its budget.
        result, reply = self._taken(push)
        self._meter.count("tonnage_demand_readings_total", "push", result)
        return reply

    def _taken(self, push: Pushed) -> tuple[str, http_server.Response]:
        """Result of an authorised push, for the metrics, and its response."""
        policy = f"{push.namespace}/{push.name}"
        allowed = self._policies.pushed_roles(policy)
        if allowed is None:
            return "PolicyNotFound", _reply(404, f"there is no ScalingPolicy {policy}")
        if unwanted := push.values.keys() - set(allowed):
            words = f"the policy has no push source for {', '.join(sorted(unwanted))}"
            return "RoleNotPushed", _reply(400, words)
        now_s = self._clocks.monotonic()
        left, at_s = self._budgets.get(policy, (BURST, now_s))
        left = min(BURST, left + (now_s - at_s) * PER_S)
        if left < 1:
            return "TooManyRequests", _reply(429, "more than one request a second", 1)
        # Policies that exist are few; those that were deleted are forgotten with their full budgets.
        self._budgets = {name: each for name, each in self._budgets.items() if now_s - each[1] < BURST / PER_S}
        self._budgets[policy] = (left - 1, now_s)
        for role, value in push.values.items():
            self._measured.put_sample(policy, role, LoadSample(push.at_s, value))
        if push.lengths is not None:
            self._measured.put_lengths(policy, push.lengths)
        return "ok", _reply(202, "taken")


log = structlog.get_logger(__name__)
FRONT_PATH = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
FRONT_EVERY_S = 60.0
CLOSE_WITHIN_S = 3.0
PUBLISH_EVERY_S = 5.0
NO_BODY = 1024
"""Largest body of a request that should have none."""


EndpointAddress = tuple[str, int, str]
"""Host, port, and the name of the port's setting for errors."""


class Endpoints:
    """Thread that serves both endpoints; requests to the API server run in `kube`, the loop of its connection."""

    def __init__(self, connection: ApiServer, kube: LoopThread, stack: ExitStack) -> None:
        """stack: ends the endpoints when it is closed."""
        self._connection, self._kube = connection, kube
        self._thread = LoopThread("endpoints")
        self._open = AsyncExitStack()
        stack.callback(self._thread.close)
        stack.callback(lambda: self._thread.run_within(self._open.aclose(), CLOSE_WITHIN_S))

    def serve_push(self, endpoint: PushEndpoint, at: EndpointAddress, tls: ServerTls | None = None) -> int:
        """Serves the push endpoint; returns its port. Raises ConfigError."""

        async def handle(request: http_server.Request) -> http_server.Response:
            if tls is not None:
                tls.look()
            return await endpoint.respond(request)

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

    def _serve(self, handle: http_server.Handler, at: EndpointAddress, most_bytes: int, tls: ServerTls | None) -> int:
        host, port, setting = at
        context = tls.context if tls is not None else None
        work = http_server.serve(
            handle, host, port, tls=context, most_bytes=most_bytes, setting=setting, stack=self._open
        )
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
        reviews = AccessReviews(context.post, clocks.monotonic, push.audience)
        endpoint = PushEndpoint(measured, reviews, policies, context.leadership, clocks, context.meter)
        ports["push"] = endpoints.serve_push(endpoint, (host, push.port, f"{setting}.port"), tls)
    if external.enabled:
        setting = "autoscaler.external_metrics"
        serving = ServerTls(external.tls.certificate, external.tls.key, clocks.monotonic, f"{setting}.tls")
        api = ExternalMetrics(policies, AccessReviews(context.post, clocks.monotonic), clocks.wall)
        at = host, external.port, f"{setting}.port"
        ports["external_metrics"] = endpoints.serve_external_metrics(api, at, serving)
    return ports


async def _publish(context: LoopContext, policies: PolicyReader) -> None:
    """Keeps the gauge of desired replicas up to date, in the leader only."""
    desired = policies.desired(context.clocks.wall()) if context.leadership.may_write() else ()
    context.meter.publish("scaling", samples_of(desired))


def samples_of(desired: Iterable[DesiredReplicas]) -> tuple[Sample, ...]:
    """Desired replicas as gauges."""
    return tuple(Sample(METRIC, (f"{each.namespace}/{each.policy}",), each.replicas) for each in desired)
