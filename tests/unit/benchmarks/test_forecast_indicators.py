"""Judgement of indicators: one that leads the load helps, one that is noise does not."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.forecast import forecast_indicators, services_of
from cluster.arrays import FloatArray

MINUTE_S = 60


def written(path: Path, **columns: FloatArray) -> Path:
    lines = zip(*columns.values(), strict=True)
    rows = [f"{n * MINUTE_S}," + ",".join(f"{value:.3f}" for value in line) for n, line in enumerate(lines)]
    path.write_text("\n".join(["t_s," + ",".join(columns), *rows]))
    return path


@pytest.fixture
def load() -> FloatArray:
    """Two days whose level is redrawn every ten minutes."""
    rng = np.random.default_rng(1)
    return np.asarray(np.repeat(rng.uniform(50.0, 150.0, 288), 10) + rng.normal(0.0, 1.0, 2880))


def gain(path: Path) -> float:
    """Error with indicators over that without, one step ahead, for the column `requests`."""
    found = next(each for each in forecast_indicators(traces=(path,), steps=1) if each["trace"].endswith(":requests"))
    return float(found["indicators"] / found["own"])


def test_an_indicator_that_leads_the_load_lowers_the_error(load: FloatArray, tmp_path: Path) -> None:
    assert gain(written(tmp_path / "led.csv", requests=load, queued=np.roll(load, -1))) < 0.7


def test_an_indicator_that_is_noise_does_not(load: FloatArray, tmp_path: Path) -> None:
    noise = np.random.default_rng(2).uniform(50.0, 150.0, len(load))

    assert gain(written(tmp_path / "noise.csv", requests=load, queued=noise)) > 0.98


def test_columns_belong_together_by_the_first_word_of_their_names() -> None:
    assert services_of(["c1_load", "c1_cpu", "c2_load", "c2_cpu"]) == [["c1_load", "c1_cpu"], ["c2_load", "c2_cpu"]]
    assert services_of(["requests", "input_tokens"]) == [["requests", "input_tokens"]]
