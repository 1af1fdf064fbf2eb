"""Validation of the mix's input: all mistakes are reported at once, with their place."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.demand import LengthGrid
from cluster.errors import Mistake
from cluster.snapshot import Snapshot
from placement.mix.problem_builder import duplicates, gpu_type_mistakes, profile_mistakes, service_mistakes
from tests.builders.fleet import world
from tests.builders.mix import demand, of_types, profile, service

GOOD = world([], services=[service()], profiles=[profile("A100", ((1,),))], prices={"A100": 1.0})


def mix_mistakes(seen: Snapshot) -> tuple[Mistake, ...]:
    """Mistakes in the GPU types, profiles and services of a snapshot."""
    return (
        *gpu_type_mistakes(seen.gpu_types),
        *profile_mistakes(seen.profiles, seen.gpu_type_names),
        *duplicates("services", (each.name for each in seen.services)),
        *(mistake for each in seen.services for mistake in service_mistakes(each, seen.gpu_type_names)),
    )


def said(**changes: object) -> str:
    return "\n".join(str(mistake) for mistake in mix_mistakes(replace(GOOD, **changes)))  # type: ignore[arg-type]


def test_sound_input_has_no_mistakes() -> None:
    assert mix_mistakes(GOOD) == ()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_throughput_that_is_no_rate_is_named_with_its_bucket(value: float) -> None:
    words = said(profiles=(profile("A100", ((1, value),)),))

    assert words == (
        f"profile of m on A100 at 100ms: throughput at input ≤ 100, output ≤ 100 tokens is {value}; "
        "give a number, 0 or more"
    )


def test_a_missing_throughput_is_a_wrong_shape() -> None:
    short = replace(profile("A100", ((1, 1),)), requests_per_s=np.ones((1, 1)))

    assert "throughput has shape (1, 1) and its grid (1, 2)" in said(profiles=(short,))


def test_an_unknown_gpu_type_is_named_with_the_known_ones() -> None:
    assert said(profiles=(profile("B300", ((1,),)),)).endswith("unknown GPU type B300; known are A100")
    assert "unknown GPU type B300" in said(services=(service(gpu_types=("B300",)),))


def test_names_are_given_once() -> None:
    assert "2 are called ns/chat" in said(services=(service(), service()))
    assert "2 are called profile of m on A100 at 100ms" in said(profiles=(GOOD.profiles[0], GOOD.profiles[0]))
    assert "2 are called A100" in said(gpu_types=GOOD.gpu_types * 2)


def test_a_histogram_adds_up_to_one_within_rounding() -> None:
    assert "adds up to 0.9" in said(services=(service(share=((0.4, 0.5),)),))
    assert said(services=(service(share=((0.49997, 0.5),)),)) == ""


@pytest.mark.parametrize("rate", [float("nan"), -1.0, float("inf")])
def test_a_rate_is_a_number_of_requests(rate: float) -> None:
    assert f"request rate {rate}" in said(services=(service(demand=demand(rate)),))


@pytest.mark.parametrize("price", [0.0, -1.0, float("nan")])
def test_a_price_is_above_zero(price: float) -> None:
    free = replace(GOOD.gpu_types[0], price_per_hour=price)

    assert f"gpu type A100: price {price} $/h" in said(gpu_types=(free,))


def test_bucket_edges_rise() -> None:
    crooked = LengthGrid((100, 100), (50,))

    assert "input bucket edges [100, 100]" in said(services=(service(demand=demand(1.0, ((0.5,), (0.5,)), crooked)),))


def test_all_mistakes_are_reported_at_once() -> None:
    wrong = service(headroom_share=1.0, slice_factor=0, replicas=of_types({"A100": -1}))
    negative = replace(GOOD.gpu_types[0], inventory=-1)

    assert len(said(services=(wrong,), gpu_types=(negative,)).splitlines()) == 4
