from dataclasses import replace

import numpy as np
import pytest

from autoscaler.forecast.fits import Fit, fit, is_sound
from autoscaler.series import regular
from simulator.scaling.traces import generated_trace


@pytest.fixture(scope="module")
def found() -> Fit:
    made = fit(regular(0.0, 60.0, generated_trace(3, days=7).values))
    assert made is not None
    return made


def test_a_fit_of_this_step_is_sound(found: Fit) -> None:
    assert is_sound(found, 60.0)


def test_a_fit_of_another_step_is_not(found: Fit) -> None:
    assert not is_sound(found, 600.0)


def test_numbers_that_are_none_are_not_sound(found: Fit) -> None:
    assert not is_sound(replace(found, linear=replace(found.linear, root=float("nan"))), 60.0)
    weights = found.linear.weights.copy()
    weights[0, 0] = np.inf
    assert not is_sound(replace(found, linear=replace(found.linear, weights=weights)), 60.0)
    assert not is_sound(replace(found, linear=replace(found.linear, floor=-found.linear.floor)), 60.0)


def test_arrays_of_another_shape_or_type_are_not_sound(found: Fit) -> None:
    linear = found.linear
    assert not is_sound(replace(found, linear=replace(linear, weights=linear.weights[:1, :1])), 60.0)
    assert not is_sound(replace(found, linear=replace(linear, cap=linear.cap.astype(np.float32))), 60.0)  # type: ignore[arg-type]
    assert not is_sound(replace(found, trial=found.trial[:, :1]), 60.0)
    assert not is_sound(replace(found, trial=found.trial.astype(np.float32)), 60.0)  # type: ignore[arg-type]
    hour = replace(linear.season, hour=linear.season.hour[:0])
    assert not is_sound(replace(found, linear=replace(linear, season=hour)), 60.0)
