"""Bounds on a policy's replicas at an instant: those of the spec, of the schedules that hold, and of the fallback."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from controller.api.scaling_policy import ScalingPolicySpec, Schedule


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lowest and highest number of replicas."""

    low: int
    high: int
    scheduled: str = ""
    """Names of the schedules that hold; empty: none."""


def bounds_at(spec: ScalingPolicySpec, at_s: float, sample_age_s: float) -> Bounds:
    """Bounds at an instant (seconds since the epoch).

    The fallback raises the lower one during an outage of the metrics. It never lowers anything: an outage of the
    metrics must not take capacity away (KEDA issue 6659). sample_age_s: age of the last sample of the load.
    """
    now = [each for each in spec.schedules if holds(each, at_s)]
    low = _highest((each.min_replicas for each in now), spec.min_replicas)
    high = _highest((each.max_replicas for each in now), spec.max_replicas)
    if spec.fallback is not None and sample_age_s >= spec.fallback.after:
        low = max(low, spec.fallback.replicas)
    return Bounds(min(low, high), high, ", ".join(each.name for each in now))


def _highest(scheduled: Iterable[int | None], default: int) -> int:
    return max((each for each in scheduled if each is not None), default=default)


def holds(schedule: Schedule, at_s: float) -> bool:
    """Whether a schedule holds at an instant, by the clocks of its time zone."""
    local = datetime.fromtimestamp(at_s, ZoneInfo(schedule.timezone))
    time = local.strftime("%H:%M")
    if schedule.start < schedule.end:
        return schedule.start <= time < schedule.end and _starts_on(schedule, local)
    return (time >= schedule.start and _starts_on(schedule, local)) or (
        time < schedule.end and _starts_on(schedule, local - timedelta(days=1))
    )


def _starts_on(schedule: Schedule, local: datetime) -> bool:
    return not schedule.days or _DAYS[local.weekday()] in schedule.days


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
