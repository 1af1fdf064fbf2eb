"""Report of a simulated day: its result beside a baseline, charts, and the log."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simulator.day.simulation import HOUR_S, DayMoment, clock_words
from simulator.reports.charts import INK, STYLES, Chart, colour, dash, drawn, standalone
from simulator.reports.sweep_report import Legend, PageSection, PageTable, ReportPage, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TERMS = {
    "baseline": "The same day, jobs and failure, with every service on the one GPU type that serves its peak at the "
    "least cost, as many as its demand needs, and pods placed by best fit. Of either day only instances that run are "
    "paid for.",
    "allocated": "GPUs that a pod holds, as a fraction of the GPUs that are up; half a GPU counts as half.",
    "whole": "A service that has a mix, all of whose instances run. Dollars are compared over the hours in which "
    "every service is whole in both days: a day that lacks instances is cheaper for it.",
    "loading": "An instance is paid for from its start, and serves once its model is loaded, 150 s later.",
    "waiting": "Pods without a node, including services' instances.",
    "jobs": "Pods of no service: those of the manifests, and the copies of them that arrive during the day.",
    "demand": "Request rate of the services, as a fraction of the day's peak.",
    "gap": "Fraction of a mix's price that is not proven to be needed; left out where every mix is proven cheapest.",
    "planning": "Real time from the controller's snapshot to its plan, on the machine of this run.",
}
LOST, BACK = "node lost", "back"
REASONS = STYLES - 1
"""Reasons for waiting with a colour of their own; the rarer ones are drawn together."""


@dataclass(frozen=True, slots=True, eq=False)
class BaselineDay:
    """Moments of the baseline's day, and what each service runs on in it."""

    day: Sequence[DayMoment]
    types: Mapping[str, str]


def summary_of(day: Sequence[DayMoment], baseline: BaselineDay | None = None) -> tuple[tuple[str, ...], ...]:
    """Figures of the day, as (term, figure), or as (term, figure, baseline's figure) beside a baseline.

    None of them depends on the machine that simulates it.
    """
    whole = _whole_in_both(day, baseline) if baseline else None
    figures = dict(_figures(day, whole))
    if baseline is None:
        return tuple(figures.items())
    others = dict(_figures(baseline.day, whole))
    return tuple((name, figures.get(name, ""), others.get(name, "")) for name in {**figures, **others})


def _figures(day: Sequence[DayMoment], whole: Sequence[bool] | None) -> Iterator[tuple[str, str]]:
    used = np.array([moment.gpus_used for moment in day])
    up = np.array([moment.gpus for moment in day])
    yield "services, whole day", f"${services_cost(day):,.2f}"
    if whole is not None:
        yield f"services, the {sum(whole) * step_h(day):.1f} hours whole in both", f"${_cost_while(day, whole):,.2f}"
    yield "services whole, share of the day", f"{100 * whole_share(day):.1f} %"
    yield "services loading an instance, minutes", f"{sum(moment.loading_s for moment in day) / 60:.0f}"
    yield "paid for instances while they load", f"${sum(moment.loading_dollars for moment in day):,.2f}"
    yield "GPU hours of jobs", f"{jobs_hours(day):,.0f}"
    yield "pods waiting, mean", f"{np.mean([moment.waiting for moment in day]):.1f}"
    yield "most pods waiting", f"{max(moment.waiting for moment in day)}"
    yield "GPUs allocated, mean", f"{100 * used.sum() / max(up.sum(), 1):.1f} %"
    yield "pods bound", f"{sum(moment.bound for moment in day):,}"
    yield "pods preempted", f"{sum(moment.evicted for moment in day):,}"
    yield "services scaled", f"{sum(moment.scaled for moment in day)} times"
    yield "actions that failed", f"{sum(moment.failed for moment in day)}"
    widest, cut = max(moment.gap for moment in day), sum(moment.out_of_time > 0 for moment in day)
    if widest > 0:
        yield "widest gap of a service", f"{100 * widest:.1f} %"
    if cut:
        yield "plans that time cut short", f"{cut}"


