"""`tonnage run`: the command's own exit code, a verdict as data, and plain running where there is no node agent."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def tonnage_run(*words: str, **environment: str) -> tuple[int, str, str, dict[str, Any] | None]:
    """Exit status, output, messages and verdict of the command, in a process of its own."""
    read, write = os.pipe()
    program = [sys.executable, "-m", "cli.main", "run", "--json-fd", str(write), *words]
    surroundings = {**os.environ, "TONNAGE_SANDBOX_SOCKET": "/nonexistent/agent.sock", **environment}
    done = subprocess.run(  # noqa: S603
        program, capture_output=True, text=True, cwd=ROOT, env=surroundings, pass_fds=(write,), check=False
    )
    os.close(write)
    with os.fdopen(read) as line:
        verdict = line.readline()
    return done.returncode, done.stdout, done.stderr, json.loads(verdict) if verdict else None


def test_without_an_agent_the_command_runs_plainly_and_its_exit_code_is_kept() -> None:
    code, out, err, verdict = tonnage_run("--mem-hint", "2Gi", "--wait", "30s", "--", "sh", "-c", "echo ran; exit 7")

    assert (code, out) == (7, "ran\n")
    assert "no node agent" in err
    assert verdict is not None
    assert (verdict["outcome"], verdict["exit_code"], verdict["isolated"]) == ("exited", 7, False)


def test_a_descriptor_that_is_not_open_is_wrong_use_and_nothing_runs() -> None:
    """The verdict was lost, or went to whatever was opened under that number."""
    program = [sys.executable, "-m", "cli.main", "run", "--json-fd", "9", "--", "echo", "ran"]

    done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, check=False)  # noqa: S603

    assert (done.returncode, done.stdout) == (2, "")
    assert "9 is not open: redirect it, as in 9>verdict.json" in done.stderr


def test_options_of_the_command_are_its_own() -> None:
    assert tonnage_run("printf", "%s", "--wait")[1] == "--wait"


def test_a_kill_is_128_and_the_signal_and_never_called_out_of_memory() -> None:
    code, _, err, verdict = tonnage_run("sh", "-c", "kill -9 $$")

    assert code == 137
    assert verdict is not None
    assert (verdict["outcome"], verdict["reason"]) == ("signalled", None)
    assert "memory" not in err


@pytest.mark.parametrize(("command", "code"), [("no-such-program", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_start_has_the_shell_s_exit_codes(command: str, code: int) -> None:
    assert tonnage_run(command)[0] == code


def test_where_an_agent_is_required_nothing_runs_without_one() -> None:
    code, out, err, verdict = tonnage_run("--require", "sh", "-c", "echo ran")

    assert (code, out) == (75, "")
    assert "it is not run" in err
    assert verdict is not None
    assert (verdict["outcome"], verdict["reason"], verdict["exit_code"]) == ("refused", "NO_AGENT", None)


@pytest.mark.parametrize(
    "wrong", [("--mem-hint", "-2Gi"), ("--mem-hint", "NaN"), ("--mem-hint", "much"), ("--wait", "soon")]
)
def test_a_wrong_option_is_wrong_usage_and_runs_nothing(wrong: tuple[str, str]) -> None:
    code, out, err, verdict = tonnage_run(*wrong, "--", "echo", "ran")

    assert (code, out, verdict) == (2, "", None)
    assert wrong[1] in err


def test_a_wrong_hint_in_the_environment_is_named() -> None:
    code, _, err, _ = tonnage_run("echo", "ran", TONNAGE_MEM_HINT="lots")

    assert code == 2
    assert "lots" in err
