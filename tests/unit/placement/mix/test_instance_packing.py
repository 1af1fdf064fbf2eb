"""Single instances: slices are packed whole, and overloaded instances are repaired."""

from dataclasses import replace

import numpy as np
import pytest

from placement.mix.heuristics import fit_into_instances, pack_pool
from placement.mix.problem import Mix
from tests.builders.mix import answered, counts, need, question

THREE_BUCKETS = {"A100": (1.0, ((1.0, 1.0, 1.0),))}


def all_on_first(instances: int) -> Mix:
    return Mix(np.array([instances]), np.ones((3, 1)))


def test_whole_slices_need_an_instance_more_than_their_sum() -> None:
    # Three slices of 0.66 instances add up to 1.98, but no two of them share an instance.
    uneven = need(THREE_BUCKETS, 1.98, ((1 / 3, 1 / 3, 1 / 3),))
    fluid, whole = question(uneven), question(uneven, per_instance=True)

    assert counts(answered(fluid), fluid) == {"A100": 2}
    answer = answered(whole)
    assert counts(answer, whole) == {"A100": 3}
    assert answer.cost_per_hour == pytest.approx(3.0)
    assert answer.fluid_cost_per_hour == pytest.approx(2.0)
    assert answer.certificate.bound == pytest.approx(2.0)


def test_a_free_split_cuts_at_the_borders_of_instances() -> None:
    free = need(THREE_BUCKETS, 1.98, ((1 / 3, 1 / 3, 1 / 3),), slice_factor=None)

    packed = pack_pool(free, all_on_first(2), 0)

    assert packed.left_over == ()
    assert max(instance.load for instance in packed.instances) <= 1 + 1e-6
    for b in range(3):
        assert sum(instance.share.get(b, 0.0) for instance in packed.instances) == pytest.approx(1.0)


def test_a_slice_larger_than_an_instance_fills_whole_ones() -> None:
    # One slice of 2.5 instances: two full, one half full.
    large = need({"A100": (1.0, ((1.0,),))}, 2.5, ((1,),))

    packed = pack_pool(large, Mix(np.array([3]), np.ones((1, 1))), 0)

    assert sorted(instance.load for instance in packed.instances) == pytest.approx([0.5, 1.0, 1.0])


def test_no_instance_is_filled_beyond_its_headroom() -> None:
    roomy = need(THREE_BUCKETS, 1.2, ((1 / 3, 1 / 3, 1 / 3),), headroom_share=0.5)

    # Slices of 0.4 in instances that may be half full: one each.
    packed = pack_pool(roomy, all_on_first(3), 0)

    assert [instance.load for instance in packed.instances] == pytest.approx([0.4, 0.4, 0.4])


def test_a_slice_that_does_not_fit_goes_to_a_pool_where_it_does() -> None:
    # Two A100 are overfull by one slice of 0.66; the B has room, so nothing is bought.
    both = need({"A100": (1.0, ((1.0, 1.0, 1.0),)), "B": (9.0, ((1.0, 1.0, 1.0),))}, 1.98, ((1 / 3, 1 / 3, 1 / 3),))
    mix = Mix(np.array([2, 1]), np.array([[1.0, 0.0]] * 3))

    repaired = fit_into_instances(question(both), (mix,))

    assert repaired is not None
    assert repaired[0].instances.tolist() == [2, 1]
    assert sorted(repaired[0].share[:, 1].tolist()) == [0.0, 0.0, 1.0]


def test_without_stock_for_the_repair_there_is_none() -> None:
    uneven = need(THREE_BUCKETS, 1.98, ((1 / 3, 1 / 3, 1 / 3),))
    asked = replace(question(uneven, stock={"A100": 2}), per_instance=True)

    assert fit_into_instances(asked, (all_on_first(2),)) is None
