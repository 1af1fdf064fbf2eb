"""A training job of several processes over gloo under the recorder, in which one rank fails."""

import json
import os
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


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
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)  # noqa: S603


def cpu_of_an_operation_us(python: str, *, recorded: bool) -> float:
    """CPU time of an all-reduce over gloo in one process, with the recorder's hooks or without."""
    command = [python, "-m", "tests.agents.hook_cost", str(int(recorded))]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "OMP_NUM_THREADS": "1"}
    return float(subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout)  # noqa: S603


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
