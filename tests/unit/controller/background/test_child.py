"""The child process without Ray: the same tasks, in a process that leaves nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from controller.background.host import BackgroundHost
from controller.background.launcher import ChildDriver
from controller.background.load_fits import KIND, fitted, task_of
from tests.unit.controller.background.test_load_fits import history
from tests.until import until

WITHIN_S = 60.0
WHO_WAITS = """
import sys, time
from controller.background.host import BackgroundHost
from controller.background.launcher import ChildDriver
from controller.background.load_fits import task_of
from tests.unit.controller.background.test_load_fits import history
child = ChildDriver()
host = BackgroundHost([child])
host.want(wanted=True)
host.submit([task_of([history("d/a", 4)])])
while not host.results("load_fits", 1.0):
    pass
print("child", child.process.pid, child.folder, flush=True)
time.sleep(600)
"""


@pytest.fixture
def child() -> ChildDriver:
    return ChildDriver()


def test_fits_of_the_child_are_those_of_this_process(child: ChildDriver) -> None:
    task = task_of([history("d/a", 4), history("d/bb", 7)])
    host = BackgroundHost([child])
    host.want(wanted=True)
    try:
        host.submit([task])
        (result,) = until(lambda: host.results(KIND, 1.0), "the fits have come", WITHIN_S)
        assert child.process is not None
        niceness = os.getpriority(os.PRIO_PROCESS, child.process.pid)
    finally:
        host.close()

    assert result.value == fitted(*task.inputs)
    assert niceness == 19


def test_a_child_that_is_killed_is_started_again_and_its_tasks_are_not_lost(child: ChildDriver) -> None:
    host = BackgroundHost([child])
    host.want(wanted=True)
    try:
        host.submit([task_of([history(f"d/{'a' * n}", 4)]) for n in range(6)])
        first = until(lambda: host.results(KIND, 1.0), "the first fits have come", WITHIN_S)
        assert child.process is not None
        child.process.kill()
        found = len(first)
        while found < 6:
            found += len(until(lambda: host.results(KIND, 1.0), "more fits have come", WITHIN_S))
    finally:
        host.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT], ids=lambda each: each.name)
def test_no_signal_to_its_parent_leaves_a_process_or_a_folder(number: signal.Signals) -> None:
    root = Path(__file__).resolve().parents[4]
    with subprocess.Popen([sys.executable, "-c", WHO_WAITS], cwd=root, stdout=subprocess.PIPE, text=True) as parent:  # noqa: S603
        assert parent.stdout is not None
        _, pid, folder = next(line for line in parent.stdout if line.startswith("child")).split()
        assert Path(folder).exists()
        parent.send_signal(number)
        parent.wait(WITHIN_S)

    until(lambda: not Path(f"/proc/{pid}").exists() and not Path(folder).exists(), "nothing is left", WITHIN_S)


WHOSE_RAY_IS_GONE = """
import socket
from controller.background import driver

class Gone(driver.Workers):
    def answer(self):
        return False
    def finished(self):
        return iter(())

driver.ALIVE_EVERY_S = 0.01
stream = driver.OperatorStream(socket.socketpair()[0])
stream.workers = Gone()
stream.tell_alive()
"""


def test_a_driver_whose_ray_goes_on_without_it_ends() -> None:
    done = subprocess.run([sys.executable, "-c", WHOSE_RAY_IS_GONE], capture_output=True, check=False, timeout=WITHIN_S)  # noqa: S603

    assert (done.returncode, done.stderr) == (1, b"Ray has given up the node of this driver\n")
