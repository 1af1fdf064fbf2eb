"""Batches that are planned and verified, cold, warm and by best fit, with the time of each."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from cluster import snapshot
from cluster.clock import Clock
from placement.batch.columns import Memory
from placement.batch.ladder import BatchPlan, BatchSettings, Rung, plan_batch
from placement.batch.proposal import proposed, reason_of
from tests.builders import manifests, plan_fleets
from tests.builders.plan_check import Seat, usd_per_hour, wrongs

CHURN_SHARE = 0.02
"""Fraction of the pods that are others before each warm plan."""
T = TypeVar("T")


def timed(work: Callable[[], T], clock: Clock = time.process_time) -> tuple[float, T]:
    """(seconds, result): CPU seconds of this process, which other work on the machine changes little."""
    began = clock()
    done = work()
    return clock() - began, done


def verified(seen: snapshot.Snapshot, plan: BatchPlan) -> BatchPlan:
    """The plan. Raises AssertionError for one that is not feasible, which would be a bug of the planner."""
    columns = (plan.seats.row.tolist(), plan.seats.node.tolist(), plan.seats.devices.tolist())
    seats: list[Seat] = list(zip(*columns, strict=True))
    if wrong := wrongs(seen, seats):
        raise AssertionError("; ".join(wrong[:5]))
    if not len(plan.waiting) and not seen.pods.node.max(initial=-1) >= 0:
        cost = usd_per_hour(seen, seats)
        if abs(cost - plan.usd_per_hour) > 0.01:
            raise AssertionError(f"it costs {cost:.2f} $ per hour and reports {plan.usd_per_hour:.2f}")
    return plan


def planned_by(seen: snapshot.Snapshot, memory: Memory, rung: Rung) -> BatchPlan:
    return plan_batch(seen, memory, BatchSettings(), rung=rung)


def binds_of(seen: snapshot.Snapshot, plan: BatchPlan) -> object:
    """The plan as binds with their reasons."""
    return proposed(seen, plan.seats, reason_of(plan))


def warm_plans(seen: snapshot.Snapshot, memory: Memory, seeds: Sequence[int], asks: Sequence[Any]) -> dict[str, Any]:
    """Times and gaps of warm plans, one after another."""
    warm_s, gaps = [], []
    for seed in seeds:
        seen = plan_fleets.churned(seen, CHURN_SHARE, seed, asks)
        took_s, found = timed(partial(planned_by, seen, memory, "columns"))
        warm_s.append(took_s)
        gaps.append(verified(seen, found).gap)
        memory = found.memory
    return {
        "p50_ms": round(float(np.quantile(warm_s, 0.5)) * 1e3, 1),
        "p95_ms": round(float(np.quantile(warm_s, 0.95)) * 1e3, 1),
        "mean_gap_pct": round(float(np.mean(gaps)) * 100, 3),
        "worst_gap_pct": round(float(np.max(gaps)) * 100, 3),
    }


def pct_above(usd: float, bound_usd: float) -> float:
    return round((usd - bound_usd) / usd * 100, 2) if usd else 0.0


def running_groups(count: int) -> Iterator[manifests.Object]:
    """Gangs of two members with a GPU each, all running, on nodes of eight."""
    for number in range(count):
        if number % 4 == 0:
            yield manifests.node(f"n{number // 4}", 8)
        yield manifests.gang(f"g{number}", 2)
        for member in range(2):
            device = {"tonnage.dev/devices": str(2 * (number % 4) + member)}
            labels, on = {"tonnage.dev/gang": f"g{number}"}, f"n{number // 4}"
            yield manifests.pod(
                f"g{number}-{member}", 1, on=on, labels=labels, annotations=device, schedulerName="tonnage"
            )
