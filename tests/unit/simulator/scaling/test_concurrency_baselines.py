"""Reference policies behind the tuner's interface: Q-learning and the static limit."""

import math

import msgspec
import pytest

from autoscaler.concurrency.safe_bandit import Rules
from autoscaler.demand.promql import length_bucket
from tests.rigs.scaling.concurrency_baselines import MOST_ENTRIES, QLearning, QState, Static
from tests.unit.autoscaler.concurrency.replica import after, seen

GREEDY = QLearning(Rules(guard_s=8.0), step=4, epsilon=0.0)


def test_a_static_limit_stays() -> None:
    assert after(Static(7), 5, 7).limit == 7


def test_q_learning_moves_by_its_step_within_the_bounds() -> None:
    tuner = QLearning(Rules(guard_s=8.0, lowest=2, highest=40), step=20)
    decision = after(tuner, 1, 8)
    for _ in range(100):
        before, decision = decision, after(tuner, 1, decision.limit, seen, decision.state)
        assert 2 <= decision.limit <= 40
        assert abs(decision.limit - before.limit) <= 20


def test_a_reward_is_throughput_and_latency_against_the_first_observation() -> None:
    first = GREEDY.decide(GREEDY.first(), seen(8))

    second = GREEDY.decide(first.state, seen(first.limit, throughput=3 * seen(8).throughput, p95_s=2 * seen(8).p95_s))

    # 3 for the throughput + 0.5 for the latency, learned at a rate of 0.5 from a value of 0.
    assert second.state.table[0].value == pytest.approx(0.5 * 3.5)


@pytest.mark.parametrize("lost", [{"p95_s": math.nan}, {"scaling": True}])
def test_an_interval_without_figures_holds_and_rewards_nothing(lost: dict[str, object]) -> None:
    before = after(GREEDY, 5, 8)

    held = GREEDY.decide(before.state, seen(before.limit, **lost))

    assert held.limit == before.limit
    assert held.state.table == before.state.table
    assert held.state.before is None


def test_the_same_seed_explores_alike_and_a_restart_continues() -> None:
    tuner = QLearning(Rules(guard_s=8.0), step=4, epsilon=0.5, seed=3)
    before = after(tuner, 20, 8)
    stored = msgspec.json.decode(msgspec.json.encode(before.state), type=QState)

    assert after(tuner, 20, before.limit, seen, stored) == after(tuner, 20, before.limit, seen, before.state)


def test_the_table_is_bounded() -> None:
    tuner = QLearning(Rules(guard_s=8.0, highest=4096), step=1, epsilon=1.0)
    state = tuner.first()
    for number in range(1500):
        state = tuner.decide(state, seen(1 + number)).state

    assert len(state.table) == MOST_ENTRIES


def test_buckets_of_lengths_span_a_factor_of_four() -> None:
    assert [length_bucket(tokens) for tokens in (0, 1, 3, 4, 15, 16, 63, 64, 4096)] == [0, 0, 0, 1, 1, 2, 2, 3, 6]
