"""Usable phases of work: a phase is treated as unknown where phases alternate faster than they are read.

A server that handles one request at a time is in its prompt for a second or two and generates tokens for a minute: its
phase still applies when a grant arrives. Continuous batching computes prompts between tokens several times a second,
with short pauses in between. A reading hits any of these by chance, so its phase is as good as unknown.
"""

from dataclasses import replace
from math import exp

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, any_of
from cluster.power import PHASE_COMPUTE_BOUND, PHASE_IDLE, PHASE_UNKNOWN, PowerReadings

_MEMORY_S = 120.0
"""Time constant of the fraction of prompts: many requests at one at a time, of which a twentieth to a tenth is
prompt."""
_ALTERNATES_SHARE = 0.25
"""Fraction of prompts from which phases count as alternating: it is a third to a half with continuous batching."""
_RESTS_SHARE = 1.3
"""Multiple of its idle draw above which a device was not idle all the time since the last reading."""


def prompts_share(before: FloatArray, phase: IntArray, for_s: float) -> FloatArray:
    """Fraction of the readings during work that hit a prompt, shape (devices,); older ones are forgotten.

    for_s: time since the previous readings; a first reading shows nothing of how phases follow each other.
    """
    part = 1 - exp(-max(for_s, 0.0) / _MEMORY_S) if for_s < _MEMORY_S else 0.0
    share: FloatArray = before + np.where(phase == PHASE_IDLE, 0.0, part) * ((phase == PHASE_COMPUTE_BOUND) - before)
    return share


def alternate(prompts: FloatArray) -> BoolArray:
    """Devices whose phases alternate faster than they are read; shape (devices,)."""
    found: BoolArray = prompts >= _ALTERNATES_SHARE
    return found


def lasting(prompts: FloatArray, readings: PowerReadings, idle_w: FloatArray) -> PowerReadings:
    """The readings with phases that will still apply when a grant arrives, and unknown phases elsewhere.

    A device that is idle now but drew more since the previous reading did work, and counts as in a prompt, which may be
    next.
    """
    works = (readings.phase == PHASE_IDLE) & (readings.draw_w > _RESTS_SHARE * idle_w)
    alternates = alternate(prompts)
    if not (any_of(works) or any_of(alternates)):
        return readings
    phase = np.where(works, PHASE_COMPUTE_BOUND, readings.phase)
    return replace(readings, phase=np.where(alternates & (phase != PHASE_IDLE), PHASE_UNKNOWN, phase))
