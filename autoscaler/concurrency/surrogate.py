"""Surrogate: a Gaussian process over the logarithm of the limit, on a quadratic trend.

Rasmussen & Williams, "Gaussian Processes for Machine Learning" (2006), §2.7: explicit basis functions with a
normal prior on their coefficients. The trend carries what queueing says of every server (throughput concave, latency
convex); the process carries what no trend foresees, such as the kink where a KV cache is full.
"""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray

_LEVEL = 1.0
"""Standard deviation of the trend's level around the mean of the samples: wide."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Belief before any sample about log quantity = level + slope u + curvature u², where u = log(limit / present)."""

    slope: float
    slope_error: float
    """Standard deviation."""
    curvature: float
    curvature_error: float
    misfit: float
    """Standard deviation of the curve around the trend."""
    length: float
    """Distance in u over which the curve leaves the trend (scale of the Matérn 3/2 kernel)."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """What was observed, one entry per limit; each of shape (limits,)."""

    u: FloatArray
    log_value: FloatArray
    variance: FloatArray
    """Variance of `log_value`, the mean of the observations at that limit."""


def predicted(prior: Prior, samples: Samples, u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of log quantity at each u, without the noise of an observation.

    u and both results: shape (candidates,). At least one sample is needed.
    """
    level = np.average(samples.log_value, weights=1 / samples.variance)
    trend = np.array([level, prior.slope, prior.curvature])
    gain = np.linalg.solve(
        _covariance(prior, samples.u, samples.u) + np.diag(samples.variance), _covariance(prior, samples.u, u)
    )
    mean = _features(u) @ trend + (samples.log_value - _features(samples.u) @ trend) @ gain
    variance = np.diag(_covariance(prior, u, u)) - (gain * _covariance(prior, samples.u, u)).sum(axis=0)
    return mean, np.maximum(variance, 0.0)


def _covariance(prior: Prior, one: FloatArray, other: FloatArray) -> FloatArray:
    """Covariance of log quantity at the points of one and other; shape (one, other)."""
    spread = np.array([_LEVEL, prior.slope_error, prior.curvature_error]) ** 2
    distance = np.sqrt(3.0) / prior.length * np.abs(one[:, None] - other[None, :])
    trend: FloatArray = (_features(one) * spread) @ _features(other).T
    around: FloatArray = prior.misfit**2 * (1 + distance) * np.exp(-distance)
    return trend + around


def _features(u: FloatArray) -> FloatArray:
    return np.stack([np.ones_like(u), u, u**2], axis=1)
