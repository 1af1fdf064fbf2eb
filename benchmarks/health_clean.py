"""Health on clean jobs: parts blamed for slowness in simulated GPU-days without a fault.

Works on the analyser's own tables (computing time per rank and step, transfer time per span and step), because records
of so many days would take weeks to make. Each window of each step is looked at. Hangs are not covered.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from time import process_time

import click
import numpy as np

from benchmarks.arguments import refusing_bad_input, write_lines
from cluster.arrays import BoolArray, FloatArray, IntArray
from health.analysis.excess import Baseline, baseline_from, compute_excess, transfer_excess
from health.analysis.windows import PERSISTENT, TIERS, limits
from health.records.layout import Layout, layout_from
from health.verdicts.slow_paths import PATH_LEAST, named, slow_spans
from health.verdicts.slow_ranks import blamed, slow_ranks
from health.verdicts.verdict import Part, Verdict
from simulator.health.job import Job
from tonnage.records import Role

STEP_S = 10.0
"""Length of a step; jobs of 1,000 GPUs and more take 5 to 30 s."""
BASELINE = 24
"""Steps of the baseline; the analyser's grows to 100, so this is the noisier case."""
BLOCK = 512
NODES = (Part.RANK, Part.NODE, Part.NIC)
"""Parts for which a node could be taken out; a group or a link asks for a probe first."""
LONGEST = max(tier.steps for tier in TIERS)


