"""Sweeps: the same replay for many policies, seeds and traces, in parallel processes."""

import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from multiprocessing import active_children, get_context, parent_process
from typing import Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Run:
    """One replay of a sweep. With its seed, it decides its result: where and when it runs does not."""

    trace: str
    policy: str
    seed: int


@dataclass(frozen=True, slots=True)
class Swept(Generic[R]):
    """What a sweep brought, in the order in which the runs were asked for."""

    done: tuple[tuple[Run, R], ...]
    missing: tuple[Run, ...] = ()
    """Runs that have no result because the sweep was stopped."""
    stopped: str = ""
    """Why it ended early; empty when it did not."""


@dataclass(frozen=True, slots=True)
class Progress(Generic[R]):
    """One more run is done."""

    run: Run
    result: R
    done: int
    total: int


def runs_of(traces: Sequence[str], policies: Sequence[str], seeds: Sequence[int]) -> tuple[Run, ...]:
    """Every combination. Seed by seed, so that a sweep that is stopped has about as many seeds of each policy."""
    return tuple(Run(trace, policy, seed) for trace, seed, policy in product(traces, seeds, policies))


def sweep(
    runs: Sequence[Run],
    replay: Callable[[Run], R],
    *,
    jobs: int = 1,
    on_done: Callable[[Progress[R]], None] | None = None,
) -> Swept[R]:
    """Replays every run, at most `jobs` at a time, and calls `on_done` after each, in the order of completion.

    `replay` must be picklable (a module's function or a partial of one) when jobs > 1, and decide by its run alone.
    Ctrl-C and the death of a worker stop the sweep: no process is left, what is done is kept, `stopped` says why.
    An exception of a replay ends the sweep and is raised here as it is.
    """
    results: dict[int, R] = {}
    stopped = ""
    try:
        with closing(_one_by_one(runs, replay) if jobs == 1 else _in_processes(runs, replay, jobs)) as finished:
            for number, result in finished:
                results[number] = result
                if on_done:
                    on_done(Progress(runs[number], result, len(results), len(runs)))
    except KeyboardInterrupt:
        stopped = "interrupted"
    except BrokenProcessPool:
        stopped = "a worker process was killed, perhaps because memory ran out; try fewer jobs"
    return Swept(
        done=tuple((run, results[number]) for number, run in enumerate(runs) if number in results),
        missing=tuple(run for number, run in enumerate(runs) if number not in results),
        stopped=stopped,
    )


def _one_by_one(runs: Sequence[Run], replay: Callable[[Run], R]) -> Generator[tuple[int, R], None, None]:
    for number, run in enumerate(runs):
        yield number, replay(run)


def _in_processes(runs: Sequence[Run], replay: Callable[[Run], R], jobs: int) -> Generator[tuple[int, R], None, None]:
    """Runs by number, as they are finished. Workers are spawned: a fork would copy the locks of solver threads."""
    strangers = set(active_children())
    pool = ProcessPoolExecutor(min(jobs, len(runs)) or 1, mp_context=get_context("spawn"), initializer=_become_worker)
    try:
        numbers = {pool.submit(replay, run): number for number, run in enumerate(runs)}
        for future in as_completed(numbers):
            yield numbers[future], future.result()
    except BaseException:
        # Running replays cannot be cancelled, and waiting for them is not what Ctrl-C asks for.
        for worker in set(active_children()) - strangers:
            worker.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _become_worker() -> None:
    """Ctrl-C reaches every process of the terminal: only the parent acts on it. Without the parent a worker ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := parent_process():
        parent.join()
        os._exit(1)
