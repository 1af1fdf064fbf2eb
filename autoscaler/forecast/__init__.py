"""Forecast: predictive distributions of offered load from its own history, calibrated online.

How to use it, for each series:

    forecaster = OnlineForecaster(step_s=60.0)              # autoscaler.forecast.online
    forecaster.observe(at_s, value, is_censored=False)      # once per step; NaN, zero-gaps, duplicates do no harm
    forecast = forecaster.forecast(now_s)                   # cluster.demand.Forecast, or None: too little history
    forecast.at(now_s + lead_s - forecast.made_at_s)        # leads count from the last sample, so add its age

In the background, on any process (pure, picklable both ways):

    found = fit(forecaster.history.whole())                 # autoscaler.forecast.fits; None: the history is too short
    forecaster.adopt(found)                                 # about 10 ms; adds the model that was fitted

After a restart: `OnlineForecaster.of(series, fit)`. What is trusted, and how well it does: `forecaster.skill`.
"""
