"""Refinement: the exact model of one service raises its bound to what whole slices cost, and finds that mix."""

import numpy as np
import pytest

from placement.mix.admission import refine
from placement.mix.columns import ColumnPool, MixProof
from placement.mix.milp import no_prices
from placement.mix.problem import Mix
from tests.builders.mix import ample, need, question


def test_the_bound_of_a_service_counts_its_slices_whole() -> None:
    """One bucket that is never cut keeps 1.5 instances at 1 $ busy, or 2.2 at 0.6 $: 2 or 3 of them, 2 or 1.8 $.

    Cut in two it would do with one of each, 1.6 $.
    """
    tables = {"A100": (1.0, ((1 / 1.5,),)), "L4": (0.6, ((1 / 2.2,),))}
    asked = question(need(tables, 1.0, ((1.0,),), slice_factor=1, headroom_share=0.0))
    pool = ColumnPool(asked)
    pool.proofs.append(MixProof(no_prices(asked), (0.0,)))
    assert pool.add(0, Mix(np.array([2, 0]), np.array([[1.0, 0.0]])))

    assert refine(pool, ample(), 0.0)

    assert pool.bound([0]) == pytest.approx(1.8)
    assert min(column.objective for column in pool.columns[0]) == pytest.approx(1.8)
    assert refine(pool, ample(), 0.0) is None, "there is nothing left to prove"
