"""Safe bandit: the highest throughput among the limits whose p95 is predicted to keep the guard.

Each decision looks at a few limits within one step of the present one. A Gaussian process over the logarithm of the
limit (surrogate.py) predicts throughput and p95 of each from what was observed before; a limit is safe when the guard
lies `_MARGIN` standard deviations above the prediction. The safe limit with the highest predicted throughput is next.
The prior of the throughput rises with the limit, so untried limits above are tried as soon as they are safe.

After SafeOpt (Sui et al., ICML 2015) and its contextual form (Fiducioso et al., IJCAI 2019). It differs from them: the
choice is the mean's maximum without a bonus for uncertainty, which changed no figure of benchmarks.concurrency; and
old observations fade.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.concurrency.learned import Seen, distance, learn, noise, samples
from autoscaler.concurrency.surrogate import Prior, predicted
from autoscaler.concurrency.tuner import Decision, Reason, Rules
from cluster.arrays import BoolArray
from cluster.autoscaling import BanditState, Context, Learned, Observation, Pool

STEP = 1.25
"""Largest ratio of a raised limit to the present one (or one request more, where that is less)."""
MOST_CONTEXTS = 8
"""Number of contexts that are remembered, those used last."""
_HIGHER = (1.12, STEP)
"""Ratios of candidates to the present limit; the others are one request more, one less, and a whole step down."""

_MARGIN = 2.6
"""Standard deviations between a safe prediction and the guard: one normal value in 200 exceeds it, half of the breaches
that are allowed (1 % of intervals)."""
_WORTH = 0.005
"""Relative gain of throughput below which the limit stays: halves the number of changes at the same goodput."""
_FULL_MEMORY = 0.97
"""Share of the KV cache that a raised limit may be expected to fill: beyond it, requests are preempted."""
_BINDING = 0.9
"""Requests in flight, as a fraction of the limit, from which the limit is what bounds the throughput."""
_FEW = 20
"""Number of requests without which no 95th percentile is formed: fewer have none beyond it."""
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

    def first(self) -> BanditState:
        return BanditState()

    def decide(self, state: BanditState, seen: Observation) -> Decision[BanditState]:
        state = replace(state, decisions=state.decisions + 1)
        if seen.scaling:
            return Decision(seen.limit, "Scaling", replace(state, pool=Pool()))
        known = self._known(state, seen.context)
        if seen.context != state.context:
            known = replace(known, limit=self.rules.clipped(min(known.limit, seen.limit)))
            return Decision(known.limit, "ContextChanged", _with(state, known, Pool()))
        if not seen.complete:
            return Decision(seen.limit, "NoData", state)
        pool = _pooled(state.pool, seen)
        if pool.requests < _FEW:
            return Decision(seen.limit, "FewRequests", replace(state, pool=pool))
        known, reason = self._learned(known, pool, seen)
        return Decision(known.limit, reason, _with(state, known, Pool()))

    def _known(self, state: BanditState, context: Context) -> Learned:
        known = next((each for each in state.learned if each.context == context), None)
        known = known or Learned(context, 0, self.rules.clipped(self.rules.start), ceiling=float(self.rules.highest))
        return replace(known, used_at=state.decisions)

    def _learned(self, known: Learned, pool: Pool, seen: Observation) -> tuple[Learned, Reason]:
        """Knowledge, with the next limit, after enough requests under one limit."""
        breach = pool.log_p95 > math.log(self.rules.guard_s)
        if not breach and seen.in_flight < _BINDING * seen.limit:
            return replace(known, limit=seen.limit), "NotBinding"
        measured = Seen(seen.limit, math.log(pool.throughput), pool.log_p95, pool.requests)
        known = learn(known, measured, breach=breach)
        if breach:
            limit = self._reverted(known, measured)
            # A revert may be far; the broken limit says nothing about those more than a step below it.
            return replace(known, limit=limit, ceiling=max(limit, seen.limit / STEP)), "Breach"
        known = replace(known, ceiling=min(known.ceiling * _CEILING_GROWTH, float(self.rules.highest)))
        return self._stepped(known, measured, _seats(seen))

    def _stepped(self, known: Learned, seen: Seen, seats: float) -> tuple[Learned, Reason]:
        """Best safe limit within a step. seats: requests at once that the memory holds."""
        now = seen.limit
        most = min(known.ceiling, seats, raised(now))
        candidates = sorted({self.rules.clipped(each) for each in _near(now) if each <= max(now, most)})
        safe = self._is_safe(known, seen, candidates)
        if not safe.any():
            return replace(known, limit=candidates[0]), "Unsafe"
        throughput, _ = predicted(_THROUGHPUT, samples(known, now, seen.requests)[0], distance(candidates, now))
        worth = throughput + _WORTH * (np.array(candidates) == now)
        limit = candidates[int(np.argmax(np.where(safe, worth, -np.inf)))]
        reason: Reason = "Raised" if limit > now else "Lowered" if limit < now else "Settled"
        return replace(known, limit=limit), reason

    def _reverted(self, known: Learned, seen: Seen) -> int:
        """Highest safe limit below one that broke the guard; where none is known, the one by Little's law: of a
        saturated replica, latency is proportional to the requests at once."""
        now = seen.limit
        proportional = int(now * self.rules.guard_s / math.exp(seen.p95))
        lower = [each for each in (*_near(now), proportional) if each < now]
        candidates = sorted({self.rules.clipped(each) for each in lower if each >= 1} or {self.rules.lowest})
        safe = self._is_safe(known, seen, candidates)
        return max((each for each, kept in zip(candidates, safe, strict=True) if kept), default=candidates[0])

    def _is_safe(self, known: Learned, seen: Seen, candidates: Sequence[int]) -> BoolArray:
        """Whether p95 of one interval under each limit will keep the guard; shape (candidates,)."""
        p95, variance = predicted(
            _LATENCY, samples(known, seen.limit, seen.requests)[1], distance(candidates, seen.limit)
        )
        spread = np.sqrt(variance + noise(known, seen.requests)[1])
        safe: BoolArray = p95 + _MARGIN * spread <= math.log(self.rules.guard_s)
        return safe


def raised(limit: int) -> int:
    """Highest limit that one step reaches."""
    return max(int(limit * STEP), limit + 1)


def _near(limit: int) -> tuple[int, ...]:
    """Limits within a step, the present one among them."""
    return math.ceil(limit / STEP), limit - 1, limit, limit + 1, *(int(limit * ratio) for ratio in _HIGHER)


def _seats(seen: Observation) -> float:
    """Requests at once that fill the memory; infinite where its use is unknown."""
    if not seen.memory_share > 0:
        return math.inf
    return _FULL_MEMORY * seen.in_flight / seen.memory_share


def _pooled(pool: Pool, seen: Observation) -> Pool:
    """Pool with one more interval; a new one where the limit changed."""
    if pool.limit != seen.limit:
        pool = Pool(seen.limit)
    intervals, requests = pool.intervals + 1, pool.requests + seen.requests
    return Pool(
        seen.limit,
        intervals,
        requests,
        pool.throughput + (seen.throughput - pool.throughput) / intervals,
        pool.log_p95 + (math.log(seen.p95_s) - pool.log_p95) * seen.requests / requests,
    )


def _with(state: BanditState, known: Learned, pool: Pool) -> BanditState:
    others = (each for each in state.learned if each.context != known.context)
    return replace(state, context=known.context, learned=(known, *others)[:MOST_CONTEXTS], pool=pool)
