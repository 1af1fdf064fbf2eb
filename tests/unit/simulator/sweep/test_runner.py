"""Sweeps give the same results in any number of processes, and stop cleanly."""

import os
import threading
from functools import partial
from multiprocessing import active_children

import numpy as np
import pytest

from cluster.errors import ConfigError, Mistake
from simulator.sweep.runner import PolicyRun, SweepProgress, Swept, WorkerProcesses, runs_of, sweep

RUNS = runs_of(("a", "b"), ("bestfit", "fgd"), (42, 43))


def drawn(run: PolicyRun) -> float:
    """Stands for a replay: a number that hangs on the run alone."""
    return float(np.random.default_rng((run.seed, len(run.policy))).random())


def drawn_unless(
    run: PolicyRun, *, mistaken: PolicyRun | None = None, endless: bool = False, dying: PolicyRun | None = None
) -> float:
    if run == mistaken:
        raise ConfigError((Mistake("pods.csv, line 7", "no such policy"), Mistake("pods.csv, line 8", "neither")))
    if run == dying:
        os._exit(9)
    if endless and run != RUNS[0]:
        threading.Event().wait()
    return drawn(run)


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_results_are_in_the_requested_order_for_any_number_of_jobs(jobs: int) -> None:
    swept = sweep(RUNS, drawn, way=WorkerProcesses(jobs))

    assert swept == Swept(done=tuple((run, drawn(run)) for run in RUNS))


def test_seeds_alternate_so_that_a_stopped_sweep_is_even() -> None:
    assert [(run.policy, run.seed) for run in RUNS[:4]] == [("bestfit", 42), ("fgd", 42), ("bestfit", 43), ("fgd", 43)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_counts_every_run_once(jobs: int) -> None:
    seen: list[SweepProgress[PolicyRun, float]] = []

    sweep(RUNS, drawn, way=WorkerProcesses(jobs), on_done=seen.append)

    assert [progress.done for progress in seen] == list(range(1, len(RUNS) + 1))
    assert {progress.run for progress in seen} == set(RUNS)
    assert all(progress.result == drawn(progress.run) for progress in seen)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_mistake_in_the_input_crosses_the_process_border_whole(jobs: int) -> None:
    with pytest.raises(ConfigError) as wrong:
        sweep(RUNS, partial(drawn_unless, mistaken=RUNS[3]), way=WorkerProcesses(jobs))

    assert [mistake.place for mistake in wrong.value.mistakes] == ["pods.csv, line 7", "pods.csv, line 8"]
    assert not active_children()


def test_ctrl_c_keeps_what_is_done_and_leaves_no_process() -> None:
    def press_ctrl_c(_progress: SweepProgress[PolicyRun, float]) -> None:
        raise KeyboardInterrupt

    # Every run but the first waits for ever, so this test ends only when workers are made to.
    swept = sweep(RUNS, partial(drawn_unless, endless=True), way=WorkerProcesses(2), on_done=press_ctrl_c)

    assert swept.done == ((RUNS[0], drawn(RUNS[0])),)
    assert swept.missing == RUNS[1:]
    assert swept.stopped == "interrupted"
    assert not active_children()


def test_a_killed_worker_stops_the_sweep_with_a_reason() -> None:
    swept = sweep(RUNS, partial(drawn_unless, dying=RUNS[-1]), way=WorkerProcesses(2))

    assert RUNS[-1] in swept.missing
    assert len(swept.done) + len(swept.missing) == len(RUNS)
    assert "killed" in swept.stopped
    assert not active_children()


def test_no_runs_are_no_error() -> None:
    assert sweep((), drawn, way=WorkerProcesses(2)) == Swept(done=())
