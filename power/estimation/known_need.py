"""Known needs: power that devices were content with, which is used when they are later held back below it.

A device held back by its limit does not show its need, so it is tried at more. Where power is short it would get more,
not use it, lose it, be held back and be tried again, for ever, and others with it. Used under hard limits only: a burst
shows what a device would draw.
"""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.power import NEVER_S, PowerReadings

_MEANT_W = 1.0
"""Resolution of limits: whole watts, so a limit less than this below the need equals the need."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownNeed:
    """Known need of each device; shape (devices,) each."""

    need_w: FloatArray
    """Need of each device when it was last not held back."""
    at_s: FloatArray
    """Instant of that reading; NEVER_S before the first."""
    phase: IntArray
    """Phase of that reading: another phase may need more."""


def nothing_known(devices: int) -> KnownNeed:
    return KnownNeed(np.zeros(devices), np.full(devices, NEVER_S), np.full(devices, -1))


def learnt(known: KnownNeed, readings: PowerReadings, need_w: FloatArray, content: BoolArray) -> KnownNeed:
    """The known needs after these readings.

    content: shape (devices,), devices that are believed and not held back, with a draw that already reflects the newest
    limit. need_w: their needs.
    """
    return KnownNeed(
        need_w=np.where(content, need_w, known.need_w),
        at_s=np.where(content, readings.at_s, known.at_s),
        phase=np.where(content, readings.phase, known.phase),
    )


def is_known(known: KnownNeed, readings: PowerReadings, cap_w: FloatArray, for_s: float) -> BoolArray:
    """Devices whose need is still known although their limits, `cap_w`, are below it: learnt in this phase, at most
    `for_s` ago.
    """
    lately = (readings.at_s - known.at_s <= for_s) & (readings.phase == known.phase)
    known_still: BoolArray = lately & (cap_w < known.need_w - _MEANT_W)
    return known_still
