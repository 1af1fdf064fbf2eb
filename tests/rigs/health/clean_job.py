"""Computing and transfer times of a clean job, as the analyser's tables hold them."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from health.records.layout import Layout, layout_from
from tests.rigs.health.job import TrainingJob
from tonnage.records import Role

STEP_S = 10.0
"""Length of a step; jobs of 1,000 GPUs and more take 5 to 30 s."""
BASELINE = 24
"""Steps of the baseline; the analyser's grows to 100, so this is the noisier case."""
BLOCK = 512
SINGLE: np.dtype[Any] = np.dtype(np.float32)


def job_looked_at() -> tuple[TrainingJob, Layout, "InUse", IntArray]:
    """The job, its layout, the same with the spans in use alone, and their numbers."""
    job = TrainingJob(tensor=8, data=16, pipeline=8, gpus_per_node=8, world=False)
    layout = layout_from(job.introductions(), node=job.node, nic=job.nic)
    slim = InUse(**{each.name: getattr(layout, each.name) for each in fields(layout)})
    return job, layout, slim, np.flatnonzero(_used(layout, layout.span_path))


class InUse(Layout):
    """A layout whose spans are those in use alone."""

    @cached_property
    def span_path(self) -> IntArray:
        whole = super().span_path
        return np.asarray(whole[_used(self, whole)])


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some steps of one job; single precision, which is finer than any clock."""

    compute_s: FloatArray
    transfer_s: FloatArray
    """Shape (steps, spans in use)."""


def block_of(job: TrainingJob, layout: Layout, random: np.random.Generator) -> Block:
    return Block(_compute(job, random), _transfers(layout, random))


def _normal(random: np.random.Generator, deviation: float, shape: tuple[int, ...]) -> FloatArray:
    noise: FloatArray = np.asarray(random.standard_normal(shape, np.float32), SINGLE)
    noise *= deviation
    return noise


def _compute(job: TrainingJob, random: np.random.Generator) -> FloatArray:
    """70 % of the step, noise that is partly slow, and what happens in healthy jobs."""
    ranks = job.ranks
    noise = _normal(random, random.uniform(0.005, 0.03), (BLOCK, ranks))
    slow = np.cumsum(_normal(random, 0.003, (BLOCK // 32, ranks)), axis=0)
    noise += np.repeat((slow - slow.mean(axis=0)).clip(-0.015, 0.015), 32, axis=0)
    if random.random() < 0.3:  # another replica has the longest data in each step
        load = _normal(random, random.uniform(0.05, 0.2), (BLOCK, 1, job.data, 1))
        noise += np.broadcast_to(load, (BLOCK, *job.shape)).reshape(BLOCK, ranks)
    noise += _normal(random, 0.01, (ranks,))
    compute_s = np.exp(noise, out=noise)
    compute_s *= np.float32(0.7 * STEP_S)
    stalled = random.random((BLOCK,)) < 0.1
    compute_s[stalled, random.integers(ranks, size=int(stalled.sum()))] += random.exponential(2.0, int(stalled.sum()))
    compute_s[random.integers(50) :: 50] += random.uniform(5.0, 40.0) * random.uniform(0.9, 1.1, ranks)  # unmarked
    if random.random() < 0.2:  # all ranks, such as for a slower file system
        compute_s[random.integers(BASELINE, BLOCK) :] *= random.uniform(1.0, 1.3)
    return compute_s


def _transfers(layout: Layout, random: np.random.Generator) -> FloatArray:
    spans, crosses = len(layout.span_path), layout.crosses[layout.span_path]
    share = np.where(layout.sizes[layout.span_path] == 2, 0.02, np.where(crosses, 0.1, 0.03))
    noise = _normal(random, random.uniform(0.05, 0.15), (BLOCK, spans))
    transfer_s = np.exp(noise, out=noise)
    transfer_s *= (STEP_S * share).astype(np.float32)
    spikes = np.unique(random.integers(BLOCK * spans, size=random.poisson(0.004 * BLOCK * spans)))
    transfer_s.ravel()[spikes] *= random.uniform(1.5, 6.0, len(spikes))
    if random.random() < 0.2:  # the whole fabric is busy for a while
        begin = int(random.integers(BASELINE, BLOCK))
        transfer_s[begin : begin + 50, crosses] *= random.uniform(1.1, 1.6)
    return transfer_s


def _used(layout: Layout, span_path: IntArray) -> BoolArray:
    """Groups, and pairs of neighbouring stages."""
    first = layout.members[layout.starts[span_path]]
    second = layout.members[layout.starts[span_path] + 1]
    neighbours = np.abs(layout.stage[first] - layout.stage[second]) == 1
    is_pair = span_path >= len(layout.groups)
    return np.asarray(np.where(is_pair, neighbours, layout.path_role[span_path] != Role.PIPELINE))
