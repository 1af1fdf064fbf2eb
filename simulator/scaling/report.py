"""Report of a scaling replay: load, forecast and capacity, what was missed, and the dollars between policies."""

from typing import TYPE_CHECKING

import numpy as np

from cluster.arrays import FloatArray
from simulator.reports.charts import INK, Chart, colour, dash, drawn
from simulator.reports.sweep_report import PageSection, PageTable, ReportPage, legend_of, render
from simulator.scaling import replay, study, traces

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_LEVELS = (0.5, 0.9, 0.99)

TERMS = {
    "oracle": "Perfect foresight with the same lead time: the fewest replica-hours without a miss.",
    "ratio": "Replica-hours from order to stop, over the oracle's.",
    "J": "Ratio + 99 × shortfall, the load that no ready replica served over the oracle's replica-hours: the cost of a "
    "policy in units of the oracle's, where missed load costs 99 times the capacity that would have served it.",
    "violations": "Steps with more load than ready capacity, as a fraction of those whose load is known.",
    "changes": "Changes of direction of the number of replicas, a day.",
    "forecast": "Quantiles of the load as they were forecast one lead time earlier, when a start could still help.",
}


def rows_of(compared: study.Compared) -> tuple[tuple[str, ...], ...]:
    """Figures of each policy: name, dollars, dollars more than the first, ratio, J, violations, changes."""
    first = compared.dollars(compared.results[0]).total
    rows = []
    for result in compared.results:
        dollars, score = compared.dollars(result), result.score
        rows.append(
            (
                result.policy,
                f"{dollars.replicas:,.0f}",
                f"{dollars.missed:,.0f}",
                f"{dollars.total:,.0f}",
                f"{dollars.total - first:+,.0f}",
                f"{score.gpu_hours_ratio:.3f}",
                f"{score.j:.3f}",
                f"{score.violation_minutes_pct:.2f} %",
                f"{score.direction_changes_per_day:.1f}",
            )
        )
    return tuple(rows)


COLUMNS = ("policy", "replicas $", "missed $", "total $", "difference $", "ratio", "J", "violations", "changes/day")


def as_html(compared: study.Compared, facts: tuple[tuple[str, str], ...]) -> str:
    """Report as one HTML document."""
    scenario = compared.scenario
    days, trained = _days(scenario.load, scenario), _days(scenario.trained, scenario)
    first = compared.results[0]
    per_day = min(round(traces.DAY_S / compared.scenario.step_s), len(compared.scenario.load))
    busiest = int(np.argmax(compared.scenario.demand)) // per_day * per_day
    start = min(busiest, len(compared.scenario.load) - per_day)
    day = slice(start, start + per_day)
    charts = (
        Chart(
            "Load, forecast and capacity on the busiest day",
            f"Load (thick), its forecast quantiles 0.5, 0.9 and 0.99 (thin), and {first.policy}'s ready replicas.",
            drawn("scaling-day", lambda axes: _draw_day(axes, compared, day)),
        ),
        Chart(
            "Dollars by policy",
            "Replica-hours (lower part) and missed load (upper part).",
            drawn("scaling-dollars", lambda axes: _draw_dollars(axes, compared)),
        ),
    )
    table = PageTable(f"{days:.1f} days under each policy.", COLUMNS, rows_of(compared))
    return render(
        ReportPage(
            title=f"Scaling of {scenario.trace}",
            lead=f"{days:.1f} days of load replayed under several scaling policies, after {trained:.1f} days of "
            f"training; a replica is ready {compared.lead_s / 60:g} minutes after its order. Nothing was scaled.",
            facts=facts,
            headline=_headline(compared),
            sections=(PageSection((table,), charts, legend_of(result.policy for result in compared.results)),),
            terms=TERMS,
            made_by="tonnage scaling backtest",
        )
    )


def _days(load: FloatArray, scenario: replay.LoadScenario) -> float:
    return len(load) * scenario.step_s / traces.DAY_S


def _headline(compared: study.Compared) -> str:
    first = compared.results[0]
    others = [result for result in compared.results[1:] if result.policy != "oracle"]
    cost = compared.dollars(first).total
    if not others:
        return f"{first.policy} costs ${cost:,.0f}, replicas and missed load together."
    best = min(others, key=lambda each: compared.dollars(each).total)
    rival = compared.dollars(best).total
    word = "less" if cost <= rival else "more"
    return (
        f"{first.policy} costs ${cost:,.0f}, replicas and missed load together: {100 * abs(1 - cost / rival):.1f} % "
        f"{word} than {best.policy}, the cheapest of the others."
    )


def _draw_day(axes: "Axes", compared: study.Compared, day: slice) -> None:
    scenario = compared.scenario
    hours = np.arange(day.stop - day.start) * scenario.step_s / 3600.0
    steps = np.arange(day.start, day.stop)
    for number, row in enumerate(_forecast_before(compared, steps)):
        axes.plot(hours, row, color=colour(1), linestyle=dash(number), linewidth=0.8)
    axes.step(hours, compared.results[0].run.ready[day], where="post", color=colour(0))
    axes.plot(hours, scenario.load[day], color=INK, linewidth=1.2)
    axes.set_xlim(0, hours[-1])
    axes.set_ylim(0, 1.6 * float(np.nanmax(scenario.demand[day])))
    axes.set_xlabel("hour of the day")
    axes.set_ylabel("replicas")


def _forecast_before(compared: study.Compared, steps: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> FloatArray:
    """Quantiles for each step as forecast one lead time before it, shape (levels, steps); NaN where there was none."""
    scenario = compared.scenario
    found = np.full((len(_LEVELS), len(steps)), np.nan)
    for column, step in enumerate(steps.tolist()):
        made = step - round(compared.lead_s / scenario.step_s)
        forecast = compared.forecasts[made] if made >= 0 else None
        if forecast is not None:
            lead_s = scenario.start_s + step * scenario.step_s - forecast.made_at_s
            found[:, column] = [forecast.quantile(level, lead_s) for level in _LEVELS]
    return found


def _draw_dollars(axes: "Axes", compared: study.Compared) -> None:
    names = [result.policy for result in compared.results]
    for number, result in enumerate(compared.results):
        dollars = compared.dollars(result)
        axes.bar(number, dollars.replicas, color=colour(number))
        axes.bar(number, dollars.missed, bottom=dollars.replicas, color=colour(number), alpha=0.5)
    axes.set_xticks(range(len(names)), names, rotation=30)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylabel("dollars")
