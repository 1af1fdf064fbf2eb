from dataclasses import replace

import numpy as np
import pytest

from autoscaler.forecast.fits import fit
from autoscaler.series import regular
from cluster.frame import FrameError, framed
from controller.background.load_fits import BATCH, LoadHistory, batches_of, fits_in, fitted, task_of
from simulator.scaling.traces import generated_trace


def history(name: str, days: int = 2) -> LoadHistory:
    return LoadHistory(name, regular(0.0, 600.0, generated_trace(len(name), days=days, step_s=600.0).values))


def run(*histories: LoadHistory) -> bytes:
    (batch,) = task_of(histories).inputs
    return fitted(batch)


def test_each_history_of_a_batch_is_fitted() -> None:
    found = fits_in(run(history("d/a", 4), history("d/bb", 4)))

    assert {name: made is not None for name, made in found.items()} == {"d/a": True, "d/bb": True}


def test_a_history_that_is_too_short_is_answered_without_a_fit() -> None:
    series = history("d/a").series
    short = replace(series, values=series.values[:10], is_censored=np.zeros(10, dtype=np.bool_))

    assert fits_in(run(LoadHistory("d/a", short))) == {"d/a": None}


def test_a_batch_of_one_is_the_fit_of_its_series() -> None:
    mine = history("d/a", 7)

    alone, made = fit(mine.series), fits_in(run(mine))["d/a"]

    assert made is not None
    assert framed(made) == framed(alone)


def test_the_same_histories_are_the_same_task_and_others_are_another() -> None:
    assert task_of([history("d/a")]) == task_of([history("d/a")])
    assert task_of([history("d/a")]).digest != task_of([history("d/a", 3)]).digest


def test_batches_hold_every_policy_once_and_few_each() -> None:
    names = [f"d/s{n}" for n in range(1000)]
    batches = [*batches_of(names).values()]

    assert sorted(name for batch in batches for name in batch) == sorted(names)
    assert np.mean([len(batch) for batch in batches]) <= BATCH
    assert max(len(batch) for batch in batches) <= 3 * BATCH
    assert batches_of(names[:BATCH]) == {0: tuple(sorted(names[:BATCH]))}
    assert batches_of([]) == {}


def test_a_policy_that_comes_changes_its_own_batch_alone() -> None:
    names = [f"d/s{n}" for n in range(1000)]

    before, after = set(batches_of(names).values()), set(batches_of([*names, "d/new"]).values())

    (changed,) = after - before
    assert "d/new" in changed


def test_bytes_that_are_no_fits_are_refused() -> None:
    with pytest.raises(FrameError):
        fits_in(run(history("d/a", 4)).replace(b"fitted_at_s", b"fitted_at_x"))
