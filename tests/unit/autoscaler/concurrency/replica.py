"""Observations of a replica whose throughput and latency are known, without chance."""

from collections.abc import Callable
from dataclasses import replace

from autoscaler.concurrency.safe_bandit import Decision, S
from cluster.autoscaling import Context, Observation
from tests.rigs.scaling.concurrency_baselines import Tuner

CHAT, CODE = Context("A100", 4, 3), Context("A100", 6, 2)

Serve = Callable[[int], Observation]
"""Observation of an interval under a limit."""


def seen(limit: int, **changed: object) -> Observation:
    """A saturated replica whose requests take 1 + k/10 seconds where k are served at once."""
    latency_s = 1 + limit / 10
    usual = Observation(
        limit=limit,
        context=CHAT,
        throughput=limit / latency_s,
        requests=500,
        p95_s=2 * latency_s,
        in_flight=float(limit),
    )
    return replace(usual, **changed)  # type: ignore[arg-type]


def peaking(limit: int) -> Observation:
    """A replica whose throughput is highest at 20 requests at once: they take 1 + k/10 + (k/20)² seconds."""
    latency_s = 1 + limit / 10 + (limit / 20) ** 2
    return seen(limit, throughput=limit / latency_s, p95_s=2 * latency_s)


def after(tuner: Tuner[S], intervals: int, limit: int, serve: Serve = seen, state: S | None = None) -> Decision[S]:
    """Last decision of so many intervals that begin under a limit."""
    decision = Decision(limit, "Fixed", tuner.first() if state is None else state)
    for _ in range(intervals):
        decision = tuner.decide(decision.state, serve(decision.limit))
    return decision
