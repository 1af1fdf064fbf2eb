"""Sweeps on Ray: runs as background tasks, by a driver like the operator's that lasts as long as the sweep."""

import os
import pickle
import platform
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from cluster.errors import ConfigError, Mistake
from cluster.version import VERSION
from controller.background.host import LOSSES, BackgroundHost
from controller.background.launcher import ChildDriver
from controller.background.on_ray import DriverStart
from controller.background.tasks import BackgroundTask, TaskFunction, TaskResult
from simulator.sweep.runner import K, R, SweepStopped, code_digest

EMBEDDED = "embedded"
POLL_S = 1.0
"""Length of one wait for results; the loss of Ray is noticed in between."""


@dataclass(frozen=True, slots=True)
class SweepOnRay:
    """Runs as Ray tasks, one core each.

    The common input of all runs is sent once. The cluster's workers must have this Tonnage installed, which each run
    verifies. A Ray that is lost is started or joined again, and only unfinished runs are repeated.
    """

    address: str = EMBEDDED
    """`embedded`, or `host:port` of a running head, joined with the token in RAY_AUTH_TOKEN or in the file named by
    RAY_AUTH_TOKEN_PATH, and without a token only where RAY_AUTH_MODE is `disabled`."""
    jobs: int = 1
    """Cores of an embedded Ray; a cluster's own number otherwise."""

    def __call__(self, runs: Sequence[K], play: Callable[[K], R]) -> Generator[tuple[int, R], None, None]:
        if not runs:
            return
        if self.address == EMBEDDED:
            start = DriverStart("embedded", cpus=self.jobs, registry=__name__)
        else:
            _require_token(self.address)
            start = DriverStart("cluster", address=self.address, registry=__name__)
        host = BackgroundHost([ChildDriver(start)])
        try:
            host.want(wanted=True)
            shared = _installed(), pickle.dumps(play)
            tasks = [BackgroundTask("run", (*shared, pickle.dumps((n, run)))) for n, run in enumerate(runs)]
            numbers = {task.digest: number for number, task in enumerate(tasks)}
            host.submit(tasks)
            while numbers:
                for result in self._results(host):
                    # Result of a finished task; raises the exception of a failed run unchanged.
                    if result.error:
                        raise SweepStopped(result.error)
                    value, error = pickle.loads(result.value)  # noqa: S301 - of our own workers
                    if error is not None:
                        raise error
                    yield numbers.pop(result.digest), value
        finally:
            host.close()

    def _results(self, host: BackgroundHost) -> list[TaskResult]:
        """Results that come within a moment. Raises ConfigError where Ray cannot be used, SweepStopped where it is
        lost."""
        found, standing = host.results("run", POLL_S), host.standing
        if not found and standing.losses["refused"]:
            remedy = "name HOST:PORT of a running Ray head on whose node this runs, and its token"
            raise ConfigError(Mistake(f"ray address {self.address}", standing.why, remedy))
        if not found and standing.in_a_row >= LOSSES:
            raise SweepStopped(f"Ray was lost {standing.in_a_row} times in a row: {standing.why}")
        return found


def _played(there: bytes, play: bytes, numbered_run: bytes) -> bytes:
    """The result of a run, or the error that it raised. there: what the sweep runs."""
    try:
        if there != _installed():
            words = f"its workers run {_installed().decode()}, this is {there.decode()}"
            raise ConfigError(Mistake("--ray", words, "use one image for all of them"))
        _, run = pickle.loads(numbered_run)  # noqa: S301 - the bytes of the sweep that started this process
        return pickle.dumps((pickle.loads(play)(run), None))  # noqa: S301
    except Exception as error:  # noqa: BLE001 - raised again by the sweep
        return pickle.dumps((None, _portable(error)))


@cache
def _installed() -> bytes:
    """What runs tasks."""
    return f"Tonnage {VERSION} (code {code_digest()}) on Python {platform.python_version()}".encode()


KINDS: Mapping[str, TaskFunction] = {"run": _played}
"""Kinds of tasks of a sweep's driver. They are pickled, unlike the operator's: a sweep runs on its user's own machines,
without rights in a Kubernetes cluster."""


def _portable(error: Exception) -> Exception:
    """The exception, or its words where it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # noqa: BLE001 - whatever a foreign exception's pickling raises
        return SweepStopped(f"a run failed: {type(error).__name__}: {error}")
    return error


def _require_token(address: str) -> None:
    """Raises ConfigError when no token is set: Ray itself would try for 20 s a call before it reports that."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "disabled":
        return
    if not any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")):
        raise ConfigError(
            Mistake(
                f"ray address {address}",
                "no token is given for it",
                "set RAY_AUTH_TOKEN_PATH to the cluster's token file, or RAY_AUTH_MODE=disabled if it has none",
            )
        )
