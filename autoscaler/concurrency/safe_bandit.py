"""Safe bandit: the highest throughput among the limits whose p95 is predicted to keep the guard.

Each decision looks at a few limits within one step of the present one. A Gaussian process over the logarithm of the
limit predicts throughput and p95 of each from what was observed before; a limit is safe when the p95 that would break
the guard with confidence lies `_MARGIN` standard deviations above the prediction. The safe limit with the highest
predicted throughput is next. The prior of the throughput rises with the limit, so untried limits above are tried as
soon as they are safe.

After SafeOpt (Sui et al., ICML 2015) and its contextual form (Fiducioso et al., IJCAI 2019). It differs from them: the
choice is the mean's maximum without a bonus for uncertainty, which changed no figure of benchmarks.concurrency; and
old observations fade.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Generic, Literal, TypeVar

import numpy as np

from cluster import autoscaling
from cluster.arrays import BoolArray, FloatArray

Reason = Literal[
    "Breach",
    "ContextChanged",
    "FewRequests",
    "Fixed",
    "Lowered",
    "NoData",
    "NotBinding",
    "Raised",
    "Scaling",
    "Settled",
    "Unsafe",
]
"""Cause of a limit; `_WORDS` says it in words. Fixed: the policy does not learn."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits within which a tuner works."""

    guard_s: float
    """Highest p95 latency, seconds."""
    start: int = 8
    """Highest limit for a context that was never seen."""
    lowest: int = 1
    highest: int = 1024

    def clipped(self, limit: float) -> int:
        """Whole limit within the bounds."""
        return max(self.lowest, min(self.highest, int(limit)))


S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Decision(Generic[S]):
    """Limit for the next interval."""

    limit: int
    reason: Reason
    state: S
    """State for the next decision."""


_LEVEL = 1.0
"""Standard deviation of the trend's level around the mean of the samples: wide."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Belief before any sample about log quantity = level + slope u + curvature u², where u = log(limit / present)."""

    slope: float
    slope_error: float
    """Standard deviation."""
    curvature: float
    curvature_error: float
    misfit: float
    """Standard deviation of the curve around the trend."""
    length: float
    """Distance in u over which the curve leaves the trend (scale of the Matérn 3/2 kernel)."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """What was observed, one entry per limit; each of shape (limits,)."""

    u: FloatArray
    log_value: FloatArray
    variance: FloatArray
    """Variance of `log_value`, the mean of the observations at that limit."""


def predicted(prior: Prior, samples: Samples, u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of log quantity at each u, without the noise of an observation.

    u and both results: shape (candidates,). At least one sample is needed.
    """
    level = np.average(samples.log_value, weights=1 / samples.variance)
    trend = np.array([level, prior.slope, prior.curvature])
    gain = np.linalg.solve(
        _covariance(prior, samples.u, samples.u) + np.diag(samples.variance), _covariance(prior, samples.u, u)
    )
    mean = _features(u) @ trend + (samples.log_value - _features(samples.u) @ trend) @ gain
    variance = np.diag(_covariance(prior, u, u)) - (gain * _covariance(prior, samples.u, u)).sum(axis=0)
    return mean, np.maximum(variance, 0.0)


def _covariance(prior: Prior, one: FloatArray, other: FloatArray) -> FloatArray:
    """Covariance of log quantity at the points of one and other; shape (one, other)."""
    spread = np.array([_LEVEL, prior.slope_error, prior.curvature_error]) ** 2
    distance = np.sqrt(3.0) / prior.length * np.abs(one[:, None] - other[None, :])
    trend: FloatArray = (_features(one) * spread) @ _features(other).T
    around: FloatArray = prior.misfit**2 * (1 + distance) * np.exp(-distance)
    return trend + around


def _features(u: FloatArray) -> FloatArray:
    return np.stack([np.ones_like(u), u, u**2], axis=1)