@click.command(context_settings={"show_default": True})
@click.option("--gpu-days", type=click.FloatRange(1), default=10_000.0, help="Simulated GPU-days.")
@click.option("--seed", type=int, default=1)
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(gpu_days: float, seed: int, json_to: str | None) -> None:
    """Count what is blamed in clean jobs of 1,024 ranks with stalls, checkpoints, uneven data and congestion."""
    job = Job(tensor=8, data=16, pipeline=8, gpus_per_node=8, world=False)
    layout = layout_from(job.introductions(), node=job.node, nic=job.nic)
    random = np.random.default_rng([seed, 21])
    per_block = (BLOCK - BASELINE) * job.ranks * STEP_S / 86_400
    blocks = int(np.ceil(gpu_days / per_block))
    started_s = process_time()
    found = [verdict for _ in range(blocks) for verdict in _blamed(_block(job, layout, random), layout)]
    blames = [verdict for verdict in found if verdict.blames]
    record: dict[str, object] = {
        "gpu_days": round(blocks * per_block),
        "looks": blocks * (BLOCK - BASELINE - LONGEST) * len(TIERS) * (job.ranks + len(layout.span_path)),
        "blamed": len(blames),
        "blamed_ranks_nodes_nics": sum(verdict.part in NODES for verdict in blames),
        "abstained": sum(verdict.abstains for verdict in found),
        "upper_bound_per_1000_gpu_days": round(
            (sum(verdict.part in NODES for verdict in blames) + 3) / (blocks * per_block) * 1000, 4
        ),
        "cpu_s": round(process_time() - started_s),
        "seed": seed,
        "first": [f"{verdict.part} {verdict.ranks[:4]} {verdict.evidence}" for verdict in blames[:3]],
    }
    if json_to is not None:
        write_lines(json_to, [record])
    else:
        click.echo("\n".join(f"{name:32} {value}" for name, value in record.items()))


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some steps of one job."""

    compute_s: FloatArray
    transfer_s: FloatArray


def _block(job: Job, layout: Layout, random: np.random.Generator) -> Block:
    return Block(_compute(job, random), _transfers(layout, random))


def _compute(job: Job, random: np.random.Generator) -> FloatArray:
    """70 % of the step, noise that is partly slow, and what happens in healthy jobs."""
    ranks = job.ranks
    noise = random.normal(0.0, random.uniform(0.005, 0.03), (BLOCK, ranks))
    slow = np.cumsum(random.normal(0.0, 0.003, (BLOCK // 32, ranks)), axis=0)
    noise += np.repeat(slow - slow.mean(axis=0), 32, axis=0).clip(-0.015, 0.015)
    if random.random() < 0.3:  # another replica has the longest data in each step
        load = random.normal(0.0, random.uniform(0.05, 0.2), (BLOCK, 1, job.data, 1))
        noise += np.broadcast_to(load, (BLOCK, *job.shape)).reshape(BLOCK, ranks)
    compute_s = 0.7 * STEP_S * np.exp(noise + random.normal(0.0, 0.01, ranks))
    stalled = random.random((BLOCK,)) < 0.1
    compute_s[stalled, random.integers(ranks, size=int(stalled.sum()))] += random.exponential(2.0, int(stalled.sum()))
    compute_s[random.integers(50) :: 50] += random.uniform(5.0, 40.0) * random.uniform(0.9, 1.1, ranks)  # unmarked
    if random.random() < 0.2:  # all ranks, such as for a slower file system
        compute_s[random.integers(BASELINE, BLOCK) :] *= random.uniform(1.0, 1.3)
    return compute_s


def _transfers(layout: Layout, random: np.random.Generator) -> FloatArray:
    spans = len(layout.span_path)
    share = np.where(layout.sizes[layout.span_path] == 2, 0.02, np.where(layout.crosses[layout.span_path], 0.1, 0.03))
    share = np.where(_used(layout), share, 0.0)
    noise = np.exp(random.normal(0.0, random.uniform(0.05, 0.15), (BLOCK, spans)))
    spikes = random.random((BLOCK, spans)) < 0.004
    transfer_s = STEP_S * share * np.where(spikes, noise * random.uniform(1.5, 6.0, (BLOCK, spans)), noise)
    if random.random() < 0.2:  # the whole fabric is busy for a while
        begin = int(random.integers(BASELINE, BLOCK - 50))
        transfer_s[begin : begin + 50, layout.crosses[layout.span_path]] *= random.uniform(1.1, 1.6)
    return np.asarray(transfer_s)


def _used(layout: Layout) -> BoolArray:
    """Groups, and pairs of neighbouring stages."""
    first = layout.members[layout.starts[layout.span_path]]
    second = layout.members[layout.starts[layout.span_path] + 1]
    pair = layout.span_path >= len(layout.groups)
    neighbours = np.abs(layout.stage[first] - layout.stage[second]) == 1
    return np.asarray(np.where(pair, neighbours, layout.path_role[layout.span_path] != Role.PIPELINE))


def _blamed(block: Block, layout: Layout) -> Iterator[Verdict]:
    baseline = baseline_from(block.compute_s[:BASELINE], block.transfer_s[:BASELINE], STEP_S, layout)
    full = np.ones(layout.ranks)
    slow = compute_excess(block.compute_s, baseline, full)
    late = transfer_excess(block.transfer_s, baseline)
    ranks_at = _worth_a_look(slow, baseline.compute_noise, baseline, 1.0)
    spans_at = _worth_a_look(late, baseline.transfer_noise, baseline, PATH_LEAST)
    seen: set[object] = set()
    for step in np.union1d(ranks_at, spans_at).tolist():
        for verdict in _at(block, baseline, layout, step, full):
            if verdict.subject not in seen:
                seen.add(verdict.subject)
                yield verdict


def _worth_a_look(excess: FloatArray, noise: FloatArray, baseline: Baseline, least: float) -> IntArray:
    """Steps in whose windows some column has enough high steps; all others cannot stand out."""
    found = np.zeros(len(excess), np.bool_)
    for tier in TIERS:
        high = excess > limits(noise, tier, baseline.steps, least) / 2
        counts = np.cumsum(high, axis=0, dtype=np.int16)
        counts[tier.steps :] -= counts[: -tier.steps].copy()
        found |= (counts >= PERSISTENT * tier.steps).any(axis=1)
    found[: BASELINE + LONGEST] = False
    return np.flatnonzero(found)


def _at(block: Block, baseline: Baseline, layout: Layout, step: int, full: FloatArray) -> Iterator[Verdict]:
    window = slice(step - LONGEST + 1, step + 1)
    ranks, found = slow_ranks(block.compute_s[window], baseline, full, TIERS)
    if found is not None:
        yield from blamed(ranks, found, layout, float(step), 0.0, causes=True)
    spans = slow_spans(block.transfer_s[window], baseline, layout, TIERS, ranks)
    if spans is not None:
        yield named(spans, layout, float(step), 0.0, points=True)


if __name__ == "__main__":
    main()
