"""Health at scale: frames of 10,000 ranks at 100 operations a second each, on one core; CPU, memory and lag."""

import resource
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import process_time

import click
import numpy as np

from benchmarks.arguments import refusing_bad_input, write_lines
from health.records.layout import Layout, layout_from
from health.stream import Analyser
from simulator.health.job import Disturbance, DisturbanceKind, TrainingJob
from simulator.health.recorder_frames import TICK_S, arriving_frames, clocks_of
from simulator.health.training_steps import Steps

STEP_S = 0.212
FIRST_MEASURED_S = 2.0
"""Start of the measured part: numpy's first calls are over."""


@click.command(context_settings={"show_default": True})
@click.option("--ranks", type=click.IntRange(64), default=10_240, help="Ranks, a multiple of 64.")
@click.option("--seconds", type=click.FloatRange(5), default=14.0, help="Length of the job.")
@click.option("--seed", type=int, default=1)
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(ranks: int, seconds: float, seed: int, json_to: str | None) -> None:
    """Let a rank become slow after 12 s and count what it costs to find it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "frames"
        # another process makes the frames, so that this one's memory is the analyser's
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
            fault_s = other.submit(write_job, ranks, seconds, seed, path).result()
        record = _measured(_layout(job_of(ranks)), path, fault_s)
    record |= {"ranks": ranks, "seed": seed}
    if json_to is not None:
        write_lines(json_to, [record])
    else:
        click.echo("\n".join(f"{name:24} {value}" for name, value in record.items()))


def job_of(ranks: int) -> TrainingJob:
    """22 operations in steps of 0.21 s, 103 a second."""
    return TrainingJob(
        8, ranks // 64, 8, 8, microbatches=4, pass_s=0.0065, tensor_s=0.0004, pipeline_s=0.0006, data_s=0.05
    )


def _layout(job: TrainingJob) -> Layout:
    return layout_from(job.introductions(), node=job.node, nic=job.nic)


def write_job(ranks: int, seconds: float, seed: int, path: Path) -> float:
    """Writes each tick as its length and its frames; the instant of the fault."""
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
    with path.open("rb") as file:
        while length := file.read(8):
            yield file.read(int.from_bytes(length, "little"))


def _measured(layout: Layout, path: Path, fault_s: float) -> dict[str, object]:
    analyser = Analyser(layout)
    spent_s: list[float] = []
    records: list[int] = []
    verdicts: list[str] = []
    named_s = float("nan")
    for tick, frames in enumerate(read_job(path), start=1):
        started_s = process_time()
        analyser.take(frames, tick * TICK_S)
        found = analyser.judge(tick * TICK_S)
        spent_s.append(process_time() - started_s)
        records.append(len(frames) // 32)
        for verdict in found:
            if verdict.blames:
                verdicts.append(f"{verdict.syndrome} {verdict.part} {verdict.ranks}")
                named_s = tick * TICK_S - fault_s if len(verdicts) == 1 else named_s
    kept = slice(int(FIRST_MEASURED_S / TICK_S), None)
    return {
        "records": sum(records),
        "records_per_s_of_job": round(sum(records[kept]) / (len(records[kept]) * TICK_S)),
        "records_per_cpu_s": round(sum(records[kept]) / sum(spent_s[kept])),
        "cpu_s_per_s_of_job": round(sum(spent_s[kept]) / (len(spent_s[kept]) * TICK_S), 3),
        "longest_tick_cpu_s": round(max(spent_s[kept]), 3),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
        "fault_to_verdict_s": round(named_s, 2),
        "verdicts": verdicts,
    }


if __name__ == "__main__":
    main()
