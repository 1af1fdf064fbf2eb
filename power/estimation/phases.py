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


_REST_SHARE = 0.25
"""Highest idle draw as a fraction of the highest limit: A100 and H100 idle at 0.08 to 0.2 of it."""
_REST_MEMORY_S = 3600.0
"""Time constant with which the lowest idle draw is forgotten: one wrong reading must not stay for ever."""


def highest_rest_w(max_w: FloatArray) -> FloatArray:
    """Idle draw of devices, shape (devices,), of which none was read yet: the highest of any type."""
    return _REST_SHARE * max_w


def rest_after_w(before_w: FloatArray, readings: PowerReadings, for_s: float, max_w: FloatArray) -> FloatArray:
    """Draw of each device while idle, shape (devices,): the lowest that was read at rest, slowly forgotten.

    for_s: time since the previous readings. Types differ by a factor of two, so no fraction of the limit serves.
    """
    rest_w = np.minimum(before_w * exp(min(max(for_s, 0.0) / _REST_MEMORY_S, 1.0)), _REST_SHARE * max_w)
    return np.where(readings.phase == PHASE_IDLE, np.fmin(rest_w, readings.draw_w), rest_w)


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
