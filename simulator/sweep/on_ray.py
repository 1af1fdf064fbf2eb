"""Sweeps on Ray: runs as tasks, on this machine or on a cluster of any size."""

import platform
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from cluster.errors import ConfigError, Mistake
from cluster.version import VERSION
from controller.brain.on_ray.join import EMBEDDED, joined
from simulator.sweep.result_cache import code_digest
from simulator.sweep.runner import K, SweepStopped

R = TypeVar("R")

TASKS_PER_CORE = 2
"""Submitted and unfinished tasks per core: enough that no worker waits for the next one."""
RETRIES = 3
"""Retries of a run on another worker when its worker or node is lost; it has no side effects."""
PROBE_S = 60.0
"""Time limit for the first task: a cluster whose workers cannot start fails here, not after an hour."""
POLL_S = 1.0
"""Length of one wait for results; Ctrl-C is handled in between."""


@dataclass(frozen=True, slots=True)
class OnRay:
    """Runs as Ray tasks, one core each.

    The common input of all runs is sent once, through the object store. The cluster's workers must have this Tonnage
    installed; a first task verifies that they do.
    """

    address: str = EMBEDDED
    jobs: int = 1
    """Cores of an embedded Ray; a cluster's own number otherwise."""

    def __call__(self, runs: Sequence[K], play: Callable[[K], R]) -> Generator[tuple[int, R], None, None]:
        if not runs:
            return
        with joined(self.address, cores=self.jobs) as ray:
            _check_workers(ray)
            yield from _results(ray, runs, play)


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
