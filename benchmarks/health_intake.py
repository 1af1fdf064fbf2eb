"""Health live: frames of many ranks over pods' sockets, agents and the signed link into the controller's analysis.

Every node has its socket, its outbox and its connection, as on a cluster. What is simulated is the job.
"""

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.cases import MINUTES, Row, case
from tests.agents.health_fleet import SPAWN, control as run_controller
from tests.agents.health_played import Play, PlayedSetup, ended, frames_sent, reports_sent
from tests.rigs.health.large_job import write_job


def _measured(setup: PlayedSetup, play: Play) -> dict[str, object]:
    with ProcessPoolExecutor(1, mp_context=SPAWN) as other:
        fault_s = other.submit(write_job, setup.ranks, setup.seconds, setup.seed, setup.job).result()
    here, there = SPAWN.Pipe()
    control = SPAWN.Process(target=run_controller, args=(there, setup.nodes, setup.pace))
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
