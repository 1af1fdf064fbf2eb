"""Processes of a control plane are identified safely, and other processes are never touched."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.errors import ControlPlaneError
from simulator.controlplane import processes
from simulator.controlplane.processes import Process

SLEEPER = ["/bin/sh", "-c", "echo hello; echo trouble >&2; exec sleep 600"]
STUBBORN = ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.01; done"]
SOON_S = 30.0
"""Long for any machine; waits end as soon as what they wait for happens."""


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    made = processes.start("sleeper", SLEEPER, tmp_path / "log")
    yield made
    processes.stop(made)


def test_a_started_process_runs_until_it_is_stopped(sleeper: Process) -> None:
    assert processes.is_running(sleeper)

    processes.stop(sleeper)

    assert not processes.is_running(sleeper)


def test_stopping_twice_is_stopping_once(sleeper: Process) -> None:
    processes.stop(sleeper)
    processes.stop(sleeper)

    assert not processes.is_running(sleeper)


def test_a_recycled_pid_is_not_taken_for_ours(sleeper: Process) -> None:
    """A pid file from an earlier life names the pid of a stranger, who started at another tick."""
    outdated = replace(sleeper, started_ticks=sleeper.started_ticks - 1)

    processes.stop(outdated)

    assert not processes.is_running(outdated)
    assert processes.is_running(sleeper)


def test_a_pid_of_an_earlier_boot_is_not_taken_for_ours(sleeper: Process) -> None:
    outdated = replace(sleeper, boot="another")

    processes.stop(outdated)

    assert processes.is_running(sleeper)


def test_a_process_that_ignores_the_request_to_end_is_ended(tmp_path: Path) -> None:
    stubborn = processes.start("stubborn", STUBBORN, tmp_path / "log")

    processes.stop(stubborn, within_s=0.05)

    assert not processes.is_running(stubborn)


def test_the_end_of_a_process_is_noticed_at_once(sleeper: Process) -> None:
    assert not processes.ended_within(sleeper, 0)

    os.kill(sleeper.pid, signal.SIGKILL)

    assert processes.ended_within(sleeper, SOON_S)


def test_a_remembered_process_is_known_while_it_runs(sleeper: Process, tmp_path: Path) -> None:
    processes.remember(sleeper, tmp_path / "run")
    assert processes.remembered("sleeper", tmp_path / "run") == sleeper

    processes.stop(sleeper)

    assert processes.remembered("sleeper", tmp_path / "run") is None


def test_output_is_appended_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of an earlier life\n", encoding="utf-8")

    said = processes.start("talker", ["/bin/sh", "-c", "echo hello; echo trouble >&2"], log)
    processes.ended_within(said, SOON_S)
    processes.stop(said)

    assert log.read_text(encoding="utf-8") == "of an earlier life\nhello\ntrouble\n"


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ControlPlaneError, match="starting etcd: /nowhere/etcd: No such file"):
        processes.start("etcd", ["/nowhere/etcd"], tmp_path / "log")
