"""Health on real jobs: eight processes train over gloo under the recorder, one of them fails; fault to verdict.

The processes use DistributedDataParallel, which knows nothing of the recorder; faults are a rank that enters nothing
more, SIGSTOP, SIGKILL, and a rank that computes longer. Needs a Python with torch 2.15 or newer.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np

from benchmarks.cases import TORCH, Row, Rows, case
from benchmarks.tables import grouped
from cluster.errors import ConfigError, Mistake
from controller.loops.health.job_stream import JobStream, frames_in
from health.verdicts.verdict import JobVerdict
from tests.agents.gloo_job import Job, bound, digests, fail, step_of

TURN_S = 0.1
"""As often as the operator judges."""
WARM_UP_STEPS = 45
GIVEN_UP_S = 60.0


def _summary(rows: Sequence[Row]) -> Rows:
    """Jobs in which the right rank was named, and the time it took, by fault."""
    for (fault,), own in grouped(rows, "fault").items():
        took_s = [row["latency_s"] for row in own if row["right"]]
        line: Row = {"fault": fault, "jobs": len(own), "right": len(took_s)}
        if took_s:
            line |= {"p50_s": float(np.median(took_s)), "p95_s": float(np.quantile(took_s, 0.95)), "max_s": max(took_s)}
        yield line | {"blamed_before": sum(row["blamed_before"] for row in own)}


@case(
    "health-live",
    "Time from a hang or death to its verdict in real gloo jobs of eight ranks.",
    quick={"runs": 1, "faults": ("kill",), "ranks": 2},
    needs=(TORCH,),
    summary=_summary,
)
@case(
    "health-live-slow",
    "The same where one rank computes longer by 30 %.",
    given={"runs": 5, "faults": ("slow",), "slow_by": 0.3, "seeds": (6,)},
    quick={"runs": 1, "ranks": 2, "slow_by": 1.0},
    needs=(TORCH,),
    summary=_summary,
)
def health_live(
    *,
    python: str = sys.executable,
    ranks: int = 8,
    runs: int = 6,
    faults: Sequence[str] = ("hang", "kill"),
    step_s: float = 0.25,
    slow_by: float = 0.5,
    seeds: Sequence[int] = (5,),
) -> Iterator[Row]:
    """A row for each seed, fault (hang, stop, kill or slow) and run. python: one that has torch.

    step_s: computing time of a step. slow_by: longer steps of a slow rank, as a share.
    """
    _require_torch(python)
    for seed in seeds:
        draw = np.random.default_rng(seed)
        for fault in faults:
            for _ in range(runs):
                yield _run(Job(python, ranks, step_s), fault, int(draw.integers(ranks)), slow_by)


@case(
    "health-identical",
    "Parameters of a gloo job with and without the recorder: they must be the same.",
    quick={"ranks": 2},
    needs=(TORCH,),
)
def health_identical(*, python: str = sys.executable, ranks: int = 8) -> Iterator[Row]:
    """One row. python: one that has torch."""
    _require_torch(python)
    bare, recorded = (digests(python, ranks, recorded=recorded) for recorded in (False, True))
    is_same = bare == recorded and len(bare) == ranks
    yield {"ranks": ranks, "identical": is_same, "wrong": "" if is_same else "the recorder changed parameters"}


def _require_torch(python: str) -> None:
    if subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode:  # noqa: S603
        raise ConfigError(Mistake("input python", f"{python} has no torch", "give --set python=PATH of one that has"))


def _run(job: Job, fault: str, rank: int, slow_by: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as name:
        folder = Path(name)
        with ExitStack() as sockets:
            agents = [sockets.enter_context(bound(folder / f"s{number}")) for number in range(job.ranks)]
            process = job.start(folder, str(folder / "s"))
            try:
                stream = JobStream("live", "0")
                before: list[JobVerdict] = []
                _until(lambda: _turn(stream, agents, before) or step_of(folder) >= WARM_UP_STEPS, 600.0)
                fail(job, folder, fault, rank, slow_by)
                fault_s, fault_step = time.monotonic(), step_of(folder)
                found: list[JobVerdict] = []
                _until(lambda: _turn(stream, agents, found) or any(each.blames for each in found), GIVEN_UP_S)
                verdict = next((each for each in found if each.blames), None)
                return {
                    "fault": fault,
                    "rank": rank,
                    "syndrome": str(verdict.syndrome) if verdict else "none",
                    "ranks": verdict.ranks if verdict else (),
                    "right": verdict is not None and verdict.ranks == (rank,),
                    "latency_s": round(time.monotonic() - fault_s, 2) if verdict else None,
                    "steps": step_of(folder) - fault_step,
                    "blamed_before": sum(each.blames for each in before),
                }
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _turn(stream: JobStream, agents: Sequence[socket.socket], found: list[JobVerdict]) -> bool:
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
