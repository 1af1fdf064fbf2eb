"""Pushed samples: the body of a request to the push endpoint, checked."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from autoscaler.demand.lengths import FEWEST_REQUESTS, MOST_EDGES
from autoscaler.demand.loads import Role
from cluster.demand import LengthGrid
from cluster.errors import UNREADABLE
from controller.loops.autoscaler.measured import LengthShares

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
