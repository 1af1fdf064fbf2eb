"""Accumulator of the readings between two full steps, so that the next full step can use their mean."""

from dataclasses import dataclass

from cluster.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Waited:
    """Sums of the readings since the last full step."""

    readings: int
    draw_w: FloatArray
    """Sum of the draws of these readings, shape (devices,)."""
    drawn_w: tuple[tuple[float, FloatArray], ...]
    """(instant, watts through each limit) of each reading."""


def waited_on(waited: Waited | None, draw_w: FloatArray, drawn_w: FloatArray, now_s: float) -> Waited:
    if waited is None:
        return Waited(1, draw_w, ((now_s, drawn_w),))
    return Waited(waited.readings + 1, waited.draw_w + draw_w, (*waited.drawn_w, (now_s, drawn_w)))


def mean_since(waited: Waited | None, draw_w: FloatArray) -> FloatArray:
    """Mean draw of each device since the last full step, this reading included."""
    return draw_w if waited is None else (waited.draw_w + draw_w) / (waited.readings + 1)
