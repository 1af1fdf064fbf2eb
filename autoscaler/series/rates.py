"""Counter rates: increases per second of a counter that restarts at zero when its process does."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CounterSample:
    """Reading of a counter."""

    at_s: float
    total: float


def rate_between(before: CounterSample | None, now: CounterSample, longest_s: float) -> float | None:
    """Increase per second from one reading to the next; None where it is not known.

    A lower reading is a restart: the counter rose from zero, so its reading is the increase (as in Prometheus). What
    was counted between the last reading and the restart is lost, so that the rate is a little too low there.
    longest_s: distance of readings from which the increase is no rate of this step any more, but the mean of a gap.
    Readings that are not later than the one before (duplicate, out of order) or not numbers give None.
    """
    if before is None or not 0 < now.at_s - before.at_s <= longest_s:
        return None
    if not (0 <= now.total < float("inf") and 0 <= before.total < float("inf")):
        return None
    risen = now.total - before.total if now.total >= before.total else now.total
    return risen / (now.at_s - before.at_s)