def planning_words(day: Sequence[DayMoment]) -> str:
    """How long the plans took on this machine."""
    p50_ms, p99_ms = np.quantile([1000 * moment.plan_s for moment in day], (0.5, 0.99))
    return f"planning p50 / p99: {p50_ms:.0f} / {p99_ms:.0f} ms on this machine"


def step_h(day: Sequence[DayMoment]) -> float:
    """Hours between two moments."""
    return (day[1].at_s - day[0].at_s) / HOUR_S if len(day) > 1 else 0.0


def services_cost(day: Sequence[DayMoment]) -> float:
    """Dollars of the services' running instances over the day."""
    return sum(moment.services_per_hour for moment in day) * step_h(day)


def jobs_hours(day: Sequence[DayMoment]) -> float:
    """GPU hours that jobs held."""
    return sum(moment.jobs_gpus for moment in day) * step_h(day)


def served(day: Sequence[DayMoment]) -> frozenset[str]:
    """Services that were whole at some time."""
    return frozenset(name for moment in day for name in moment.whole)


def whole_share(day: Sequence[DayMoment]) -> float:
    """Fraction of the day during which services were whole, mean over those that ever were."""
    most = len(served(day)) * len(day)
    return sum(len(moment.whole) for moment in day) / most if most else 0.0


def _whole_in_both(day: Sequence[DayMoment], baseline: BaselineDay) -> list[bool]:
    """Whether every service that both days serve at some time is whole in both, moment by moment."""
    both = served(day) & served(baseline.day)
    return [both <= {*one.whole} & {*other.whole} for one, other in zip(day, baseline.day, strict=True)]


def _cost_while(day: Sequence[DayMoment], when: Sequence[bool]) -> float:
    """Dollars of the services' running instances in these moments."""
    return sum(moment.services_per_hour for moment, counts in zip(day, when, strict=True) if counts) * step_h(day)


def headline(day: Sequence[DayMoment], baseline: BaselineDay | None) -> str:
    """Result in a sentence; it names a saving only where the day serves all that the baseline serves."""
    cost = services_cost(day)
    if baseline is None:
        return f"Services cost ${cost:,.2f} for the day, and jobs held {jobs_hours(day):,.0f} GPU hours."
    other = services_cost(baseline.day)
    ours, theirs = f"{jobs_hours(day):,.0f}", f"{jobs_hours(baseline.day):,.0f}"
    rest = (
        f"Services were whole {_percent(whole_share(day))} of the day, against {_percent(whole_share(baseline.day))}. "
        f"Jobs held {ours} GPU hours, {'as many as' if ours == theirs else f'against {theirs}'} under best fit."
    )
    whole = _whole_in_both(day, baseline)
    then, then_other = _cost_while(day, whole), _cost_while(baseline.day, whole)
    missing = served(baseline.day) - served(day)
    if missing or not then_other:
        why = f", which serves {_names(missing)} too" if missing else ""
        return f"Services cost ${cost:,.2f} for the day, and ${other:,.2f} in the baseline{why}. {rest}"
    short = served(day) - served(baseline.day)
    lacks = f", which never had room for all of {_names(short)}" if short else ""
    return (
        f"In the {sum(whole) * step_h(day):.1f} hours in which every service ran whole in both days, services cost "
        f"${then:,.2f}: {_percent(abs(1 - then / then_other))} {'less' if then <= then_other else 'more'} than the "
        f"${then_other:,.2f} of the baseline, with each on its one cheapest GPU type ({_types(baseline.types)}) that "
        f"follows its demand too{lacks}. {rest}"
    )


def _percent(share: float, digits: int = 1) -> str:
    """Fraction as per cent, without a line break before the sign."""
    return f"{100 * share:.{digits}f}\u00a0%"


def _names(services: Iterable[str]) -> str:
    return ", ".join(sorted(services))


def _types(types: Mapping[str, str]) -> str:
    names = sorted(set(types.values()))
    if len(names) == 1:
        return f"{names[0]} for all"
    return ", ".join(f"{name.partition('/')[2] or name}: {gpu_type}" for name, gpu_type in sorted(types.items()))


