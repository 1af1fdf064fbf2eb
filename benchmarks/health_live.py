"""Health live: eight processes train over gloo, one of them fails; and frames of many ranks through agents and link.

The processes use DistributedDataParallel, which knows nothing of the recorder; faults are a rank that enters nothing
more, SIGSTOP, SIGKILL, and a rank that computes longer. Needs a Python with torch 2.15 or newer.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.cases import MINUTES, TORCH, Row, Rows, case
from benchmarks.tables import grouped
from cluster.errors import ConfigError, Mistake
from tests.agents.gloo_job import Job, cpu_of_an_operation_us
from tests.agents.health_played import PlayedSetup, frames_sent, reports_sent
from tests.rigs.health.live_jobs import failing_job, played_job


def _summary(rows: Sequence[Row]) -> Rows:
    """Jobs in which the right rank was named, and the time it took, by fault."""
    for (fault,), own in grouped(rows, "fault").items():
        took_s = [row["latency_s"] for row in own if row["right"]]
        line: Row = {"fault": fault, "jobs": len(own), "right": len(took_s)}
        if took_s:
            line |= {
                "p50_s": float(np.median(took_s)),
                "p95_s": float(np.quantile(took_s, 0.95)),
                "max_s": max(took_s),
            }
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
                yield failing_job(Job(python, ranks, step_s), fault, int(draw.integers(ranks)), slow_by)


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
    yield {
        "bare_us": bare_us,
        "recorded_us": recorded_us,
        "recorder_us": round(recorded_us - bare_us, 2),
        "share_at_100_per_s": round((recorded_us - bare_us) * 1e-4, 6),
    }


def _require_torch(python: str) -> None:
    if subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode:  # noqa: S603
        raise ConfigError(Mistake("input python", f"{python} has no torch", "give --set python=PATH of one that has"))


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
            yield {"seed": seed, **played_job(setup, reports_sent if reports_first else frames_sent)}
