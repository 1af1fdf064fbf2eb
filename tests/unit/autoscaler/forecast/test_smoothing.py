import numpy as np

from autoscaler.forecast.linear import smoothed


def test_smoothing_at_once_equals_the_recursion() -> None:
    chance = np.random.default_rng(1)
    values = chance.random((200, 2))
    values[chance.random((200, 2)) < 0.2] = np.nan
    weights = np.array([1.0, 0.3, 0.01])
    found = smoothed(values, weights)
    for n in range(2):
        mean = np.full(3, np.nan)
        for row, value in enumerate(values[:, n]):
            if value == value:
                mean = np.where(np.isnan(mean), value, mean + weights * (value - mean))
            np.testing.assert_allclose(found[row, n], mean, rtol=1e-9)
