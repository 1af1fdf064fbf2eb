"""Simple rules for the concurrency limit, as rivals of the safe bandit."""

import math
from dataclasses import dataclass, replace

from autoscaler.concurrency.tuner import Decision, Rules
from cluster.autoscaling import Observation

_BINDING = 0.9


@dataclass(frozen=True, slots=True)
class Aimd:
    """Additive increase, multiplicative decrease: one more with each interval that keeps the guard, a tenth fewer with
    each that breaks it (the AIMD limit of Netflix's concurrency-limits)."""

    rules: Rules
    backoff: float = 0.9

    def first(self) -> tuple[()]:
        return ()

    def decide(self, state: tuple[()], seen: Observation) -> Decision[tuple[()]]:
        if seen.scaling or not seen.complete:
            return Decision(seen.limit, "Scaling" if seen.scaling else "NoData", state)
        if seen.p95_s > self.rules.guard_s:
            return Decision(self.rules.clipped(seen.limit * self.backoff), "Breach", state)
        if seen.in_flight < _BINDING * seen.limit:
            return Decision(seen.limit, "NotBinding", state)
        return Decision(self.rules.clipped(seen.limit + 1), "Raised", state)


@dataclass(frozen=True, slots=True)
class Tried:
    """Means of what was observed under one limit."""

    limit: int
    count: int
    throughput: float
    log_p95: float


@dataclass(frozen=True, slots=True)
class Climbed:
    """What a hill climber remembers."""

    ceiling: float = math.inf
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True, slots=True)
class HillClimb:
    """Hill climbing with a margin: the largest step up whose p95, were it proportional to the limit, keeps the guard by
    a margin; back where throughput did not rise. Same steps and ceiling as the safe bandit, no model."""

    rules: Rules
    margin: float = 0.1
    """Room between p95 and the guard, as a difference of logarithms. Chosen as the best of 0.05, 0.1 and 0.2."""

    def first(self) -> Climbed:
        return Climbed()

    def decide(self, state: Climbed, seen: Observation) -> Decision[Climbed]:
        if seen.scaling or not seen.complete:
            return Decision(seen.limit, "Scaling" if seen.scaling else "NoData", state)
        if seen.p95_s > self.rules.guard_s:
            lower = self.rules.clipped(seen.limit / 1.12)
            return Decision(lower, "Breach", replace(state, ceiling=float(lower)))
        if seen.in_flight < _BINDING * seen.limit:
            return Decision(seen.limit, "NotBinding", state)
        own = _after(state, seen)
        others = tuple(each for each in state.tried if each.limit != seen.limit)
        state = Climbed(state.ceiling * 1.0005, (own, *others)[:16])
        below = max((each for each in others if each.limit < seen.limit), key=lambda each: each.limit, default=None)
        if below is not None and own.count >= 3 and below.throughput > 1.01 * own.throughput:
            return Decision(below.limit, "Lowered", state)
        limit = self._above(state, own)
        return Decision(limit, "Raised" if limit > own.limit else "Settled", state)

    def _above(self, state: Climbed, own: Tried) -> int:
        known = {each.limit: each for each in state.tried}
        for ratio in (1.25, 1.12, 1.05):
            limit = max(int(own.limit * ratio), own.limit + 1)
            failed = limit in known and known[limit].count >= 3 and known[limit].throughput < 1.01 * own.throughput
            predicted = own.log_p95 + math.log(limit / own.limit) + self.margin
            allowed = limit <= min(state.ceiling, self.rules.highest) and predicted <= math.log(self.rules.guard_s)
            if allowed and not failed:
                return limit
        return own.limit


def _after(state: Climbed, seen: Observation) -> Tried:
    """Means under a limit after one more interval, over the last 20 or so."""
    before = next((each for each in state.tried if each.limit == seen.limit), Tried(seen.limit, 0, 0.0, 0.0))
    count = min(before.count + 1, 20)
    return Tried(
        seen.limit,
        count,
        before.throughput + (seen.throughput - before.throughput) / count,
        before.log_p95 + (math.log(seen.p95_s) - before.log_p95) / count,
    )
