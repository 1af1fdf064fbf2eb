"""Excess: how much longer a rank computes, or a span transfers, than its own past and the whole job's pace explain."""

from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import FloatArray, IntArray
from health.analysis.steps import StepSums
from health.analysis.windows import noise_of
from health.records.layout import Layout

PACE = 0.4
"""Quantile over ranks that is taken as the job's pace: up to 60 % of the ranks may be slow without moving it."""
FEW_SPANS = 5
"""Spans of one role below which they have no pace of their own."""


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """What steps of this job looked like before."""

    steps: int
    length_s: float
    compute_s: FloatArray
    """Shape (ranks,), median computing time per step."""
    transfer_s: FloatArray
    """Shape (spans,), median transfer time per step; 0 for spans that are not used."""
    compute_noise: FloatArray
    """Shape (ranks,), standard deviation per step, as a share of the step."""
    transfer_noise: FloatArray
    classes: IntArray
    """Shape (spans,), spans of one class have one pace."""


def baseline_of(sums: StepSums, layout: Layout, first: int, last: int) -> Baseline | None:
    """Baseline from steps first..last; None while their length is unknown."""
    length_s = sums.length_s(first, last)
    if length_s <= 0:
        return None
    return baseline_from(sums.compute_s(first, last), sums.transfer_s(first, last), length_s, layout)


def baseline_from(compute_s: FloatArray, transfer_s: FloatArray, length_s: float, layout: Layout) -> Baseline:
    """Baseline from tables of shape (steps, ranks) and (steps, spans)."""
    quiet = Baseline(
        steps=len(compute_s),
        length_s=length_s,
        compute_s=np.median(compute_s, axis=0),
        transfer_s=np.median(transfer_s, axis=0),
        compute_noise=np.zeros(layout.ranks),
        transfer_noise=np.zeros(len(layout.span_path)),
        classes=layout.path_role[layout.span_path] * 2 + layout.crosses[layout.span_path],
    )
    return replace(
        quiet,
        compute_noise=noise_of(compute_excess(compute_s, quiet, np.ones(layout.ranks))),
        transfer_noise=_span_noise(transfer_excess(transfer_s, quiet), quiet),
    )


def _span_noise(excess: FloatArray, baseline: Baseline) -> FloatArray:
    noise = np.zeros(excess.shape[1])
    used = baseline.transfer_s > 0
    for number in np.unique(baseline.classes[used]):
        alike = used & (baseline.classes == number)
        noise[alike] = noise_of(excess[:, alike])
    return noise


def compute_pace(compute_s: FloatArray, baseline: Baseline) -> FloatArray:
    """Shape (steps,): how slow the job computes in each step, 1 as before."""
    used = baseline.compute_s > 0
    if not used.any():
        return np.ones(len(compute_s))
    return np.asarray(np.quantile(compute_s[:, used] / baseline.compute_s[used], PACE, axis=1))


def compute_excess(compute_s: FloatArray, baseline: Baseline, speed_share: FloatArray) -> FloatArray:
    """Shape (steps, ranks), share of a step.

    speed_share: shape (ranks,), speed that our own limits leave a rank; what they explain is no excess.
    """
    pace = compute_pace(compute_s, baseline)
    expected_s = pace[:, None] * (baseline.compute_s / speed_share)
    return np.asarray((compute_s - expected_s) / baseline.length_s)


def transfer_excess(transfer_s: FloatArray, baseline: Baseline) -> FloatArray:
    """Shape (steps, spans), share of a step; spans that are not used have none."""
    expected_s = np.broadcast_to(baseline.transfer_s, transfer_s.shape).copy()
    for number in np.unique(baseline.classes):
        alike = (baseline.classes == number) & (baseline.transfer_s > 0)
        if alike.sum() >= FEW_SPANS:
            pace = np.quantile(transfer_s[:, alike] / baseline.transfer_s[alike], PACE, axis=1)
            expected_s[:, alike] *= pace[:, None]
    return np.where(baseline.transfer_s > 0, (transfer_s - expected_s) / baseline.length_s, 0.0)
