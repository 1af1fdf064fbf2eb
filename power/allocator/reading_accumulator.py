"""Readings that came while caps waited for their next look: kept as sums, and answered by that look."""

from dataclasses import dataclass

from cluster.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Waited:
    """What was read since the last look."""

    readings: int
    draw_w: FloatArray
    """Shape (devices,): the sum of so many readings."""
    drawn_w: tuple[tuple[float, FloatArray], ...]
    """(instant, watts through each limit) of each of them."""


def waited_on(waited: Waited | None, draw_w: FloatArray, drawn_w: FloatArray, now_s: float) -> Waited:
    if waited is None:
        return Waited(1, draw_w, ((now_s, drawn_w),))
    return Waited(waited.readings + 1, waited.draw_w + draw_w, (*waited.drawn_w, (now_s, drawn_w)))


def mean_since(waited: Waited | None, draw_w: FloatArray) -> FloatArray:
    """Mean draw of each device since the last look, this reading included."""
    return draw_w if waited is None else (waited.draw_w + draw_w) / (waited.readings + 1)
