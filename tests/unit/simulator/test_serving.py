"""Replay of a mix: the serving model on cases that can be computed by hand."""

from dataclasses import replace

import numpy as np
import pytest

from tests.rigs.serving import ReplayedService, ServingPool, replay_serving


def service(rate: float, instances: int, *, held: float = 10.0, tokens: float = 100.0) -> ReplayedService:
    """One bucket on one pool; an instance holds `held` requests at 0.1 s per token."""
    pool = ServingPool("A100", instances, np.array([held]), np.array([1.0]))
    return ReplayedService(np.array([rate]), np.array([tokens]), 0.1, (pool,))


def test_a_lone_request_takes_the_idle_share_and_its_own_part() -> None:
    # One request a day on an instance for 10: 0.5 + 0.5 × 1/10 = 0.55 of the SLO.
    attained = replay_serving(service(1 / 86_400, 1), router="weights", seed=3, for_s=10 * 86_400)

    assert attained.stretch_p50 == pytest.approx(0.55)
    assert attained.met_share == 1.0


def test_the_fuller_the_instance_the_slower_its_tokens() -> None:
    # Throughput at the SLO is held/(tokens × 0.1 s) = 20 requests/s. With load ρ = 0.8 and half of the step fixed,
    # the mean fill solves u/(0.5 + 0.5·u) = 0.8, so u = 0.4/0.6 = 0.67, and the step is 0.5 + 0.5·0.67 = 0.83.
    attained = replay_serving(service(16.0, 1, held=200), router="weights", seed=3, for_s=1_000)

    assert attained.stretch_p50 == pytest.approx(0.83, abs=0.02)


def test_an_overloaded_instance_misses_its_slo() -> None:
    attained = replay_serving(service(1.5, 1), router="weights", seed=3, for_s=5_000)

    assert attained.met_share < 0.1
    assert attained.stretch_p50 > 1.2


def test_requests_routed_to_a_type_that_cannot_serve_them_are_missed() -> None:
    able = service(0.1, 1)
    unable = ServingPool("L4", 3, np.array([0.0]), np.array([0.0]))
    mixed = replace(able, pools=(*able.pools, unable))

    ours = replay_serving(mixed, router="weights", seed=3, for_s=20_000)
    random = replay_serving(mixed, router="random", seed=3, for_s=20_000)

    # Three of four instances cannot serve the bucket.
    assert ours.met_share == 1.0
    assert random.misrouted_share == pytest.approx(0.75, abs=0.03)
    assert random.met_share == pytest.approx(0.25, abs=0.03)


def test_the_emptiest_instance_is_better_than_any_instance() -> None:
    busy = service(8.5, 10)

    ours = replay_serving(busy, router="weights", seed=3, for_s=3_000)
    random = replay_serving(busy, router="random", seed=3, for_s=3_000)

    assert ours.met_share > random.met_share


def test_the_same_seed_gives_the_same_replay() -> None:
    first, again, other = (
        replay_serving(service(0.9, 1), router="weights", seed=seed, for_s=2_000) for seed in (3, 3, 4)
    )

    assert first == again
    assert first != other
