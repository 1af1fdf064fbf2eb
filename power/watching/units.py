"""Readings wrong by a factor of a thousand, as when milliwatts are taken for watts: a fault with a name of its own."""

from dataclasses import replace

import numpy as np

from cluster.arrays import BoolArray, FloatArray
from cluster.power import PowerDeviceTable
from power.safety.estimator import IMPOSSIBLE, IMPOSSIBLE_SHARE, SMALLEST_SHARE, WRONG_UNIT, Estimate


def with_wrong_units(seen: Estimate, devices: PowerDeviceTable, reading_w: FloatArray) -> Estimate:
    """The estimate, in which impossible readings that another unit explains have that fault. reading_w: (devices,)."""
    low, high = SMALLEST_SHARE * devices.idle_w, IMPOSSIBLE_SHARE * devices.max_w
    scaled = is_scaled(reading_w, low, high) & (seen.fault == IMPOSSIBLE)
    return replace(seen, fault=np.where(scaled, WRONG_UNIT, seen.fault)) if scaled.any() else seen


def is_scaled(reading_w: FloatArray, low_w: FloatArray, high_w: FloatArray) -> BoolArray:
    """Whether a reading would lie within the bounds if it were a thousand times larger or smaller."""
    milli, kilo = reading_w / 1000, reading_w * 1000
    found: BoolArray = ((milli >= low_w) & (milli <= high_w)) | ((kilo >= low_w) & (kilo <= high_w))
    return found & (reading_w > 0)
