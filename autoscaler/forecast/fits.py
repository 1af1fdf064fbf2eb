"""Fits: what is learned of series in the background, as plain values that cross between processes."""

from collections.abc import Sequence
from dataclasses import dataclass

from autoscaler.forecast.boosted import BoostedFit, fit_boosted
from autoscaler.forecast.linear import LinearFit, fit_linear
from autoscaler.forecast.trial import Trial, trial_of
from autoscaler.series.regular import Series


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """Everything that the online part needs of a history."""

    linear: LinearFit
    fitted_at_s: float
    """Instant of the last sample that it knows."""
    trial: Trial
    boosted: BoostedFit | None = None
    """None: only the numpy core."""


def fit(series: Series, *, boosted: bool = True) -> Fit | None:
    """Fit of one series; None where its history is too short.

    Two weeks at a minute take 0.2 s of one core for the numpy core and 2 s more for the trees.
    """
    return fit_shard((series,), boosted=boosted)[0]


def fit_shard(shard: Sequence[Series], *, boosted: bool = True) -> tuple[Fit | None, ...]:
    """Fits of a shard of series, in its order: linear ones each for itself, and one booster that all of them share.

    Its rows are limited, so that the booster costs the same for 5 series and for 500.
    """
    linear = [fit_linear(series) for series in shard]
    members = [(series, found) for series, found in zip(shard, linear, strict=True) if found is not None]
    trees = fit_boosted(members) if boosted and members else None
    return tuple(
        None if found is None else _fit(series, found, trees) for series, found in zip(shard, linear, strict=True)
    )


def _fit(series: Series, linear: LinearFit, trees: BoostedFit | None) -> Fit:
    return Fit(linear, _end_s(series), trial_of(series, linear, trees), trees)


def _end_s(series: Series) -> float:
    return float(series.start_s + series.step_s * (len(series.values) - 1))
