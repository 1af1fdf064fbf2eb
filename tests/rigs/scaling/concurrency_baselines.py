"""Rules for the concurrency limit that the safe bandit is compared with."""

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from autoscaler.concurrency.safe_bandit import Decision, Reason, Rules, S
from cluster.autoscaling import Observation

_BINDING = 0.9


class Tuner(Protocol[S]):
    """Policy for the concurrency limit.

    It keeps nothing itself. Its state is frozen dataclasses of numbers, strings and tuples, bounded in size, so that it
    fits into a resource's status and a restart continues from there.
    """

    def first(self) -> S:
        """State before the first observation."""
        ...

    def decide(self, state: S, seen: Observation) -> Decision[S]:
        """Limit after an interval."""
        ...


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
        # Means under a limit after one more interval, over the last 20 or so.
        before = next((each for each in state.tried if each.limit == seen.limit), Tried(seen.limit, 0, 0.0, 0.0))
        count = min(before.count + 1, 20)
        own = Tried(
            seen.limit,
            count,
            before.throughput + (seen.throughput - before.throughput) / count,
            before.log_p95 + (math.log(seen.p95_s) - before.log_p95) / count,
        )
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


MOST_ENTRIES = 512
"""Number of values that are remembered, those that changed last."""
_ACTIONS = (-1, 0, 1)


@dataclass(frozen=True, slots=True, order=True)
class Situation:
    """State of the table: a limit, and bins of mean utilisation; -1: not measured."""

    limit: int
    compute: int
    memory: int


@dataclass(frozen=True, slots=True)
class Entry:
    """Value of an action in a situation."""

    situation: Situation
    action: int
    """Number of steps: -1, 0 or 1."""
    value: float


@dataclass(frozen=True, slots=True)
class QState:
    """All that Q-learning remembers."""

    decisions: int = 0
    before: tuple[Situation, int] | None = None
    """Situation and action of the decision before."""
    reference: tuple[float, float] | None = None
    """Throughput and p95 in seconds that rewards compare with."""
    table: tuple[Entry, ...] = ()
    """At most MOST_ENTRIES, the last changed first."""


@dataclass(frozen=True, slots=True)
class QLearning:
    """Tuner that explores by chance. It knows no guard: latency counts in the reward alone.

    Schuler, Jamil & Kühl, "AI-based Resource Allocation: Reinforcement Learning for Adaptive Auto-scaling in Serverless
    Environments" (arXiv 2005.14410): the state is the limit with mean CPU and mean memory, the actions are a step down,
    none and a step up, the reward is throughput against a reference plus reference p95 against p95, the policy is
    epsilon-greedy.
    Learning rate, discount, epsilon and bins are not known from it and are chosen; benchmarks.concurrency also runs the
    step and epsilon that did best there in hindsight. The reference is the first complete observation.
    """

    rules: Rules
    step: int = 20
    """Change of the limit by an action; the paper's."""
    learning_rate: float = 0.5
    discount: float = 0.5
    epsilon: float = 0.1
    """Probability of an action by chance."""
    bins: int = 4
    seed: int = 0

    def first(self) -> QState:
        return QState()

    def decide(self, state: QState, seen: Observation) -> Decision[QState]:
        state = replace(state, decisions=state.decisions + 1)
        if seen.scaling or not seen.complete:
            # The interval says nothing about the action before it, so no reward is booked for it.
            return Decision(seen.limit, "Scaling" if seen.scaling else "NoData", replace(state, before=None))
        situation = Situation(seen.limit, self._bin(seen.compute_share), self._bin(seen.memory_share))
        reference = state.reference or (seen.throughput, seen.p95_s)
        table = state.table
        if state.before is not None:
            # Table after one reward.
            reward = seen.throughput / reference[0] + reference[1] / seen.p95_s
            old = _value(table, *state.before)
            best = max(_value(table, situation, action) for action in _ACTIONS)
            new = Entry(*state.before, old + self.learning_rate * (reward + self.discount * best - old))
            others = (each for each in table if (each.situation, each.action) != state.before)
            table = (new, *others)[:MOST_ENTRIES]
        action = self._action(table, situation, state.decisions)
        limit = self.rules.clipped(seen.limit + action * self.step)
        reason: Reason = "Raised" if limit > seen.limit else "Lowered" if limit < seen.limit else "Settled"
        return Decision(limit, reason, QState(state.decisions, (situation, action), reference, table))

    def _bin(self, share: float) -> int:
        return min(int(share * self.bins), self.bins - 1) if math.isfinite(share) else -1

    def _action(self, table: tuple[Entry, ...], situation: Situation, decisions: int) -> int:
        """Action by chance, or the one with the highest value; among equals, by chance."""
        chance = np.random.default_rng((self.seed, decisions))
        values = np.array([_value(table, situation, action) for action in _ACTIONS])
        if chance.random() < self.epsilon:
            return _ACTIONS[int(chance.integers(len(_ACTIONS)))]
        return _ACTIONS[int(chance.choice(np.flatnonzero(values == values.max())))]


def _value(table: tuple[Entry, ...], situation: Situation, action: int) -> float:
    """Value of an action; 0 where it was never tried."""
    return next((each.value for each in table if each.situation == situation and each.action == action), 0.0)


@dataclass(frozen=True, slots=True)
class Static:
    """Tuner that never changes its limit; its state is empty."""

    limit: int

    def first(self) -> tuple[()]:
        return ()

    def decide(self, state: tuple[()], seen: Observation) -> Decision[tuple[()]]:
        return Decision(self.limit, "Fixed", state)
