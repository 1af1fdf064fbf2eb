"""Forecasts of a replay: what the forecaster says at each step, from the samples up to it alone."""

from collections.abc import Callable, Iterator

import numpy as np

from autoscaler.forecast.fits import Fit, fit
from autoscaler.forecast.grid import LEVELS, lead_steps
from autoscaler.forecast.online import OnlineForecaster
from autoscaler.series.regular import Series, regular
from cluster.demand import Forecast
from simulator.scaling.replay import Outlook, Scenario
from simulator.scaling.traces import DAY_S

REFIT_S = DAY_S / 2
"""Time from one fit to the next; in the operator fits run in the background."""


Fitted = Callable[[Series], Fit | None]
Asked = Callable[[OnlineForecaster, float], Forecast | None]
"""What is asked of a forecaster at an instant."""


def forecasts_of(
    scenario: Scenario,
    *,
    fitted: Fitted = fit,
    refit_s: float = REFIT_S,
    asked: Asked = OnlineForecaster.forecast,
) -> tuple[Forecast | None, ...]:
    """Forecast at each step of a scenario, after the training days and with fits at intervals.

    At a gap there is no new sample: the forecast is that of the last one, wider with its age.
    """
    trained = regular(scenario.start_s - len(scenario.trained) * scenario.step_s, scenario.step_s, scenario.trained)
    forecaster = OnlineForecaster.of(trained, fitted(trained))
    return tuple(_rolling(forecaster, scenario, fitted, refit_s, asked))


def foreseen(scenario: Scenario) -> Outlook:
    """Forecasts that know the load: what a decision is worth whose forecast errs in nothing."""
    ahead = lead_steps(scenario.step_s)
    leads_s, demand = ahead.astype(np.float64) * scenario.step_s, scenario.demand

    def known(step: int) -> Forecast:
        load = demand[np.minimum(step + ahead, len(demand) - 1)]
        return Forecast(
            scenario.start_s + step * scenario.step_s, leads_s, LEVELS, np.repeat(load[:, None], len(LEVELS), 1)
        )

    return known


def of_the_richest(forecaster: OnlineForecaster, at_s: float) -> Forecast | None:
    """Forecast of the model with the most mechanisms, however well it does: none is demoted."""
    rivals = forecaster.rivals(at_s)
    return next((rivals[name] for name in ("boosted", "core", "ewma") if name in rivals), None)


def _rolling(
    forecaster: OnlineForecaster, scenario: Scenario, fitted: Fitted, refit_s: float, asked: Asked
) -> Iterator[Forecast | None]:
    refit_steps = max(1, round(refit_s / scenario.step_s))
    for step, load in enumerate(scenario.load.tolist()):
        at_s = scenario.start_s + step * scenario.step_s
        forecaster.observe(at_s, load)
        if step and step % refit_steps == 0:
            forecaster.adopt(fitted(forecaster.history.whole()))
        yield asked(forecaster, at_s)


def outlook_of(forecasts: tuple[Forecast | None, ...]) -> Outlook:
    return lambda step: forecasts[step]
