"""Study of a concurrency tuner: its course on a workload, beside the static limit that was best in hindsight."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.concurrency.tuner import S, Tuner
from cluster.arrays import BoolArray, FloatArray, IntArray
from simulator.scaling.concurrency import Workload, serve
from simulator.scaling.concurrency_baselines import Static

NEAR = 0.95
"""Fraction of the best static limit's goodput that counts as reached."""
ALLOWED_BREACHES = 0.01
"""Share of intervals that may break the guard."""
WINDOW = 10
"""Number of intervals over which goodput is compared."""
LIMITS: tuple[int, ...] = tuple(int(limit) for limit in np.unique(np.geomspace(1, 1024, 160).round()))
"""Static limits that are tried: each up to 27, then in steps of 4.4 %."""


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """Intervals of one run, each of shape (intervals,)."""

    limit: IntArray
    goodput: FloatArray
    """Requests per second, 0 where the guard was broken."""
    breached: BoolArray


@dataclass(frozen=True, slots=True)
class Score:
    """A run beside the best static limit."""

    goodput_ratio: float
    """Goodput of the whole run, learning included, over the best static limit's."""
    later_ratio: float
    """The same after the first decisions."""
    near_after: int | None
    """Number of decisions after which goodput was near, and on average stayed so to the end; None: never."""
    breach_share: float
    first_breach_share: float
    """Share of the first decisions with a breach."""
    changes_share: float
    """Share of the later decisions that changed the limit."""


def course(tuner: Tuner[S], workload: Workload, start: int) -> Course:
    """Run of a tuner over all intervals, from a limit."""
    limit, state = start, tuner.first()
    served, limits = [], []
    for number in range(len(workload.intervals)):
        limits.append(limit)
        served.append(serve(workload, number, limit))
        decision = tuner.decide(state, served[-1].seen)
        limit, state = decision.limit, decision.state
    return Course(
        np.array(limits), np.array([each.goodput for each in served]), np.array([each.breached for each in served])
    )


def best_static(workload: Workload, limits: Sequence[int] = LIMITS) -> Course:
    """Course of the static limit with the highest goodput among those that break the guard no more than allowed; of the
    one that breaks it least where all do."""
    courses = [course(Static(limit), workload, limit) for limit in limits]
    allowed = max(ALLOWED_BREACHES, min(float(each.breached.mean()) for each in courses))
    kept = [each for each in courses if each.breached.mean() <= allowed]
    return max(kept, key=lambda each: float(each.goodput.sum()))


def score(run: Course, best: Course, first: int) -> Score:
    """Comparison of a run with the best static limit. first: number of decisions that count as the first ones."""
    return Score(
        goodput_ratio=float(run.goodput.sum() / best.goodput.sum()),
        later_ratio=float(run.goodput[first:].sum() / best.goodput[first:].sum()),
        near_after=_near_after(run.goodput, best.goodput),
        breach_share=float(run.breached.mean()),
        first_breach_share=float(run.breached[:first].mean()),
        changes_share=float(np.mean(np.diff(run.limit[first:]) != 0)),
    )


def _near_after(own: FloatArray, best: FloatArray) -> int | None:
    window = np.ones(WINDOW)
    soon = np.convolve(own, window, "valid") >= NEAR * np.convolve(best, window, "valid")
    rest = np.cumsum(own[::-1])[::-1] >= NEAR * np.cumsum(best[::-1])[::-1]
    near = np.flatnonzero(soon & rest[: len(soon)])
    return int(near[0]) if len(near) else None
