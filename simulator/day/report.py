"""Report of a simulated day: allocated GPUs, waiting pods, prices, and planning times."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from simulator.day.simulation import HOUR_S, Moment, clock_words
from simulator.reports.charts import INK, Chart, colour, dash, drawn
from simulator.reports.page import Legend, Page, PageTable, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TERMS = {
    "allocated": "GPUs that a pod holds, as a fraction of the GPUs that are up; half a GPU counts as half.",
    "waiting": "Pods without a node, including services' instances.",
    "demand": "Request rate of the services, as a fraction of the day's peak.",
    "gap": "Fraction of a mix's price that is not proven to be needed; left out where every mix is proven cheapest.",
    "planning": "Real time from the controller's snapshot to its plan, on the machine of this run.",
}


def summary_of(day: Sequence[Moment]) -> tuple[tuple[str, str], ...]:
    """Figures of the day, as (word, figure)."""
    plan_ms = np.array([moment.plan_s for moment in day]) * 1000
    used = np.array([moment.gpus_used for moment in day])
    up = np.array([moment.gpus for moment in day])
    step_h = (day[1].at_s - day[0].at_s) / HOUR_S if len(day) > 1 else 0.0
    return (
        ("GPUs allocated, mean", f"{100 * used.sum() / max(up.sum(), 1):.1f} %"),
        ("most pods waiting", f"{max(moment.waiting for moment in day)}"),
        ("pods bound", f"{sum(moment.bound for moment in day):,}"),
        ("pods preempted", f"{sum(moment.evicted for moment in day):,}"),
        ("services scaled", f"{sum(moment.scaled for moment in day)} times"),
        ("actions that failed", f"{sum(moment.failed for moment in day)}"),
        ("services, whole day", f"${sum(moment.services_per_hour for moment in day) * step_h:,.2f}"),
        *_gap(day),
        ("planning p50 / p99", f"{np.quantile(plan_ms, 0.5):.0f} / {np.quantile(plan_ms, 0.99):.0f} ms"),
    )


def _gap(day: Sequence[Moment]) -> Iterator[tuple[str, str]]:
    """Widest optimality gap and number of plans that time cut short, where there are any."""
    widest, cut = max(moment.gap for moment in day), sum(moment.out_of_time > 0 for moment in day)
    if widest > 0:
        yield "widest gap of a service", f"{100 * widest:.1f} %"
    if cut:
        yield "plans that time cut short", f"{cut}"


def as_html(day: Sequence[Moment], facts: tuple[tuple[str, str], ...]) -> str:
    """Report as one HTML document."""
    figures = summary_of(day)
    events = tuple((clock_words(moment.at_s), words) for moment in day for words in moment.news)
    return render(
        Page(
            title="A day",
            lead="The controller's own loop in a simulated datacenter. No cluster was changed.",
            facts=facts,
            headline=f"{dict(figures)['GPUs allocated, mean']} of the GPUs were allocated; "
            f"{dict(figures)['pods bound']} pods were placed in {len(day)} cycles.",
            tables=(PageTable("The day in figures.", ("What", "Figure"), figures),),
            log=PageTable("What happened.", ("When", "What"), events),
            charts=tuple(_charts(day)),
            terms=TERMS,
            made_by="tonnage simulate day",
            legend=(
                Legend("the fleet", "var(--policy-0)", ""),
                Legend("demand of the services, fraction of its peak", "var(--policy-1)", " ".join(["12", "4"])),
            ),
        )
    )


def _charts(day: Sequence[Moment]) -> list[Chart]:
    hours = [moment.at_s / HOUR_S for moment in day]
    lost = [hour for hour, moment in zip(hours, day, strict=True) if any("is lost" in words for words in moment.news)]
    back = [hour for hour, moment in zip(hours, day, strict=True) if any("is back" in words for words in moment.news)]

    def chart(title: str, says: str, value: Callable[[Moment], float], *, tide: bool = False) -> Chart:
        def draw(axes: "Axes") -> None:
            values = [value(moment) for moment in day]
            axes.plot(hours, values, color=colour(0))
            if tide:
                axes.plot(hours, [100 * m.demand_share for m in day], color=colour(1), linestyle=dash(1))
            for hour in lost:
                axes.axvline(hour, color=INK, linewidth=0.8)
                axes.text(hour, axes.get_ylim()[1], " node lost", va="top", fontsize=8)
            for hour in back:
                axes.axvline(hour, color=INK, linewidth=0.8, linestyle=(0, (2, 2)))
            axes.set_xlim(hours[0], max(hours[-1], hours[0] + 0.1))
            axes.set_ylim(bottom=0)
            axes.set_xlabel("hour of the day")
            axes.set_ylabel(title.lower())

        return Chart(title, says, drawn(title, draw))

    return [
        chart(
            "GPUs allocated, %",
            "Fraction of the GPUs that are up. Higher is better.",
            lambda m: 100 * m.gpus_used / max(m.gpus, 1),
            tide=True,
        ),
        chart("Pods waiting", "Pods without a node after each cycle. Lower is better.", lambda m: m.waiting),
        chart(
            "Services, $ per hour",
            "Price of the services' instances: it follows their demand.",
            lambda m: m.services_per_hour,
        ),
        chart("Planning, ms", "Real time of each plan.", lambda m: 1000 * m.plan_s),
    ]
