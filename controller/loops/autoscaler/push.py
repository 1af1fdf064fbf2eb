"""Pushed samples: the body of a request to the push endpoint, checked."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np

from autoscaler.demand.lengths import FEWEST_REQUESTS, MOST_EDGES
from autoscaler.demand.presets import Role
from cluster.clock import Clock
from cluster.demand import LengthGrid
from cluster.errors import UNREADABLE
from controller.api.labels import GROUP
from controller.loops.autoscaler.http_server import Access, AccessReviews, TooBusyError
from controller.loops.autoscaler.measured import LengthShares, Measured

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
    return Pushed(namespace, name, min(at_s, now_s), values, _lengths(push.histogram, min(at_s, now_s)))


def _lengths(histogram: Histogram | None, at_s: float) -> LengthShares | None:
    """Shares of a histogram; None: there is none, or too few requests for a distribution."""
    if histogram is None:
        return None
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


@dataclass(frozen=True, slots=True)
class _Budget:
    left: float
    at_s: float


class PushEndpoint:
    """Takes pushes while this replica leads: only the leader keeps samples."""

    def __init__(
        self,
        measured: Measured,
        reviews: AccessReviews,
        roles: Callable[[str], Iterable[Role] | None],
        leads: Callable[[], bool],
        clock: Clock,
        monotonic: Clock,
        on_push: Callable[[str], None] = lambda _result: None,
    ) -> None:
        """roles: roles that a policy lets be pushed, by `namespace/name`; None: there is no such policy.
        clock: seconds since the epoch. monotonic: seconds, for the limits. on_push: called after each request of an
        authorised sender, with `ok` or the reason of the refusal.
        """
        self._measured, self._reviews, self._roles, self._leads = measured, reviews, roles, leads
        self._clock, self._monotonic, self._on_push = clock, monotonic, on_push
        self._budgets: dict[str, _Budget] = {}

    async def take(self, authorization: str, body: bytes) -> Reply:
        """Response to a request with this Authorization header."""
        if not self._leads():
            return Reply(503, "this replica does not lead; ask again, the other one does", 1)
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return Reply(401, "a bearer token is needed")
        try:
            push = pushed(body, self._clock())
            return await self._checked(token.strip(), push)
        except BadPushError as error:
            return Reply(400, str(error)[:300])
        except TooBusyError as error:
            return Reply(503, str(error)[:300], 1)

    async def _checked(self, token: str, push: Pushed) -> Reply:
        access = Access("update", GROUP, "scalingpolicies/demand", push.namespace, push.name)
        if not await self._reviews.allows_token(token, access):
            return Reply(403, f"the token may not update scalingpolicies/demand {push.name} in {push.namespace}")
        # Only a sender that may push learns whether the policy exists, and uses up its budget.
        policy = f"{push.namespace}/{push.name}"
        allowed = self._roles(policy)
        if allowed is None:
            self._on_push("PolicyNotFound")
            return Reply(404, f"there is no ScalingPolicy {policy}")
        unwanted = push.values.keys() - set(allowed)
        if unwanted:
            self._on_push("RoleNotPushed")
            return Reply(400, f"the policy has no push source for {', '.join(sorted(unwanted))}")
        if not self._is_within_budget(policy):
            self._on_push("TooManyRequests")
            return Reply(429, "more than one request a second", 1)
        for role, value in push.values.items():
            self._measured.put_sample(policy, role, push.at_s, value)
        if push.lengths is not None:
            self._measured.put_lengths(policy, push.lengths)
        self._on_push("ok")
        return Reply(202, "taken")

    def _is_within_budget(self, policy: str) -> bool:
        now_s = self._monotonic()
        budget = self._budgets.get(policy, _Budget(BURST, now_s))
        left = min(BURST, budget.left + (now_s - budget.at_s) * PER_S)
        if left < 1:
            return False
        # Policies that exist are few; those that were deleted are forgotten with their full budgets.
        self._budgets = {name: each for name, each in self._budgets.items() if now_s - each.at_s < BURST / PER_S}
        self._budgets[policy] = _Budget(left - 1, now_s)
        return True
