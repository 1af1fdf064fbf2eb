"""Verdicts on clean jobs, from the analyser's own tables: records of so many days would take weeks to make."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from controller.loops.health.job_stream import PACE_STEPS, StepPace
from controller.loops.health.stream import KEPT_S
from health.analysis import excess as analysis_excess
from health.records.layout import Layout
from health.remediation.facts import FaultEvidence
from health.verdicts.slow_paths import PATH_LEAST, named, slow_spans
from health.verdicts.slow_ranks import blamed, slow_ranks
from health.verdicts.verdict import JobVerdict, Part
from tests.rigs.health.clean_job import BASELINE, BLOCK, SINGLE, STEP_S, Block
from tests.rigs.health.simulated_job import START_S, SimulatedJob, takes_out_a_node

NODES = (Part.RANK, Part.NODE, Part.NIC)
"""Parts for which a node could be taken out; a group or a link asks for a probe first."""
LONGEST = max(tier.steps for tier in analysis_excess.TIERS)


def found_in(block: Block, layout: Layout, slim: Layout, used: IntArray) -> Iterator[JobVerdict]:
    """Verdicts of each step; their instant is its number.

    slim: the layout of the spans in use alone, on which most steps are seen to be quiet.
    """
    baseline = analysis_excess.baseline_from(block.compute_s[:BASELINE], block.transfer_s[:BASELINE], STEP_S, slim)
    full = np.ones(layout.ranks, SINGLE)
    slow = analysis_excess.compute_excess(block.compute_s, baseline, full)
    late = analysis_excess.transfer_excess(block.transfer_s, baseline)
    ranks_at = _worth_a_look(slow, baseline.compute_noise, baseline, 1.0)
    spans_at = _worth_a_look(late, baseline.transfer_noise, baseline, PATH_LEAST)
    worth = np.union1d(ranks_at, spans_at).tolist()
    if not worth:
        return
    transfer_s = np.zeros((BLOCK, len(layout.span_path)), SINGLE)
    transfer_s[:, used] = block.transfer_s
    block = replace(block, transfer_s=transfer_s)
    baseline = analysis_excess.baseline_from(block.compute_s[:BASELINE], transfer_s[:BASELINE], STEP_S, layout)
    for step in worth:
        window = slice(step - LONGEST + 1, step + 1)
        ranks, found = slow_ranks(block.compute_s[window], baseline, full, layout, analysis_excess.TIERS)
        if found is not None:
            yield from blamed(ranks, found, layout, float(step), 0.0, causes=True)
        spans = slow_spans(block.transfer_s[window], baseline, layout, analysis_excess.TIERS, ranks)
        if spans is not None:
            yield named(spans, layout, float(step), 0.0, points=True)


def is_quarantined(block: Block, found: Sequence[JobVerdict], layout: Layout) -> bool:
    """Whether remediation takes a node out for what was found; it hears each verdict in all steps where it stands."""
    job = SimulatedJob(layout)
    step_s = block.compute_s.max(axis=1) + 0.3 * STEP_S
    at_s = START_S + np.cumsum(step_s, dtype=np.float64)
    heard: list[FaultEvidence] = []
    for step in range(int(min((each.at_s for each in found), default=BLOCK)), BLOCK):
        now_s = float(at_s[step])
        pace = StepPace()
        lately = range(max(step - PACE_STEPS, 0), step)
        pace.add(lately, at_s[lately.start : step].tolist())
        for verdict in (each for each in found if each.at_s == step):
            first = min(each.at_s for each in found if each.subject == verdict.subject)
            heard.append(job.evidence(verdict, now_s, pace.lost_share(), float(at_s[int(first)])))
        heard = [each for each in heard if now_s - each.at_s <= KEPT_S]
        if takes_out_a_node(job.decided(heard, now_s)):
            return True
        if not heard and not any(each.at_s > step for each in found):
            return False
    return False


def _worth_a_look(excess: FloatArray, noise: FloatArray, baseline: analysis_excess.Baseline, least: float) -> IntArray:
    """Steps in whose windows some column has enough high steps, and a median as high; all others cannot stand out."""
    found = np.zeros(len(excess), np.bool_)
    for tier in analysis_excess.TIERS:
        limit = analysis_excess.limits(noise, tier, baseline.steps, least)
        columns = crowded(excess >= limit, tier.steps, (tier.steps + 1) // 2)
        high, half = excess[:, columns] >= limit[columns], excess[:, columns] > limit[columns] / 2
        enough = _within(half, tier) >= analysis_excess.PERSISTENT * tier.steps
        found |= (enough & (_within(high, tier) >= (tier.steps + 1) // 2)).any(axis=1)
    found[: BASELINE + LONGEST] = False
    return np.flatnonzero(found)


def crowded(high: BoolArray, steps: int, count: int) -> IntArray:
    """Columns with `count` high steps among so many in a row; a few others may be among them."""
    at = np.flatnonzero(high.T.ravel())
    return np.unique(at[: 1 - count][at[count - 1 :] - at[: 1 - count] < steps] // len(high))


def _within(steps: BoolArray, tier: analysis_excess.Tier) -> IntArray:
    """How many of the tier's last steps; shape as given."""
    counts = np.cumsum(steps, axis=0, dtype=np.int64)
    counts[tier.steps :] -= counts[: -tier.steps].copy()
    return counts
