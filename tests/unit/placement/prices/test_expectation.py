"""Expected fragments and expected hostable GPUs."""

import numpy as np
import pytest

from placement.policies.fgd import Fragmentation
from placement.prices.classes import PodClass, shares_from
from placement.prices.node_value import expectation_of

MIX = shares_from(
    [
        (PodClass(4000, 1, 500), 4.0),
        (PodClass(8000, 2, 1000), 3.0),
        (PodClass(2000, 1, 300, ("L4",)), 2.0),
        (PodClass(4000, 0, 0), 1.0),
    ]
)


def test_hostable_gpus_count_what_each_class_alone_could_get() -> None:
    # A100 with 9 cores, devices 1000, 1000, 400:
    #   0.5 GPU (share 0.4): 4 by GPU, 2 by CPU: 2 * 0.5 = 1;  2 GPUs (0.3): 1 pod = 2;  L4 only (0.2): 0;  CPU (0.1): 0
    #   0.4 * 1 + 0.3 * 2 = 1.0
    state = (np.array([0]), np.array([9000]), np.array([[1000, 1000, 400]]))

    _, hostable = expectation_of(MIX, ("A100", "L4")).fragment_and_hostable(*state)

    assert hostable == pytest.approx([1.0])


def test_fragments_are_those_of_fgd_over_all_classes() -> None:
    chance = np.random.default_rng(7)
    states = (
        chance.integers(-1, 2, 200),
        chance.integers(0, 12_000, 200),
        chance.choice((0, 200, 300, 500, 700, 1000), (200, 4)),
    )
    fgd = Fragmentation(MIX, ("A100", "L4"))

    fragment, _ = expectation_of(MIX, ("A100", "L4")).fragment_and_hostable(*states)

    assert fragment == pytest.approx(fgd.of_states(*states) / 1000)


def test_counted_by_gpus_a_wide_pod_weighs_as_many_times_as_it_has_gpus() -> None:
    # A100 with 9 cores, devices 1000, 1000, 400: 2.4 idle, of which 0.5 GPU (share 0.4) and 2 GPUs (0.3) can use 2
    # each, and L4 only (0.2) none. Of 0.4 * 0.5 + 0.3 * 2 + 0.2 * 0.3 = 0.86 GPUs a pod, those two request 0.8.
    state = (np.array([0]), np.array([9000]), np.array([[1000, 1000, 400]]))

    by_pods, by_gpus, half = (
        expectation_of(MIX, ("A100", "L4"), part).fragment_and_hostable(*state)[0] for part in (0.0, 1.0, 0.5)
    )

    assert by_pods == pytest.approx([2.4 - 0.7 * 2])
    assert by_gpus == pytest.approx([2.4 - 0.8 / 0.86 * 2])
    assert half == pytest.approx((by_pods + by_gpus) / 2)
