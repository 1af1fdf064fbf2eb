"""Live jobs of which one rank fails, and played jobs of many ranks: when the verdict came, and what that took."""

import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from controller.loops.health.job_stream import JobStream, frames_in
from health.verdicts.verdict import JobVerdict
from tests.agents.gloo_job import Job, bound, fail, step_of
from tests.agents.health_fleet import SPAWN, control as run_controller
from tests.agents.health_played import Play, PlayedSetup, ended
from tests.rigs.health.large_job import write_job

TURN_S = 0.1
"""As often as the operator judges."""
WARM_UP_STEPS = 45
GIVEN_UP_S = 60.0


def failing_job(job: Job, fault: str, rank: int, slow_by: float) -> dict[str, object]:
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


def played_job(setup: PlayedSetup, play: Play) -> dict[str, object]:
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
