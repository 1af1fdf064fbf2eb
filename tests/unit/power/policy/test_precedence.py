"""Precedence of useful floors: a rise above a floor waits for the floors of higher classes."""

import numpy as np

from power.policy.interface import floors_first_w
from power.tree import tree_of
from tests.builders.power import Device, row_of

TREE = tree_of(row_of((Device("a", "n1", "high"), Device("b", "n2", "low")), 1000.0))
"""Useful floors of 200 W each."""
WANTED_W = np.array([400.0, 400.0])
BEFORE_W = np.array([150.0, 150.0])


def test_no_device_rises_above_its_floor_while_a_higher_class_waits_for_its_own() -> None:
    """The high device stays at 150 W, since more may still be held by it; the low one may rise to its floor alone."""
    assert floors_first_w(TREE, WANTED_W, BEFORE_W, np.array([150.0, 400.0])).tolist() == [150.0, 200.0]
    assert floors_first_w(TREE, WANTED_W, BEFORE_W, np.array([200.0, 400.0])).tolist() == [200.0, 400.0]


def test_nobody_waits_for_a_device_of_which_less_than_its_floor_is_wanted() -> None:
    idle_w = np.array([150.0, 400.0])

    assert floors_first_w(TREE, idle_w, BEFORE_W, np.array([150.0, 400.0])).tolist() == [150.0, 400.0]


def test_a_lower_class_above_its_floor_is_not_lowered_by_it() -> None:
    before_w = np.array([150.0, 300.0])

    assert floors_first_w(TREE, WANTED_W, before_w, np.array([150.0, 400.0])).tolist() == [150.0, 300.0]
    assert floors_first_w(TREE, WANTED_W, before_w, np.array([150.0, 250.0])).tolist() == [150.0, 250.0]