MOST_ARMS = 16
"""Number of limits that are remembered, those with the most weight (chosen: a search tries 5 to 15)."""
FADE = 0.98
"""Fading of older observations with each new one: half of the weight is gone after 34."""
_FADE_AT_SHIFT = 0.02
"""Fading at a shift of the workload: old means remain only as a hint."""
_SURPRISE = 4.0
"""Number of standard errors by which no mean is missed by chance: one normal observation in 16,000 lies further off."""
_KNOWN_WEIGHT = 3.0
"""Weight from which a mean is known well enough for a surprise."""

_USUAL_RATIO = 0.5
"""Logarithm of p95 over mean latency before any observation: log latency has a standard deviation of 0.34 (chosen)."""
_USUAL_WEIGHT = 2.0
"""Number of observations that it counts for."""
_NARROWEST = 0.1
_NORMAL = NormalDist()
_Z95 = 1.645
"""95th percentile of standard normal values."""
_SPEED_ERROR = 0.03
"""Relative standard deviation of a replica's speed from interval to interval that is assumed likewise (chosen)."""
_ASSUMED_WEIGHT = 5.0
"""Number of observations that these assumptions count for."""
_UNSHARED = 2.0
"""Requests that are added to a limit before its logarithm is taken. The first few requests hardly share a replica, so
from 2 to 3 at once latency grows by much less than half. In log(limit) that step never looked safe: 0.47 of the best
static limit's goodput in the worst of 240 runs, 0.75 so."""
_QUANTILE_ERROR = 2.11
"""Standard error of the 95th percentile of n standard normal values, times √n: √(0.95 × 0.05) / density(1.645)."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Logarithms of what one observation measured."""

    limit: int
    throughput: float
    p95: float
    requests: int
    """Number of requests behind it."""


def learn(known: autoscaling.Learned, seen: Seen, *, breach: bool) -> autoscaling.Learned:
    """Knowledge after one more observation.

    A surprise is kept apart until a second one follows: one may be an outlier, two are a shift of the workload, after
    which old means hardly count. With a breach, one is enough.
    """
    arm = next((arm for arm in known.arms if arm.limit == seen.limit), None)
    if arm is None:
        return _mixed(
            replace(known, surprised=False), autoscaling.Arm(seen.limit, 0.0, seen.throughput, seen.p95), seen, FADE
        )
    if not _is_surprise(known, arm, seen):
        return _mixed(_scattered(replace(known, surprised=False), arm, seen), arm, seen, FADE)
    if not (known.surprised or breach):
        return replace(known, surprised=True)
    return _mixed(replace(known, surprised=False), arm, seen, _FADE_AT_SHIFT)


def sampling(known: autoscaling.Learned, requests: int) -> float:
    """Standard error of log p95 of so many requests, by the spread s of their log latency.

    It follows from their mean, which is requests at once over throughput: of lognormal latencies, log(p95 / mean) is
    z s - s² / 2. A heavier tail counts as the widest of them.
    """
    weights = [_USUAL_WEIGHT, *(arm.weight for arm in known.arms)]
    ratios = [_USUAL_RATIO, *(arm.p95 + arm.throughput - math.log(arm.limit) for arm in known.arms)]
    ratio = float(np.average(ratios, weights=weights))
    spread = max(_NARROWEST, _Z95 - math.sqrt(max(_Z95**2 - 2 * ratio, 0.0)))
    return spread * _QUANTILE_ERROR / math.sqrt(requests)


def highest_of(requests: int) -> float:
    """Standard errors by which the measured p95 of so many requests is above the true one when its rank is `_RANKS`
    ones higher: more for a hundred requests, whose few highest are far apart, and less for fifty, which have none
    there."""
    rank = min(0.95 + _RANKS * math.sqrt(0.95 * 0.05 / requests), max(1 - 0.5 / requests, 0.95))
    return min(_MOST_ERRORS, (_NORMAL.inv_cdf(rank) - _Z95) * math.sqrt(requests) / _QUANTILE_ERROR)


def noise(known: autoscaling.Learned, requests: int) -> tuple[float, float]:
    """Variances of one observation of log throughput and of log p95 with so many requests: first the assumed ones, then
    more and more the observed scatter."""
    assumed = (_SPEED_ERROR**2 + 1 / requests, _SPEED_ERROR**2 + sampling(known, requests) ** 2)
    share = known.scatter_weight / (known.scatter_weight + _ASSUMED_WEIGHT)
    return (
        share * known.throughput_scatter + (1 - share) * assumed[0],
        share * known.p95_scatter + (1 - share) * assumed[1],
    )


