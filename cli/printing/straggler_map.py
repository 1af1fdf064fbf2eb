"""Straggler map: computing time of each rank and step against the median rank, as a picture."""

from pathlib import Path

import numpy as np

from cli.printing import pictures
from cluster.arrays import FloatArray


def relative(compute_s: FloatArray) -> FloatArray:
    """Shape (ranks, steps): computing time divided by that of the median rank in the same step; 1 where unknown."""
    known = np.where(compute_s > 0, compute_s, np.nan)
    with np.errstate(all="ignore"):
        middle = np.nanmedian(
            np.where(np.isfinite(known).any(axis=1, keepdims=True), known, 1.0), axis=1, keepdims=True
        )
    return np.nan_to_num(known / middle, nan=1.0).T


def draw(compute_s: FloatArray, out: Path) -> None:
    """Writes the map as a picture, or as a page with it. compute_s: shape (steps, ranks)."""
    from matplotlib.ticker import MaxNLocator

    shown = relative(compute_s)
    figure, axes = pictures.canvas(2 + 0.12 * min(len(shown), 128))
    image = axes.imshow(shown, aspect="auto", interpolation="nearest", vmin=0.5, vmax=2.0, cmap="inferno")
    axes.set_xlabel("step")
    axes.set_ylabel("rank")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("Computing time ÷ median rank's, by step", loc="left", fontsize="medium")
    figure.colorbar(image, ax=axes)
    slowest = np.argsort(-np.median(shown, axis=1), kind="stable")[:10]
    rows = [(str(rank), f"{np.median(shown[rank]):.2f}", f"{shown[rank].max():.2f}") for rank in slowest.tolist()]
    header = ("RANK", "MEDIAN OF ITS STEPS", "SLOWEST STEP")
    pictures.save(figure, out, "Computing time of each rank over the median of the step", header, rows)
