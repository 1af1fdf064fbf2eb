"""Sweeps on Ray: runs as tasks, driven by a child process, since Ray's code ends a driver that loses its cluster."""

import os
import pickle
import platform
import shutil
import signal
import tempfile
from _thread import interrupt_main
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, Generic

from cluster.errors import ConfigError, Mistake
from cluster.version import VERSION
from controller.brain.on_ray.process import die_with
from controller.brain.on_ray.ray_start import EMBEDDED, joined
from simulator.sweep.runner import K, R, SweepStopped, code_digest

TASKS_PER_CORE = 2
"""Submitted and unfinished tasks per core: enough that no worker waits for the next one."""
RETRIES = 3
"""Retries of a run on another worker when its worker or node is lost; it has no side effects."""
PROBE_S = 60.0
"""Time limit for the first task: a cluster whose workers cannot start fails here, not after an hour."""
POLL_S = 1.0
"""Length of one wait for results; the end of the sweep is handled in between."""


@dataclass(frozen=True, slots=True)
class Drive(Generic[K, R]):
    """Runs of a sweep, and the Ray that they run on."""

    address: str
    """`embedded`, or `host:port` of a running head."""
    jobs: int
    """Cores of an embedded Ray; a cluster's own number otherwise."""
    folder: str
    """Folder for the files of an embedded Ray."""
    runs: Sequence[K]
    play: Callable[[K], R]


Finished = tuple[int, Any]
"""A finished run: its position in `runs`, and its result."""
Message = Finished | BaseException | None
"""Message to the sweep: a finished run, the exception that ends the sweep, or None after the last run."""


def drive(drive: Drive[Any, Any], to_sweep: Connection, parent: int) -> None:
    """Main function of the process: sends every result as it finishes, until the sweep closes its end.

    It leads an OS session of its own, so that Ctrl-C reaches only the sweep, and that all processes of an embedded Ray
    can be ended with it.
    """
    os.setsid()
    if not die_with(parent):
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    Thread(target=_stop_with, args=(to_sweep,), daemon=True).start()
    try:
        with joined(drive.address, cores=drive.jobs, folder=drive.folder) as ray:
            _check_workers(ray)
            for finished in _results(ray, drive.runs, drive.play):
                to_sweep.send(finished)
        to_sweep.send(None)
    except (KeyboardInterrupt, BrokenPipeError):
        return  # the sweep has ended
    except Exception as error:  # noqa: BLE001 - the top of a process; the sweep raises it again
        to_sweep.send(_portable(error))


def _stop_with(to_sweep: Connection) -> None:
    """Interrupts the main thread when the sweep closes its end of the pipe."""
    try:
        to_sweep.recv()
    except (EOFError, OSError):
        interrupt_main()


def _portable(error: Exception) -> Exception:
    """The exception, or its words where it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # noqa: BLE001 - whatever a foreign exception's pickling raises
        return SweepStopped(f"a run failed: {type(error).__name__}: {error}")
    return error


def _results(ray: Any, runs: Sequence[K], play: Callable[[K], R]) -> Generator[tuple[int, R], None, None]:
    """Results as they finish. Closing the generator leaves Ray, which ends all unfinished tasks.

    They are not cancelled one by one: a task that ends at the moment of its cancelling can end Ray's driver with it
    (ray-project/ray pull request 54798).
    """
    task = ray.remote(_played).options(num_cpus=1, max_retries=RETRIES)
    shared = ray.put(play)
    at_once = max(1, int(ray.cluster_resources().get("CPU", 1))) * TASKS_PER_CORE
    waiting = iter(enumerate(runs))
    flying: dict[Any, int] = {}
    while True:
        while len(flying) < at_once and (following := next(waiting, None)):
            number, run = following
            flying[task.remote(shared, run)] = number
        if not flying:
            return
        ready, _ = ray.wait(list(flying), num_returns=1, timeout=POLL_S)
        for result in ready:
            yield flying[result], _got(ray, result)
            del flying[result]


def _played(play: Callable[[K], R], run: K) -> R:
    return play(run)


def _got(ray: Any, result: Any) -> Any:
    """Result of a finished task; raises the exception of a failed run unchanged."""
    try:
        return ray.get(result, timeout=PROBE_S)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise SweepStopped(f"Ray lost a run {RETRIES + 1} times: {_first_line(error)}") from error


def _check_workers(ray: Any) -> None:
    """Raises ConfigError when the workers run another Python or Tonnage, and SweepStopped when none responds."""
    probe = ray.remote(_what_runs).options(num_cpus=1, max_retries=RETRIES).remote()
    try:
        there = ray.get(probe, timeout=PROBE_S)
    except ray.exceptions.GetTimeoutError as error:
        ray.cancel(probe, force=True)
        raise SweepStopped(f"no worker took a task in {PROBE_S:g} s; does the cluster have a free core?") from error
    except ray.exceptions.RayTaskError as error:
        raise ConfigError(
            Mistake("--ray", f"its workers cannot run Tonnage: {error.cause}", "install this version on its nodes")
        ) from error
    except ray.exceptions.RayError as error:
        raise SweepStopped(f"Ray's workers do not start: {_first_line(error)}") from error
    if there != (here := _what_runs()):
        raise ConfigError(Mistake("--ray", f"its workers run {there}, this is {here}", "use one image for all of them"))


def _what_runs() -> str:
    return f"Tonnage {VERSION} (code {code_digest()}) on Python {platform.python_version()}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


FAREWELL_S = 5.0
"""Seconds for the driver to leave Ray; then it is killed with all processes that it started."""


@dataclass(frozen=True, slots=True)
class SweepOnRay:
    """Runs as Ray tasks, one core each.

    The common input of all runs is sent once, through the object store. The cluster's workers must have this Tonnage
    installed; a first task verifies that they do. A child process drives Ray: when it is lost with its cluster, the
    results that it has sent remain.
    """

    address: str = EMBEDDED
    jobs: int = 1
    """Cores of an embedded Ray; a cluster's own number otherwise."""

    def __call__(self, runs: Sequence[K], play: Callable[[K], R]) -> Generator[tuple[int, R], None, None]:
        if not runs:
            return
        with _folder(self.address) as folder, _driver(Drive(self.address, self.jobs, folder, runs, play)) as driver:
            while (message := _received(driver)) is not None:
                if isinstance(message, BaseException):
                    raise message
                yield message


def _received(driver: Connection) -> Message:
    """The next message. Raises SweepStopped when the driver has ended without its last one."""
    try:
        message: Message = driver.recv()
    except (EOFError, OSError) as error:
        raise SweepStopped("Ray ended the driver of this sweep; its head may be lost, or its machine") from error
    return message


@contextmanager
def _folder(address: str) -> Iterator[str]:
    """Folder for the files of an embedded Ray, removed even if Ray was killed; empty for a cluster's."""
    if address != EMBEDDED:
        yield ""
        return
    # Socket paths have a limit of 107 bytes, so the folder is as near to the root as possible.
    folder = tempfile.mkdtemp(prefix="tonnage-ray-", dir="/tmp")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _driver(what: Drive[Any, Any]) -> Iterator[Connection]:
    """A driver process, as the end of a pipe to it. Spawned: a fork would copy the locks of solver threads."""
    context = get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=drive, args=(what, theirs, os.getpid()), name="sweep on Ray")
    with mine:
        with theirs:
            process.start()
        try:
            yield mine
        finally:
            mine.close()
            process.join(FAREWELL_S)
            # Also when it has ended: processes that it started are in its OS session, and none of them may remain.
            if process.pid is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()  # it may not have opened its session yet
            process.join()
