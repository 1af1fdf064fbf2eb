"""Sweeps on Ray: runs as tasks, on this machine or on a cluster of any size."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from controller.brain.on_ray.ray_start import EMBEDDED
from simulator.sweep.ray_driver import Drive, Message, drive
from simulator.sweep.runner import K, R, SweepStopped

FAREWELL_S = 5.0
"""Seconds for the driver to leave Ray; then it is killed with all processes that it started."""


@dataclass(frozen=True, slots=True)
class OnRay:
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
            _end(process)


def _end(process: BaseProcess) -> None:
    process.join(FAREWELL_S)
    # Also when it has ended: processes that it started are in its OS session, and none of them may remain.
    if process.pid is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # it may not have opened its session yet
    process.join()
