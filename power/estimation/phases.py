"""What phases tell: nothing where they alternate faster than they are read.

A server that works on one request at a time is in its prompt for a second or two and among tokens for a minute: what it
is seen to do it will still do when a grant arrives. Continuous batching computes prompts between tokens, several times
a second, and rests for moments in between. A reading hits any of them by chance, so its phase is as good as not known.
"""

from dataclasses import replace
from math import exp

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray, any_of
from cluster.power import PHASE_COMPUTE_BOUND, PHASE_IDLE, PHASE_UNKNOWN, PowerReadings

_MEMORY_S = 120.0
"""Time constant of the share of prompts: many requests of one at a time, which are a twentieth to a tenth prompt."""
_ALTERNATES_SHARE = 0.25
"""From this share of prompts on phases alternate: a third to a half with continuous batching."""
_RESTS_SHARE = 1.3
"""Of its idle draw: who drew more since the last reading did not rest all the time."""


def prompts_share(before: FloatArray, phase: IntArray, for_s: float) -> FloatArray:
    """Of the readings at work, how many hit a prompt, shape (devices,); older ones forgotten.

    for_s: since the readings before; a first one tells nothing of how phases follow each other.
    """
    part = 1 - exp(-max(for_s, 0.0) / _MEMORY_S) if for_s < _MEMORY_S else 0.0
    share: FloatArray = before + np.where(phase == PHASE_IDLE, 0.0, part) * ((phase == PHASE_COMPUTE_BOUND) - before)
    return share


def alternate(prompts: FloatArray) -> BoolArray:
    """Whose phases alternate faster than they are read; shape (devices,)."""
    found: BoolArray = prompts >= _ALTERNATES_SHARE
    return found


def lasting(prompts: FloatArray, readings: PowerReadings, idle_w: FloatArray) -> PowerReadings:
    """The readings with phases that will still hold when a grant arrives, and none where it cannot be known.

    Who rests now and drew more since the reading before did work, and counts as in a prompt: that may be next.
    """
    works = (readings.phase == PHASE_IDLE) & (readings.draw_w > _RESTS_SHARE * idle_w)
    alternates = alternate(prompts)
    if not (any_of(works) or any_of(alternates)):
        return readings
    phase = np.where(works, PHASE_COMPUTE_BOUND, readings.phase)
    return replace(readings, phase=np.where(alternates & (phase != PHASE_IDLE), PHASE_UNKNOWN, phase))
