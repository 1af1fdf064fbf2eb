"""A training job of several processes over gloo under the recorder, in which one rank fails."""

import json
import os
import signal
import socket
import subprocess
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Job:
    python: str
    ranks: int
    step_s: float
    steps: int = 100_000

    def start(self, folder: Path, socket_path: str) -> subprocess.Popen[bytes]:
        given = {
            "ranks": self.ranks,
            "folder": str(folder),
            "socket": socket_path,
            "step_s": self.step_s,
            "steps": self.steps,
        }
        command = [self.python, "-m", "tests.agents.gloo_ranks", json.dumps(given)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)  # noqa: S603


def digests(python: str, ranks: int, *, recorded: bool) -> dict[str, str]:
    """Digest of each rank's parameters after 60 steps. The recorder's socket is full: nobody reads it."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as name:
        folder = Path(name)
        with ExitStack() as sockets:
            for rank in range(ranks):
                sockets.enter_context(bound(folder / f"s{rank}"))
            Job(python, ranks, 0.0, 60).start(folder, str(folder / "s") if recorded else "").wait()
        return {each.name: each.read_text(encoding="utf-8") for each in folder.glob("digest-*")}


def bound(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    made.bind(str(path))
    return made


def fail(job: Job, folder: Path, fault: str, rank: int, slow_by: float) -> None:
    process = json.loads((folder / "pids").read_text(encoding="utf-8"))[rank]
    match fault:
        case "hang":
            (folder / f"hang-{rank}").touch()
        case "slow":
            (folder / f"slow-{rank}").write_text(str(job.step_s * slow_by), encoding="utf-8")
        case "stop":
            os.kill(process, signal.SIGSTOP)
        case "kill":
            os.kill(process, signal.SIGKILL)


def step_of(folder: Path) -> int:
    file = folder / "step"
    return int(file.read_text(encoding="utf-8") or 0) if file.exists() else 0
