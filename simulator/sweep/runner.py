"""Sweeps: one run for each of many policies, seeds, traces or scenarios, and a folder from which they resume."""

import os
import signal
import threading
from collections.abc import Callable, Generator, Hashable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from itertools import product
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from cluster.errors import ConfigError, Mistake
from cluster.frame import FrameError, framed, unframed

K = TypeVar("K", bound=Hashable)
"""Name of a run. With the sweep's common input it decides the result; the time and place of the run do not."""
R = TypeVar("R")
"""Result of a run."""

DECIDES_RESULTS = ("cluster", "placement", "controller", "simulator")
"""Packages whose code a run's result depends on."""


@dataclass(frozen=True, slots=True)
class ResultCache(Generic[K, R]):
    """One file per finished run, named by everything that decides its result, and written atomically.

    Sweeps that share a folder share their common runs. Results of other inputs or other code lie beside them and are
    never mistaken for these.
    """

    folder: Path
    kind: type[R]
    name_of: Callable[[K], str]
    """File name that two runs share only if their results are the same."""

    def find(self, run: K) -> R | None:
        """Result of a run that was stored earlier; None where there is none, or where it cannot be read."""
        try:
            return unframed(self.kind, (self.folder / self.name_of(run)).read_bytes())
        except (OSError, FrameError):
            return None

    def put(self, run: K, result: R) -> None:
        """Raises ConfigError when the folder cannot be written: better than hours of runs that are not kept."""
        path = self.folder / self.name_of(run)
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with scratch.open("wb") as file:
                file.write(framed(result))
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(path)
        except OSError as error:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
            raise ConfigError(
                Mistake(f"results {self.folder}", error.strerror or str(error), "name a folder you may write to")
            ) from error


def digest_of(*parts: str | bytes) -> str:
    """Short name for exactly these parts."""
    digest = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:16]


def code_digest() -> str:
    """Short name for the running code and its tables: a changed line makes new results."""
    files = [
        path
        for package in DECIDES_RESULTS
        for folder in import_module(package).__path__
        for path in sorted(Path(folder).rglob("*"))
        if path.suffix in (".py", ".yaml")
    ]
    return digest_of(*(part for path in files for part in (path.name, path.read_bytes())))


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """One replay of a comparison of policies."""

    trace: str
    policy: str
    seed: int


@dataclass(frozen=True, slots=True)
class Swept(Generic[K, R]):
    """Results of a sweep, in the order of the requested runs."""

    done: tuple[tuple[K, R], ...]
    missing: tuple[K, ...] = ()
    """Runs without a result because the sweep was stopped."""
    stopped: str = ""
    """Why it ended early; empty when it did not."""
    kept: int = 0
    """Number of results taken from the cache of an earlier sweep."""


@dataclass(frozen=True, slots=True)
class SweepProgress(Generic[K, R]):
    """Report of one more finished run."""

    run: K
    result: R
    done: int
    total: int


class SweepStopped(Exception):  # noqa: N818 - not an error of a run: the executor of the runs is gone
    """Runs cannot continue. The message states why, and a remedy."""


class Executor(Protocol):
    """Executor of runs: this process, several processes, or Ray."""

    def __call__(self, runs: Sequence[K], play: Callable[[K], R]) -> Generator[tuple[int, R], None, None]:
        """(position in `runs`, result) as they finish. Closing the generator ends unfinished runs.

        Raises SweepStopped when runs cannot continue, and exceptions of `play` unchanged.
        """
        ...


def runs_of(traces: Sequence[str], policies: Sequence[str], seeds: Sequence[int]) -> tuple[PolicyRun, ...]:
    """Every combination. Seed by seed, so that an interrupted sweep has about as many seeds of each policy."""
    return tuple(PolicyRun(trace, policy, seed) for trace, seed, policy in product(traces, seeds, policies))


def one_by_one(runs: Sequence[K], play: Callable[[K], R]) -> Generator[tuple[int, R], None, None]:
    """Runs in this process, in order."""
    for number, run in enumerate(runs):
        yield number, play(run)


def sweep(
    runs: Sequence[K],
    play: Callable[[K], R],
    *,
    way: Executor = one_by_one,
    cache: ResultCache[K, R] | None = None,
    on_done: Callable[[SweepProgress[K, R]], None] | None = None,
) -> Swept[K, R]:
    """Plays every run that is not in the cache, and calls `on_done` after each, in the order of completion.

    `play` must be picklable (a module's function or a partial of one) where `way` leaves this process, and must depend
    on its run alone. Ctrl-C and the loss of the executor stop the sweep: no process is left, finished runs are kept,
    and `stopped` states why. An exception of a run ends the sweep and is raised here unchanged.
    """
    results: dict[int, R] = {}

    def done(number: int, result: R) -> None:
        results[number] = result
        if on_done:
            on_done(SweepProgress(runs[number], result, len(results), len(runs)))

    stopped = ""
    kept = 0
    try:
        for number, run in enumerate(runs if cache else ()):
            if cache and (found := cache.find(run)) is not None:
                kept += 1
                done(number, found)
        left = [number for number in range(len(runs)) if number not in results]
        with closing(way([runs[number] for number in left], play)) as finished:
            for position, result in finished:
                if cache:
                    cache.put(runs[left[position]], result)
                done(left[position], result)
    except KeyboardInterrupt:
        stopped = "interrupted"
    except SweepStopped as why:
        stopped = str(why)
    return Swept(
        done=tuple((run, results[number]) for number, run in enumerate(runs) if number in results),
        missing=tuple(run for number, run in enumerate(runs) if number not in results),
        stopped=stopped,
        kept=kept,
    )


@dataclass(frozen=True, slots=True)
class WorkerProcesses:
    """Runs in at most `jobs` processes of this machine. Spawned: a fork would copy the locks of solver threads."""

    jobs: int

    def __call__(self, runs: Sequence[K], play: Callable[[K], R]) -> Generator[tuple[int, R], None, None]:
        if self.jobs == 1:
            yield from one_by_one(runs, play)
            return
        strangers = set(active_children())
        workers = min(self.jobs, len(runs)) or 1
        pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_become_worker)
        try:
            numbers = {pool.submit(play, run): number for number, run in enumerate(runs)}
            for future in as_completed(numbers):
                yield numbers[future], future.result()
        except BaseException as error:
            # Runs that have begun cannot be cancelled, and Ctrl-C must not wait for them.
            for worker in set(active_children()) - strangers:
                worker.terminate()
            if isinstance(error, BrokenProcessPool):
                raise SweepStopped(
                    "a worker process was killed, perhaps because memory ran out; try fewer jobs"
                ) from error
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _become_worker() -> None:
    """Ignores Ctrl-C, which reaches every process of the terminal: only the parent acts on it.

    Without the parent a worker ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := parent_process():
        parent.join()
        os._exit(1)
