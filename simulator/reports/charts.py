"""Charts of a sweep as SVG with colours from the page, so that one drawing suits light, dark and print."""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cluster.arrays import FloatArray
from simulator.packing.policy_comparison import QUANTILES, PolicySummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, FAINT = "#010101", "#020202"
"""Placeholders that become the page's text colour and grid colour when the drawing is embedded."""

DASHES: Sequence[tuple[float, tuple[float, ...] | None]] = (
    (0, None),
    (0, (6, 2)),
    (0, (1.5, 1.5)),
    (0, (6, 2, 1.5, 2)),
    (0, (10, 3)),
    (0, (3, 3)),
    (0, (10, 2, 1.5, 2, 1.5, 2)),
)
"""Dash patterns of policies, for readers and printers without colour."""

STYLES = 7
"""Number of policies with different styles; the page's style sheet has as many colours."""


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    says: str
    """One sentence on how to read it; also the description for screen readers."""
    svg: str


def charts(summaries: Sequence[PolicySummary]) -> tuple[Chart, ...]:
    """Four charts of one trace; three without prices."""
    priced = any(np.isfinite(summary.stranded_per_hour).any() for summary in summaries)
    made = [
        Chart(
            "Allocation against arrived demand",
            "Fraction of the fleet's GPUs allocated as pods arrive; the thin line is demand itself. Higher is better.",
            _svg("allocation", summaries, _allocation),
        ),
        Chart(
            "Fragmentation against allocation",
            "Fraction of the idle GPUs that the expected next pod cannot use, as the fleet fills. Lower is better.",
            _svg("fragmentation", summaries, _fragmentation),
        ),
        Chart(
            "Time per decision",
            "Fraction of the decisions that took at most this time; the axis is logarithmic. Further left is better.",
            _svg("decision", summaries, _decision),
        ),
    ]
    if priced:
        chart = Chart(
            "Stranded GPUs in dollars",
            "Price of the idle GPUs that the expected next pod cannot use, as pods arrive. Lower is better.",
            _svg("stranded", summaries, _stranded),
        )
        made.insert(2, chart)
    return tuple(made)


def _svg(name: str, summaries: Sequence[PolicySummary], draw: "Callable[[Axes, Sequence[PolicySummary]], None]") -> str:
    return drawn(f"{summaries[0].trace}-{name}", lambda axes: draw(axes, summaries))


def drawn(name: str, draw: "Callable[[Axes], None]", size: tuple[float, float] = (6.2, 3.7)) -> str:
    """One drawing as an SVG element for a page. name: unique on the page. size: inches, which fix the text size."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        axes.grid(color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        drawing = io.StringIO()
        figure.savefig(drawing, format="svg", transparent=True, metadata=_NO_METADATA)
    # Bare element for a page: unique ids, no namespaces or metadata, colours of the page.
    svg = drawing.getvalue()
    prefix = re.sub(r"\W+", "-", name)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg).replace("url(#", f"url(#{prefix}-")
    svg = svg.replace('href="#', f'href="#{prefix}-')
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"<svg\b", '<svg role="img" aria-hidden="true" focusable="false"', svg, count=1)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px; font-family: inherit", svg)
    for stand_in, colour in {INK: "currentColor", FAINT: "var(--grid)"}.items():
        svg = svg.replace(stand_in, colour)
    return re.sub(r"#0300(\d\d)", lambda found: f"var(--policy-{int(found[1])})", svg)


def standalone(svg: str, says: str) -> str:
    """A drawing as a file, on white in the page's light colours. says: description for screen readers."""
    style = (Path(__file__).parent / "page_style.html.j2").read_text(encoding="utf-8")
    colours: dict[str, str] = {}
    for name, value in re.findall(r"--([\w-]+): (#\w+);", style):
        colours.setdefault(name, value)  # the first one is that of the light page
    svg = re.sub(r"var\(--([\w-]+)\)", lambda found: colours[found[1]], svg.replace("currentColor", colours["ink"]))
    root = f'aria-label="{says}" xmlns="http://www.w3.org/2000/svg" style="font-family: system-ui, sans-serif"'
    svg = svg.replace('aria-hidden="true" focusable="false"', root, 1).replace("; font-family: inherit", "")
    head, end, body = svg.partition(">")
    return f'{head}{end}<rect width="100%" height="100%" fill="#fff"/>{body}'


_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tonnage",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "lines.linewidth": 1.9,
}


def colour(number: int) -> str:
    """Placeholder of the page's colour for the policy of that number."""
    return f"#0300{number % STYLES:02d}"


def dash(number: int) -> tuple[float, tuple[float, ...] | None]:
    return DASHES[number % len(DASHES)]


def _lines(axes: "Axes", x: Sequence[FloatArray], y: Sequence[FloatArray]) -> None:
    """One line per policy through the mean over its seeds, and a band from the least to the greatest seed."""
    for number, (along, rows) in enumerate(zip(x, y, strict=True)):
        seen = np.isfinite(rows).any(axis=0)
        if not seen.any():
            continue
        along, rows = along[seen], rows[:, seen]
        axes.plot(along, rows.mean(axis=0), color=colour(number), linestyle=dash(number))
        if len(rows) > 1:
            low, high = rows.min(axis=0), rows.max(axis=0)
            axes.fill_between(along, low, high, color=colour(number), alpha=0.18, linewidth=0)


def _allocation(axes: "Axes", summaries: Sequence[PolicySummary]) -> None:
    # Start of the axis: ten points before a policy first falls a point below the arrivals, on a multiple of five.
    short = [
        float(s.arrived_pct[np.argmax(behind)])
        for s in summaries
        if (behind := s.arrived_pct - s.allocation_pct.mean(axis=0) > 1).any()
    ]
    first = max(0.0, 5 * ((min(short, default=60.0) - 10) // 5))
    last = max(float(s.arrived_pct[-1]) for s in summaries)
    demand = np.array([first, min(100.0, last)])
    axes.plot(demand, demand, color=INK, linewidth=0.8, alpha=0.6)
    _lines(axes, [s.arrived_pct for s in summaries], [s.allocation_pct for s in summaries])
    axes.set_xlim(first, last)
    axes.set_ylim(first, 100)
    axes.set_xlabel("arrived demand, % of the fleet's GPUs")
    axes.set_ylabel("allocated, % of the fleet's GPUs")


def _fragmentation(axes: "Axes", summaries: Sequence[PolicySummary]) -> None:
    _lines(axes, [s.allocation_pct.mean(axis=0) for s in summaries], [s.fragmentation_pct for s in summaries])
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    axes.set_xlabel("allocated, % of the fleet's GPUs")
    axes.set_ylabel("fragments, % of the idle GPUs")


def _stranded(axes: "Axes", summaries: Sequence[PolicySummary]) -> None:
    _lines(axes, [s.arrived_pct for s in summaries], [s.stranded_per_hour for s in summaries])
    axes.set_xlim(0, max(float(s.arrived_pct[-1]) for s in summaries))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda dollars, _: f"{dollars:,.0f}")
    axes.set_xlabel("arrived demand, % of the fleet's GPUs")
    axes.set_ylabel("stranded, $ per hour")


def _decision(axes: "Axes", summaries: Sequence[PolicySummary]) -> None:
    for number, summary in enumerate(summaries):
        took_ms = summary.decision_ms.mean(axis=0)
        axes.plot(took_ms, 100 * QUANTILES, color=colour(number), linestyle=dash(number))
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda ms, _: f"{ms:g}")
    axes.set_ylim(0, 101)
    axes.set_xlabel("time per decision, milliseconds")
    axes.set_ylabel("decisions, %")
