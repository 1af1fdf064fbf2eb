"""Health live: eight processes train over gloo, one of them fails; and frames of many ranks through agents and link.

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
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import MINUTES, TORCH, Row, Rows, case
from benchmarks.tables import grouped
from cluster.errors import ConfigError, Mistake
from controller.loops.health.job_stream import JobStream, frames_in
from health.verdicts.verdict import JobVerdict
from tests.agents.gloo_job import Job, bound, cpu_of_an_operation_us, fail, step_of
from tests.agents.health_fleet import SPAWN, control as run_controller
from tests.agents.health_played import Play, PlayedSetup, ended, frames_sent, reports_sent
from tests.rigs.health.large_job import write_job

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
    "health-hooks",
    "CPU time of an all-reduce over gloo with torch's hooks of the recorder and without, all threads.",
    quick={},
    needs=(TORCH,),
)
def health_hooks(*, python: str = sys.executable) -> Iterator[Row]:
    """One row. python: one that has torch."""
    _require_torch(python)
    bare_us, recorded_us = (cpu_of_an_operation_us(python, recorded=recorded) for recorded in (False, True))
    row: Row = {"bare_us": bare_us, "recorded_us": recorded_us, "recorder_us": round(recorded_us - bare_us, 2)}
    yield row | {"share_at_100_per_s": round((recorded_us - bare_us) * 1e-4, 6)}


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


def _measured(setup: PlayedSetup, play: Play) -> dict[str, object]:
    with ProcessPoolExecutor(1, mp_context=SPAWN) as other:
        fault_s = other.submit(write_job, setup.ranks, setup.seconds, setup.seed, setup.job).result()
    here, there = SPAWN.Pipe()
    control = SPAWN.Process(target=run_controller, args=(there, setup.folder, setup.nodes, setup.pace))
    control.start()
    port: int = here.recv()

    def connected(reported: int) -> None:
        here.send(reported)
        here.recv()

    try:
        sent = play(setup, port, connected)
        here.send("stop")
        seen: dict[str, Any] = here.recv()
    finally:
        ended(control)
    named = [at_s for at_s, words in seen["verdicts"] if "blames" in words]
    lag_s = named[0] - (sent.began_s + fault_s / setup.pace) if named else float("nan")
    taken = seen["records"] or 1
    return {
        "records_sent": sent.records,
        "records_analysed": seen["records"],
        "wall_s": round(sent.took_s, 1),
        "records_per_s": round(seen["records"] / sent.took_s),
        **sent.counts,
        "dropped_by_controller": seen["dropped"],
        "refused_by_controller": seen["refused"],
        "cpu_us_per_record_controller": round(seen["cpu_s"] / taken * 1e6, 3),
        "cpu_us_per_record_analyser": round(seen["analyser_cpu_s"] / taken * 1e6, 3),
        "longest_turn_s": round(seen["longest_turn_s"], 2),
        "controller_memory_mb": seen["memory_mb"],
        "analyser_memory_mb": seen["analyser_memory_mb"],
        "fault_to_verdict_s": round(lag_s, 2),
        "fault_to_verdict_of_the_job_s": round(lag_s * setup.pace, 2),
        "verdicts": [words for _, words in seen["verdicts"]],
    }


@case(
    "health-intake",
    "Records a second, drops and lag of 10,240 ranks' reports through link, intake and analysis.",
    quick={"ranks": 64, "seconds": 6.0, "seeds": (1,)},
    needs=(MINUTES,),
)
@case(
    "health-intake-live",
    "The same through pods' sockets and two agents as processes, at a tenth of the pace.",
    given={"pace": 0.1, "agents": 2, "reports_first": False, "seeds": (1,)},
    quick={"ranks": 64, "seconds": 6.0, "pace": 1.0, "agents": 1},
    needs=(MINUTES,),
)
def health_intake(
    *,
    ranks: int = 10_240,
    seconds: float = 14.0,
    pace: float = 1.0,
    agents: int = 0,
    reports_first: bool = True,
    seeds: Sequence[int] = (1, 2, 3),
) -> Iterator[Row]:
    """A row a seed; a rank becomes slow after four fifths. ranks: a multiple of 64, eight on a node.

    pace: speed at which the job is played. agents: nodes whose agents are processes of their own; the others are the
    same code in one process, without its timer thread. reports_first: make all reports before the job, so that the
    controller gets the cores.
    """
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="h", dir="/tmp") as folder:  # a socket's path has 107 bytes at most
            setup = PlayedSetup(Path(folder), ranks, seconds, pace, agents, seed)
            yield {"seed": seed, **_measured(setup, reports_sent if reports_first else frames_sent)}
