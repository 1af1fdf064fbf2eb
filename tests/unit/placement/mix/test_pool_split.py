"""Splits of any fraction of instances, the bound that they prove, and mixes of whole instances near them."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from cluster.arrays import FloatArray
from placement.mix.pool_split import Splitter
from placement.mix.problem import Need, burst_room
from tests.builders.mix import answered, hard_need, need, question


def prices_of(need: Need) -> FloatArray:
    return np.array([offer.price_per_hour for offer in need.offers])


def fraction_cost(need: Need, offer_of_bucket: tuple[int, ...]) -> float:
    """Dollars per hour of pools of any fraction of instances, each bucket whole on one offer."""
    total = 0.0
    for g, offer in enumerate(need.offers):
        own = [b for b, taken in enumerate(offer_of_bucket) if taken == g]
        load, variance = float(offer.load[own].sum()), float(offer.variance[own].sum())
        room = burst_room(variance) if need.headroom_share is None else 0.0
        total += offer.price_per_hour * (load + room) / (1 - (need.headroom_share or 0.0))
    return total


def small_need(seed: int, headroom: float | None) -> Need:
    chance = np.random.default_rng(seed)
    tables = {
        name: (price, tuple(tuple(float(x) for x in row) for row in price**0.9 * chance.uniform(0.3, 2.0, (2, 3))))
        for name, price in (("A100", 3.67), ("L4", 0.7), ("H100", 7.5))
    }
    return need(tables, 40.0, ((1.0, 2.0, 0.5), (0.2, 1.0, 0.7)), headroom_share=headroom)


@pytest.mark.parametrize("headroom", [None, 0.1])
@pytest.mark.parametrize("seed", range(5))
def test_no_split_is_cheaper_than_the_one_that_is_found(seed: int, headroom: float | None) -> None:
    """All 3^6 ways to put six buckets on three GPU types."""
    asked = small_need(seed, headroom)
    ways = itertools.product(range(len(asked.offers)), repeat=len(asked.cells))

    split = Splitter(asked).cheapest(prices_of(asked))

    least = min(fraction_cost(asked, way) for way in ways)
    assert math.isclose(split.bound, least, rel_tol=1e-9)
    assert math.isclose(fraction_cost(asked, tuple(split.offer.tolist())), least, rel_tol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_a_split_proves_less_than_the_optimum(seed: int) -> None:
    asked = hard_need(seed)

    bound = Splitter(asked).cheapest(prices_of(asked)).bound

    assert 0 < bound <= answered(question(asked)).certificate.objective


def test_a_bucket_goes_only_where_it_can_be_served() -> None:
    asked = need({"A100": (9.0, ((1.0, 1.0),)), "L4": (0.1, ((1.0, 0.0),))}, 4.0, ((1.0, 1.0),))

    split = Splitter(asked).cheapest(prices_of(asked))

    names = [asked.offers[g].gpu_type for g in split.offer.tolist()]
    assert names == ["L4", "A100"]


def test_demand_without_variance_needs_no_headroom() -> None:
    asked = small_need(0, None)
    still = tuple(replace(offer, variance=0 * offer.variance) for offer in asked.offers)
    asked = replace(asked, offers=still)

    bound = Splitter(asked).cheapest(prices_of(asked)).bound

    cheapest = np.column_stack([offer.load for offer in still]) * prices_of(asked)
    assert math.isclose(bound, float(cheapest.min(axis=1).sum()), rel_tol=1e-9)
