"""`python -m tests.controlplane.keeper FOLDER OWNER`: stops the servers of a test run when the run is over.

A run may end without tidying up (a time limit, SIGKILL, a crash); its servers would go on for ever.
"""

import os
import sys
from pathlib import Path

import msgspec

from simulator.controlplane import processes
from simulator.controlplane.commands import Folder
from simulator.controlplane.processes import Process, locked
from simulator.controlplane.server import SOURCES, down

NAME, MEMBERS = "keeper", "test-processes"


def keep(under: Path, owner: Process) -> None:
    """Sees to it that every server beneath the folder is stopped once its owner is gone."""
    processes.remember(processes.process_with(str(os.getpid()), os.getpid()), under / MEMBERS)
    with locked(under / "keeper.lock"):
        if processes.remembered(NAME, under) is None:
            command = [sys.executable, "-m", "tests.controlplane.keeper", under, msgspec.json.encode(owner).decode()]
            environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
            processes.remember(processes.start(NAME, command, under / "keeper.log", environment), under)


def main() -> None:
    under, owner = Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=Process)
    wait_for_end(owner)
    stop_servers(under)
    # A process of pytest-xdist may be in the middle of starting one when its run is killed.
    for record in (under / MEMBERS).glob("*.json"):
        if member := processes.remembered(record.stem, under / MEMBERS):
            wait_for_end(member)
    stop_servers(under)


def wait_for_end(process: Process) -> None:
    while not processes.ended_within(process, 3600.0):
        """It runs still."""


def stop_servers(under: Path) -> None:
    for state in list(under.rglob("state.json")):
        down(Folder(state.parent), delete=True)


if __name__ == "__main__":
    main()