def distance(limits: Sequence[int], limit: int) -> FloatArray:
    """Distance u of each limit from one, as a difference of log(limit + _UNSHARED); shape (limits,)."""
    return np.log((np.array(limits) + _UNSHARED) / (limit + _UNSHARED))


def samples(known: autoscaling.Learned, seen: Seen) -> tuple[Samples, Samples]:
    """Log throughput and log p95 of the remembered limits, by their distance from the present one.

    Without those above the ceiling: beyond a full KV cache they would bend the curve below it. With them, a search that
    began there settled at 0.65 of the best static limit's goodput, without at 0.95 (worst of 12 seeds).
    """
    arms = [arm for arm in known.arms if arm.limit <= max(known.ceiling, seen.limit)]
    u = distance([arm.limit for arm in arms], seen.limit)
    weight = np.array([arm.weight for arm in arms])
    throughput, p95 = noise(known, seen.requests)
    return (
        Samples(u, np.array([arm.throughput for arm in arms]), throughput / weight),
        Samples(u, np.array([arm.p95 for arm in arms]), p95 / weight),
    )


def _is_surprise(known: autoscaling.Learned, arm: autoscaling.Arm, seen: Seen) -> bool:
    throughput, p95 = (math.sqrt(each * (1 + 1 / arm.weight)) for each in noise(known, seen.requests))
    far = abs(seen.throughput - arm.throughput) > _SURPRISE * throughput or abs(seen.p95 - arm.p95) > _SURPRISE * p95
    return far and arm.weight >= _KNOWN_WEIGHT


def _mixed(known: autoscaling.Learned, arm: autoscaling.Arm, seen: Seen, fade: float) -> autoscaling.Learned:
    """Knowledge with one observation mixed into an arm, after all arms have faded."""
    weight = arm.weight * fade + 1
    mixed = autoscaling.Arm(
        arm.limit,
        weight,
        arm.throughput + (seen.throughput - arm.throughput) / weight,
        arm.p95 + (seen.p95 - arm.p95) / weight,
    )
    others = (replace(other, weight=other.weight * fade) for other in known.arms if other.limit != arm.limit)
    kept = sorted((mixed, *others), key=lambda each: -each.weight)[:MOST_ARMS]
    return replace(known, arms=tuple(sorted(kept, key=lambda each: each.limit)))


def _scattered(known: autoscaling.Learned, arm: autoscaling.Arm, seen: Seen) -> autoscaling.Learned:
    """Knowledge with the scatter that one observation adds.

    The gap between a value and the mean of n others varies by (n + 1) / n times their variance.
    """
    unbiased = arm.weight / (arm.weight + 1)
    weight = known.scatter_weight * FADE + 1
    return replace(
        known,
        throughput_scatter=_moved(known.throughput_scatter, unbiased * (seen.throughput - arm.throughput) ** 2, weight),
        p95_scatter=_moved(known.p95_scatter, unbiased * (seen.p95 - arm.p95) ** 2, weight),
        scatter_weight=weight,
    )


def _moved(mean: float, value: float, weight: float) -> float:
    return mean + (value - mean) / weight


STEP = 1.25
"""Largest ratio of a raised limit to the present one (or one request more, where that is less)."""
MOST_CONTEXTS = 8
"""Number of contexts that are remembered, those used last."""
_HIGHER = (1.12, STEP)
"""Ratios of candidates to the present limit; the others are one request more, one less, and a whole step down."""

