"""Pictures of a recorded job: the computing time of each rank, and its operations over time."""

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cli.inputs.recorded_job import VERDICT_HEADERS, Operations, TimedVerdict
from cluster.arrays import FloatArray
from health.verdicts.standstill import listed
from simulator.reports.sweep_report import rendered
from tonnage.records import Op


def canvas(height: float) -> tuple[Any, Any]:
    """A figure of ten inches by this height, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def save(
    figure: Any, out: Path, title: str, header: Sequence[str], rows: Sequence[Sequence[str]], headline: str = ""
) -> None:
    """Writes the figure in the form that the file's name asks for; headline and table are in the page alone."""
    if out.suffix.lower() not in (".html", ".htm"):
        figure.savefig(out, dpi=120)
        return
    light, dark = _drawn(figure), _drawn(figure, ink="white")
    words = {"title": title, "headline": headline or title, "picture": light, "dark": dark}
    page = rendered("picture.html.j2", Path(__file__).parent, header=header, rows=rows, **words)
    out.write_text(page, encoding="utf-8")


def _drawn(figure: Any, ink: str = "black") -> str:
    """The figure as PNG in base64 on what is behind it, with this in place of black."""
    from matplotlib.colors import same_color

    for part in figure.findobj(lambda each: hasattr(each, "set_color")):
        for which in ("color", "edgecolor", "markeredgecolor"):
            colour = getattr(part, f"get_{which}", str)()
            if isinstance(colour, str | tuple) and colour and same_color(colour, "black"):
                getattr(part, f"set_{which}")(ink)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=120, format="png", transparent=True)
    return base64.b64encode(drawn.getvalue()).decode("ascii")


def relative(compute_s: FloatArray) -> FloatArray:
    """Shape (ranks, steps): computing time divided by that of the median rank in the same step; 1 where unknown."""
    known = np.where(compute_s > 0, compute_s, np.nan)
    with np.errstate(all="ignore"):
        middle = np.nanmedian(
            np.where(np.isfinite(known).any(axis=1, keepdims=True), known, 1.0), axis=1, keepdims=True
        )
    return np.nan_to_num(known / middle, nan=1.0).T


def draw_stragglers(compute_s: FloatArray, out: Path) -> None:
    """Writes the map as a picture, or as a page with it. compute_s: shape (steps, ranks)."""
    from matplotlib.ticker import MaxNLocator

    shown = relative(compute_s)
    figure, axes = canvas(2 + 0.12 * min(len(shown), 128))
    image = axes.imshow(shown, aspect="auto", interpolation="nearest", vmin=0.5, vmax=2.0, cmap="inferno")
    axes.set_xlabel("step")
    axes.set_ylabel("rank")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("Computing time ÷ median rank's, by step", loc="left", fontsize="medium")
    figure.colorbar(image, ax=axes)
    slowest = np.argsort(-np.median(shown, axis=1), kind="stable")[:10]
    rows = [(str(rank), f"{np.median(shown[rank]):.2f}", f"{shown[rank].max():.2f}") for rank in slowest.tolist()]
    header = ("RANK", "MEDIAN OF ITS STEPS", "SLOWEST STEP")
    worst, share = int(slowest[0]), float(np.median(shown[slowest[0]]))
    headline = f"Rank {worst} computes {share:.2f} times as long as the median rank" if share >= TOLD else ""
    if headline:
        axes.annotate(f"rank {worst}", (1, worst), xycoords=("axes fraction", "data"), color="red", va="center")
    save(figure, out, "Computing time of each rank over the median of the step", header, rows, headline)


TOLD = 1.1
"""Computing time over the median rank's from which a rank is the headline."""
MOST_RANKS = 256
SHOWN_RANKS = 8
"""Ranks that a picture marks at most: of more, none stands out."""
COLOURS = {"collective": "#4477aa", "send or receive": "#ee7733", "never ended": "#cc3311"}


def draw_timeline(made: Operations, found: Sequence[TimedVerdict], last_s: float, out: Path) -> None:
    """Draws the last seconds. Gaps are computing; a bar to the right edge is an operation that did not end."""
    end_s = float(np.nanmax(np.where(np.isfinite(made.exit_s), made.exit_s, made.enter_s), initial=0.0))
    first_s = max(0.0, end_s - last_s)
    exit_s = np.where(np.isfinite(made.exit_s), made.exit_s, end_s)
    kept = (exit_s >= first_s) & (made.rank < MOST_RANKS)
    kind = np.where(~np.isfinite(made.exit_s), 2, np.where(made.op >= Op.SEND, 1, 0))
    ranks = int(made.rank[kept].max(initial=0)) + 1
    figure, axes = canvas(1.5 + 0.15 * min(ranks, 128))
    for number, (label, colour) in enumerate(COLOURS.items()):
        of = np.flatnonzero(kept & (kind == number))
        axes.barh(made.rank[of], exit_s[of] - made.enter_s[of], left=made.enter_s[of], color=colour, label=label)
    for each in found:
        if each.at_s >= first_s:
            axes.axvline(each.at_s, color="black" if each.verdict.blames else "grey", linestyle="--", linewidth=0.8)
    axes.set_xlim(first_s, max(end_s, *(each.at_s for each in found), first_s + 1e-3) if found else end_s)
    axes.set_xlabel("seconds since the first record; dashed: something was found")
    axes.set_ylabel("rank")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(COLOURS), fontsize="small", frameon=False)
    first = next((each for each in found if each.verdict.blames), found[0] if found else None)
    for rank in first.verdict.ranks if first is not None and len(first.verdict.ranks) <= SHOWN_RANKS else ():
        axes.axhspan(rank - 0.5, rank + 0.5, color="#cc3311", alpha=0.15, zorder=0)
    headline = "Nothing stands out" if first is None else _headline(first)
    save(figure, out, "Operations of each rank over time", VERDICT_HEADERS, [each.cells for each in found], headline)


def _headline(found: TimedVerdict) -> str:
    """What was found first, in a line."""
    data = found.as_data()
    on = listed(data["ranks"][:SHOWN_RANKS]) if data["ranks"] else "no rank"
    what = data["syndrome"] if found.verdict.cause is None else data["cause"]
    return f"{what[:1].upper()}{what[1:]}: {on}, {found.at_s:.1f} s"
