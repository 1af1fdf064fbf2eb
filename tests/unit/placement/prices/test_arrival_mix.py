"""Learning the mix of pod classes from arrivals."""

import numpy as np
import pytest

from placement.policies.bid_price import WINDOW_PODS, ArrivalMix
from placement.prices.classes import PodClass, class_of, shares_of
from tests.builders.fleet import shape

SMALL, LARGE, RARE = PodClass(1000, 1, 500), PodClass(8000, 8, 1000), PodClass(2000, 2, 1000)


def fed(mix: ArrivalMix, seed: int, pods: int, **share: float) -> ArrivalMix:
    kinds = {"small": SMALL, "large": LARGE, "rare": RARE}
    for name in np.random.default_rng(seed).choice(list(share), pods, p=list(share.values())):
        mix.arrived(kinds[str(name)])
    return mix


def test_memory_labels_and_types_of_pods_without_gpus_make_no_class() -> None:
    assert class_of(shape(1, memory_bytes=1)) == class_of(shape(1, memory_bytes=9, selector={"disk": "ssd"}))
    assert class_of(shape(0, gpu_types=("A100",))) == class_of(shape(0))


def test_shares_are_what_arrived() -> None:
    shares = fed(ArrivalMix(), 1, 100, small=1.0).shares()

    assert shares.classes == (SMALL,)
    assert shares.share == pytest.approx([1.0])
    assert shares.pods == pytest.approx(100)


def test_nothing_is_expected_before_anything_arrived() -> None:
    assert ArrivalMix().shares().classes == ()


def test_a_steady_mix_is_never_taken_for_a_new_one() -> None:
    mix = fed(ArrivalMix(), 3, 40 * WINDOW_PODS, small=0.8, large=0.15, rare=0.05)

    assert mix.turns == 0
    assert dict(zip(mix.shares().classes, mix.shares().share, strict=True))[LARGE] == pytest.approx(0.15, abs=0.01)


def test_a_mix_that_turns_is_believed_within_two_windows() -> None:
    mix = fed(ArrivalMix(), 4, 20 * WINDOW_PODS, small=0.9, large=0.1)

    fed(mix, 5, 2 * WINDOW_PODS, small=0.5, large=0.5)

    assert mix.turns >= 1
    assert dict(zip(mix.shares().classes, mix.shares().share, strict=True))[LARGE] == pytest.approx(0.5, abs=0.05)


def test_the_order_in_which_a_table_lists_pods_that_arrived_together_is_no_change_of_the_mix() -> None:
    mix = fed(ArrivalMix(), 7, WINDOW_PODS, small=0.5, large=0.5)

    mix.arrived(*[SMALL] * WINDOW_PODS, *[LARGE] * WINDOW_PODS)

    assert mix.turns == 0


def test_a_class_that_no_longer_arrives_is_forgotten_in_the_end() -> None:
    # 3 of 512 pods are no surprise later; 0.98 ^ windows fades three counts below 0.01 after about 320 windows.
    mix = fed(ArrivalMix(), 6, WINDOW_PODS - 3, small=1.0)
    fed(mix, 6, 3, rare=1.0)

    for _ in range(400 * WINDOW_PODS):
        mix.arrived(SMALL)

    assert mix.turns == 0
    assert mix.shares().classes == (SMALL,)


def test_a_known_population_rests_on_no_sample() -> None:
    assert shares_of([shape(1), shape(1), shape(8)]).pods == float("inf")
