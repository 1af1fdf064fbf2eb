"""Servers that a test run started end with it."""

from pathlib import Path

import msgspec

from simulator.controlplane import processes
from simulator.controlplane.commands import ControlPlaneSettings, Folder, Ports
from simulator.controlplane.server import StartedState
from tests.controlplane import keeper

SLEEPER = ["/bin/sleep", "600"]
SOON_S = 60.0


def test_servers_end_when_the_run_that_started_them_is_gone(tmp_path: Path) -> None:
    run = processes.start("run", SLEEPER, tmp_path / "run.log")
    servers = [pretend_server(tmp_path / name) for name in ("server", "popen-gw0/server0")]
    keeper.keep(tmp_path, run)

    processes.stop(run)

    assert [processes.ended_within(each, SOON_S) for each in servers] == [True, True]
    for each in servers:
        processes.stop(each)  # reaps what is our own child
    if still := processes.remembered(keeper.NAME, tmp_path):
        processes.stop(still)


def pretend_server(path: Path) -> processes.Process:
    """What a control plane leaves in its folder, with a process that only sleeps."""
    folder = Folder(path)
    folder.make()
    folder.state.write_bytes(msgspec.json.encode(StartedState(Ports(1, 2, 3, 4, 5), ControlPlaneSettings())))
    process = processes.start("etcd", SLEEPER, folder.log_of("etcd"))
    processes.remember(process, folder.run)
    return process