def as_html(
    day: Sequence[DayMoment], facts: tuple[tuple[str, str], ...], baseline: BaselineDay | None = None, stopped: str = ""
) -> str:
    """Report as one HTML document. stopped: why the day is not complete."""
    events = tuple((clock_words(moment.at_s), text) for moment in day for text in moment.news)
    counts = (
        (sum(moment.evicted for moment in day), "pods preempted"),
        (sum(moment.scaled for moment in day), "changes of mixes"),
        (sum(moment.failed for moment in day), "actions that failed"),
    )
    nodes = [f"{text} at {at}" for at, text in events if text.startswith("node ")]
    in_short = "; ".join([*nodes, *(f"{count} {what}" for count, what in counts if count)]) or "nothing"
    columns = ("What", "Tonnage", "Baseline") if baseline else ("What", "Tonnage")
    lines = [Legend("Tonnage", "var(--policy-0)", "")]
    if baseline:
        lines.append(Legend("baseline", "var(--policy-2)", _DASHES))
    lines.append(Legend("demand of the services, % of its peak", "var(--policy-1)", "2 3"))
    terms = {term: meaning for term, meaning in TERMS.items() if baseline or term != "baseline"}
    examples = {code: words for moment in day for code, words in moment.why.items()}
    terms |= {code: f"Reason for waiting, such as: {words}" for code, words in sorted(examples.items())}
    return render(
        ReportPage(
            title="A day",
            lead="The controller's own loop in a simulated datacenter. No cluster was changed.",
            facts=(*facts, ("planning", planning_words(day))),
            headline=headline(day, baseline),
            sections=(
                PageSection(
                    (PageTable("The day in figures.", columns, summary_of(day, baseline)),),
                    tuple(_charts(day, baseline.day if baseline else ())),
                    tuple(lines),
                ),
            ),
            log=PageTable(f"What happened: {in_short}.", ("When", "What"), events),
            terms=terms,
            made_by="tonnage simulate day",
            warning=stopped,
        )
    )


_DASHES = "9 4"


def as_picture(day: Sequence[DayMoment], baseline: BaselineDay | None = None) -> str:
    """The services' cost over the day as an SVG file, beside the baseline's, which is dotted where instances lack."""
    whole = _whole_in_both(day, baseline) if baseline else [True] * len(day)
    hours = f"{sum(whole) * step_h(day):.0f} hours"

    def draw(axes: "Axes") -> None:
        ours = f"Tonnage: all run {_percent(whole_share(day))} of the day; ${_cost_while(day, whole):,.0f}"
        ours += f" in the {hours} when both are whole" if baseline else ""
        axes.plot(_hours(day), [moment.services_per_hour for moment in day], color=colour(0), label=ours)
        if baseline:
            of_all, at_h = served(baseline.day), _hours(baseline.day)
            is_whole = np.array([of_all <= {*moment.whole} for moment in baseline.day])
            # The steps to and from a moment that lacks instances are dotted, too.
            lacks = ~is_whole
            lacks[1:] |= ~is_whole[:-1]
            lacks[:-1] |= ~is_whole[1:]
            cost = np.array([moment.services_per_hour for moment in baseline.day])
            figures = f"{_percent(whole_share(baseline.day))}; ${_cost_while(baseline.day, whole):,.0f}"
            theirs = f"one type per service that follows demand, too: {figures} (dotted: not all run)"
            axes.plot(at_h, np.where(is_whole, cost, np.nan), color=colour(2), linestyle=dash(1), label=theirs)
            axes.plot(at_h, np.where(lacks, cost, np.nan), color=colour(2), linestyle=dash(2), linewidth=1)
        legend = axes.legend(
            loc="lower left", bbox_to_anchor=(-0.08, 1.06), frameon=False, fontsize=9, alignment="left"
        )
        legend.set_title("The services of a simulated day, $ per hour")
        legend.get_title().set_fontweight("bold")
        _over_the_day(axes, day, "$ per hour")

    says = "Dollars per hour of the services over a simulated day in which a node is lost"
    return standalone(drawn("day", draw, (6.8, 4.3)), says)


