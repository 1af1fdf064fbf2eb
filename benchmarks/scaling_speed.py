"""CPU time of deciding many services in one go, their forecasts included."""

import time

import numpy as np

from autoscaler.decision.decide import decide
from autoscaler.forecast.fits import fit
from autoscaler.forecast.online import OnlineForecaster
from autoscaler.series import regular
from cluster.autoscaling import Behavior, LeadTime, Replicas, Scaler, ScaleTarget, ScalingObjective
from cluster.demand import Forecast
from simulator.scaling.traces import generated_trace

_DISTINCT = 10
"""Different histories; the services share them, each at a scale of its own."""
_STEP_S = 60.0


def decided_services(services: int, seed: int = 1) -> dict[str, object]:
    """CPU seconds of one core for taking a sample of each service, forecasting and deciding."""
    chance = np.random.default_rng(seed)
    forecasters = [_forecaster(seed + number) for number in range(_DISTINCT)]
    sizes = chance.integers(1, 60, services).tolist()
    leads = tuple(np.sort(chance.lognormal(np.log(300.0), 0.5, 20)).tolist())
    forecast_s = decide_s = 0.0
    replicas = 0
    for number, size in enumerate(sizes):
        forecaster, at_s = forecasters[number % _DISTINCT]
        started_s = time.process_time()
        at_s += (1 + number // _DISTINCT) * _STEP_S
        forecaster.observe(at_s, 20.0 * _STEP_S)
        forecast = forecaster.forecast(at_s)
        forecast_s += time.process_time() - started_s
        started_s = time.process_time()
        decision = decide(_scaler(f"bench/{number}", size, leads, forecast, at_s), at_s)
        decide_s += time.process_time() - started_s
        replicas += 0 if decision is None else decision.replicas
    return {
        "services": services,
        "cpu_s": round(forecast_s + decide_s, 3),
        "forecast_cpu_s": round(forecast_s, 3),
        "decide_cpu_s": round(decide_s, 3),
        "replicas": replicas,
    }


def _forecaster(seed: int) -> tuple[OnlineForecaster, float]:
    trace = generated_trace(seed, days=2)
    series = regular(trace.start_s, trace.step_s, np.asarray(trace.values))
    return OnlineForecaster.of(series, fit(series)), float(trace.at_s[-1])


def _scaler(name: str, size: int, leads_s: tuple[float, ...], forecast: Forecast | None, at_s: float) -> Scaler:
    return Scaler(
        name=name,
        target=ScaleTarget("apps/v1", "Deployment", name),
        mode="Auto",
        replicas=Replicas(size, size),
        min_replicas=0,
        max_replicas=1000,
        replica_load=20.0 * _STEP_S / size,
        objective=ScalingObjective(),
        behavior=Behavior(),
        load=20.0 * _STEP_S,
        observed_at_s=at_s,
        max_age_s=180.0,
        forecast=forecast,
        lead_time=LeadTime(leads_s, 50),
    )
