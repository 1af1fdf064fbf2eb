"""Frames of a large job with one slow rank, written to a file tick by tick and read again."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.rigs.health.job import Disturbance, DisturbanceKind, TrainingJob
from tests.rigs.health.recorder_frames import arriving_frames, clocks_of
from tests.rigs.health.training_steps import Steps

STEP_S = 0.212


def job_of(ranks: int) -> TrainingJob:
    """22 operations in steps of 0.21 s, 103 a second."""
    return TrainingJob(
        8, ranks // 64, 8, 8, microbatches=4, pass_s=0.0065, tensor_s=0.0004, pipeline_s=0.0006, data_s=0.05
    )


def write_job(ranks: int, seconds: float, seed: int, path: Path) -> float:
    """Writes each tick as its length and its frames; returns the instant of the fault."""
    job = job_of(ranks)
    random = np.random.default_rng([seed, 20])
    slow = Disturbance(
        DisturbanceKind.SLOW_RANK, int(seconds / STEP_S * 0.8), (int(random.integers(ranks)),), strength=1.0
    )
    timeline = Steps(job, slow, random).run(int(seconds / STEP_S))
    clocks = clocks_of(ranks, random, timeline.end_s, steps=False)
    with path.open("wb") as file:
        for _, frames in arriving_frames(job, slow, timeline, clocks, random, timeline.end_s).ticks():
            file.write(len(frames).to_bytes(8, "little") + frames)
    return timeline.fault_s


def read_job(path: Path) -> Iterator[bytes]:
    """Frames of each tick."""
    with path.open("rb") as file:
        while length := file.read(8):
            yield file.read(int.from_bytes(length, "little"))
