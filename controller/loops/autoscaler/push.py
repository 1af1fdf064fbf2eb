"""Pushed samples: the body of a request to the push endpoint, checked."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np

from autoscaler.demand.lengths import FEWEST_REQUESTS, MOST_EDGES
from autoscaler.demand.presets import Role
from cluster.demand import LengthGrid
from cluster.errors import UNREADABLE
from controller.api.labels import GROUP
from controller.loops.autoscaler.http_server import Access, AccessReviews, TooBusyError
from controller.loops.autoscaler.measured import LengthShares, Measured
from controller.loops.autoscaler.policies import PolicyReader
from controller.loops.loop import Leader, LoopClocks
from controller.metrics.registry import Meter

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

Status = Literal[202, 400, 401, 403, 404, 429, 503]


@dataclass(frozen=True, slots=True)
class Reply:
    """Response to a push."""

    status: Status
    words: str
    retry_after_s: int | None = None


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

    async def take(self, authorization: str, body: bytes) -> Reply:
        """Response to a request with this Authorization header."""
        if not self._leader.may_write():
            return Reply(503, "this replica does not lead; ask again, the other one does", 1)
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return Reply(401, "a bearer token is needed")
        try:
            push = pushed(body, self._clocks.wall())
            access = Access("update", GROUP, "scalingpolicies/demand", push.namespace, push.name)
            if not await self._reviews.allows_token(token.strip(), access):
                return Reply(403, f"the token may not update scalingpolicies/demand {push.name} in {push.namespace}")
        except BadPushError as error:
            return Reply(400, str(error)[:300])
        except TooBusyError as error:
            return Reply(503, str(error)[:300], 1)
        # Only a sender that may push learns whether the policy exists, and uses up its budget.
        result, reply = self._taken(push)
        self._meter.count("tonnage_demand_readings_total", "push", result)
        return reply

    def _taken(self, push: Pushed) -> tuple[str, Reply]:
        """Result of an authorised push, for the metrics, and its response."""
        policy = f"{push.namespace}/{push.name}"
        allowed = self._policies.pushed_roles(policy)
        if allowed is None:
            return "PolicyNotFound", Reply(404, f"there is no ScalingPolicy {policy}")
        if unwanted := push.values.keys() - set(allowed):
            words = f"the policy has no push source for {', '.join(sorted(unwanted))}"
            return "RoleNotPushed", Reply(400, words)
        now_s = self._clocks.monotonic()
        left, at_s = self._budgets.get(policy, (BURST, now_s))
        left = min(BURST, left + (now_s - at_s) * PER_S)
        if left < 1:
            return "TooManyRequests", Reply(429, "more than one request a second", 1)
        # Policies that exist are few; those that were deleted are forgotten with their full budgets.
        self._budgets = {name: each for name, each in self._budgets.items() if now_s - each[1] < BURST / PER_S}
        self._budgets[policy] = (left - 1, now_s)
        for role, value in push.values.items():
            self._measured.put_sample(policy, role, push.at_s, value)
        if push.lengths is not None:
            self._measured.put_lengths(policy, push.lengths)
        return "ok", Reply(202, "taken")
