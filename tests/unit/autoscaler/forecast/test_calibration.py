import numpy as np

from autoscaler.forecast.calibration import MIN_ERRORS, WINDOW, Calibration, conformal_quantiles
from autoscaler.forecast.grid import LEVELS


def test_a_quantile_is_the_value_that_a_further_error_exceeds_with_the_rest_of_the_probability() -> None:
    # 199 errors, 1..199: the level 0.5 lies at rank 0.5 × 200 = 100, the level 0.995 at rank 199.
    errors = np.random.default_rng(1).permutation(np.arange(1, 200)).astype(np.float32)
    found = dict(zip(LEVELS.tolist(), conformal_quantiles(errors).tolist(), strict=True))
    assert (found[0.5], found[0.9], found[0.995]) == (100.0, 180.0, 199.0)


def test_few_errors_make_no_distribution() -> None:
    assert np.isnan(conformal_quantiles(np.ones(MIN_ERRORS - 1, dtype=np.float32))).all()


def test_a_missing_error_does_not_count() -> None:
    errors = np.arange(100, dtype=np.float32)
    with_gaps = np.concatenate([errors, np.full(50, np.nan, dtype=np.float32)])
    np.testing.assert_array_equal(conformal_quantiles(with_gaps), conformal_quantiles(errors))


def test_errors_older_than_the_window_are_forgotten() -> None:
    calibration = Calibration(leads=1, models=1)
    for error in [100.0] * 50 + [1.0] * WINDOW:
        calibration.learn(np.array([[error]]))
    np.testing.assert_array_equal(calibration.quantiles[0, 0], 1.0)
