"""Concurrency limit of one policy: the safe bandit's decision on its last observation, with the reason in words."""

from autoscaler.concurrency.safe_bandit import SafeBandit
from autoscaler.concurrency.tuner import Reason, Rules
from cluster.autoscaling import BanditState, ConcurrencyLimit, ConcurrencyTuning, Observation

UNDECIDED = (ArithmeticError, ValueError, IndexError)
"""Errors of a decision on figures that make no sense, as another writer's status may hold them."""

_WORDS: dict[Reason, str] = {
    "Breach": "p95 was above the bound, so the last safe limit is back",
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


def limit_of(scaler: str, tuning: ConcurrencyTuning) -> ConcurrencyLimit | None:
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
        return ConcurrencyLimit(scaler, tuning.seen_at_s, tuning.in_force, "NoData", words, BanditState())
    words = f"{_figures(tuning.seen, decision.limit)}; {_WORDS[decision.reason]}"
    return ConcurrencyLimit(scaler, tuning.seen_at_s, decision.limit, decision.reason, words, decision.state)


def _figures(seen: Observation, limit: int) -> str:
    if not seen.complete:
        return f"{limit} requests at once"
    return (
        f"{limit} requests at once, now {seen.limit}; {seen.in_flight:.4g} were in flight, p95 {seen.p95_s:.4g} s, "
        f"throughput {seen.throughput:.4g}/s by replica"
    )
