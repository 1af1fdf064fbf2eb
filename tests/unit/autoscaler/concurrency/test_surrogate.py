"""Surrogate: near samples it follows them, far from them it follows the prior and knows less."""

import numpy as np
import pytest

from autoscaler.concurrency.safe_bandit import Prior, Samples, predicted

PRIOR = Prior(slope=0.5, slope_error=0.3, curvature=-0.1, curvature_error=0.1, misfit=0.1, length=0.5)


def samples(values: dict[float, float], variance: float = 1e-6) -> Samples:
    return Samples(np.array(list(values)), np.array(list(values.values())), np.full(len(values), variance))


def test_one_sample_is_continued_along_the_prior() -> None:
    mean, variance = predicted(PRIOR, samples({0.0: 2.0}), np.array([0.0, 0.2]))

    assert mean == pytest.approx([2.0, 2.0 + 0.5 * 0.2 - 0.1 * 0.04], abs=1e-3)
    assert variance[0] == pytest.approx(1e-6, rel=0.1)
    assert variance[1] > (0.3 * 0.2) ** 2


def test_samples_outweigh_the_prior() -> None:
    falling = samples({-0.4: 2.2, -0.2: 2.1, 0.0: 2.0})

    mean, _ = predicted(PRIOR, falling, np.array([0.2]))

    assert mean[0] < 2.0


def test_a_kink_stays_where_it_was_seen() -> None:
    # Flat up to 0, then steep: what is far from the kink is not dragged along.
    kink = samples({-0.4: 1.0, -0.2: 1.0, 0.0: 1.0, 0.1: 0.8})

    mean, _ = predicted(PRIOR, kink, np.array([-0.2, 0.0, 0.1]))

    assert mean == pytest.approx([1.0, 1.0, 0.8], abs=0.01)


def test_noise_is_averaged() -> None:
    _, noisy = predicted(PRIOR, samples({0.0: 1.0}, variance=0.01), np.array([0.0]))
    _, known = predicted(PRIOR, samples({0.0: 1.0}, variance=0.0001), np.array([0.0]))

    assert known[0] < noisy[0] < 0.01
