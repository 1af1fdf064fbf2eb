"""Client of isolation: verdicts as data and words, hints from the environment and from MCP."""

import json

import pytest

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
