"""Calls that are found: real processes of this machine in groups that a fake keeps."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isolation.admission import command_class
from isolation.ledger import MemoryLedger, Sandbox
from isolation.settings import Settings
from isolation.state import ArbiterState, CallDemand
from nodeagent.sandboxes.found_calls import WORKER_S, FoundCalls
from tests.until import until

MIB = 1 << 20


class Enforcer:
    """Enforcer of one sandbox, whose calls are all admitted or all refused."""

    def __init__(self, agent: int, *, refuses: bool) -> None:
        self.groups = {agent: "home/agent"}
        self.refuses, self.asked = refuses, list[CallDemand]()
        ledger = MemoryLedger(1024 * MIB).with_sandbox(Sandbox("u", 512 * MIB))
        self.state, self.settings = ArbiterState(ledger), Settings()
        self.tree: Any = SimpleNamespace(
            agent_group=lambda _: "home/agent",
            light_group=lambda _: "home/light",
            call_group=lambda _, call: f"home/call-{call}",
            calls_of=lambda _: [group.removeprefix("home/call-") for group in set(self.groups.values())],
            pids=lambda group: tuple(pid for pid, at in self.groups.items() if at == group),
            attach=lambda group, pid: self.groups.update({pid: group}),
        )

    def ask(self, request: CallDemand) -> None:
        self.asked.append(request)

    def held_leaf(self, _: str, call: str) -> str | None:
        return None if self.refuses else f"home/call-{call}"

    def end_if_empty(self, _: str, __: str) -> None: ...

    def watch(self, _: int) -> None: ...

    def unwatch(self, _: int) -> None: ...


@contextmanager
def found(*commands: list[str], refuses: bool = False) -> Iterator[tuple[Any, FoundCalls, list[int], list[float]]]:
    """An agent, which is this process, and the commands that it started after it was taken over; with a clock."""
    enforcer: Any = Enforcer(os.getpid(), refuses=refuses)
    now_s = [0.0]
    calls = FoundCalls(enforcer, lambda: now_s[0], lambda: "1", lambda: 0.0)
    calls.open("u", lambda words: f"t/{command_class(words)}")
    started = [subprocess.Popen(command, stdin=subprocess.PIPE) for command in commands]  # noqa: S603
    for each, command in zip(started, commands, strict=True):
        words = Path(f"/proc/{each.pid}/cmdline")
        until(lambda words=words, head=command[0]: words.read_text().startswith(head), command[0])  # type: ignore[misc]
        enforcer.groups[each.pid] = "home/agent"
    now_s[0] = 10.0
    try:
        yield enforcer, calls, [each.pid for each in started], now_s
    finally:
        calls.close("u")
        for each in started:
            each.kill()
            each.communicate()


LIGHT, HEAVY = ["/bin/cat"], [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


def test_a_light_command_shares_the_light_leaf_and_another_has_its_own() -> None:
    with found(LIGHT, HEAVY) as (enforcer, calls, (light, heavy), _):
        calls.look()

        assert (enforcer.groups[light], enforcer.groups[heavy]) == ("home/light", "home/call-found-1")
        assert [(each.command_class, each.declared) for each in enforcer.asked] == [("t/python", False)]
        assert enforcer.groups[os.getpid()] == "home/agent"


def test_a_call_that_is_refused_runs_among_the_light_ones() -> None:
    with found(HEAVY, refuses=True) as (enforcer, calls, (heavy,), _):
        calls.look()

        assert enforcer.groups[heavy] == "home/light"


@pytest.mark.parametrize("command", [["/bin/bash"], [sys.executable, "-c", "input()", "/x/tonnage/gate.py"]])
def test_a_shell_that_waits_for_commands_and_a_clients_gate_are_the_agents(command: list[str]) -> None:
    with found(command) as (enforcer, calls, (pid,), _):
        calls.look()

        assert enforcer.groups[pid] == "home/agent"
        assert not enforcer.asked


def test_what_only_forked_is_looked_at_again_and_then_the_agents() -> None:
    with found() as (enforcer, calls, _, now_s):
        if not (pid := os.fork()):
            time.sleep(600)
            os._exit(0)
        enforcer.groups[pid] = "home/agent"
        try:
            calls.look()
            assert calls.next_s() <= now_s[0] + 0.01
            now_s[0] += WORKER_S + 1
            calls.look()
            now_s[0] = calls.next_s()
            calls.look()

            assert calls.next_s() >= now_s[0] + 0.1
            assert enforcer.groups[pid] == "home/agent"
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)


def test_an_agent_that_asks_has_its_found_calls_back() -> None:
    with found(HEAVY) as (enforcer, calls, (heavy,), _):
        calls.look()
        calls.dissolve("u")

        assert enforcer.groups[heavy] == "home/agent"
        assert calls.next_s() == float("inf")
