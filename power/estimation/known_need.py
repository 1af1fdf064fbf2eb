"""What devices were seen to be content with. One that is held back below that needs that much, not all it can take.

A device that its limit holds back shows no need, so it is tried at more. Where watts are short it would get more, not
use it, lose it, be held back, and be tried again: for ever, and others with it. Under hard limits alone: a burst shows
what a device would draw.
"""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.power import NEVER_S, PowerReadings

_MEANT_W = 1.0
"""Limits are whole watts: one that is less below the need is the need."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownNeed:
    """Shape (devices,) each."""

    need_w: FloatArray
    """What each needed when it was last not held back."""
    at_s: FloatArray
    """When that was read; NEVER_S before it was."""
    phase: IntArray
    """In which phase: another one may need more."""


def nothing_known(devices: int) -> KnownNeed:
    return KnownNeed(np.zeros(devices), np.full(devices, NEVER_S), np.full(devices, -1))


def learnt(known: KnownNeed, readings: PowerReadings, need_w: FloatArray, content: BoolArray) -> KnownNeed:
    """After these readings.

    content: shape (devices,), who is believed and not held back, by a draw that shows what its newest limit made of it.
    need_w: what they need.
    """
    return KnownNeed(
        need_w=np.where(content, need_w, known.need_w),
        at_s=np.where(content, readings.at_s, known.at_s),
        phase=np.where(content, readings.phase, known.phase),
    )


def is_known(known: KnownNeed, readings: PowerReadings, cap_w: FloatArray, for_s: float) -> BoolArray:
    """Whose need is known still although its limit, `cap_w`, lies below: learnt in this phase, at most `for_s` ago."""
    lately = (readings.at_s - known.at_s <= for_s) & (readings.phase == known.phase)
    known_still: BoolArray = lately & (cap_w < known.need_w - _MEANT_W)
    return known_still