def _charts(day: Sequence[DayMoment], other: Sequence[DayMoment]) -> Iterator[Chart]:
    def chart(title: str, says: str, value: Callable[[DayMoment], float], *, tide: bool = False) -> Chart:
        def draw(axes: "Axes") -> None:
            axes.plot(_hours(day), [value(moment) for moment in day], color=colour(0))
            if other:  # dashes on top: both lines are seen where they are one
                axes.plot(_hours(other), [value(moment) for moment in other], color=colour(2), linestyle=dash(1))
            if tide:
                axes.plot(_hours(day), [100 * m.demand_share for m in day], color=colour(1), linestyle=dash(2))
            _over_the_day(axes, day, title)

        return Chart(title, says, drawn(title, draw))

    yield chart(
        "Services, $ per hour",
        "Price of the services' running instances, on spot nodes at the spot price. Lower is better.",
        lambda m: m.services_per_hour,
    )
    yield chart("GPUs of jobs", "GPUs that pods of no service hold. Higher is better.", lambda m: m.jobs_gpus)
    yield chart("Pods waiting", "Pods without a node after each cycle. Lower is better.", lambda m: m.waiting)
    yield _why_pods_wait(day)
    yield chart(
        "GPUs allocated, %",
        "Fraction of the GPUs that are up, for services and jobs together.",
        lambda m: 100 * m.gpus_used / max(m.gpus, 1),
        tide=True,
    )
    yield chart("Planning, ms", "Real time of each plan; it rises with the pods that wait.", lambda m: 1000 * m.plan_s)


def _why_pods_wait(day: Sequence[DayMoment]) -> Chart:
    """Waiting pods by reason, stacked; the commonest reasons at the bottom."""
    title = "Why pods wait"
    totals = Counter[str]()
    for moment in day:
        totals.update(moment.waits)
    named = [code for code, _ in totals.most_common(REASONS)]
    rest = [code for code in totals if code not in named]
    layers = {code: [moment.waits.get(code, 0) for moment in day] for code in named}
    if rest:
        layers["other reasons"] = [sum(moment.waits.get(code, 0) for code in rest) for moment in day]

    def draw(axes: "Axes") -> None:
        if layers:
            colours = [colour(number) for number in range(len(layers))]
            areas = axes.stackplot(_hours(day), *layers.values(), labels=list(layers), colors=colours, step="post")
            handles = list(zip(areas, layers, strict=True))[::-1]
            axes.legend(*zip(*handles, strict=True), loc="upper left", fontsize=8, frameon=False)
        _over_the_day(axes, day, "pods waiting")

    return Chart(
        title, "Waiting pods of Tonnage's day, by the reason that the plan gives for them.", drawn(title, draw)
    )


def _hours(day: Sequence[DayMoment]) -> list[float]:
    return [moment.at_s / HOUR_S for moment in day]


def _over_the_day(axes: "Axes", day: Sequence[DayMoment], label: str) -> None:
    """Axes that all charts share, with the instants at which a node failed and came back."""
    hours = _hours(day)
    axes.set_xlim(hours[0], max(hours[-1], hours[0] + 0.1))
    axes.set_ylim(bottom=0)
    for hour, event in _failures(day):
        axes.axvline(hour, color=INK, linewidth=0.8, linestyle=dash(2))
        side = "right" if event == LOST else "left"
        axes.text(hour, 1.01, event, transform=axes.get_xaxis_transform(), ha=side, va="bottom", fontsize=8)
    axes.set_xlabel("hour of the day")
    axes.set_ylabel(label[:1].lower() + label[1:] if label[1:2].islower() else label)


def _failures(day: Sequence[DayMoment]) -> Iterable[tuple[float, str]]:
    before = ""
    for moment in day:
        if moment.lost != before:
            yield moment.at_s / HOUR_S, LOST if moment.lost else BACK
        before = moment.lost
