import numpy as np
import pytest

from autoscaler.lead_time import LeadTimeModel, lead_time_of

UNASSUMING = LeadTimeModel(assumed_s=(100.0,), assumed_weight=1e-9)


def test_without_starts_it_is_the_assumption() -> None:
    lead = lead_time_of((), ())
    assert lead.samples == 0
    assert np.mean(lead.points_s) == pytest.approx(np.mean(LeadTimeModel().assumed_s))


def test_many_starts_outweigh_the_assumption() -> None:
    lead = lead_time_of([600.0] * 100, ())
    assert lead.samples == 100
    assert np.quantile(lead.points_s, 0.1) == pytest.approx(600.0)


def test_the_quantiles_of_the_starts_are_learned() -> None:
    took_s = np.random.default_rng(1).lognormal(np.log(300.0), 0.4, 200)
    points_s = lead_time_of(took_s.tolist(), ()).points_s
    assert points_s == tuple(sorted(points_s))
    for level in (0.25, 0.5, 0.75):
        assert np.quantile(points_s, level) == pytest.approx(np.quantile(took_s, level), rel=0.1)


def test_a_pending_start_takes_at_least_its_age() -> None:
    """Ten starts took 100 s; ten more are pending since 900 s, so half of all starts take 900 s or longer."""
    lead = lead_time_of([100.0] * 10, [900.0] * 10, UNASSUMING)
    assert np.mean(np.array(lead.points_s) >= 900.0) == pytest.approx(0.5)


def test_a_pending_start_that_is_younger_than_all_finished_ones_says_nothing() -> None:
    finished = [200.0, 300.0, 400.0, 500.0]
    assert lead_time_of(finished, [10.0] * 20, UNASSUMING) == lead_time_of(finished, (), UNASSUMING)


def test_pending_starts_are_spread_over_what_longer_ones_took() -> None:
    """Kaplan-Meier by hand: 1 of 4 done at 100, then one is censored, so each of the last two holds half of 3/4."""
    points_s = np.array(lead_time_of([100.0, 300.0, 500.0], [200.0], UNASSUMING).points_s)
    assert np.mean(points_s == 100.0) == pytest.approx(0.25)
    assert np.mean(points_s == 300.0) == pytest.approx(0.375, abs=0.05)
    assert np.mean(points_s == 500.0) == pytest.approx(0.375, abs=0.05)


def test_old_starts_are_forgotten() -> None:
    starts = [10.0] * 500 + [50.0] * 200
    assert lead_time_of(starts, (), UNASSUMING) == lead_time_of([50.0] * 200, (), UNASSUMING)
