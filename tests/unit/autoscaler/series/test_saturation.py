import numpy as np

from autoscaler.series import Series, informative


def test_a_lower_bound_says_something_only_above_the_last_value() -> None:
    values = np.array([10.0, 8.0, 12.0, 11.0, 9.0], dtype=np.float32)
    bounds = np.array([False, True, True, True, False])
    np.testing.assert_array_equal(informative(Series(0.0, 60.0, values, bounds)), [10, np.nan, 12, np.nan, 9])
