"""Background work on an embedded Ray: the same results as without it, whatever is killed, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count, islice
from pathlib import Path

import pytest

from controller.background.host import BackgroundHost
from controller.background.launcher import ChildDriver
from controller.background.load_fits import KIND, fitted, task_of
from controller.background.on_ray import DriverStart
from controller.background.tasks import BackgroundTask, TaskResult
from tests import until as waiting
from tests.rigs.background_fits import pss_mb, session_of
from tests.unit.controller.background.test_load_fits import history

until = partial(waiting.until, within_s=300.0)
"""A busy machine is not a failure."""
LEAN_MB = 250
SETTLES_S, LOOKS_S = 5.0, 15.0
NUMBERS = count()
WHO_WAITS = """
import time
from controller.background.host import BackgroundHost
from controller.background.launcher import ChildDriver
from controller.background.on_ray import DriverStart
from controller.background.load_fits import task_of
from tests.unit.controller.background.test_load_fits import history
child = ChildDriver(DriverStart("embedded"))
host = BackgroundHost([child])
host.want(wanted=True)
host.submit([task_of([history("d/a", 4)])])
while not host.results("load_fits", 1.0):
    pass
print("child", child.folder, flush=True)
time.sleep(600)
"""


@contextmanager
def embedded(cpus: int) -> Iterator[tuple[BackgroundHost, ChildDriver]]:
    child = ChildDriver(DriverStart("embedded", cpus=cpus))
    host = BackgroundHost([child])
    host.want(wanted=True)
    try:
        yield host, child
    finally:
        host.close()


@pytest.fixture(scope="module")
def ray() -> Iterator[tuple[BackgroundHost, ChildDriver]]:
    with embedded(cpus=2) as made:
        yield made


MANY = 40
"""Tasks of which some still run when a test looks, on a quiet machine too."""


def tasks(wanted: int) -> list[BackgroundTask]:
    """Batches of four histories with trees; no two are alike, and a test that is tried again gets others."""
    names = [[f"d/{'x' * (4 * n + k)}" for k in range(4)] for n in islice(NUMBERS, wanted)]
    return [task_of([history(name, 4) for name in batch]) for batch in names]


def results(host: BackgroundHost, wanted: int) -> dict[str, TaskResult]:
    """So many results by their task."""
    found: dict[str, TaskResult] = {}
    while len(found) < wanted:
        found |= {each.digest: each for each in until(lambda: host.results(KIND, 1.0), "a result has come")}
    return found


def cpu_s(pids: Sequence[int]) -> float:
    """Processor time of processes that do not end meanwhile."""
    fields = [Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


def pids_of(child: ChildDriver, name: bytes) -> list[int]:
    """Processes of Ray whose command line has this in it."""
    return [pid for pid in session_of(child.folder) if name in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_fits_are_those_of_a_process_without_ray_bit_by_bit(ray: tuple[BackgroundHost, ChildDriver]) -> None:
    host, _ = ray
    asked = tasks(3)
    host.submit(asked)

    found = results(host, 3)

    assert host.standing.runs_on.startswith("Ray")
    assert [found[task.digest].value for task in asked] == [fitted(*task.inputs) for task in asked]


def test_ray_brings_nothing_that_nobody_uses(ray: tuple[BackgroundHost, ChildDriver]) -> None:
    host, child = ray
    host.submit(tasks(1))
    results(host, 1)

    for name in (b"monitor.py", b"log_monitor", b"dashboard.py", b"ray::DashboardAgent", b"ray::RuntimeEnvAgent"):
        assert pids_of(child, name) == []
    assert pss_mb(session_of(child.folder)) < LEAN_MB + 130, "with a second worker, which may have fitted"


def test_an_idle_ray_takes_little_of_a_core(ray: tuple[BackgroundHost, ChildDriver]) -> None:
    host, child = ray
    host.submit(tasks(1))
    results(host, 1)
    pids = session_of(child.folder)
    time.sleep(SETTLES_S)

    before_s = cpu_s(pids)
    time.sleep(LOOKS_S)

    assert cpu_s(pids) - before_s < 0.05 * LOOKS_S


def test_what_a_killed_worker_ran_is_run_again(ray: tuple[BackgroundHost, ChildDriver]) -> None:
    host, child = ray
    host.submit(tasks(MANY))
    driver = child.process
    (worker, *_) = until(lambda: pids_of(child, b"ray::run_task"), "a worker runs a task")
    os.kill(worker, signal.SIGKILL)

    found = results(host, MANY)

    assert [each.error for each in found.values()] == [""] * MANY
    assert child.process is driver


@pytest.mark.parametrize("name", [b"controller.background.driver", b"raylet/raylet", b"gcs_server"])
def test_what_was_open_when_ray_or_its_driver_ended_is_given_to_the_next_one(
    ray: tuple[BackgroundHost, ChildDriver], name: bytes
) -> None:
    host, child = ray
    host.submit(tasks(MANY))
    until(lambda: pids_of(child, b"ray::run_task"), "a worker runs a task")
    folder, losses = Path(child.folder), host.standing.losses.total()
    for pid in pids_of(child, name):
        os.kill(pid, signal.SIGKILL)

    found = results(host, MANY)

    assert [each.error for each in found.values()] == [""] * MANY
    # A driver works on for some seconds without its GCS: it may have done all that was open before it ends.
    until(lambda: host.standing.losses.total() == losses + 1, "the loss is told")
    until(lambda: not folder.exists(), "nothing is left")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
def test_no_signal_leaves_a_process_or_a_folder(number: signal.Signals) -> None:
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen([sys.executable, "-c", WHO_WAITS], cwd=root, stdout=subprocess.PIPE, text=True) as parent:  # noqa: S603
        assert parent.stdout is not None
        _, folder = next(line for line in parent.stdout if line.startswith("child")).split()
        assert session_of(folder)
        parent.send_signal(number)
        parent.wait(60.0)

    until(lambda: not session_of(folder) and not Path(folder).exists(), "nothing is left")