_MARGIN = 2.9
"""Standard deviations between a safe prediction and a breach, of all but the chance of p95's rank: one normal value in
500 exceeds it, a fifth of the breaches that are allowed (1 % of intervals); the others come while it learns."""
_RANKS = 2.0
"""Standard errors of its rank by which a measured p95 may be higher. Chosen on seeds 201-210: with 2.33 the worst heavy
tail has 0.55 of the best static limit's goodput."""
_MOST_ERRORS = 3.0
"""Most standard errors that are allowed for it. Without this bound, a limit at which some eighty requests end was not
raised any more in one of twenty runs with heavy tails: 0.55 of the goodput, 0.78 so."""
_EVIDENT = 1.645
"""Standard errors above the guard from which p95 breaks it: with 95 % confidence. That of few requests says little, and
limits that fell on it made it say less: with heavy tails, one run ended at a quarter of the best static goodput."""
_HARDLY_SLOWER = 0.1
"""Difference of log p95 that is not worth a lower limit where the guard cannot be kept."""
_WORTH = 0.005
"""Relative gain of throughput below which the limit stays: halves the number of changes at the same goodput."""
_FULL_MEMORY = 0.97
"""Share of the KV cache that a raised limit may be expected to fill: beyond it, requests are preempted."""
_BINDING = 0.9
"""Requests in flight, as a fraction of the limit, from which the limit is what bounds the throughput."""
_FEW = 20
"""Number of requests without which no 95th percentile is formed: fewer have none beyond it."""
_ENOUGH = 80
"""Number of requests from which a limit without a breach is judged. With 20, the margin for the chance of heavy tails
left 0.74 of the best static limit's goodput."""
_CEILING_GROWTH = 1.0005
"""Growth of the ceiling with each observation: a limit 10 % above a breach's is tried again after 190."""

_THROUGHPUT = Prior(0.5, 0.3, -0.1, 0.15, misfit=0.1, length=0.5)
_LATENCY = Prior(0.6, 0.2, 0.1, 0.1, misfit=0.1, length=0.5)
"""Where a server saturates, Little's law bounds the slopes in logarithms: those of throughput and latency add up to 1,
each within 0..1, throughput concave and latency convex. Misfit and length are chosen: with a fifth of the misfit
the guard breaks twice as often where a KV cache fills unseen, and twice the misfit costs 0.5 % of the goodput."""


