"""Fits: what is learned of a series in the background, as a plain value that crosses between processes."""

from dataclasses import dataclass

from autoscaler.forecast.linear import LinearFit, fit_linear
from autoscaler.series.regular import Series


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """Everything that the online part needs of a history."""

    linear: LinearFit
    fitted_at_s: float
    """Instant of the last sample that it knows."""


def fit(series: Series) -> Fit | None:
    """Fit of the numpy core; None where the history is too short. About 0.1 s for two weeks at a minute."""
    linear = fit_linear(series)
    return None if linear is None else Fit(linear, float(series.start_s + series.step_s * (len(series.values) - 1)))
