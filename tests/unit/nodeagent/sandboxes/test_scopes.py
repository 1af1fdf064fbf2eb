"""Scopes of a slice as sandboxes, and the command that serves them."""

from click.testing import CliRunner

from cli.verbs.sandboxd import sandboxd
from isolation.orders import SandboxOrder
from nodeagent.sandboxes.process import scopes_in
from tests.builders.fake_cgroups import FakeCgroups


def test_each_populated_scope_is_a_sandbox_with_its_weight_as_priority() -> None:
    files = FakeCgroups()
    files.write("", "cgroup.subtree_control", "+cpu +memory +pids")
    files.make("agents.slice")
    files.write("agents.slice", "cgroup.subtree_control", "+cpu +memory +pids")
    for name in ("run-u7.scope", "agent@b.service", "empty.scope"):
        files.make(f"agents.slice/{name}")
    files.start("agents.slice/run-u7.scope")
    files.start("agents.slice/agent@b.service")
    files.write("agents.slice/run-u7.scope", "memory.low", str(64 << 20))
    files.write("agents.slice/run-u7.scope", "cpu.weight", "200")

    assert scopes_in(files, "agents.slice") == {
        "run-u7-scope": SandboxOrder("run-u7.scope", "host", 200, guaranteed_bytes=64 << 20),
        "agent-b-service": SandboxOrder("agent@b.service", "host", 100),
    }


def test_a_host_on_which_it_cannot_work_is_told_why() -> None:
    done = CliRunner().invoke(sandboxd, ["--group", "nowhere.slice"])

    assert done.exit_code == 1
    assert "nowhere.slice" in done.output
