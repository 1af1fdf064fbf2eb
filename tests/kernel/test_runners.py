"""Runners of agent frameworks as their packages have them: which of their tool calls are in a leaf, on a real kernel.

They are no dependency: `pip install --target FOLDER mini-swe-agent swe-rex`, and TONNAGE_RUNNERS=FOLDER.
"""

import asyncio
import ctypes
import os
import sys
import time
from contextlib import suppress
from functools import partial

import pytest

from tests.kernel.node import FOLDER, _sleep as sleep, node, uid_of
from tests.rigs.kernel.guest import Guest
from tests.rigs.launcher import run_in

RUNNERS = os.environ.get("TONNAGE_RUNNERS", "")
needs_runners = pytest.mark.skipif(not RUNNERS, reason="TONNAGE_RUNNERS names no folder with the runners' packages")
SAYS = f"sed 's/.*scope//' /proc/self/cgroup >> {FOLDER}/said"
"""End of each command: it notes where it ran."""
WORK = (
    "ls -la / | head -20",
    "cat /etc/passwd | wc -l",
    "find /etc -maxdepth 1 -name '*.conf' | sort | head",
    f"{sys.executable} -S -c 'print(sum(range(300000)))'",
    "grep -n root /etc/passwd; echo $?",
    f"cd /tmp && {sys.executable} -S -c 'import json, re; print(len(json.dumps(list(range(9999)))))' | tail -1",
)
CALLS = 60


def called(guest: Guest, function: str) -> tuple[list[str], int, dict[str, int]]:
    said, code, happened = guest.call(f"{__name__}:{function}", RUNNERS)
    counts = {leaf: sum(each.startswith(leaf) for each in said) for leaf in ("/call-found-", "/light", "/agent")}
    sys.stdout.write(f"{function}: {counts}\n")
    return said, code, happened


def in_leaves(said: list[str]) -> float:
    return sum(each.startswith(("/call-found-", "/light")) for each in said) / CALLS


@needs_runners
def test_an_agent_of_mini_swe_agent_has_its_calls_in_leaves(guest: Guest) -> None:
    said, failed, happened = called(guest, "mini_swe_agent")

    assert len(said) == CALLS
    assert failed == 0
    assert in_leaves(said) >= 0.95
    assert not happened


def mini_swe_agent(runners: str) -> tuple[list[str], int, dict[str, int]]:
    return counted(runners, "mini_swe_agent")


def _mini_swe_agent() -> int:
    os.environ |= {"MSWEA_GLOBAL_CONFIG_DIR": str(FOLDER / "mini"), "MSWEA_SILENT_STARTUP": "1"}
    from minisweagent.agents.default import DefaultAgent  # type: ignore[import-not-found]
    from minisweagent.environments.local import LocalEnvironment  # type: ignore[import-not-found]
    from minisweagent.models.test_models import DeterministicModel, make_output  # type: ignore[import-not-found]

    commands = [f"{WORK[number % len(WORK)]}; {SAYS}" for number in range(CALLS)]
    outputs = [make_output("", [{"command": command}], cost=0.0) for command in commands]
    end = make_output("", [{"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}], cost=0.0)
    agent = DefaultAgent(
        DeterministicModel(outputs=[*outputs, end]),
        LocalEnvironment(timeout=120),
        system_template="",
        instance_template="",
    )
    result = agent.run("work")
    return int(result["exit_status"] != "Submitted")


@needs_runners
def test_a_session_of_swe_rex_has_its_calls_in_leaves(guest: Guest) -> None:
    said, failed, happened = called(guest, "swe_rex")

    assert len(said) == CALLS
    assert failed == 0
    assert in_leaves(said) >= 0.95
    assert not happened


def swe_rex(runners: str) -> tuple[list[str], int, dict[str, int]]:
    ctypes.CDLL(None).mount(b"devpts", b"/dev/pts", b"devpts", 0, b"ptmxmode=0666")
    return counted(runners, "swe_rex")


async def _swe_rex() -> int:
    from swerex.runtime.abstract import BashAction, CreateBashSessionRequest  # type: ignore[import-not-found]
    from swerex.runtime.local import LocalRuntime  # type: ignore[import-not-found]

    runtime = LocalRuntime()
    await runtime.create_session(CreateBashSessionRequest(startup_timeout=60))
    failed = 0
    for number in range(CALLS):
        # A shell's own commands start nothing, so that a call of this runner is what its shell starts.
        words = WORK[number % len(WORK)].replace('"', '\\"')
        done = await runtime.run_in_session(BashAction(command=f'sh -c "{words}; {SAYS}"', timeout=120))
        failed += done.exit_code != 0
    return failed


def counted(runners: str, runner: str) -> tuple[list[str], int, dict[str, int]]:
    """The runner is a program of its own, in its container before that is taken over."""
    with node() as made:
        for name in ("a", "b"):
            made.add_pod(name)
            run_in(made.files.folder(made.homes[name]), partial(_begin, runners, runner) if name == "a" else sleep)
        made.start()
        made.take_all()
        (FOLDER / "go").touch()
        give_up_s = time.monotonic() + 250
        while not (FOLDER / "ended").exists() and time.monotonic() < give_up_s:
            with suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            time.sleep(0.1)
        report = made.until(lambda report: report.sandboxes[uid_of("a")].running == 0)
        said = (FOLDER / "said").read_text(encoding="utf-8").split()
        ended = (FOLDER / "ended").read_text(encoding="utf-8")
        if not ended:
            raise RuntimeError(f"after {len(said)} calls: {(FOLDER / 'log').read_text(encoding='utf-8')[-6000:]}")
        return said, int(ended), dict(report.sandboxes[uid_of("a")].happened)


def _begin(runners: str, runner: str) -> int:
    FOLDER.mkdir(exist_ok=True)
    log = os.open(FOLDER / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(log, number)
    path = os.pathsep.join((*filter(None, sys.path), runners))
    source = f"from tests.kernel.test_runners import program; program({runner!r})"
    os.execve(sys.executable, [sys.executable, "-c", source], {**os.environ, "PYTHONPATH": path, "HOME": str(FOLDER)})  # noqa: S606


def program(runner: str) -> None:
    """The agent's own process."""
    while not (FOLDER / "go").exists():
        time.sleep(0.05)
    failed: int | str = ""
    try:
        failed = asyncio.run(_swe_rex()) if runner == "swe_rex" else _mini_swe_agent()
    finally:
        (FOLDER / "ended.new").write_text(str(failed), encoding="utf-8")
        (FOLDER / "ended.new").rename(FOLDER / "ended")
