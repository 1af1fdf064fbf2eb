"""Churn: the offered load, the stays and the comparison of policies on the same demand."""

import numpy as np
import pytest

from cluster.snapshot import Snapshot
from placement.engine.packer import Packer
from placement.policies.published import BestFit
from simulator.openb.generator import generate, trace_of
from simulator.packing.replay import gpu_milli_of, replay
from tests.rigs.packing_churn import STAYS, Churn, churning_stream, mean_allocation_pct


def fleet(nodes: int = 60) -> Snapshot:
    return trace_of(generate(nodes, seed=1), {})


def churn(load: float, stays: str = "exponential") -> Churn:
    return Churn(load, stays, warm_up=1.0, measured=3.0)


@pytest.mark.parametrize("stays", sorted(STAYS))
def test_stays_have_mean_one_and_a_running_pod_has_the_rest_of_a_longer_one(stays: str) -> None:
    chance, kind = np.random.default_rng(3), STAYS[stays]
    fresh = kind.fresh(chance, 400_000)

    assert fresh.mean() == pytest.approx(1.0, rel=0.05)
    # Renewal theory: the mean rest of a stay at a random moment is E[stay^2] / (2 E[stay]).
    residual = kind.residual(chance, 400_000)
    assert np.median(residual) == pytest.approx(np.median(_residuals(fresh)), rel=0.05)


def _residuals(fresh: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Rests of stays at moments spread evenly over all stays laid end to end."""
    ends = np.cumsum(fresh)
    moments = np.linspace(0, ends[-1], 100_000, endpoint=False)
    rests: np.ndarray = ends[np.searchsorted(ends, moments, side="right")] - moments  # type: ignore[type-arg]
    return rests


@pytest.mark.parametrize("stays", sorted(STAYS))
def test_the_pods_that_run_at_a_time_would_hold_the_offered_load(stays: str) -> None:
    seen = fleet()
    stream = churning_stream(seen, 7, churn(0.5, stays))
    _, gpu_milli = gpu_milli_of(seen.pods)
    starts = np.arange(len(stream.pods))
    moments = range(len(stream.pods) // 2, len(stream.pods), 50)
    held = [gpu_milli[stream.pods[(starts <= at) & (starts + stream.stay > at)]].sum() for at in moments]

    assert np.mean(held) / 1000 / seen.nodes.gpus.sum() == pytest.approx(0.5, rel=0.1)


def test_a_fleet_with_room_allocates_the_offered_load() -> None:
    seen = fleet()
    stream = churning_stream(seen, 7, churn(0.3))
    played = replay(seen, stream.pods, Packer(seen, BestFit()), lambda: 0.0, 7, stream.stay)

    assert not played.shortages
    assert mean_allocation_pct(played, stream) == pytest.approx(30.0, rel=0.1)


def test_the_same_seed_gives_the_same_demand() -> None:
    one, two, other = (churning_stream(fleet(), seed, churn(1.0)) for seed in (7, 7, 8))

    assert np.array_equal(one.pods, two.pods)
    assert np.array_equal(one.stay, two.stay)
    assert not np.array_equal(one.pods[:100], other.pods[:100])
