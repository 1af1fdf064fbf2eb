"""Health on real jobs: eight processes train over gloo under the recorder, one of them fails; fault to verdict.

The processes use DistributedDataParallel, which knows nothing of the recorder; faults are a rank that enters nothing
more, SIGSTOP, SIGKILL, and a rank that computes longer. Needs a Python with torch 2.15 or newer.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from controller.loops.health.job_stream import JobStream, frames_in
from health.verdicts.verdict import Verdict

ROOT = Path(__file__).parents[1]
FAULTS = ("hang", "stop", "kill", "slow")
TURN_S = 0.1
"""As often as the operator judges."""
WARM_UP_STEPS = 45
GIVEN_UP_S = 60.0


@click.command(context_settings={"show_default": True})
@click.option("--python", default=sys.executable, help="A Python that has torch.")
@click.option("--ranks", type=click.IntRange(2), default=8, help="Processes of each job.")
@click.option("--runs", type=click.IntRange(1), default=3, help="Jobs of each fault.")
@click.option("--faults", callback=arguments.words, default=",".join(FAULTS), help=f"Of {', '.join(FAULTS)}.")
@click.option("--step-s", type=click.FloatRange(0.01), default=0.25, help="Computing time of a step.")
@click.option("--slow-by", type=click.FloatRange(0.05), default=0.5, help="Longer steps of a slow rank, as a share.")
@click.option("--seed", type=int, default=1, help="Draws the ranks at fault.")
@click.option("--identical", is_flag=True, help="Compare parameters of a job with and without the recorder instead.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    python: str,
    ranks: int,
    runs: int,
    faults: tuple[str, ...],
    step_s: float,
    slow_by: float,
    seed: int,
    identical: bool,
    json_to: str | None,
) -> None:
    """Let a rank of each job fail and measure how soon it is named."""
    draw = np.random.default_rng(seed)
    rows: list[dict[str, object]] = []
    if identical:
        digests = [_digests(python, ranks, recorded=recorded) for recorded in (False, True)]
        rows.append({"ranks": ranks, "identical": digests[0] == digests[1] and len(digests[0]) == ranks})
    else:
        for fault in faults:
            for _ in range(runs):
                rows.append(_run(Job(python, ranks, step_s), fault, int(draw.integers(ranks)), slow_by))
                click.echo(json.dumps(rows[-1]), err=True)
        rows += [_summary(fault, [row for row in rows if row["fault"] == fault]) for fault in faults]
    write_lines(json_to or "-", rows)


def _summary(fault: str, rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Jobs in which the right rank was named, and the time it took."""
    taken = [float(str(row["latency_s"])) for row in rows if row["right"]]
    return {
        "summary": fault,
        "jobs": len(rows),
        "right": len(taken),
        "p50_s": round(float(np.median(taken)), 2) if taken else None,
        "p95_s": round(float(np.quantile(taken, 0.95)), 2) if taken else None,
        "max_s": max(taken, default=None),
        "blamed_before": sum(int(str(row["blamed_before"])) for row in rows),
    }


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
        command = [self.python, "-m", "benchmarks.health_live_ranks", json.dumps(given)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)  # noqa: S603


def _digests(python: str, ranks: int, *, recorded: bool) -> dict[str, str]:
    """Digest of each rank's parameters after 60 steps. The recorder's socket is full: nobody reads it."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as name:
        folder = Path(name)
        with ExitStack() as sockets:
            for rank in range(ranks):
                sockets.enter_context(_bound(folder / f"s{rank}"))
            Job(python, ranks, 0.0, 60).start(folder, str(folder / "s") if recorded else "").wait()
        return {each.name: each.read_text(encoding="utf-8") for each in folder.glob("digest-*")}


def _bound(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    made.bind(str(path))
    return made


def _run(job: Job, fault: str, rank: int, slow_by: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as name:
        folder = Path(name)
        with ExitStack() as sockets:
            agents = [sockets.enter_context(_bound(folder / f"s{number}")) for number in range(job.ranks)]
            process = job.start(folder, str(folder / "s"))
            try:
                return _watched(job, agents, folder, fault, rank, slow_by)
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _watched(
    job: Job, agents: Sequence[socket.socket], folder: Path, fault: str, rank: int, slow_by: float
) -> dict[str, object]:
    stream = JobStream("live", "0")
    before: list[Verdict] = []
    _until(lambda: _turn(stream, agents, before) or _step(folder) >= WARM_UP_STEPS, 600.0)
    _fail(job, folder, fault, rank, slow_by)
    fault_s, fault_step = time.monotonic(), _step(folder)
    found: list[Verdict] = []
    _until(lambda: _turn(stream, agents, found) or any(each.blames for each in found), GIVEN_UP_S)
    verdict = next((each for each in found if each.blames), None)
    return {
        "fault": fault,
        "rank": rank,
        "syndrome": str(verdict.syndrome) if verdict else "none",
        "ranks": verdict.ranks if verdict else (),
        "right": verdict is not None and verdict.ranks == (rank,),
        "latency_s": round(time.monotonic() - fault_s, 2) if verdict else None,
        "steps": _step(folder) - fault_step,
        "blamed_before": sum(each.blames for each in before),
    }


def _fail(job: Job, folder: Path, fault: str, rank: int, slow_by: float) -> None:
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


def _step(folder: Path) -> int:
    file = folder / "step"
    return int(file.read_text(encoding="utf-8") or 0) if file.exists() else 0


def _turn(stream: JobStream, agents: Sequence[socket.socket], found: list[Verdict]) -> bool:
    """Takes what the recorders have sent and judges; False."""
    now_s = time.monotonic()
    for agent in agents:
        with suppress(BlockingIOError):
            while datagram := agent.recv(64 * 1024):
                for rank, _, frame in frames_in(datagram):
                    stream.take(f"pod-{rank}", f"node-{rank}", frame, now_s)
    found += stream.judge(now_s)
    return False


def _until(done: Callable[[], bool], within_s: float) -> None:
    end_s = time.monotonic() + within_s
    while not done() and time.monotonic() < end_s:
        time.sleep(TURN_S)


if __name__ == "__main__":
    main()