@dataclass(frozen=True, slots=True)
class SafeBandit:
    """Tuner that learns the limit of each context."""

    rules: Rules

    def first(self) -> autoscaling.BanditState:
        return autoscaling.BanditState()

    def decide(
        self, state: autoscaling.BanditState, seen: autoscaling.Observation
    ) -> Decision[autoscaling.BanditState]:
        state = replace(state, decisions=state.decisions + 1)
        if seen.scaling:
            return Decision(seen.limit, "Scaling", replace(state, pool=autoscaling.Pool()))
        known = self._known(state, seen.context)
        if seen.context != state.context:
            over = 0.0
            if state.context and seen.complete and seen.requests >= _FEW:
                over = math.log(seen.p95_s / self.rules.guard_s) - _EVIDENT * sampling(known, seen.requests)
            known = replace(known, limit=self.rules.clipped(min(known.limit, _lowered(seen.limit, over))))
            return Decision(known.limit, "ContextChanged", _with(state, known, autoscaling.Pool()))
        if not seen.complete:
            return Decision(seen.limit, "NoData", state)
        pool = _pooled(state.pool, seen)
        is_over = pool.log_p95 - math.log(self.rules.guard_s) > _EVIDENT * sampling(known, max(pool.requests, 1))
        if pool.requests < (_FEW if is_over else _ENOUGH):
            return Decision(seen.limit, "FewRequests", replace(state, pool=pool))
        known, reason = self._learned(known, pool, seen)
        return Decision(known.limit, reason, _with(state, known, autoscaling.Pool()))

    def _known(self, state: autoscaling.BanditState, context: autoscaling.Context) -> autoscaling.Learned:
        known = next((each for each in state.learned if each.context == context), None)
        known = known or autoscaling.Learned(
            context, 0, self.rules.clipped(self.rules.start), ceiling=float(self.rules.highest)
        )
        return replace(known, used_at=state.decisions)

    def _learned(
        self, known: autoscaling.Learned, pool: autoscaling.Pool, seen: autoscaling.Observation
    ) -> tuple[autoscaling.Learned, Reason]:
        """Knowledge, with the next limit, after enough requests under one limit."""
        over = pool.log_p95 - math.log(self.rules.guard_s)
        if over <= 0 and seen.in_flight < _BINDING * seen.limit:
            return replace(known, limit=seen.limit), "NotBinding"
        measured = Seen(seen.limit, math.log(pool.throughput), pool.log_p95, pool.requests)
        breach = over > _EVIDENT * sampling(known, pool.requests)
        _, before = samples(known, measured)
        by_chance = False
        if len(before.u):  # whether p95 lies where that of so many requests may lie by what was known of the limit
            p95, variance = predicted(_LATENCY, before, distance([seen.limit], seen.limit))
            error = math.sqrt(float(variance[0]) + noise(known, pool.requests)[1])
            by_chance = measured.p95 - float(p95[0]) <= _SURPRISE * error
        known = learn(known, measured, breach=breach)
        measured = replace(measured, requests=pool.requests // pool.intervals)  # what one interval is judged by
        if breach:
            # Highest safe limit below the broken one; where none is known, the one by the usual slope of latency.
            now = measured.limit
            lower = [each for each in (*_near(now), _lowered(now, over)) if each < now]
            candidates = sorted({self.rules.clipped(each) for each in lower if each >= 1} or {self.rules.lowest})
            safe = self._is_safe(known, measured, candidates)
            kept = [each for each, is_safe in zip(candidates, safe, strict=True) if is_safe]
            limit = max(kept) if kept else self._without_safe(known, measured, candidates[0])
            # A revert may be far; the broken limit says nothing about those more than a step below it, and nothing at
            # all where p95 is no further off than that of so few requests may be.
            ceiling = known.ceiling if by_chance else max(limit, seen.limit / STEP)
            return replace(known, limit=limit, ceiling=ceiling), "Breach"
        known = replace(known, ceiling=min(known.ceiling * _CEILING_GROWTH, float(self.rules.highest)))
        seats = _FULL_MEMORY * seen.in_flight / seen.memory_share if seen.memory_share > 0 else math.inf
        return self._stepped(known, measured, seats)

    def _stepped(self, known: autoscaling.Learned, seen: Seen, seats: float) -> tuple[autoscaling.Learned, Reason]:
        """Best safe limit within a step. seats: requests at once that the memory holds."""
        now = seen.limit
        most = min(known.ceiling, seats, raised(now))
        candidates = sorted({self.rules.clipped(each) for each in _near(now) if each <= max(now, most)})
        safe = self._is_safe(known, seen, candidates)
        if not safe.any():
            return replace(known, limit=self._without_safe(known, seen, candidates[0])), "Unsafe"
        throughput, _ = predicted(_THROUGHPUT, samples(known, seen)[0], distance(candidates, now))
        worth = throughput + _WORTH * (np.array(candidates) == now)
        limit = candidates[int(np.argmax(np.where(safe, worth, -np.inf)))]
        reason: Reason = "Raised" if limit > now else "Lowered" if limit < now else "Settled"
        return replace(known, limit=limit), reason

    def _without_safe(self, known: autoscaling.Learned, seen: Seen, lower: int) -> int:
        """Where no limit is safe: the lower one; where even the lowest breaks the guard, the highest about as fast."""
        lowest = known.arms[0]
        error = math.sqrt(noise(known, seen.requests)[1] / lowest.weight)
        if lowest.limit > self.rules.lowest or lowest.p95 - _EVIDENT * error <= math.log(self.rules.guard_s):
            return lower
        return max(arm.limit for arm in known.arms if arm.p95 <= lowest.p95 + _HARDLY_SLOWER)

    def _is_safe(self, known: autoscaling.Learned, seen: Seen, candidates: Sequence[int]) -> BoolArray:
        """Whether p95 of one interval under each limit will keep the guard; shape (candidates,)."""
        p95, variance = predicted(_LATENCY, samples(known, seen)[1], distance(candidates, seen.limit))
        by_chance = sampling(known, seen.requests)
        tail = by_chance * highest_of(seen.requests)
        scatter = noise(known, seen.requests)[1] - max(by_chance, tail / _MARGIN) ** 2
        others = np.sqrt(variance + max(scatter, _SPEED_ERROR**2))
        highest = math.log(self.rules.guard_s) + _EVIDENT * by_chance
        safe: BoolArray = p95 + np.hypot(_MARGIN * others, tail) <= highest
        return safe


def raised(limit: int) -> int:
    """Highest limit that one step reaches."""
    return max(int(limit * STEP), limit + 1)


def _lowered(limit: int, over: float) -> int:
    """Limit that lowers log p95 by `over`, by the usual slope of latency; the limit itself where it is not over."""
    return int(limit * math.exp(-max(over, 0.0) / _LATENCY.slope))


def _near(limit: int) -> tuple[int, ...]:
    """Limits within a step, the present one among them."""
    return math.ceil(limit / STEP), limit - 1, limit, limit + 1, *(int(limit * ratio) for ratio in _HIGHER)


def _pooled(pool: autoscaling.Pool, seen: autoscaling.Observation) -> autoscaling.Pool:
    """Pool with one more interval; a new one where the limit changed."""
    if pool.limit != seen.limit:
        pool = autoscaling.Pool(seen.limit)
    intervals, requests = pool.intervals + 1, pool.requests + seen.requests
    return autoscaling.Pool(
        seen.limit,
        intervals,
        requests,
        pool.throughput + (seen.throughput - pool.throughput) / intervals,
        pool.log_p95 + (math.log(seen.p95_s) - pool.log_p95) * seen.requests / requests,
    )


def _with(
    state: autoscaling.BanditState, known: autoscaling.Learned, pool: autoscaling.Pool
) -> autoscaling.BanditState:
    others = (each for each in state.learned if each.context != known.context)
    return replace(state, context=known.context, learned=(known, *others)[:MOST_CONTEXTS], pool=pool)


UNDECIDED = (ArithmeticError, ValueError, IndexError)
"""Errors of a decision on figures that make no sense, as another writer's status may hold them."""

_WORDS: dict[Reason, str] = {
    "Breach": "p95 was surely above the bound, so the last safe limit is back",
    "ContextChanged": "requests differ from those before (length, or GPU type), so what was learned of them counts",
    "FewRequests": "too few requests to judge p95 by; they are counted together with those of the next interval",
    "Lowered": "fewer requests at once promise more throughput",
    "NoData": "a figure was missing",
    "NotBinding": "the load does not reach the limit, so nothing can be learned about it",
    "Raised": "more requests at once promise more throughput, within the bound of p95",
    "Scaling": "replicas were being added or removed, so the limit stays",
    "Settled": "no step promises more throughput",
    "Unsafe": "not even the present limit is sure to keep the bound of p95",
}


def limit_of(scaler: str, tuning: autoscaling.ConcurrencyTuning) -> autoscaling.ConcurrencyLimit | None:
    """Limit after the last observation; None where that was decided on before, or there is none.

    A context that was never seen begins under the limit in force. Knowledge that leads to no decision is dropped, and
    the limit in force stays. scaler: `namespace/name` of the policy.
    """
    if tuning.seen is None or not tuning.is_due:
        return None
    rules = Rules(tuning.guard_s, start=tuning.in_force, lowest=tuning.lowest, highest=tuning.highest)
    try:
        decision = SafeBandit(rules).decide(tuning.state, tuning.seen)
    except UNDECIDED as error:
        words = f"what was learned cannot be used and is dropped: {type(error).__name__}: {error}"
        return autoscaling.ConcurrencyLimit(
            scaler, tuning.seen_at_s, tuning.in_force, "NoData", words, autoscaling.BanditState()
        )
    words = f"{_figures(tuning.seen, decision.limit)}; {_WORDS[decision.reason]}"
    return autoscaling.ConcurrencyLimit(
        scaler, tuning.seen_at_s, decision.limit, decision.reason, words, decision.state
    )


def _figures(seen: autoscaling.Observation, limit: int) -> str:
    if not seen.complete:
        return f"{limit} requests at once"
    return (
        f"{limit} requests at once, now {seen.limit}; {seen.in_flight:.4g} were in flight, p95 {seen.p95_s:.4g} s, "
        f"throughput {seen.throughput:.4g}/s by replica"
    )
