"""Readings wrong by a factor of a thousand have a fault of their own; other impossible ones keep theirs."""

from dataclasses import replace

import numpy as np

from power.safety.estimator import FINE, IMPOSSIBLE, WRONG_UNIT, Estimate, with_wrong_units
from power.tree import tree_of
from tests.builders.power import Device, row_of

DEVICES = tree_of(row_of([Device(f"gpu{n}", f"n{n}") for n in range(4)], 2000.0)).table.devices


def test_only_impossible_readings_that_another_unit_explains_are_unit_errors() -> None:
    """Devices of 100 to 400 W: 250,000 and 0.25 are 250 W in other units; 7,000 is nothing; 250 W is fine."""
    drawn_w = np.array([250_000.0, 0.25, 7_000.0, 250.0])
    fault = np.array([IMPOSSIBLE, IMPOSSIBLE, IMPOSSIBLE, FINE])
    seen = Estimate(drawn_w, drawn_w, fault == FINE, fault, clean=False)

    assert with_wrong_units(seen, DEVICES, drawn_w).fault.tolist() == [WRONG_UNIT, WRONG_UNIT, IMPOSSIBLE, FINE]
    assert (
        with_wrong_units(replace(seen, fault=np.zeros(4, dtype=np.int64)), DEVICES, drawn_w).fault.tolist()
        == [FINE] * 4
    )
