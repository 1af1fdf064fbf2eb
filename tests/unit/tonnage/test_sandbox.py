"""Client of isolation: verdicts as data and words, hints from the environment and from MCP."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.sandboxes.sockets import CallRequest, message_from
from tonnage import sandbox
from tonnage.sandbox import Verdict

KILLED = Verdict("killed", 137, "OUTGREW_CLAIM", 600 << 20, 512 << 20, 12.0, "declare more memory, or split the work")


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sandbox.SOCKET_VARIABLE, "/nonexistent/agent.sock")


def test_a_verdict_is_data_and_a_sentence() -> None:
    assert json.loads(KILLED.as_json())["reason"] == "OUTGREW_CLAIM"
    assert KILLED.words() == (
        "killed (OUTGREW_CLAIM): peak 600 MiB, limit 512 MiB, try again in 12 s, declare more memory, or split the work"
    )
    assert Verdict("exited", 0).words() == ""


def test_the_hint_of_the_environment_holds_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sandbox.MEM_VARIABLE, "2Gi")

    with sandbox.tool() as by_environment, sandbox.tool("1Gi") as given:
        assert (by_environment.mem, given.mem) == ("2Gi", "1Gi")


def test_a_command_without_an_agent_runs_plainly_with_its_output() -> None:
    with sandbox.tool("64Mi") as tool:
        done = tool.run(["cat"], input="in and out", capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "in and out")
    assert not done.verdict.isolated
    assert "no node agent" in done.verdict.note


def test_what_is_required_and_not_there_raises_where_it_is_checked() -> None:
    with sandbox.tool("64Mi", require=True) as tool, pytest.raises(sandbox.ToolError, match="NO_AGENT"):
        tool.run(["true"], check=True)


@pytest.mark.parametrize(
    ("request_", "mem"),
    [
        ({"_meta": {"tonnage.dev/mem": "2Gi"}}, "2Gi"),
        ({"_meta": {"tonnage.dev/mem": 512}}, 512),
        ({"_meta": {"tonnage.dev/mem": True}}, None),
        ({"_meta": {"tonnage.dev/mem": ["2Gi"]}}, None),
        ({"_meta": "2Gi"}, None),
        ({}, None),
    ],
)
def test_a_hint_comes_with_an_mcp_request(request_: dict[str, object], mem: str | int | None) -> None:
    assert sandbox.mem_from_mcp(request_) == mem


def test_a_verdict_goes_into_an_mcp_result() -> None:
    assert sandbox.mcp_meta(KILLED)["tonnage.dev/verdict"]["retry_after_s"] == 12.0


def answering(path: Path, *visits: Callable[[socket.socket], None]) -> threading.Thread:
    """An agent that answers one connection after the other, and hangs up on each in the end."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    door.bind(str(path))
    door.listen()

    def serve() -> None:
        for visit in visits:
            line, _ = door.accept()
            with line:
                visit(line)
        door.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def admit_and_go(line: socket.socket) -> None:
    line.recv(8192)
    line.send(b'{"state":"admitted","reason":"FITS"}')


def test_a_command_with_a_name_that_is_no_text_is_asked_for_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.SOCKET_VARIABLE, str(tmp_path / "agent.sock"))
    asked: list[object] = []

    def read_and_admit(line: socket.socket) -> None:
        asked.append(message_from(line.recv(8192)))
        line.send(b'{"state":"admitted","reason":"FITS"}')

    agent = answering(tmp_path / "agent.sock", read_and_admit)

    with sandbox.tool() as tool:
        done = tool.run(["echo", os.fsdecode(b"\xff.txt")], stdout=subprocess.PIPE)

    agent.join()
    assert done.stdout == b"\xff.txt\n"
    assert asked == [CallRequest(("echo", "\ufffd.txt"))]


def test_a_call_is_taken_up_by_an_agent_that_was_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sandbox.SOCKET_VARIABLE, str(tmp_path / "agent.sock"))
    monkeypatch.setattr(sandbox, "RECONNECT_S", 0.01)
    shown: list[str] = []

    def take_up(line: socket.socket) -> None:
        packet, (pidfd,), _, _ = socket.recv_fds(line, 8192, 1)
        shown.append(Path(f"/proc/self/fdinfo/{pidfd}").read_text())
        os.close(pidfd)
        assert json.loads(packet) == {"type": "resume"}
        line.send(b'{"state":"admitted","reason":"FITS"}')
        (tmp_path / "go").touch()
        told = json.loads(line.recv(8192))
        verdict = {"outcome": "exited", "exit_code": told["code"], "peak_bytes": 7}
        line.send(json.dumps({"state": "ended", "verdict": verdict}).encode())

    agent = answering(tmp_path / "agent.sock", admit_and_go, take_up)

    with sandbox.tool("64Mi") as tool:
        call = tool.start(["/bin/sh", "-c", f"until [ -e {tmp_path / 'go'} ]; do sleep 0.01; done; exit 3"])
        verdict = call.verdict()

    agent.join()
    assert [state["state"] for state in call.states] == ["resumed"]
    assert (verdict.outcome, verdict.exit_code, verdict.peak_bytes, verdict.isolated) == ("exited", 3, 7, True)
    assert f"Pid:\t{call.process.pid}\n" in shown[0]


def test_a_call_that_the_next_agent_does_not_know_ends_with_its_own_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.SOCKET_VARIABLE, str(tmp_path / "agent.sock"))
    monkeypatch.setattr(sandbox, "RECONNECT_S", 0.01)

    def know_nothing(line: socket.socket) -> None:
        line.recv(8192)
        line.send(b'{"state":"ended","verdict":{"outcome":"refused","reason":"UNKNOWN_SANDBOX"}}')
        (tmp_path / "go").touch()

    answering(tmp_path / "agent.sock", admit_and_go, know_nothing)

    with sandbox.tool("64Mi") as tool:
        done = tool.run(["/bin/sh", "-c", f"until [ -e {tmp_path / 'go'} ]; do sleep 0.01; done; exit 4"])

    assert (done.returncode, done.verdict.outcome) == (4, "exited")
    assert "nothing is known" in done.verdict.note


def test_the_blocks_end_ends_what_a_call_left_whose_verdict_nobody_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.SOCKET_VARIABLE, str(tmp_path / "agent.sock"))
    heard: list[bytes] = []

    def admit_and_hear(line: socket.socket) -> None:
        admit_and_go(line)
        heard.append(line.recv(8192))

    agent = answering(tmp_path / "agent.sock", admit_and_hear)

    with sandbox.tool("64Mi") as tool:
        tool.start(["true"]).process.wait()

    agent.join()
    assert heard == [b'{"type":"end"}']
