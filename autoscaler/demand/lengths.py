"""Request lengths: histograms of prompts and outputs as shares of a grid, and shares moved to another grid."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray
from cluster.demand import Demand, LengthGrid

FEWEST_REQUESTS = 30
"""Fewest requests that a distribution of lengths is made of; from fewer, single requests would choose GPU types."""
MOST_EDGES = 64
"""Most buckets of one histogram. SGLang has 40; a source with more is refused, since the grid has their product."""


class BadLengthsError(ValueError):
    """Buckets that are no distribution of lengths."""


@dataclass(frozen=True, slots=True, eq=False)
class Lengths:
    """Histogram of prompts or of outputs."""

    edges: tuple[int, ...]
    """Upper edges of the buckets, tokens, strictly rising. The first bucket begins at 0."""
    counts: FloatArray
    """Requests in each bucket, shape (buckets,)."""

    @property
    def requests(self) -> float:
        return float(self.counts.sum())


def lengths_from(buckets: Mapping[str, float]) -> Lengths:
    """Lengths from the cumulative buckets of a Prometheus histogram.

    buckets: requests by upper edge, as in the label `le`. Requests beyond the last finite edge get a bucket that ends
    at twice that edge. Raises BadLengthsError.
    """
    known = {}
    for edge, count in buckets.items():
        try:
            known[float(edge)] = count
        except ValueError as error:
            raise BadLengthsError(f"le={edge!r} is no number") from error
    finite = sorted(edge for edge in known if math.isfinite(edge) and edge > 0)
    if not finite or math.inf not in known:
        raise BadLengthsError("a histogram needs a finite bucket and the bucket +Inf")
    if len(finite) > MOST_EDGES:
        raise BadLengthsError(f"{len(finite)} buckets; {MOST_EDGES} are the most")
    if not all(math.isfinite(count) and count >= 0 for count in known.values()):
        raise BadLengthsError("a bucket has no finite count")
    # Extrapolated increases of two buckets may differ by a fraction of a request in the wrong order.
    cumulative = np.maximum.accumulate([known[edge] for edge in (*finite, math.inf)])
    counts = np.diff(cumulative, prepend=0.0)
    edges = [math.ceil(edge) for edge in finite]
    return _merged([*edges, 2 * edges[-1]], counts)


def _merged(edges: Sequence[int], counts: FloatArray) -> Lengths:
    """Lengths without repeated edges and without empty buckets at the end."""
    last = int(np.flatnonzero(counts)[-1]) if counts.any() else 0
    total: dict[int, float] = {}
    for edge, count in zip(edges[: last + 1], counts[: last + 1], strict=True):
        total[edge] = total.get(edge, 0.0) + float(count)
    return Lengths(tuple(total), np.array(list(total.values())))


def shares_of(inputs: Lengths, outputs: Lengths) -> tuple[LengthGrid, FloatArray] | None:
    """Joint shares of two histograms, on the grid of their edges; None: too few requests for a distribution.

    Prompt and output lengths are taken as independent: servers export no joint histogram. That spreads requests over
    combinations that may be rarer or more frequent; each marginal distribution is exact.
    """
    if min(inputs.requests, outputs.requests) < FEWEST_REQUESTS:
        return None
    share = np.outer(inputs.counts / inputs.requests, outputs.counts / outputs.requests)
    return LengthGrid(inputs.edges, outputs.edges), np.asarray(share / share.sum())


def on_grid(grid: LengthGrid, share: FloatArray, target: LengthGrid) -> FloatArray:
    """Shares moved to the grid of another model profile, shape as that grid; they add up to 1.

    Lengths are spread evenly within a bucket. Requests longer than the last edge join the last bucket, since no other
    is nearer: they then count as shorter than they are.
    """
    to_input = _spread(grid.input_tokens, target.input_tokens)
    to_output = _spread(grid.output_tokens, target.output_tokens)
    moved = to_input @ np.asarray(share) @ to_output.T
    return np.asarray(moved / moved.sum())


def demand_from(rate_per_s: float, grid: LengthGrid, share: FloatArray, target: LengthGrid) -> Demand:
    """Demand on the grid of a model profile."""
    return Demand(rate_per_s, target, on_grid(grid, share, target))


def _spread(source: Sequence[int], target: Sequence[int]) -> FloatArray:
    """Fraction of each source bucket in each target bucket, shape (targets, sources); columns add up to 1."""
    upper = np.asarray(source, dtype=float)
    lower = np.concatenate([[0.0], upper[:-1]])
    edges = np.concatenate([[0.0], np.asarray(target[:-1], dtype=float), [np.inf]])
    below = np.clip((edges[:, None] - lower) / (upper - lower), 0.0, 1.0)
    return np.diff(below, axis=0)
